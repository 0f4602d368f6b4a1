//! `Mark`: what a session demands of one epoch, and what it wrote and saw there.

use crate::lineage::Kept;
use crate::position::Position;

/// What a session demands of one epoch, and how much of that it wrote and saw itself.
///
/// `wrote` is the interval `(after, upto]` in which the session's last commit ended. A write whose
/// end is unknown has `after` but no `upto`; then nothing of it is known to survive a fork.
///
/// Invariant: `led` is at most `saw`, and all are at most `floor`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// What a node must have applied.
    pub floor: Position,
    /// The last commit ended past here, if that is known.
    pub after: Option<Position>,
    /// The last commit ended at or before here.
    pub upto: Option<Position>,
    /// The highest position of a read.
    pub saw: Option<Position>,
    /// The highest position of a read on the leader itself. What only standbys showed was flushed
    /// before they got it, by this life of the leader or a later one on its timeline.
    pub led: Option<Position>,
    /// The session's own evidence showed that this life of the leader had flushed up to here: no
    /// crash takes it. It speaks for this session alone.
    pub flushed: Option<Position>,
}

impl Mark {
    /// A demand alone: nothing was written or seen.
    pub const fn demand(floor: Position) -> Self {
        Self { floor, after: None, upto: None, saw: None, led: None, flushed: None }
    }

    /// A commit that ended at or before `upto`, and past `after` if that is known.
    pub const fn wrote(after: Option<Position>, upto: Position) -> Self {
        Self { floor: upto, after, upto: Some(upto), saw: None, led: None, flushed: None }
    }

    /// A commit that ended somewhere past `after`.
    pub const fn wrote_past(after: Position) -> Self {
        Self { floor: after, after: Some(after), upto: None, saw: None, led: None, flushed: None }
    }

    /// A read of a state that ended at `position`, on the leader or nobody knows where.
    pub const fn saw(position: Position) -> Self {
        Self {
            floor: position,
            after: None,
            upto: None,
            saw: Some(position),
            led: Some(position),
            flushed: None,
        }
    }

    /// A read on a standby that had applied up to `position`.
    pub const fn saw_applied(position: Position) -> Self {
        Self { led: None, ..Self::saw(position) }
    }

    /// The same, from a leader that had flushed up to `position`.
    #[must_use]
    pub fn with_flushed(self, position: Position) -> Self {
        let flushed = self.floor.meet(position);
        Self { flushed: highest(self.flushed, Some(flushed)), ..self }
    }

    /// Says whether the session wrote in this epoch.
    pub const fn has_write(&self) -> bool {
        self.after.is_some() || self.upto.is_some()
    }

    /// Says whether the end of the last write is unknown.
    pub const fn write_end_is_unknown(&self) -> bool {
        self.after.is_some() && self.upto.is_none()
    }

    /// The highest position that only standbys have shown.
    pub fn saw_only_applied(&self) -> Option<Position> {
        self.saw.filter(|_| self.saw != self.led)
    }

    /// Says whether it tells more than a mark must.
    pub(super) fn tells_more(&self) -> bool {
        self.flushed.is_some() || self.led != self.saw
    }

    /// Says whether all it demands is left of its epoch.
    pub fn is_within(&self, kept: &Kept) -> bool {
        let floor = if Some(self.floor) == self.saw_only_applied() {
            kept.applied.covers(self.floor)
        } else {
            kept.own.covers(self.floor)
        };
        floor && self.has_kept_write(kept) && self.has_kept_reads(kept)
    }

    /// Says whether its last write is left, or it has none.
    pub fn has_kept_write(&self, kept: &Kept) -> bool {
        !self.write_end_is_unknown() && self.upto.is_none_or(|upto| kept.own.covers(upto))
    }

    /// Says whether all it saw is left.
    pub fn has_kept_reads(&self, kept: &Kept) -> bool {
        self.led.is_none_or(|led| kept.own.covers(led))
            && self.saw_only_applied().is_none_or(|saw| kept.applied.covers(saw))
    }

    /// What it saw of what is left.
    pub fn saw_within(&self, kept: &Kept) -> Option<Position> {
        let led = self.led.map(|led| led.meet(kept.own));
        highest(led, self.saw_only_applied().map(|saw| saw.meet(kept.applied)))
    }

    /// Demands, wrote and saw what either did.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let unknown = self.write_end_is_unknown() || other.write_end_is_unknown();
        Self {
            floor: self.floor.join(other.floor),
            after: highest(self.after, other.after),
            upto: if unknown { None } else { highest(self.upto, other.upto) },
            saw: highest(self.saw, other.saw),
            led: highest(self.led, other.led),
            flushed: highest(self.flushed, other.flushed),
        }
    }
}

fn highest(a: Option<Position>, b: Option<Position>) -> Option<Position> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.join(b)),
        (one, None) | (None, one) => one,
    }
}
