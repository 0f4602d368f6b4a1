//! `Mark`: what a session demands of one epoch, and what it wrote and saw there.

use crate::position::Position;

/// What a session demands of one epoch, and how much of that it wrote and saw itself.
///
/// `wrote` is the interval `(after, upto]` in which the session's last commit ended. A write whose
/// end is unknown has `after` but no `upto`; then nothing of it is known to survive a fork.
///
/// Invariant: `flushed` is at most `floor`.
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
    /// The session's own evidence showed that the log was flushed up to here: no crash takes it.
    /// It speaks for this session alone; what a leader flushed is learned from polls.
    pub flushed: Option<Position>,
}

impl Mark {
    /// A demand alone: nothing was written or seen.
    pub const fn demand(floor: Position) -> Self {
        Self { floor, after: None, upto: None, saw: None, flushed: None }
    }

    /// A commit that ended at or before `upto`, and past `after` if that is known.
    pub const fn wrote(after: Option<Position>, upto: Position) -> Self {
        Self { floor: upto, after, upto: Some(upto), saw: None, flushed: None }
    }

    /// A commit that ended somewhere past `after`.
    pub const fn wrote_past(after: Position) -> Self {
        Self { floor: after, after: Some(after), upto: None, saw: None, flushed: None }
    }

    /// A read of a state that ended at `position`.
    pub const fn saw(position: Position) -> Self {
        Self { floor: position, after: None, upto: None, saw: Some(position), flushed: None }
    }

    /// The same, read where the log was flushed up to `position`.
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

    /// Demands, wrote and saw what either did.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let unknown = self.write_end_is_unknown() || other.write_end_is_unknown();
        Self {
            floor: self.floor.join(other.floor),
            after: highest(self.after, other.after),
            upto: if unknown { None } else { highest(self.upto, other.upto) },
            saw: highest(self.saw, other.saw),
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
