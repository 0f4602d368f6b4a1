//! One server: what it has, and what it says of itself.
//!
//! It follows, leads or is down. It says what PostgreSQL would say, in PostgreSQL's words.

use tidegate_core::lineage::{Epoch, Life, LineageRow};
use tidegate_core::position::Lsn;

use super::SYSTEM;
use super::log::{LogTree, Rec, after_header};

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) life: Life,
    pub(crate) up: bool,
    /// Stopped by a signal: it answers nothing and does nothing, and knows nothing of it.
    pub(crate) frozen: bool,
    /// The branch it writes; `None` in recovery.
    pub(crate) leads: Option<usize>,
    pub(crate) timeline: u32,
    pub(crate) log: Vec<Rec>,
    pub(crate) applied: usize,
    /// What survives a crash, in bytes.
    pub(crate) flushed: u64,
    /// Records wholly before [`Self::flushed`].
    pub(crate) flushed_count: usize,
    /// Where recovery ended in this life.
    pub(crate) recovered_to: Option<u64>,
    pub(crate) upstream: usize,
    /// May its receiver connect?
    pub(crate) receives: bool,
    /// The timeline its receiver names.
    pub(crate) following: Option<u32>,
    /// Its log is not a part of anybody else's: it was attached without a rewind.
    pub(crate) naive: bool,
    /// How much longer the upstream's log is than its own, where both have the same end.
    pub(crate) shift: isize,
    /// Promoted to try something, beside the leader that counts.
    pub(crate) test_copy: bool,
    /// Down for ever.
    pub(crate) gone: bool,
    /// Nobody may see what its receiver does.
    pub(crate) hides_receiver: bool,
    /// May it be attached like that?
    pub(crate) attaches_naively: bool,
    /// From flush to apply.
    pub(crate) delay: u64,
    pub(crate) paused_until: u64,
    /// The WAL writer does nothing before.
    pub(crate) flush_due: u64,
    pub(crate) rows: Vec<LineageRow>,
    rows_at: usize,
}

impl Server {
    pub(crate) fn new(life: Life) -> Self {
        Self {
            life,
            up: true,
            frozen: false,
            leads: None,
            timeline: 1,
            log: Vec::new(),
            applied: 0,
            flushed: 0,
            flushed_count: 0,
            recovered_to: None,
            upstream: 0,
            receives: true,
            following: None,
            naive: false,
            shift: 0,
            test_copy: false,
            gone: false,
            hides_receiver: false,
            attaches_naively: false,
            delay: 0,
            paused_until: 0,
            flush_due: 0,
            rows: Vec::new(),
            rows_at: 0,
        }
    }

    pub(crate) const fn answers(&self) -> bool {
        self.up && !self.frozen
    }

    pub(crate) fn content(&self) -> &[Rec] {
        if self.leads.is_some() { &self.log } else { &self.log[..self.applied] }
    }

    /// The last record a query sees.
    pub(crate) fn tip(&self) -> Option<Rec> {
        self.content().last().copied()
    }

    pub(crate) fn has(&self, tree: &LogTree, rec: Rec) -> bool {
        if self.naive {
            return self.content().contains(&rec);
        }
        self.content().get(tree.record(rec).depth) == Some(&rec)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch::new(self.timeline, self.life)
    }

    /// Cuts its log; whatever was derived from it is worked out again.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.log.truncate(length);
        self.applied = self.applied.min(length);
        self.forget_rows();
    }

    pub(crate) fn forget_rows(&mut self) {
        self.rows.clear();
        self.rows_at = 0;
    }

    /// Reads the table up to what is applied now.
    pub(crate) fn read_rows(&mut self, tree: &LogTree) {
        let end = self.content().len();
        if self.rows_at > end {
            self.forget_rows();
        }
        for at in self.rows_at..end {
            let Some(write) = &tree.record(self.log[at]).row else { continue };
            if write.image {
                self.rows.clone_from(&write.table);
            } else {
                self.rows.push(write.row);
            }
        }
        self.rows_at = end;
    }

    /// The row with the highest number.
    pub(crate) fn last_row(&self) -> Option<LineageRow> {
        self.rows.iter().max_by_key(|row| row.n).copied()
    }

    /// What `capture()`, `before()`, `sample()` or our own poll would return. Rows must be read.
    pub(crate) fn evidence(&self, tree: &LogTree, kind: &str, synchronous: bool) -> String {
        let lsn = |bytes: u64| Lsn::new(bytes).to_string();
        let end = tree.end(self.tip());
        let (timeline, insert, flush, replay, received) = if self.leads.is_some() {
            let replay = self.recovered_to.map_or_else(String::new, lsn);
            let insert = lsn(after_header(end));
            (self.timeline.to_string(), insert, lsn(self.flushed), replay, String::new())
        } else {
            let named = self.following.filter(|_| !self.hides_receiver);
            let received = named.map_or_else(String::new, |timeline| timeline.to_string());
            (String::new(), String::new(), String::new(), lsn(end), received)
        };
        let row = self.last_row().map_or_else(String::new, |row| row.epoch.to_string());
        let (start, reset) = (self.life.start, self.life.reset);
        let recovery = u8::from(self.leads.is_none());
        let commit = if synchronous { "on" } else { "off" };
        format!(
            "tge1|{kind}|150018|{SYSTEM}|{timeline}|{start}|{reset}|{recovery}|{insert}|{flush}|\
             {replay}|{received}|{row}|16777216|{commit}"
        )
    }
}
