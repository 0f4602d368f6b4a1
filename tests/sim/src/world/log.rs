//! Every record ever written, as a tree: each has one predecessor, for ever.
//!
//! Positions are bytes, with page and segment headers as PostgreSQL lays them out. No rule of
//! Tidegate is in here.

use std::rc::Rc;

use tidegate_core::lineage::{Epoch, LineageRow};

const PAGE_BYTES: u64 = 8192;
const SEGMENT_BYTES: u64 = 16 << 20;

/// A record, by the order of writing.
pub(crate) type Rec = u32;

/// A lineage row as it was inserted.
#[derive(Debug)]
pub(crate) struct RowWrite {
    pub(crate) row: LineageRow,
    /// What the table held on its writer then, the row included.
    pub(crate) table: Vec<LineageRow>,
    /// The record carries the whole page: whoever replays it shows the writer's table.
    pub(crate) image: bool,
}

#[derive(Debug)]
pub(crate) struct Record {
    /// Where it ends.
    pub(crate) end: u64,
    pub(crate) length: u64,
    pub(crate) branch: usize,
    /// How many records precede it.
    pub(crate) depth: usize,
    pub(crate) row: Option<Rc<RowWrite>>,
    pub(crate) flushed_at: Option<u64>,
    pub(crate) acknowledged_at: Option<u64>,
}

/// What one life of a leader added.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) epoch: Epoch,
    pub(crate) server: usize,
    /// The last record it found.
    pub(crate) parent: Option<Rec>,
    base: usize,
    records: Vec<Rec>,
}

#[derive(Debug, Default)]
pub(crate) struct LogTree {
    pub(crate) records: Vec<Record>,
    pub(crate) branches: Vec<Branch>,
}

/// Where the next record starts, which is what an insert position names.
pub(crate) const fn after_header(end: u64) -> u64 {
    if end.is_multiple_of(SEGMENT_BYTES) {
        end + 40
    } else if end.is_multiple_of(PAGE_BYTES) {
        end + 24
    } else {
        end
    }
}

/// Where a record of `length` bytes ends that follows one which ended at `end`.
fn end_of(end: u64, length: u64) -> u64 {
    let mut at = after_header(end);
    let mut left = length;
    loop {
        let room = PAGE_BYTES - at % PAGE_BYTES;
        if left <= room {
            return at + left;
        }
        left -= room;
        at = after_header(at + room);
    }
}

/// The length of a record that ends exactly where a page does; `None` if that page has no room.
pub(crate) fn fills_page(end: u64) -> Option<u64> {
    let room = PAGE_BYTES - after_header(end) % PAGE_BYTES;
    (room >= 32).then_some(room)
}

/// The last page start at or before `position`.
pub(crate) const fn page_start(position: u64) -> u64 {
    position - position % PAGE_BYTES
}

impl LogTree {
    pub(crate) fn record(&self, rec: Rec) -> &Record {
        &self.records[rec as usize]
    }

    pub(crate) fn end(&self, rec: Option<Rec>) -> u64 {
        rec.map_or(FIRST_END, |rec| self.record(rec).end)
    }

    /// The epoch a record was written in.
    pub(crate) fn epoch(&self, rec: Rec) -> Epoch {
        self.branches[self.record(rec).branch].epoch
    }

    pub(crate) fn timeline(&self, rec: Rec) -> u32 {
        self.epoch(rec).timeline
    }

    pub(crate) fn begin(&mut self, epoch: Epoch, server: usize, parent: Option<Rec>) -> usize {
        let base = parent.map_or(0, |parent| self.record(parent).depth + 1);
        self.branches.push(Branch { epoch, server, parent, base, records: Vec::new() });
        self.branches.len() - 1
    }

    pub(crate) fn append(&mut self, branch: usize, length: u64, row: Option<RowWrite>) -> Rec {
        let rec = Rec::try_from(self.records.len()).expect("few records");
        let own = &self.branches[branch];
        let last = own.records.last().copied().or(own.parent);
        let end = end_of(self.end(last), length);
        let depth = own.base + own.records.len();
        self.records.push(Record {
            end,
            length,
            branch,
            depth,
            row: row.map(Rc::new),
            flushed_at: None,
            acknowledged_at: None,
        });
        self.branches[branch].records.push(rec);
        rec
    }

    /// The branch of an epoch.
    pub(crate) fn branch_of(&self, epoch: Epoch) -> Option<usize> {
        self.branches.iter().position(|branch| branch.epoch == epoch)
    }

    /// The last record ever written in a branch, or what it grew from.
    pub(crate) fn tip(&self, branch: usize) -> Option<Rec> {
        let own = &self.branches[branch];
        own.records.last().copied().or(own.parent)
    }

    /// The last lineage row a branch found.
    pub(crate) fn row_before(&self, branch: usize) -> Option<Epoch> {
        let parent = self.branches[branch].parent?;
        self.path(parent).find_map(|(branch, depth)| {
            let own = &self.branches[branch];
            let found = own.records.get(..=depth - own.base)?.iter().rev();
            let rows = found.filter_map(|rec| self.record(*rec).row.as_ref());
            rows.map(|write| write.row.epoch).next()
        })
    }

    /// The branches that `rec` grew through, each with the first depth not in it any more.
    fn path(&self, rec: Rec) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = Some(rec);
        std::iter::from_fn(move || {
            let rec = at?;
            let record = self.record(rec);
            at = self.branches[record.branch].parent;
            Some((record.branch, record.depth))
        })
    }

    /// Says whether whoever has `tip` has `rec`, too.
    pub(crate) fn is_in(&self, rec: Rec, tip: Option<Rec>) -> bool {
        let wanted = self.record(rec);
        let Some(tip) = tip else { return false };
        self.path(tip).any(|(branch, depth)| branch == wanted.branch && depth >= wanted.depth)
    }

    /// The last record that both have.
    pub(crate) fn common(&self, one: Rec, other: Option<Rec>) -> Option<Rec> {
        let other = other?;
        for (branch, depth) in self.path(one) {
            let shared = self.path(other).find(|(b, _)| *b == branch);
            if let Some((_, limit)) = shared {
                let own = &self.branches[branch];
                return own.records.get(depth.min(limit) - own.base).copied();
            }
        }
        None
    }
}

/// Where the first record starts: shortly before a segment ends, so that one is crossed.
const FIRST_END: u64 = 3 * SEGMENT_BYTES - 5 * PAGE_BYTES + 1000;
