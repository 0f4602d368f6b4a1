//! What sessions did, counted.

use std::ops::AddAssign;
use std::time::Duration;

/// What sessions did, counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Commits whose record was answered.
    pub writes: u64,
    /// Writes that failed, or of which nobody knows.
    pub unwritten: u64,
    /// Commits whose record failed.
    pub unrecorded: u64,
    /// Records that were kept in the memory of an instance: due when all is settled.
    pub in_memory: u64,
    /// Records of an instance that did not believe its store: due when all is settled.
    pub in_window: u64,
    /// Reads of sessions known by name alone that promised to show what was written.
    pub judged: u64,
    /// Those of rows that were due.
    pub rows: u64,
    /// Reads of sessions that carry tokens, which promised that.
    pub carried: u64,
    /// Of all these, those after a restriction: the store may have forgotten, or is not reached.
    pub unknown: u64,
    /// Reads that promised less, or nothing.
    pub flagged: u64,
    /// Reads in fair weather.
    pub fair: u64,
    /// Those by a replica, that promised to show what was written.
    pub fair_by_replica: u64,
    /// Reads that were refused.
    pub refused: u64,
    /// Reads that broke off.
    pub broken: u64,
    /// Calls of sessions that carry tokens which failed while both instances ran.
    pub carried_failed: u64,
    /// Reads of those that were refused since no sample of the leader came within their budget.
    pub carried_late: u64,
    /// Rows that were looked for on the late standby just after a read.
    pub probes: u64,
    /// Those that it lacked.
    pub lacking: u64,
    /// How long selects took during an outage: of carried tokens, of names.
    pub took: [Vec<Duration>; 2],
}

impl AddAssign for Tally {
    fn add_assign(&mut self, mut other: Self) {
        for (own, more) in self.counters().into_iter().zip(other.counters()) {
            *own += *more;
        }
        for (own, more) in self.took.iter_mut().zip(other.took) {
            own.extend(more);
        }
    }
}

impl Tally {
    const fn counters(&mut self) -> [&mut u64; 18] {
        [
            &mut self.writes,
            &mut self.unwritten,
            &mut self.unrecorded,
            &mut self.in_memory,
            &mut self.in_window,
            &mut self.judged,
            &mut self.rows,
            &mut self.carried,
            &mut self.unknown,
            &mut self.flagged,
            &mut self.fair,
            &mut self.fair_by_replica,
            &mut self.refused,
            &mut self.broken,
            &mut self.carried_failed,
            &mut self.carried_late,
            &mut self.probes,
            &mut self.lacking,
        ]
    }

    /// The time within which all but one in a hundred selects were answered, in milliseconds: of
    /// carried tokens (0) or of names (1).
    #[must_use]
    pub fn p99(&self, kind: usize) -> f64 {
        let mut sorted = self.took.get(kind).cloned().unwrap_or_default();
        sorted.sort_unstable();
        let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default().as_secs_f64() * 1e3
    }
}
