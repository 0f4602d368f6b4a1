//! What a point in a replication log is, and the three questions asked of it.
//!
//! A [`Position`] has no order: LSNs are numbers, sets of transaction ids are partially ordered.
//! Whoever needs one asks [`Position::covers`], [`Position::join`] or [`Position::first_unmet`].
//! Nothing here compares positions of two epochs; only `lineage` does that.

mod lsn;

pub use lsn::{Lsn, LsnError};

/// A point in one log; *inclusive*: a node that applied it has applied everything up to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Position {
    /// A write-ahead log position of PostgreSQL.
    Lsn(Lsn),
}

/// What keeps a position from covering another: the value `at_least` is missing on `axis`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmet {
    /// The scale, 0 for a log with a single one.
    pub axis: u32,
    /// The smallest value of that scale at which to look again.
    pub at_least: u64,
}

impl Position {
    /// The position every other position of this kind covers.
    pub const START: Self = Self::Lsn(Lsn::new(0));

    /// Says whether everything in `floor` is in `self`.
    pub const fn covers(self, floor: Self) -> bool {
        let (Self::Lsn(own), Self::Lsn(floor)) = (self, floor);
        own.value() >= floor.value()
    }

    /// The smallest position that covers both.
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        if self.covers(other) { self } else { other }
    }

    /// The largest position both cover.
    #[must_use]
    pub const fn meet(self, other: Self) -> Self {
        if self.covers(other) { other } else { self }
    }

    /// The first thing `self` lacks to cover `floor`; `None` if it covers it.
    pub const fn first_unmet(self, floor: Self) -> Option<Unmet> {
        let Self::Lsn(wanted) = floor;
        if self.covers(floor) { None } else { Some(Unmet { axis: 0, at_least: wanted.value() }) }
    }

    /// The scalar a wait for this position is parked on.
    pub const fn scalar(self) -> u64 {
        let Self::Lsn(lsn) = self;
        lsn.value()
    }

    /// Bytes of log between `self` and `ahead`; 0 if `self` covers it.
    pub const fn bytes_behind(self, ahead: Self) -> u64 {
        ahead.scalar().saturating_sub(self.scalar())
    }
}

impl From<Lsn> for Position {
    fn from(lsn: Lsn) -> Self {
        Self::Lsn(lsn)
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Lsn(lsn) = self;
        lsn.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: u64) -> Position {
        Lsn::new(value).into()
    }

    #[test]
    fn covers_is_inclusive() {
        assert!(at(7).covers(at(7)));
        assert!(!at(6).covers(at(7)));
    }

    #[test]
    fn join_and_meet_bracket_both() {
        assert_eq!(at(3).join(at(9)), at(9));
        assert_eq!(at(3).meet(at(9)), at(3));
    }

    #[test]
    fn first_unmet_names_the_scalar_to_wait_for() {
        assert_eq!(at(9).first_unmet(at(9)), None);
        assert_eq!(at(8).first_unmet(at(9)), Some(Unmet { axis: 0, at_least: 9 }));
    }
}
