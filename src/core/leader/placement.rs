//! `Origin`: what a new epoch grew from, as the node that leads it shows.
//!
//! The parent is the last lineage row the node shows. A fork is claimed only as far as it is
//! proven: a first leader, a clean restart, a statistics reset and a promotion are told apart; a
//! crash on the same timeline is left unknown.

use super::{EpochFacts, Facts};
use crate::evidence::{Evidence, Role};
use crate::guards::Guards;
use crate::lineage::{Epoch, Fork};
use crate::position::Position;
use crate::views::NodeView;

/// What an epoch grew from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The epoch before it; `None` for a root.
    pub parent: Option<Epoch>,
    /// Where that one ended.
    pub fork: Fork,
}

impl Origin {
    /// Places the epoch `evidence` was read in, by what is known of its parent.
    ///
    /// `view` is what was seen of that incarnation before; `None` if nothing. The answer is `None`
    /// in recovery.
    pub fn of(
        evidence: &Evidence,
        view: Option<&NodeView>,
        facts: &Facts,
        guards: &Guards,
    ) -> Option<Self> {
        let Role::Writable { timeline, insert, .. } = evidence.role else { return None };
        let Some(parent) = evidence.row else {
            return Some(Self { parent: None, fork: Fork::Unknown });
        };
        if timeline < parent.timeline {
            // No server goes back by itself: whatever this is, it continues nothing we know.
            return Some(Self { parent: None, fork: Fork::Unknown });
        }
        let life = evidence.incarnation.life;
        let known = facts.of(parent);
        let view = view.filter(|view| view.incarnation == evidence.incarnation);
        let fork = if timeline > parent.timeline {
            let one_step = timeline == parent.timeline.saturating_add(1);
            promotion((evidence.replay, insert), one_step, parent, view, known, guards)
        } else {
            known.map_or(Fork::Unknown, |known| {
                let same_start = life.start == parent.life.start;
                let same_reset = life.reset == parent.life.reset;
                let counters_reset = same_start && known.replay == Some(evidence.replay);
                // Later positions have grown: only the first one says where a restart ended.
                let is_first = view.is_none();
                let clean_restart = !same_start
                    && same_reset
                    && is_first
                    && evidence.replay.is_none()
                    && insert.covers(known.flush_seen);
                if counters_reset || clean_restart { Fork::Unbounded } else { Fork::Unknown }
            })
        };
        Some(Self { parent: Some(parent), fork })
    }
}

/// The fork of a promotion: nothing past the frozen replay position survives; what the parent was
/// seen to flush before it surely does, if this very incarnation was seen following it.
fn promotion(
    (frozen, insert): (Option<Position>, Position),
    one_step: bool,
    parent: Epoch,
    view: Option<&NodeView>,
    known: Option<&EpochFacts>,
    guards: &Guards,
) -> Fork {
    let at_most = frozen.unwrap_or(insert);
    if !guards.fork_interval() {
        return Fork::between(at_most, at_most);
    }
    let flush_seen = known.map_or(Position::START, |facts| facts.flush_seen);
    let seen_in_recovery = view.is_some_and(|view| view.in_recovery_at.is_some());
    let proven = view.and_then(|view| view.proven_under(parent)).unwrap_or(Position::START);
    // Where it does not show where it stopped following, its own writes must not vouch for the
    // parent's.
    let at_least = match frozen {
        Some(frozen) if one_step && seen_in_recovery => frozen,
        Some(_) | None => proven.meet(at_most),
    };
    Fork::between(at_least.meet(flush_seen), at_most)
}
