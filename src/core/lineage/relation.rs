//! `Relation`: what a position of one epoch is in the line of a head.
//!
//! The only comparison of positions of two epochs there is. It changes nothing.

use super::fork::Fate;
use super::{Epoch, Fork, History};
use crate::guards::Guards;
use crate::position::Position;

/// What a mark is to the line of one head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Its content is in the head's line.
    Alive,
    /// Part of its content is surely not in the head's line.
    Lost {
        /// Everything of the mark's epoch up to here is in the line.
        at_least: Position,
        /// Nothing of it past here is.
        at_most: Position,
    },
    /// Neither can be shown.
    Unknown {
        /// Everything of the mark's epoch up to here is in the line.
        at_least: Position,
    },
}

/// What of an epoch surely is in the line of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Everything its leader had, up to here.
    pub own: Position,
    /// Everything that standbys on its timeline had applied, up to here.
    pub applied: Position,
}

impl Kept {
    /// Nothing of it, as far as anybody knows.
    pub const NOTHING: Self = Self { own: Position::START, applied: Position::START };
}

impl History {
    /// Where the parent of `child` ended in it.
    fn fork_into(&self, child: Epoch) -> Option<Fork> {
        self.origin(child).map(|(_, fork)| fork)
    }

    /// Judges the content of `epoch` up to `floor` against the line of `head`.
    pub fn relation(
        &self,
        head: Epoch,
        epoch: Epoch,
        floor: Position,
        guards: &Guards,
    ) -> Relation {
        if epoch == head {
            return Relation::Alive;
        }
        if let Some(next) = self.next_towards(head, epoch) {
            return self.at_fork(next, floor, guards);
        }
        let nothing = Relation::Unknown { at_least: Position::START };
        if guards.row_for_lost() && !self.has_row(epoch) {
            return nothing;
        }
        let Some(common) = self.last_common(epoch, head) else { return nothing };
        let Some(next) = self.next_towards(head, common) else { return nothing };
        match self.fork_into(next).and_then(Fork::at_most) {
            Some(at_most) if !at_most.covers(floor) => {
                Relation::Lost { at_least: Position::START, at_most }
            }
            Some(_) | None => nothing,
        }
    }

    /// What of `epoch` surely is in the line of `head`.
    ///
    /// `flushed` is up to where its leader had flushed, as one knows who asks for himself alone.
    pub fn kept(&self, head: Epoch, epoch: Epoch, flushed: Option<Position>) -> Kept {
        let Some(next) = self.next_towards(head, epoch) else { return Kept::NOTHING };
        let at_least = self.fork_into(next).and_then(Fork::at_least).unwrap_or(Position::START);
        let shared = self.shared(next);
        let flushed = flushed.map_or(Position::START, |flushed| flushed.meet(shared));
        Kept { own: at_least.join(flushed), applied: at_least.join(shared) }
    }

    /// Judges a position of the parent of `child`.
    fn at_fork(&self, child: Epoch, floor: Position, guards: &Guards) -> Relation {
        let Some(fork) = self.fork_into(child) else {
            return Relation::Unknown { at_least: Position::START };
        };
        let at_least = fork.at_least().unwrap_or(Position::START);
        match (fork.fate(floor), fork.at_most()) {
            (Fate::Survives, _) => Relation::Alive,
            (Fate::Ends, Some(at_most)) => Relation::Lost { at_least, at_most },
            (Fate::Unclear, _) if !guards.fork_interval() => Relation::Alive,
            (Fate::Unclear | Fate::Ends, _) => Relation::Unknown { at_least },
        }
    }

    /// Says whether a server whose last row is `epoch` may hold, up to `position`, what `head` has
    /// not: the epoch is off the head's chain, or had ended there, or nobody knows where it ended.
    pub fn is_off(&self, head: Epoch, epoch: Epoch, position: Option<Position>) -> bool {
        if epoch == head {
            return false;
        }
        let Some(next) = self.next_towards(head, epoch) else { return true };
        match (self.fork_into(next), position) {
            (Some(Fork::Between { at_most, .. }), Some(position)) => !at_most.covers(position),
            (Some(Fork::Unknown) | None, _) => true,
            (Some(Fork::Unbounded | Fork::Between { .. }), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Life, LineageRow};
    use crate::position::Lsn;

    const ON: Guards = Guards::on();

    fn at(value: u64) -> Position {
        Lsn::new(value).into()
    }

    fn epoch(timeline: u32, life: i64) -> Epoch {
        Epoch::new(timeline, Life { start: life, reset: life })
    }

    fn grown(rows: &[(Epoch, Option<Epoch>, Fork)]) -> History {
        let mut history = History::new();
        for (n, (epoch, parent, fork)) in rows.iter().enumerate() {
            let row = LineageRow { epoch: *epoch, parent: *parent, fork: *fork, n: n as u64 };
            history.read_row(row).expect("rows agree");
        }
        history
    }

    #[test]
    fn a_position_past_the_fork_is_lost_even_when_the_new_leader_is_ahead() {
        let (old, new) = (epoch(1, 1), epoch(2, 2));
        let fork = Fork::between(at(100), at(100));
        let history = grown(&[(old, None, Fork::Unknown), (new, Some(old), fork)]);
        assert_eq!(history.relation(new, old, at(100), &ON), Relation::Alive);
        let lost = Relation::Lost { at_least: at(100), at_most: at(100) };
        assert_eq!(history.relation(new, old, at(101), &ON), lost);
    }

    #[test]
    fn what_lies_inside_the_fork_is_unknown() {
        let (old, new) = (epoch(1, 1), epoch(2, 2));
        let fork = Fork::between(at(90), at(100));
        let history = grown(&[(old, None, Fork::Unknown), (new, Some(old), fork)]);
        let unknown = Relation::Unknown { at_least: at(90) };
        assert_eq!(history.relation(new, old, at(95), &ON), unknown);
    }

    #[cfg(feature = "unsafe-guards")]
    #[test]
    fn the_fork_interval_guard_keeps_the_unclear_part_from_being_alive() {
        let (old, new) = (epoch(1, 1), epoch(2, 2));
        let fork = Fork::between(at(90), at(100));
        let history = grown(&[(old, None, Fork::Unknown), (new, Some(old), fork)]);
        let off = Guards::without("fork_interval").expect("named");
        assert_ne!(history.relation(new, old, at(95), &ON), Relation::Alive);
        assert_eq!(history.relation(new, old, at(95), &off), Relation::Alive);
    }

    #[test]
    fn a_twin_is_lost_past_the_common_fork_only_if_its_row_was_read() {
        let (root, won, twin) = (epoch(1, 1), epoch(2, 2), epoch(2, 3));
        let fork = Fork::between(at(100), at(100));
        let mut history = grown(&[(root, None, Fork::Unknown), (won, Some(root), fork)]);
        let row = LineageRow { epoch: twin, parent: Some(root), fork, n: 2 };
        history.place(row).expect("new");
        let unknown = Relation::Unknown { at_least: at(0) };
        assert_eq!(history.relation(won, twin, at(150), &ON), unknown);
        history.read_row(row).expect("agrees");
        let lost = Relation::Lost { at_least: at(0), at_most: at(100) };
        assert_eq!(history.relation(won, twin, at(150), &ON), lost);
        assert_eq!(history.relation(won, twin, at(100), &ON), unknown);
    }

    #[cfg(feature = "unsafe-guards")]
    #[test]
    fn the_row_guard_keeps_an_epoch_nobody_wrote_down_from_being_lost() {
        let (root, won, twin) = (epoch(1, 1), epoch(2, 2), epoch(2, 3));
        let fork = Fork::between(at(100), at(100));
        let mut history = grown(&[(root, None, Fork::Unknown), (won, Some(root), fork)]);
        let row = LineageRow { epoch: twin, parent: Some(root), fork, n: 2 };
        history.place(row).expect("new");
        let off = Guards::without("row_for_lost").expect("named");
        assert!(matches!(history.relation(won, twin, at(150), &off), Relation::Lost { .. }));
        assert!(matches!(history.relation(won, twin, at(150), &ON), Relation::Unknown { .. }));
    }

    #[test]
    fn an_epoch_nobody_heard_of_is_unknown() {
        let root = epoch(1, 1);
        let history = grown(&[(root, None, Fork::Unknown)]);
        let judged = history.relation(root, epoch(1, 9), at(0), &ON);
        assert_eq!(judged, Relation::Unknown { at_least: at(0) });
    }

    #[test]
    fn an_epoch_grown_from_the_leader_is_unknown_not_alive() {
        let (root, child) = (epoch(1, 1), epoch(2, 2));
        let fork = Fork::between(at(5), at(5));
        let history = grown(&[(root, None, Fork::Unknown), (child, Some(root), fork)]);
        let judged = history.relation(root, child, at(1), &ON);
        assert_eq!(judged, Relation::Unknown { at_least: at(0) });
    }

    #[test]
    fn a_clean_restart_keeps_every_mark_alive() {
        let (before, after) = (epoch(1, 1), epoch(1, 2));
        let history =
            grown(&[(before, None, Fork::Unknown), (after, Some(before), Fork::Unbounded)]);
        assert_eq!(history.relation(after, before, at(u64::MAX), &ON), Relation::Alive);
    }
}
