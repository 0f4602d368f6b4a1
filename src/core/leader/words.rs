//! `Words`: what an operator has said of a partition, which observations cannot show.
//!
//! A verdict names the line that counts; a resumed life is vouched for, by the operator or by its
//! node, which was made anew and leads in its place. No word makes a node fresh.

use std::collections::BTreeSet;

use crate::lineage::{Epoch, History, Life};
use crate::views::NodeId;

/// Resumed lives that are remembered; forgetting one makes its node wait for the operator again.
const RESUMED_MAX: usize = 256;

/// The operator's choice among writable nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Higher than that of every verdict before it: the highest stands.
    pub number: u64,
    /// The epoch that counts.
    pub winner: Epoch,
    /// The other heads known then: they and what grew from them no longer count.
    pub aside: BTreeSet<Epoch>,
}

/// What an operator has said of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Words {
    verdict: Option<Verdict>,
    resumed: BTreeSet<Life>,
    /// Nodes cloned anew after the leader of an epoch had been restored.
    followers: BTreeSet<(Epoch, NodeId)>,
}

impl Words {
    /// Nothing said yet.
    pub const fn new() -> Self {
        Self { verdict: None, resumed: BTreeSet::new(), followers: BTreeSet::new() }
    }

    /// The verdict that stands.
    pub const fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// The lives vouched for, in storage order.
    pub fn resumed(&self) -> impl Iterator<Item = Life> + '_ {
        self.resumed.iter().copied()
    }

    /// Says whether what a server holds of this life is vouched for.
    pub fn is_resumed(&self, life: Life) -> bool {
        self.resumed.contains(&life)
    }

    /// Takes a verdict in; the highest number stands. Says whether anything changed.
    pub fn judge(&mut self, verdict: Verdict) -> bool {
        // Were the numbers used up, the last word counts. Of two that operators gave to two
        // instances at once, all must choose the same.
        let stands = self.verdict.as_ref().is_some_and(|known| {
            let rank = |verdict: &Verdict| (verdict.number, verdict.winner);
            rank(known) >= rank(&verdict) && known.number != u64::MAX
        });
        if !stands {
            self.verdict = Some(verdict);
        }
        !stands
    }

    /// Takes a resumed life in; says whether anything changed.
    pub fn resume(&mut self, life: Life) -> bool {
        let is_new = self.resumed.insert(life);
        while self.resumed.len() > RESUMED_MAX {
            self.resumed.pop_first();
        }
        is_new
    }

    /// The nodes that may follow each restored leader, in storage order.
    pub fn resumed_followers(&self) -> impl Iterator<Item = (Epoch, NodeId)> + '_ {
        self.followers.iter().copied()
    }

    /// Says whether an operator vouched for `node` since the leader of `restored` came back.
    pub fn is_resumed_follower(&self, restored: Epoch, node: NodeId) -> bool {
        self.followers.contains(&(restored, node))
    }

    /// Takes in that `node` may follow a restored leader; says whether anything changed.
    pub fn resume_follower(&mut self, restored: Epoch, node: NodeId) -> bool {
        let is_new = self.followers.insert((restored, node));
        while self.followers.len() > RESUMED_MAX {
            self.followers.pop_first();
        }
        is_new
    }

    /// Joins what another observer was told.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut changed = other.verdict.clone().is_some_and(|verdict| self.judge(verdict));
        for life in &other.resumed {
            changed |= self.resume(*life);
        }
        for (restored, node) in &other.followers {
            changed |= self.resume_follower(*restored, *node);
        }
        changed
    }

    /// Says whether `epoch` is, or grew from, a head the verdict set aside, other than through the
    /// winner.
    pub fn sets_aside(&self, epoch: Epoch, history: &History) -> bool {
        let Some(verdict) = &self.verdict else { return false };
        // A winner that restarts before its row stands shows its parent under that number again.
        let parent = |epoch| history.origin(epoch).and_then(|(parent, _)| parent);
        let is_again = |grown: &Epoch| {
            grown.timeline == verdict.winner.timeline
                && parent(*grown).is_some()
                && parent(*grown) == parent(verdict.winner)
        };
        for grown in history.chain(epoch) {
            if verdict.aside.contains(&grown) {
                return true;
            }
            if grown == verdict.winner || is_again(&grown) {
                return false;
            }
        }
        false
    }

    /// Says whether `leader` is the verdict's winner or went on from it by restarts alone.
    pub fn stands_for(&self, leader: Epoch, history: &History) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| {
            verdict.winner.timeline == leader.timeline && history.descends(leader, verdict.winner)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Fork, LineageRow};

    fn life(number: i64) -> Life {
        Life { start: number, reset: number }
    }

    fn epoch(timeline: u32, number: i64) -> Epoch {
        Epoch::new(timeline, life(number))
    }

    fn verdict(number: u64, winner: Epoch, aside: &[Epoch]) -> Verdict {
        Verdict { number, winner, aside: aside.iter().copied().collect() }
    }

    #[test]
    fn the_highest_verdict_stands_in_whatever_order_they_come() {
        let (first, second) = (verdict(1, epoch(1, 1), &[]), verdict(2, epoch(2, 2), &[]));
        let (mut one, mut other) = (Words::new(), Words::new());
        assert!(one.judge(first.clone()) && one.judge(second.clone()));
        assert!(other.judge(second.clone()) && !other.judge(first));
        assert_eq!(one, other);
        assert_eq!(one.verdict(), Some(&second));
    }

    #[test]
    fn of_two_verdicts_given_at_once_all_choose_the_same() {
        let (first, second) = (verdict(1, epoch(1, 1), &[]), verdict(1, epoch(2, 2), &[]));
        let (mut one, mut other) = (Words::new(), Words::new());
        assert!(one.judge(first.clone()) && other.judge(second.clone()));
        let (told, heard) = (one.clone(), other.clone());
        assert!(one.join(&heard) && !other.join(&told));
        assert_eq!(one, other);
        assert_eq!(one.verdict(), Some(&second));
    }

    #[test]
    fn what_grew_from_a_loser_is_aside_except_through_the_winner() {
        let (old, won) = (epoch(1, 1), epoch(2, 2));
        let (of_old, of_won) = (epoch(1, 3), epoch(3, 4));
        let mut history = History::new();
        for (epoch, parent) in
            [(old, None), (won, Some(old)), (of_old, Some(old)), (of_won, Some(won))]
        {
            let row = LineageRow { epoch, parent, fork: Fork::Unknown, n: 1 };
            history.read_row(row).expect("rows agree");
        }
        let mut words = Words::new();
        words.judge(verdict(1, won, &[old]));
        let aside = [old, of_old, won, of_won].map(|epoch| words.sets_aside(epoch, &history));
        assert_eq!(aside, [true, true, false, false]);
        let stands = [won, of_won, old].map(|epoch| words.stands_for(epoch, &history));
        assert_eq!(stands, [true, false, false], "a promotion after it needs no verdict");
    }

    #[test]
    fn an_operator_who_resumes_for_ever_fills_nothing() {
        let mut words = Words::new();
        for number in 0..5_000 {
            words.resume(life(number));
        }
        assert_eq!(words.resumed().count(), RESUMED_MAX);
        assert!(words.is_resumed(life(4_999)) && !words.is_resumed(life(0)));
    }
}
