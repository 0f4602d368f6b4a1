//! `LeaderTrail`: what the leader had, and when we asked.
//!
//! A ring of samples from polls of the leader, thinned with age. Thinning only ever makes a demand
//! larger. It holds no clock and believes no capture.

use std::collections::VecDeque;
use std::time::Duration;

use crate::guards::Guards;
use crate::instant::Instant;
use crate::lineage::{Epoch, History};
use crate::position::Position;

/// Samples kept; beyond it the closest pair for its age loses one.
const SAMPLES_MAX: usize = 512;
/// A sample goes when its neighbours are closer together than this share of their age.
const SPACING: u32 = 16;

/// What the leader had at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When the question was sent.
    pub sent_at: Instant,
    /// The leader's epoch.
    pub epoch: Epoch,
    /// No commit acknowledged before `sent_at` ends past here.
    pub position: Position,
}

/// What the leader had, and when we asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaderTrail {
    samples: VecDeque<Sample>,
}

impl LeaderTrail {
    /// A trail without samples.
    pub const fn new() -> Self {
        Self { samples: VecDeque::new() }
    }

    /// Adds a sample, unless a later one is there, and thins the old ones.
    pub fn push(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| last.sent_at >= sample.sent_at) {
            return;
        }
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES_MAX {
            self.thin(sample.sent_at);
        }
    }

    fn thin(&mut self, now: Instant) {
        let mut kept: VecDeque<Sample> = VecDeque::with_capacity(SAMPLES_MAX);
        for (index, sample) in self.samples.iter().enumerate() {
            let gap = match (kept.back(), self.samples.get(index + 1)) {
                (Some(before), Some(after)) => after.sent_at.since(before.sent_at),
                (None, _) | (_, None) => Duration::MAX,
            };
            if gap > now.since(sample.sent_at) / SPACING {
                kept.push_back(*sample);
            }
        }
        while kept.len() > SAMPLES_MAX * 3 / 4 {
            // The oldest sample demands least: dropping it can only make a demand larger.
            kept.pop_front();
        }
        self.samples = kept;
    }

    /// The latest sample.
    pub fn last(&self) -> Option<Sample> {
        self.samples.back().copied()
    }

    /// The samples sent at or after `since`, oldest first.
    pub fn since(&self, since: Instant) -> impl Iterator<Item = Sample> + '_ {
        let first = self.samples.partition_point(|sample| sample.sent_at < since);
        self.samples.range(first..).copied()
    }

    /// The sample at `index`, the oldest one being the first.
    pub fn get(&self, index: usize) -> Option<Sample> {
        self.samples.get(index).copied()
    }

    /// All samples, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = Sample> + '_ {
        self.samples.iter().rev().copied()
    }

    /// Drops what proves nothing for a new leader.
    ///
    /// Kept are samples of `epoch` itself, of what it continues by restarts on one timeline, and,
    /// of anything else it grew from, those sent before the last poll that saw the promoted
    /// incarnation in recovery (`in_recovery_at`).
    pub fn change_leader(
        &mut self,
        epoch: Epoch,
        in_recovery_at: Option<Instant>,
        history: &History,
        guards: &Guards,
    ) {
        if !guards.void_samples() {
            return;
        }
        let continued: Vec<Epoch> =
            history.chain(epoch).take_while(|e| e.timeline == epoch.timeline).collect();
        self.samples.retain(|sample| {
            let before_promotion = in_recovery_at.is_some_and(|seen| sample.sent_at <= seen)
                && history.descends(epoch, sample.epoch);
            continued.contains(&sample.epoch) || before_promotion
        });
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Fork, Life, LineageRow};
    use crate::position::Lsn;

    const ON: Guards = Guards::on();

    fn epoch(timeline: u32, life: i64) -> Epoch {
        Epoch::new(timeline, Life { start: life, reset: life })
    }

    fn sample(millis: u64, epoch: Epoch) -> Sample {
        let position = Lsn::new(millis).into();
        Sample { sent_at: Instant::from_nanos(millis * 1_000_000), epoch, position }
    }

    fn millis(at: u64) -> Instant {
        Instant::from_nanos(at * 1_000_000)
    }

    #[test]
    fn the_first_sample_sent_since_is_found() {
        let mut trail = LeaderTrail::new();
        for at in [10, 20, 30] {
            trail.push(sample(at, epoch(1, 1)));
        }
        let found = |at| trail.since(millis(at)).next().map(|s| s.position.scalar());
        assert_eq!(found(0), Some(10));
        assert_eq!(found(20), Some(20));
        assert_eq!(found(21), Some(30));
        assert_eq!(found(31), None);
    }

    #[test]
    fn an_hour_of_polls_stays_within_bounds_and_keeps_young_ones() {
        let mut trail = LeaderTrail::new();
        for tick in 0..(3600 * 4) {
            trail.push(sample(tick * 250, epoch(1, 1)));
            assert!(trail.len() <= SAMPLES_MAX);
        }
        let now = 3600 * 1000;
        for age in [1_000_u64, 60_000, 600_000, 3_000_000] {
            let first = trail.since(millis(now - age)).next().expect("a sample");
            let late = first.sent_at.since(millis(now - age)).as_secs_f64() * 1000.0;
            assert!(late <= age as f64 / 16.0 + 500.0, "age {age} ms is late by {late} ms");
        }
    }

    #[test]
    fn a_promotion_voids_samples_the_new_leader_may_not_have() {
        let (old, new) = (epoch(1, 1), epoch(2, 2));
        let mut history = History::new();
        for (epoch, parent) in [(old, None), (new, Some(old))] {
            let row = LineageRow { epoch, parent, fork: Fork::Unknown, n: 1 };
            history.read_row(row).expect("rows agree");
        }
        let mut trail = LeaderTrail::new();
        for at in [10, 20, 30] {
            trail.push(sample(at, old));
        }
        let mut unguarded = trail.clone();
        trail.change_leader(new, Some(millis(20)), &history, &ON);
        assert_eq!(trail.len(), 2);
        assert!(trail.since(millis(21)).next().is_none());
        unguarded.change_leader(new, None, &history, &ON);
        assert!(unguarded.is_empty());
    }

    #[cfg(feature = "unsafe-guards")]
    #[test]
    fn the_void_samples_guard_keeps_the_old_leader_from_vouching_for_the_new() {
        let (old, new) = (epoch(1, 1), epoch(2, 2));
        let mut trail = LeaderTrail::new();
        trail.push(sample(30, old));
        let off = Guards::without("void_samples").expect("named");
        let mut unguarded = trail.clone();
        unguarded.change_leader(new, None, &History::new(), &off);
        assert!(unguarded.since(millis(25)).next().is_some());
        trail.change_leader(new, None, &History::new(), &ON);
        assert!(trail.since(millis(25)).next().is_none());
    }

    #[test]
    fn a_restart_keeps_the_trail() {
        let (before, after) = (epoch(1, 1), epoch(1, 2));
        let mut history = History::new();
        for (epoch, parent) in [(before, None), (after, Some(before))] {
            let row = LineageRow { epoch, parent, fork: Fork::Unbounded, n: 1 };
            history.read_row(row).expect("rows agree");
        }
        let mut trail = LeaderTrail::new();
        trail.push(sample(30, before));
        trail.change_leader(after, None, &history, &ON);
        assert_eq!(trail.len(), 1);
    }
}
