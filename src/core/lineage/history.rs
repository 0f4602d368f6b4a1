//! `History`: the tree of epochs of one partition.
//!
//! Links come from rows read in a database (proof) or from an observation that placed a new epoch
//! (until its row is read). It does not decide who leads and holds no position of any node.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Epoch, Fork};
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
    /// What of the parent's log was flushed at all, in whatever life, is in it up to here.
    shared: Position,
    /// Sources disagreed: the fork stays unknown, however often one of them is read again.
    contradicted: bool,
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

    /// Gives up what is claimed of an epoch's fork, whoever claims it, now and later.
    pub fn distrust(&mut self, epoch: Epoch) {
        if let Some(link) = self.links.get_mut(&epoch) {
            (link.fork, link.contradicted) = (Fork::Unknown, true);
            link.shared = Position::START;
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

    /// Notes that what `parent` had flushed is in `epoch`, up to `position`.
    pub fn share(&mut self, epoch: Epoch, parent: Option<Epoch>, position: Position) {
        let link = self.links.get_mut(&epoch);
        if let Some(link) = link.filter(|link| link.parent == parent && !link.contradicted) {
            link.shared = link.shared.join(position);
        }
    }

    /// Up to where what the parent of `epoch` had flushed is in it.
    pub fn shared(&self, epoch: Epoch) -> Position {
        self.links.get(&epoch).map_or(Position::START, |link| link.shared)
    }

    /// Says whether `parent` went on on its own timeline otherwise than by `epoch`, as a row shows
    /// that was read: no crash takes such a row away.
    pub fn went_on_without(&self, parent: Epoch, epoch: Epoch) -> bool {
        self.links.iter().any(|(child, link)| {
            // A later life's row says nothing of a life that was seen late.
            (child.life.start, child.life.reset) < (epoch.life.start, epoch.life.reset)
                && link.has_row
                && link.parent == Some(parent)
                && child.timeline == parent.timeline
        })
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
            let link = Link {
                parent,
                fork,
                n,
                has_row: from_row,
                shared: Position::START,
                contradicted: false,
            };
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
            (known.fork, known.contradicted) = (Fork::Unknown, true);
            known.shared = Position::START;
        } else if from_row && !was_row {
            *known = Link {
                parent,
                fork,
                n,
                has_row: true,
                shared: Position::START,
                contradicted: false,
            };
        } else if from_row {
            // Nothing before it can be told any more.
            (known.parent, known.fork, known.contradicted) = (None, Fork::Unknown, true);
            known.shared = Position::START;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::Life;
    use crate::position::Lsn;

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
