//! Which fault comes in which round, drawn from a seed before the run begins.

use fastrand::Rng;

use super::fault::Kind;
use crate::install::Major;

/// One round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) kind: Kind,
    /// What else is drawn in this round.
    pub(super) seed: u64,
}

/// Draws rounds one by one: every kind before any comes again.
#[derive(Debug)]
pub(super) struct Schedule {
    rng: Rng,
    kinds: Vec<Kind>,
    bag: Vec<Kind>,
    drawn: u64,
}

impl Schedule {
    /// Of these kinds.
    pub(super) fn of(kinds: &[Kind], seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), kinds: kinds.to_vec(), bag: Vec::new(), drawn: 0 }
    }

    /// How often every kind has been drawn.
    pub(super) fn turns(&self) -> u64 {
        self.drawn / (self.kinds.len() as u64).max(1)
    }
}

impl Iterator for Schedule {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        if self.bag.is_empty() {
            self.bag.clone_from(&self.kinds);
            self.rng.shuffle(&mut self.bag);
        }
        let kind = self.bag.pop()?;
        self.drawn += 1;
        Some(Plan { number: self.drawn, kind, seed: self.rng.u64(..) })
    }
}

/// The version that a world runs on.
pub(super) const fn major(world: usize) -> Major {
    if world.is_multiple_of(2) { Major::V15 } else { Major::V18 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        let mut schedule = Schedule::of(&Kind::ALL, 3);
        for turn in 1..=3 {
            let kinds = schedule.by_ref().take(Kind::ALL.len()).map(|plan| plan.kind);
            assert_eq!(kinds.collect::<BTreeSet<_>>(), BTreeSet::from(Kind::ALL));
            assert_eq!(schedule.turns(), turn);
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_rounds() {
        let drawn =
            |seed| format!("{:?}", Schedule::of(&Kind::ALL, seed).take(20).collect::<Vec<_>>());
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
