//! `History`: the tree of epochs of one partition, and the relation of a mark to a leader.
//!
//! Links come from rows read in a database (proof) or from an observation that placed a new epoch
//! (until its row is read). It does not decide who leads and holds no position of any node.

use std::collections::BTreeMap;

use thiserror::Error;

use super::fork::Fate;
use super::{Epoch, Fork};
use crate::guards::Guards;
use crate::position::Position;

/// One row of `tidegate.lineage`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineageRow {
    /// The epoch the row names.
    pub epoch: Epoch,
    /// The epoch it grew from; `None` for a root.
    pub parent: Option<Epoch>,
    /// Where the parent ended in it.
    pub fork: Fork,
    /// One more than the parent's; the highest visible one is the last row.
    pub n: u64,
}

/// What is known of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link {
    parent: Option<Epoch>,
    fork: Fork,
    n: u64,
    has_row: bool,
    /// Sources disagreed: the fork stays unknown, however often one of them is read again.
    contradicted: bool,
}

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

/// Two sources disagree about where an epoch came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the origin of epoch {epoch} is contradicted; what it grew from is now unknown")]
pub struct RowConflict {
    /// The epoch in question.
    pub epoch: Epoch,
}

/// Which epochs followed which, and where each ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    links: BTreeMap<Epoch, Link>,
    /// How often an origin was contradicted.
    disputes: u64,
}

impl History {
    /// Epochs a history keeps; the oldest by storage order go first.
    pub const EPOCHS_MAX: usize = 1024;

    /// A history of nothing.
    pub const fn new() -> Self {
        Self { links: BTreeMap::new(), disputes: 0 }
    }

    /// Says whether `epoch` has a place in the tree.
    pub fn knows(&self, epoch: Epoch) -> bool {
        self.links.contains_key(&epoch)
    }

    /// Says whether a row of `epoch` was read from a database or written to one.
    pub fn has_row(&self, epoch: Epoch) -> bool {
        self.links.get(&epoch).is_some_and(|link| link.has_row)
    }

    /// How often an origin was contradicted: what was judged before the last time may not hold.
    pub const fn disputes(&self) -> u64 {
        self.disputes
    }

    /// The parent of `epoch` and where that ended; `None` if the epoch is not known.
    pub fn origin(&self, epoch: Epoch) -> Option<(Option<Epoch>, Fork)> {
        self.links.get(&epoch).map(|link| (link.parent, link.fork))
    }

    /// The depth of `epoch`; `None` if it is not known.
    pub fn depth(&self, epoch: Epoch) -> Option<u64> {
        self.links.get(&epoch).map(|link| link.n)
    }

    /// Every known epoch with the row it has or would have, in storage order.
    pub fn rows(&self) -> impl Iterator<Item = LineageRow> + '_ {
        self.links.iter().map(|(epoch, link)| LineageRow {
            epoch: *epoch,
            parent: link.parent,
            fork: link.fork,
            n: link.n,
        })
    }

    /// `epoch` and all it grew from, nearest first; the epoch alone if it is not known.
    pub fn chain(&self, epoch: Epoch) -> impl Iterator<Item = Epoch> + '_ {
        let parent = |e: &Epoch| self.links.get(e).and_then(|link| link.parent);
        // A cycle cannot be built from true rows; false ones must not hang us.
        std::iter::successors(Some(epoch), parent).take(Self::EPOCHS_MAX)
    }

    /// Says whether `epoch` is `head` or something it grew from.
    pub fn descends(&self, head: Epoch, epoch: Epoch) -> bool {
        head == epoch || self.chain(head).any(|e| e == epoch)
    }

    /// The epoch on `head`'s chain that directly followed `epoch`.
    pub fn next_towards(&self, head: Epoch, epoch: Epoch) -> Option<Epoch> {
        let mut child = None;
        for e in self.chain(head) {
            if e == epoch {
                return child;
            }
            child = Some(e);
        }
        None
    }

    /// The last epoch both chains hold.
    pub fn last_common(&self, a: Epoch, b: Epoch) -> Option<Epoch> {
        self.chain(a).find(|e| self.descends(b, *e))
    }

    /// Says whether a server whose last row is `epoch` may hold, up to `position`, what `head` has
    /// not: the epoch is off the head's chain, or had ended there, or nobody knows where it ended.
    pub fn is_off(&self, head: Epoch, epoch: Epoch, position: Option<Position>) -> bool {
        if epoch == head {
            return false;
        }
        let Some(next) = self.next_towards(head, epoch) else { return true };
        match (self.links.get(&next).map(|link| link.fork), position) {
            (Some(Fork::Between { at_most, .. }), Some(position)) => !at_most.covers(position),
            (Some(Fork::Unknown) | None, _) => true,
            (Some(Fork::Unbounded | Fork::Between { .. }), _) => false,
        }
    }

    /// Gives up what is claimed of an epoch's fork, whoever claims it, now and later.
    pub fn distrust(&mut self, epoch: Epoch) {
        if let Some(link) = self.links.get_mut(&epoch) {
            (link.fork, link.contradicted) = (Fork::Unknown, true);
            self.disputes += 1;
        }
    }

    /// Takes in a row read from a database.
    ///
    /// # Errors
    /// [`RowConflict`] if what is known contradicts it: the row's parent then stands, the fork is
    /// unknown.
    pub fn read_row(&mut self, row: LineageRow) -> Result<(), RowConflict> {
        self.learn(row, true)
    }

    /// Gives a new epoch its place as an observation shows it, before it has a row.
    ///
    /// # Errors
    /// [`RowConflict`] as for [`History::read_row`]; a parent read from a row stands.
    pub fn place(&mut self, row: LineageRow) -> Result<(), RowConflict> {
        self.learn(row, false)
    }

    /// Forgets an epoch that has no row, so that it can be placed anew.
    pub fn unplace(&mut self, epoch: Epoch) {
        if !self.has_row(epoch) {
            self.links.remove(&epoch);
        }
    }

    fn learn(&mut self, row: LineageRow, from_row: bool) -> Result<(), RowConflict> {
        let LineageRow { epoch, parent, fork, n } = row;
        let Some(known) = self.links.get_mut(&epoch) else {
            let link = Link { parent, fork, n, has_row: from_row, contradicted: false };
            self.links.insert(epoch, link);
            self.trim();
            return Ok(());
        };
        let was_row = known.has_row;
        known.has_row |= from_row;
        if from_row && !was_row {
            // Where it was only placed, its depth was reckoned.
            known.n = n;
        }
        if known.contradicted {
            return Ok(());
        }
        if known.parent == parent {
            if let Some(both) = known.fork.intersect(fork) {
                known.fork = both;
                return Ok(());
            }
            known.fork = Fork::Unknown;
            known.contradicted = true;
        } else if from_row && !was_row {
            *known = Link { parent, fork, n, has_row: true, contradicted: false };
        } else if from_row {
            // Nothing before it can be told any more.
            (known.parent, known.fork, known.contradicted) = (None, Fork::Unknown, true);
        } else {
            return Err(RowConflict { epoch });
        }
        self.disputes += 1;
        Err(RowConflict { epoch })
    }

    fn trim(&mut self) {
        while self.links.len() > Self::EPOCHS_MAX {
            self.links.pop_first();
        }
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
        match self.links.get(&next).and_then(|link| link.fork.at_most()) {
            Some(at_most) if !at_most.covers(floor) => {
                Relation::Lost { at_least: Position::START, at_most }
            }
            Some(_) | None => nothing,
        }
    }

    /// Judges a position of the parent of `child`.
    fn at_fork(&self, child: Epoch, floor: Position, guards: &Guards) -> Relation {
        let Some(link) = self.links.get(&child) else {
            return Relation::Unknown { at_least: Position::START };
        };
        let at_least = link.fork.at_least().unwrap_or(Position::START);
        match (link.fork.fate(floor), link.fork.at_most()) {
            (Fate::Survives, _) => Relation::Alive,
            (Fate::Ends, Some(at_most)) => Relation::Lost { at_least, at_most },
            (Fate::Unclear, _) if !guards.fork_interval() => Relation::Alive,
            (Fate::Unclear | Fate::Ends, _) => Relation::Unknown { at_least },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::Life;
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

    #[test]
    fn contradicting_rows_make_the_fork_unknown() {
        let (root, child) = (epoch(1, 1), epoch(2, 2));
        let mut history =
            grown(&[(root, None, Fork::Unknown), (child, Some(root), Fork::between(at(5), at(5)))]);
        let other = LineageRow { epoch: child, parent: Some(root), fork: Fork::Unbounded, n: 1 };
        assert_eq!(history.read_row(other), Err(RowConflict { epoch: child }));
        assert_eq!(history.origin(child), Some((Some(root), Fork::Unknown)));
        // Every poll of a node with a new last row reads all rows again.
        assert_eq!(history.read_row(other), Ok(()));
        assert_eq!(history.origin(child), Some((Some(root), Fork::Unknown)));
    }

    #[test]
    fn a_false_cycle_does_not_hang() {
        let (a, b) = (epoch(1, 1), epoch(1, 2));
        let history = grown(&[(a, Some(b), Fork::Unbounded), (b, Some(a), Fork::Unbounded)]);
        assert!(!history.descends(a, epoch(9, 9)));
    }
}
