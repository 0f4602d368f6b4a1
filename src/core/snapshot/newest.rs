//! The newest leader sample each node surely has, found when a snapshot is made.
//!
//! The trail is searched by halves, not walked: whoever asks for the lag of a node is answered from
//! memory. It says nothing of whether a node may serve.

use super::Snapshot;
use super::standing::Standing;
use crate::trail::{Demand, LeaderTrail, Sample};
use crate::views::Coverage;

/// A trail cut into runs: samples of one epoch in a row, whose positions never go back.
struct Runs<'a> {
    trail: &'a LeaderTrail,
    /// Where each run begins, the oldest first.
    starts: &'a [usize],
}

/// Where each run of a trail begins.
fn starts_of(trail: &LeaderTrail) -> Vec<usize> {
    let begins = |index: &usize| {
        let before = index.checked_sub(1).and_then(|before| trail.get(before));
        let (Some(before), Some(own)) = (before, trail.get(*index)) else { return true };
        before.epoch != own.epoch || !own.position.covers(before.position)
    };
    (0..trail.len()).filter(begins).collect()
}

impl Runs<'_> {
    /// The newest sample that a node has, and its place.
    ///
    /// `has` must say of one run: all up to some sample, and none after it.
    fn newest(&self, has: impl Fn(&Sample) -> bool) -> Option<(usize, Sample)> {
        let at = |index: usize| self.trail.get(index).filter(|sample| has(sample));
        let mut end = self.trail.len();
        let newest = end.checked_sub(1)?;
        if let Some(sample) = at(newest) {
            return Some((newest, sample));
        }
        for start in self.starts.iter().rev() {
            let (mut low, mut high) = (*start, end);
            while low < high {
                let middle = low + (high - low) / 2;
                if at(middle).is_some() {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low > *start {
                return self.trail.get(low - 1).map(|sample| (low - 1, sample));
            }
            end = *start;
        }
        None
    }
}

impl Snapshot {
    /// Finds the newest sample that each node surely has, with its place in the trail.
    pub(super) fn settle_newest(&mut self) {
        self.run_starts = starts_of(&self.trail).into();
        let runs = Runs { trail: &self.trail, starts: &self.run_starts };
        let newest = |standing| runs.newest(|sample| self.has(standing, sample));
        self.newest = self.standings.iter().map(newest).collect();
    }

    /// The newest sample of an epoch in which the leader did not have what is demanded of it.
    pub(super) fn newest_before(&self, demand: &Demand) -> Option<Sample> {
        let runs = Runs { trail: &self.trail, starts: &self.run_starts };
        let is_before = |sample: &Sample| {
            sample.epoch == demand.epoch && !sample.position.covers(demand.position)
        };
        runs.newest(is_before).map(|(_, sample)| sample)
    }

    /// Says whether a node surely has what the leader had, and the line of today has it too.
    pub(super) fn has(&self, standing: &Standing, sample: &Sample) -> bool {
        let (epoch, position) = (sample.epoch, sample.position);
        let guards = &self.settings.guards;
        let covers = || {
            standing.place().is_some_and(|place| {
                place.covers(&self.history, epoch, position, standing.flushed, guards)
                    == Coverage::Covered
            })
        };
        self.is_alive(epoch, position) && covers()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::instant::Instant;
    use crate::lineage::{Epoch, Life};
    use crate::position::{Lsn, Position};

    fn trail(samples: &[(u8, u64)]) -> LeaderTrail {
        let mut trail = LeaderTrail::new();
        for (at, (timeline, position)) in (0..).zip(samples) {
            trail.push(Sample {
                sent_at: Instant::from_nanos(at),
                epoch: Epoch::new(u32::from(*timeline), Life { start: 1, reset: 1 }),
                position: Lsn::new(*position).into(),
            });
        }
        trail
    }

    proptest! {
        #[test]
        fn halving_finds_what_a_walk_finds(
            samples in vec((0_u8..4, 0_u64..12), 0..80),
            reached in [0_u64..14, 0..14, 0..14, 0..14],
        ) {
            let trail = trail(&samples);
            // Of each epoch a node has everything up to some position.
            let has = |sample: &Sample| {
                let reached = reached[sample.epoch.timeline as usize];
                Position::from(Lsn::new(reached)).covers(sample.position)
            };
            let starts = starts_of(&trail);
            let found = Runs { trail: &trail, starts: &starts }.newest(has);
            prop_assert_eq!(found.map(|(_, sample)| sample), trail.newest_first().find(has));
            prop_assert_eq!(found.and_then(|(index, _)| trail.get(index)), found.map(|(_, s)| s));
        }
    }

    #[test]
    fn a_node_far_behind_is_found_in_few_looks() {
        let samples: Vec<_> = (0..500).map(|at| (1, at)).collect();
        let (trail, looks) = (trail(&samples), std::cell::Cell::new(0));
        let has = |sample: &Sample| {
            looks.set(looks.get() + 1);
            Position::from(Lsn::new(3)).covers(sample.position)
        };
        let starts = starts_of(&trail);
        let found = Runs { trail: &trail, starts: &starts }.newest(has);
        assert_eq!(found.map(|(index, _)| index), Some(3));
        assert!(looks.get() <= 12, "{} looks", looks.get());
    }
}
