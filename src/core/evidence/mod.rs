//! The strings a database speaks, parsed and normalised.
//!
//! Evidence is unsigned. It comes from an application's own connection and raises only the session
//! that brings it; no fact, flush or leader is ever believed from it. Only polls of our own sources
//! are observations.

mod parse;
mod written;

pub use parse::{EVIDENCE_BYTES_MAX, EvidenceError};

use crate::lineage::{Epoch, Incarnation};
use crate::position::Position;

/// Which function of the `tidegate` schema returned the string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvidenceKind {
    /// `tidegate.capture()`, in the statement after COMMIT.
    Capture,
    /// `tidegate.before()`, inside the transaction.
    Before,
    /// `tidegate.sample()`, after a read.
    Sample,
    /// Our own poll.
    Poll,
}

/// One reading of one server process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// Which function returned it.
    pub kind: EvidenceKind,
    /// `server_version_num` of the server.
    pub server_version_num: u32,
    /// The life of the process that answered.
    pub incarnation: Incarnation,
    /// What its role lets it show.
    pub role: Role,
    /// The last replayed position: of a standby now, of a promoted leader where it was promoted.
    ///
    /// `None` on a leader that never recovered in this life.
    pub replay: Option<Position>,
    /// The last row of the lineage table it shows; `None` if it shows none.
    pub row: Option<Epoch>,
    /// Says whether the caller's session may have acknowledged commits before their flush:
    /// `synchronous_commit` was `off`, or nothing known.
    pub asynchronous: bool,
}

/// Whether a server can write, with what only that role shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Out of recovery.
    Writable {
        /// The timeline it writes.
        timeline: u32,
        /// The normalised insert position: no acknowledged commit ends past it.
        insert: Position,
        /// Everything up to here survives a crash and is sent to standbys.
        flush: Position,
        /// Says whether the flush position, as printed, was the first byte of a page.
        flush_starts_page: bool,
    },
    /// In recovery.
    Standby {
        /// The timeline its WAL receiver names; `None` while there is no receiver or no right to
        /// see it.
        received_timeline: Option<u32>,
    },
}

impl Evidence {
    /// The epoch it was read in; `None` in recovery.
    pub const fn epoch(&self) -> Option<Epoch> {
        match self.role {
            Role::Writable { timeline, .. } => Some(Epoch::new(timeline, self.incarnation.life)),
            Role::Standby { .. } => None,
        }
    }

    /// Everything up to here is visible on that server, in its role; `None` if it did not say.
    pub const fn position(&self) -> Option<Position> {
        match self.role {
            Role::Writable { insert, .. } => Some(insert),
            Role::Standby { .. } => self.replay,
        }
    }

    /// The major version of the server.
    pub const fn server_major(&self) -> u32 {
        self.server_version_num / 10_000
    }
}
