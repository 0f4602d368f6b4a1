//! `ApplyRate`: how fast a node applies its log, and whether it stands still, from its polls.
//!
//! It is the ground of predictions and of nothing else: what a node has is never told from it. It
//! knows no leader, so whoever asks says since when the node is behind.

use std::collections::VecDeque;
use std::time::Duration;

use crate::instant::Instant;
use crate::position::Position;

/// Movements remembered.
const MOVES_MAX: usize = 8;
/// Fewer movements say nothing of the next one.
const MOVES_MIN: usize = 4;
/// Polls in a row without a movement, of which fewer say nothing.
const STILL_POLLS_MIN: u32 = 4;
/// A node that applies takes a breath now and then; a shorter one is no standstill.
const STILL_MIN: Duration = Duration::from_secs(1);

/// How fast a node applies its log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ApplyRate {
    /// The last movements, oldest first; at most [`MOVES_MAX`].
    moves: VecDeque<Move>,
    /// Where it was seen last, and when the first poll was sent that showed it there.
    at: Option<(Position, Instant)>,
    /// When the last poll was sent.
    polled_at: Instant,
    /// Polls since it moved.
    still_polls: u32,
}

/// From one position that was seen to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Move {
    bytes: u64,
    took: Duration,
}

impl ApplyRate {
    /// Takes in what a poll sent at `sent_at` has shown: positions that never go back.
    pub(super) fn observe(&mut self, position: Position, sent_at: Instant) {
        self.polled_at = sent_at;
        match self.at {
            Some((known, _)) if known.covers(position) => {
                self.still_polls = self.still_polls.saturating_add(1);
                return;
            }
            Some((known, since)) => {
                while self.moves.len() >= MOVES_MAX {
                    self.moves.pop_front();
                }
                let (bytes, took) = (known.bytes_behind(position), sent_at.since(since));
                self.moves.push_back(Move { bytes, took });
            }
            None => {}
        }
        self.at = Some((position, sent_at));
        self.still_polls = 0;
    }

    /// How long so many bytes take at the pace of the last movements; `None`: too few were seen.
    pub fn time_for(&self, bytes: u64) -> Option<Duration> {
        // After a pause the last few tell more than all of them.
        let span = |moves: usize| {
            let last = || self.moves.iter().rev().take(moves);
            let took: Duration = last().map(|one| one.took).sum();
            let moved: u128 = last().map(|one| u128::from(one.bytes)).sum();
            let nanos = (took.as_nanos() * u128::from(bytes)).checked_div(moved)?;
            Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        };
        if self.moves.len() < MOVES_MIN {
            return None;
        }
        [span(MOVES_MIN), span(MOVES_MAX)].into_iter().flatten().min()
    }

    /// For how long the node, behind since `behind_since`, was seen to stand still; `None`: it
    /// moves, or it has stood still as long before and gone on, as one does that applies late.
    pub fn standstill(&self, behind_since: Instant) -> Option<Duration> {
        let (_, moved_at) = self.at?;
        let still = self.polled_at.since(moved_at.max(behind_since));
        let longest = self.moves.iter().map(|one| one.took).max()?;
        let is_still = self.moves.len() >= MOVES_MIN
            && self.still_polls >= STILL_POLLS_MIN
            && still >= STILL_MIN
            && still > longest * 2;
        is_still.then_some(still)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Lsn;

    const fn millis(at: u64) -> Instant {
        Instant::from_nanos(at * 1_000_000)
    }

    /// Polls every so many milliseconds, up to a time, of a node that is at `position` then.
    fn poll(rate: &mut ApplyRate, span: std::ops::Range<u64>, every: usize, at: fn(u64) -> u64) {
        for time in span.step_by(every) {
            rate.observe(Lsn::new(at(time)).into(), millis(time));
        }
    }

    #[test]
    fn the_pace_is_that_of_the_last_movements() {
        let mut rate = ApplyRate::default();
        poll(&mut rate, 0..2_000, 250, |time| time * 10);
        assert_eq!(rate.time_for(10_000), Some(Duration::from_secs(1)));
        assert_eq!(rate.time_for(0), Some(Duration::ZERO));
        poll(&mut rate, 2_000..9_000, 250, |_| 20_000);
        // It went on ten times as fast: four movements are enough to tell.
        poll(&mut rate, 9_250..10_500, 250, |time| 20_000 + (time - 9_000) * 100);
        let took = rate.time_for(10_000).expect("it moves");
        assert!(took <= Duration::from_millis(100), "{took:?}");
        assert!(rate.moves.len() <= MOVES_MAX);
    }

    #[test]
    fn a_node_that_was_not_seen_moving_has_no_pace() {
        let mut rate = ApplyRate::default();
        assert_eq!((rate.time_for(1), rate.standstill(millis(0))), (None, None));
        poll(&mut rate, 0..60_000, 250, |_| 7);
        assert_eq!((rate.time_for(1), rate.standstill(millis(0))), (None, None));
        poll(&mut rate, 60_000..60_750, 250, |time| time);
        assert_eq!(rate.time_for(1), None, "three movements are too few");
    }

    #[test]
    fn a_standstill_is_one_only_while_it_is_behind_and_longer_than_any_before() {
        let mut rate = ApplyRate::default();
        poll(&mut rate, 0..2_000, 250, |time| time);
        poll(&mut rate, 2_000..2_750, 250, |_| 1_750);
        assert_eq!(rate.standstill(millis(0)), None, "no more than a breath");
        poll(&mut rate, 2_750..6_000, 250, |_| 1_750);
        assert_eq!(rate.standstill(millis(0)), Some(Duration::from_secs(4)));
        assert_eq!(rate.standstill(millis(4_000)), Some(Duration::from_millis(1_750)));
        assert_eq!(rate.standstill(millis(5_500)), None, "it was not behind before");
    }

    #[test]
    fn a_node_that_moves_in_jumps_does_not_stand_still_between_them() {
        let mut rate = ApplyRate::default();
        poll(&mut rate, 0..50_000, 250, |time| time / 5_000);
        poll(&mut rate, 50_000..55_000, 250, |_| 9);
        assert_eq!(rate.standstill(millis(0)), None, "it did so before, and went on");
        poll(&mut rate, 55_000..60_000, 250, |_| 9);
        assert!(rate.standstill(millis(0)) > Some(Duration::from_secs(10)));
    }
}
