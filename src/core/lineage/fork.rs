//! `Fork`: the interval in which a parent epoch ends in a child. It does not know which two.

use crate::position::Position;

/// Where a parent epoch ends in a child: marks up to `at_least` survive, marks past `at_most` are
/// lost, what lies between is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fork {
    /// Nothing was lost: the child continues the parent.
    Unbounded,
    /// The parent ends somewhere in this interval, both ends inclusive.
    Between {
        /// Everything up to here is in the child.
        at_least: Position,
        /// Nothing past here is in the child.
        at_most: Position,
    },
    /// Nothing is known of where the parent ends.
    Unknown,
}

/// What a fork makes of one position of the parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Survives,
    Ends,
    Unclear,
}

impl Fork {
    /// The fork between `at_least` and `at_most`; unknown if the interval is empty.
    pub const fn between(at_least: Position, at_most: Position) -> Self {
        if at_most.covers(at_least) { Self::Between { at_least, at_most } } else { Self::Unknown }
    }

    /// What of the parent surely survives; the start of the log if nothing is known to.
    ///
    /// `None`: all of it.
    pub const fn at_least(self) -> Option<Position> {
        match self {
            Self::Unbounded => None,
            Self::Between { at_least, .. } => Some(at_least),
            Self::Unknown => Some(Position::START),
        }
    }

    /// The position past which the parent is surely lost; `None` if there is no such position.
    pub const fn at_most(self) -> Option<Position> {
        match self {
            Self::Between { at_most, .. } => Some(at_most),
            Self::Unbounded | Self::Unknown => None,
        }
    }

    /// Says whether the parent may have ended at `position`.
    pub fn allows(self, position: Position) -> bool {
        self.at_least().is_none_or(|least| position.covers(least))
            && self.at_most().is_none_or(|most| most.covers(position))
    }

    pub(crate) const fn fate(self, position: Position) -> Fate {
        match self {
            Self::Unbounded => Fate::Survives,
            Self::Between { at_least, at_most } => {
                if at_least.covers(position) {
                    Fate::Survives
                } else if at_most.covers(position) {
                    Fate::Unclear
                } else {
                    Fate::Ends
                }
            }
            Self::Unknown => Fate::Unclear,
        }
    }

    /// What two observers of the same fork know together; `None` if they contradict each other.
    pub const fn intersect(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Unknown, known) | (known, Self::Unknown) => Some(known),
            (Self::Unbounded, Self::Unbounded) => Some(Self::Unbounded),
            (Self::Unbounded, Self::Between { .. }) | (Self::Between { .. }, Self::Unbounded) => {
                None
            }
            (
                Self::Between { at_least: low, at_most: high },
                Self::Between { at_least: other_low, at_most: other_high },
            ) => match Self::between(low.join(other_low), high.meet(other_high)) {
                Self::Unknown => None,
                fork @ (Self::Between { .. } | Self::Unbounded) => Some(fork),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Lsn;

    fn at(value: u64) -> Position {
        Lsn::new(value).into()
    }

    #[test]
    fn contradicting_observers_know_nothing() {
        let low = Fork::between(at(1), at(4));
        assert_eq!(low.intersect(Fork::between(at(5), at(9))), None);
        assert_eq!(low.intersect(Fork::Unbounded), None);
    }

    #[test]
    fn observers_narrow_the_interval_together() {
        let fork = Fork::between(at(1), at(8)).intersect(Fork::between(at(3), at(9)));
        assert_eq!(fork, Some(Fork::between(at(3), at(8))));
        assert_eq!(Fork::Unknown.intersect(Fork::Unbounded), Some(Fork::Unbounded));
    }

    #[test]
    fn both_ends_are_inclusive() {
        let fork = Fork::between(at(3), at(5));
        assert_eq!(fork.fate(at(3)), Fate::Survives);
        assert_eq!(fork.fate(at(4)), Fate::Unclear);
        assert_eq!(fork.fate(at(5)), Fate::Unclear);
        assert_eq!(fork.fate(at(6)), Fate::Ends);
    }

    #[test]
    fn a_switch_point_outside_the_fork_contradicts_it() {
        let fork = Fork::between(at(50), at(60));
        assert!(fork.allows(at(50)) && fork.allows(at(60)), "both ends are inclusive");
        assert!(!fork.allows(at(49)) && !fork.allows(at(61)));
        assert!(Fork::Unknown.allows(at(0)) && Fork::Unbounded.allows(at(7)));
    }

    #[test]
    fn an_empty_interval_is_unknown() {
        assert_eq!(Fork::between(at(5), at(3)), Fork::Unknown);
    }
}
