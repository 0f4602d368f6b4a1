//! `Facts`: what polls have shown of each epoch, kept across restarts of Tidegate.
//!
//! Joined by maximum; never raised by a capture, which anybody could write.

use std::collections::BTreeMap;

use crate::lineage::Epoch;
use crate::position::Position;
use crate::views::NodeId;

/// Epochs whose facts are kept; the oldest by storage order go first.
const FACTS_MAX: usize = 256;

/// What polls have shown of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochFacts {
    /// The node that led it; `None` if it is not configured any more, or an operator vouched that
    /// it holds nothing of it.
    pub node: Option<NodeId>,
    /// The highest flush position seen.
    pub flush_seen: Position,
    /// Says whether that position, as printed, was the first byte of a page.
    pub flush_starts_page: bool,
    /// The replay position its leader showed; `None` inside: it showed none.
    pub replay: Option<Option<Position>>,
    /// The node was seen in recovery after this epoch.
    pub ended: bool,
}

/// The facts of all epochs of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    epochs: BTreeMap<Epoch, EpochFacts>,
}

impl EpochFacts {
    /// Joins what another observer has seen of the same epoch.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let ahead = other.flush_seen.covers(self.flush_seen) && other.flush_seen != self.flush_seen;
        Self {
            node: self.node.or(other.node),
            flush_seen: self.flush_seen.join(other.flush_seen),
            flush_starts_page: if ahead { other.flush_starts_page } else { self.flush_starts_page },
            replay: other.replay.or(self.replay),
            ended: self.ended || other.ended,
        }
    }
}

impl Facts {
    /// No facts.
    pub const fn new() -> Self {
        Self { epochs: BTreeMap::new() }
    }

    /// What is known of `epoch`.
    pub fn of(&self, epoch: Epoch) -> Option<&EpochFacts> {
        self.epochs.get(&epoch)
    }

    /// The highest flush position seen in `epoch`.
    pub fn flush_seen(&self, epoch: Epoch) -> Option<Position> {
        self.of(epoch).map(|facts| facts.flush_seen)
    }

    /// Joins facts of one epoch in; says whether anything changed.
    pub fn join(&mut self, epoch: Epoch, facts: EpochFacts) -> bool {
        let joined = self.epochs.get(&epoch).map_or(facts, |own| own.join(facts));
        let changed = self.epochs.insert(epoch, joined) != Some(joined);
        while self.epochs.len() > FACTS_MAX {
            self.epochs.pop_first();
        }
        changed
    }

    /// Notes that `node` was seen in recovery: every epoch it led has ended.
    pub fn end_all_of(&mut self, node: NodeId) -> bool {
        let mut changed = false;
        for facts in self.epochs.values_mut().filter(|f| f.node == Some(node) && !f.ended) {
            facts.ended = true;
            changed = true;
        }
        changed
    }

    /// Forgets that `node` led the epochs it has ended: an operator vouches for what it holds now.
    pub fn disown(&mut self, node: NodeId) -> bool {
        let mut changed = false;
        for facts in self.epochs.values_mut().filter(|f| f.node == Some(node) && f.ended) {
            facts.node = None;
            changed = true;
        }
        changed
    }

    /// The epoch `node` was last known writable in, unless it has ended.
    pub fn last_led_by(&self, node: NodeId) -> Option<Epoch> {
        let mut led = self.epochs.iter().filter(|(_, facts)| facts.node == Some(node));
        led.next_back().filter(|(_, facts)| !facts.ended).map(|(epoch, _)| *epoch)
    }

    /// All epochs with their facts, in storage order.
    pub fn iter(&self) -> impl Iterator<Item = (Epoch, EpochFacts)> + '_ {
        self.epochs.iter().map(|(epoch, facts)| (*epoch, *facts))
    }
}
