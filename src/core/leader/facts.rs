//! `Facts`: what polls have shown of each epoch, kept across restarts of Tidegate.
//!
//! Joined by maximum; never raised by a capture, which anybody could write.

use std::collections::BTreeMap;

use super::{Origin, Words};
use crate::lineage::Epoch;
use crate::position::Position;
use crate::views::NodeId;

/// Epochs whose facts are kept while those of others can be spared.
const FACTS_MAX: usize = 256;
/// Epochs beyond which nothing is learned of another: what is not known covers nothing.
const FACTS_LIMIT: usize = 4 * FACTS_MAX;

/// What polls have shown of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochFacts {
    /// The node that led it; `None` if it is not configured any more.
    pub node: Option<NodeId>,
    /// The highest flush position seen.
    pub flush_seen: Position,
    /// Says whether that position, as printed, was the first byte of a page.
    pub flush_starts_page: bool,
    /// The replay position its leader showed; `None` inside: it showed none.
    pub replay: Option<Option<Position>>,
    /// What it grew from, as far as that was told; `None`: it was not.
    pub origin: Option<Origin>,
    /// Its leader came back as a copy of an older day: what followed it before may be ahead of it.
    pub is_restored: bool,
    /// The node was seen in recovery after this epoch.
    pub ended: bool,
}

/// The facts of all epochs of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    epochs: BTreeMap<Epoch, EpochFacts>,
    words: Words,
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
            origin: match (self.origin, other.origin) {
                (Some(own), Some(other)) => Some(own.join(other)),
                (own, other) => own.or(other),
            },
            is_restored: self.is_restored || other.is_restored,
            ended: self.ended || other.ended,
        }
    }
}

impl Facts {
    /// No facts.
    pub const fn new() -> Self {
        Self { epochs: BTreeMap::new(), words: Words::new() }
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
        let own = self.epochs.get(&epoch);
        if own.is_none() && self.epochs.len() >= FACTS_LIMIT {
            return false;
        }
        let joined = own.map_or(facts, |own| own.join(facts));
        self.epochs.insert(epoch, joined) != Some(joined)
    }

    /// Joins all that another observer knows in; says whether anything changed.
    pub fn merge(&mut self, other: &Self) -> bool {
        let mut changed = self.words.join(&other.words);
        for (epoch, facts) in &other.epochs {
            changed |= self.join(*epoch, *facts);
        }
        changed
    }

    /// Forgets facts that can be spared, the oldest by storage order first, while there are many.
    ///
    /// Those of a line that no head continues must stay: they are all that is known of a former
    /// twin.
    pub fn trim(&mut self, can_be_spared: impl Fn(Epoch) -> bool) {
        let excess = self.epochs.len().saturating_sub(FACTS_MAX);
        let spared = self.epochs.iter().filter(|(epoch, facts)| {
            let vouched = facts.ended && self.words.is_resumed(epoch.life);
            facts.node.is_none() || vouched || can_be_spared(**epoch)
        });
        let spared: Vec<Epoch> = spared.map(|(epoch, _)| *epoch).take(excess).collect();
        for epoch in spared {
            self.epochs.remove(&epoch);
        }
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

    /// What an operator has said.
    pub const fn words(&self) -> &Words {
        &self.words
    }

    /// What an operator has said, to add to it.
    pub const fn words_mut(&mut self) -> &mut Words {
        &mut self.words
    }

    /// An operator vouches for what `node` holds of the epochs it led, but for those `excepted`,
    /// and of what it followed before a leader was restored.
    pub fn vouch(&mut self, node: NodeId, excepted: impl Fn(Epoch) -> bool) -> bool {
        let (mut led, mut followed) = (Vec::new(), Vec::new());
        for (epoch, facts) in &self.epochs {
            if facts.node != Some(node) {
                followed.extend(facts.is_restored.then_some(*epoch));
            } else if !excepted(*epoch) {
                led.push(epoch.life);
            }
        }
        let mut changed = false;
        for life in led {
            changed |= self.words.resume(life);
        }
        for epoch in followed {
            changed |= self.words.resume_follower(epoch, node);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::Life;

    fn epoch(life: i64) -> Epoch {
        Epoch::new(1, Life { start: life, reset: life })
    }

    fn led_by(node: u16) -> EpochFacts {
        EpochFacts {
            node: Some(NodeId::new(node)),
            flush_seen: Position::START,
            flush_starts_page: false,
            replay: None,
            origin: None,
            is_restored: false,
            ended: true,
        }
    }

    #[test]
    fn a_leader_that_restarts_for_ever_does_not_wash_out_a_former_twin() {
        let (twin, mut facts) = (epoch(0), Facts::new());
        facts.join(twin, led_by(1));
        for life in 1..2_000 {
            facts.join(epoch(life), led_by(0));
            facts.trim(|epoch| epoch != twin);
            assert!(facts.epochs.len() <= FACTS_MAX);
        }
        assert_eq!(facts.of(twin), Some(&led_by(1)));
    }

    #[test]
    fn what_cannot_be_spared_is_bounded_and_never_replaced() {
        let mut facts = Facts::new();
        for life in 0..5_000 {
            facts.join(epoch(life), led_by(0));
            facts.trim(|_| false);
        }
        assert_eq!(facts.epochs.len(), FACTS_LIMIT);
        assert!(facts.of(epoch(0)).is_some() && facts.of(epoch(4_999)).is_none());
    }
}
