//! What every session was promised and what it saw, and where the two disagree.
//!
//! The checker talks to nobody: tests tell it what happened. It judges read-your-writes and
//! monotonic reads, counts what keeps a run from proving nothing, and knows neither tokens nor
//! positions, so it cannot repeat a mistake of the code it checks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::claims::Claims;

/// Which promise a read broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// A session sees what it was told is written.
    ReadYourWrites,
    /// A session never sees an older value than it has seen.
    MonotonicReads,
}

/// Who answered a read, and how the answer was labelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A replica, called fresh.
    Replica(String),
    /// The leader.
    Leader(String),
    /// A node whose answer was flagged: stale with its lag, or session state unknown.
    Flagged(String),
}

impl Answer {
    fn node(&self) -> &str {
        match self {
            Self::Replica(node) | Self::Leader(node) | Self::Flagged(node) => node,
        }
    }
}

/// A read that showed less than its session was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise broken.
    pub promise: Promise,
    /// The session that read.
    pub session: String,
    /// The key that was read.
    pub key: String,
    /// The node that answered.
    pub node: String,
    /// The least version the session had to see.
    pub promised: u64,
    /// The version it saw, if the row was there.
    pub seen: Option<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { promise, session, key, node, promised, seen } = self;
        write!(f, "{promise:?}: session {session} read {key} on {node}, was promised version ")?;
        match seen {
            Some(seen) => write!(f, "{promised} and saw {seen}"),
            None => write!(f, "{promised} and saw no row"),
        }
    }
}

/// What one session must see of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    written: Option<u64>,
    seen: Option<u64>,
}

#[derive(Debug, Default)]
struct Session {
    floors: BTreeMap<String, Floor>,
    told: Vec<String>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<String, Session>,
    violations: Vec<Violation>,
    figures: Figures,
    open_faults: u64,
    /// Grows when a fault starts, so that a read knows whether one fell into it.
    faults_started: u64,
}

/// What a run must have met for its silence to mean anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads that were judged.
    pub reads: u64,
    /// Reads answered by a replica without a flag while no fault was open.
    pub calm_replica_reads: u64,
    /// Reads answered by a replica without a flag.
    pub replica_reads: u64,
    /// Reads answered by the leader.
    pub leader_reads: u64,
    /// Reads whose answer was flagged; they break no promise.
    pub flagged_reads: u64,
    /// Rounds in which some standby truly lacked the row when the decision fell.
    pub rounds_lacking: u64,
    /// Things told to sessions.
    pub notices: u64,
    /// Faults fired, by kind.
    pub faults: BTreeMap<String, u64>,
}

/// The record of one run; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    inner: Arc<Mutex<Inner>>,
}

/// A read that has begun: what its session was promised at that moment.
#[derive(Debug)]
#[must_use = "a read that began must end"]
pub struct Read {
    session: String,
    key: String,
    floor: Floor,
    calm: Option<u64>,
}

/// An open fault; it closes when dropped.
#[derive(Debug)]
#[must_use = "the fault closes when this is dropped"]
pub struct FaultWindow {
    checker: Checker,
}

impl Drop for FaultWindow {
    fn drop(&mut self) {
        self.checker.lock().open_faults -= 1;
    }
}

impl Checker {
    /// An empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A test that panicked elsewhere must not hide what was recorded.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a session was told its write is done; versions of a key grow.
    pub fn wrote(&self, session: &str, key: &str, version: u64) {
        let mut inner = self.lock();
        inner.figures.writes += 1;
        let floor = inner.floor(session, key);
        floor.written = floor.written.max(Some(version));
    }

    /// Records what a session was told, a lost write for example.
    pub fn told(&self, session: &str, notice: &str) {
        let mut inner = self.lock();
        inner.figures.notices += 1;
        inner.session(session).told.push(notice.to_owned());
    }

    /// Lowers a promise to what survived, after the session was told of the loss.
    pub fn lost(&self, session: &str, key: &str, survived: Option<u64>) {
        let mut inner = self.lock();
        let floor = inner.floor(session, key);
        floor.written = floor.written.min(survived);
        floor.seen = floor.seen.min(survived);
    }

    /// What a session was told, in order.
    #[must_use]
    pub fn notices(&self, session: &str) -> Vec<String> {
        self.lock().sessions.get(session).map_or_else(Vec::new, |session| session.told.clone())
    }

    /// The newest version of a key that a session was told is written.
    #[must_use]
    pub fn promised(&self, session: &str, key: &str) -> Option<u64> {
        self.lock().sessions.get(session)?.floors.get(key)?.written
    }

    /// Begins a read: call it before the node is selected.
    pub fn begin(&self, session: &str, key: &str) -> Read {
        let mut inner = self.lock();
        let calm = (inner.open_faults == 0).then_some(inner.faults_started);
        let floor = *inner.floor(session, key);
        Read { session: session.to_owned(), key: key.to_owned(), floor, calm }
    }

    /// Ends a read with the version that was seen, or none if the row was missing.
    ///
    /// Returns whether every promise was kept.
    pub fn end(&self, read: Read, seen: Option<u64>, answer: &Answer) -> bool {
        let mut inner = self.lock();
        inner.figures.reads += 1;
        match answer {
            Answer::Flagged(_) => {
                inner.figures.flagged_reads += 1;
                return true;
            }
            Answer::Leader(_) => inner.figures.leader_reads += 1,
            Answer::Replica(_) => {
                inner.figures.replica_reads += 1;
                if inner.open_faults == 0 && read.calm == Some(inner.faults_started) {
                    inner.figures.calm_replica_reads += 1;
                }
            }
        }
        let now = inner.floor(&read.session, &read.key);
        now.seen = now.seen.max(seen);
        // A loss that was told while the read ran lowers what it had to see.
        let written = read.floor.written.min(now.written);
        let known = read.floor.seen.min(now.seen);
        let broken = inner.judge(&read, (written, known), seen, answer.node());
        broken == 0
    }

    /// Counts a round in which some standby still lacked the row after the decision fell.
    pub fn standby_lacked(&self) {
        self.lock().figures.rounds_lacking += 1;
    }

    /// Counts a fault of one kind; reads are not calm until the window is dropped.
    pub fn fault(&self, kind: &str) -> FaultWindow {
        let mut inner = self.lock();
        *inner.figures.faults.entry(kind.to_owned()).or_default() += 1;
        inner.open_faults += 1;
        inner.faults_started += 1;
        drop(inner);
        FaultWindow { checker: self.clone() }
    }

    /// The promises broken so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// The figures so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.lock().figures.clone()
    }

    /// Adds the figures to the claims of a run.
    pub fn report(&self, claims: &mut Claims) {
        let figures = self.figures();
        claims.figure("acknowledged writes", figures.writes);
        claims.figure("judged reads", figures.reads);
        claims.figure("unflagged replica reads outside faults", figures.calm_replica_reads);
        claims.figure("unflagged replica reads", figures.replica_reads);
        claims.figure("leader reads", figures.leader_reads);
        claims.figure("flagged reads", figures.flagged_reads);
        claims.figure("rounds in which a standby lacked the row", figures.rounds_lacking);
        claims.figure("notices told", figures.notices);
        for (kind, count) in figures.faults {
            claims.figure(&format!("faults: {kind}"), count);
        }
    }
}

impl Inner {
    fn session(&mut self, session: &str) -> &mut Session {
        self.sessions.entry(session.to_owned()).or_default()
    }

    fn floor(&mut self, session: &str, key: &str) -> &mut Floor {
        self.session(session).floors.entry(key.to_owned()).or_default()
    }

    fn judge(
        &mut self,
        read: &Read,
        (written, known): (Option<u64>, Option<u64>),
        seen: Option<u64>,
        node: &str,
    ) -> usize {
        let before = self.violations.len();
        let promises = [(Promise::ReadYourWrites, written), (Promise::MonotonicReads, known)];
        for (promise, promised) in promises {
            if let Some(promised) = promised
                && seen < Some(promised)
            {
                self.violations.push(Violation {
                    promise,
                    session: read.session.clone(),
                    key: read.key.clone(),
                    node: node.to_owned(),
                    promised,
                    seen,
                });
            }
        }
        self.violations.len() - before
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
