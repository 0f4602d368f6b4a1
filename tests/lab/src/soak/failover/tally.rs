//! What sessions did, counted.

use std::ops::AddAssign;
use std::time::Duration;

/// What sessions did, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Commits that were acknowledged.
    pub writes: u64,
    /// Writes that failed, or of which nobody knows.
    pub unwritten: u64,
    /// Commits that the service could not be told of at once.
    pub unrecorded: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Those in fair weather.
    pub fair: u64,
    /// Those by a replica in fair weather, without a flag.
    pub fair_by_replica: u64,
    /// Those by a replica, without a flag.
    pub by_replica: u64,
    /// Those by the leader, without a flag.
    pub by_leader: u64,
    /// Those with a flag: stale, or the session unknown.
    pub flagged: u64,
    /// Reads that were refused.
    pub refused: u64,
    /// Reads that broke off.
    pub broken: u64,
    /// Jobs that read with a token they were given.
    pub jobs: u64,
    /// Waits that began.
    pub waits: u64,
    /// Those that ended fresh.
    pub waits_fresh: u64,
    /// Those whose time was up.
    pub waits_timed_out: u64,
    /// Those that ended by a loss.
    pub waits_lost: u64,
    /// Those that ended unknown, or with their node gone.
    pub waits_unknown: u64,
    /// Those that ended with an error.
    pub waits_failed: u64,
    /// Those that had not ended long after their time was up.
    pub waits_open: u64,
    /// The longest of them.
    pub longest_wait: Duration,
    /// Rows that were looked for on the standbys just after a read.
    pub probes: u64,
    /// Those that some standby lacked.
    pub lacking: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, mut other: Self) {
        for (own, more) in self.counters().into_iter().zip(other.counters()) {
            *own += *more;
        }
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}

impl Tally {
    const fn counters(&mut self) -> [&mut u64; 21] {
        [
            &mut self.writes,
            &mut self.unwritten,
            &mut self.unrecorded,
            &mut self.reads,
            &mut self.fair,
            &mut self.fair_by_replica,
            &mut self.by_replica,
            &mut self.by_leader,
            &mut self.flagged,
            &mut self.refused,
            &mut self.broken,
            &mut self.jobs,
            &mut self.waits,
            &mut self.waits_fresh,
            &mut self.waits_timed_out,
            &mut self.waits_lost,
            &mut self.waits_unknown,
            &mut self.waits_failed,
            &mut self.waits_open,
            &mut self.probes,
            &mut self.lacking,
        ]
    }
}
