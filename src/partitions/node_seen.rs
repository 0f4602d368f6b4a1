//! What changed of a node with one poll, as far as an operator counts it. It decides nothing.

use tidegate_core::lineage::Incarnation;
use tidegate_core::position::Position;
use tidegate_core::snapshot::Snapshot;
use tidegate_core::views::{NodeId, Quarantine, ViewRole};

/// What a snapshot says of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeSeen {
    incarnation: Incarnation,
    /// Up to where it has applied.
    pub(super) applied: Option<Position>,
    regressed: bool,
    /// It was seen writable, and it does not lead.
    pub(super) is_beside_leader: bool,
}

impl NodeSeen {
    /// What is known of `node` now; `None`: it was never seen.
    pub(super) fn of(snapshot: &Snapshot, node: NodeId) -> Option<Self> {
        let view = snapshot.view(node)?;
        let leads = snapshot.leadership.leader().is_some_and(|leader| leader.node == node);
        Some(Self {
            incarnation: view.incarnation,
            applied: view.applied,
            regressed: view.quarantine == Some(Quarantine::Regressed),
            is_beside_leader: matches!(view.role, ViewRole::Writable(_)) && !leads,
        })
    }

    /// Says whether it now shows a lower position than `before`: in another life, or in the same.
    pub(super) fn went_back(self, before: Self) -> bool {
        let is_lower = || match (before.applied, self.applied) {
            (Some(before), Some(now)) => !now.covers(before),
            (Some(_) | None, None) | (None, Some(_)) => false,
        };
        (self.regressed && !before.regressed)
            || (self.incarnation != before.incarnation && is_lower())
    }
}
