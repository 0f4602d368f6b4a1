//! One answer of one poll, as it stands in a log: what Tidegate's own source read, and when.
//!
//! Positions are numbers of bytes, times nanoseconds of the boot-time clock. Nothing is judged.

use serde::{Deserialize, Serialize};
use tidegate_core::evidence::{Evidence, Role};
use tidegate_core::lineage::Epoch;
use tidegate_core::views::Observation;

use super::truth::EpochId;

/// One poll of one server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Poll {
    /// Which server was asked.
    pub(super) node: String,
    /// When it was asked.
    pub(super) sent: u64,
    /// When the answer, or the failure, had come.
    pub(super) received: u64,
    /// What it showed; none when it did not answer.
    pub(super) shown: Option<Shown>,
}

/// What a server showed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Shown {
    /// Its start and reset time.
    pub(super) life: (i64, i64),
    /// What only a server out of recovery shows.
    pub(super) writes: Option<Writes>,
    /// The timeline its WAL receiver names.
    pub(super) receives: Option<u32>,
    /// Its replay position.
    pub(super) replay: Option<u64>,
    /// The last lineage row it shows.
    pub(super) row: Option<EpochId>,
}

/// What only a server out of recovery shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Writes {
    /// Its timeline.
    pub(super) timeline: u32,
    /// Where its log ends.
    pub(super) insert: u64,
    /// Up to where that is flushed.
    pub(super) flush: u64,
    /// The flush position, as printed, was the first byte of a page.
    pub(super) flush_starts_page: bool,
}

impl Shown {
    /// The epoch it writes.
    pub(super) fn epoch(&self) -> Option<EpochId> {
        let timeline = self.writes?.timeline;
        Some(EpochId { timeline, start: self.life.0, reset: self.life.1 })
    }

    /// Up to where everything is visible there.
    pub(super) fn position(&self) -> Option<u64> {
        self.writes.map_or(self.replay, |writes| Some(writes.insert))
    }

    /// Of a leader: where its log began, as far as its first poll can tell.
    pub(super) fn begins(&self) -> u64 {
        self.replay.or_else(|| self.position()).unwrap_or(0)
    }
}

impl From<&Evidence> for Shown {
    fn from(evidence: &Evidence) -> Self {
        let life = evidence.incarnation.life;
        let (writes, receives) = match evidence.role {
            Role::Writable { timeline, insert, flush, flush_starts_page } => {
                let (insert, flush) = (insert.scalar(), flush.scalar());
                (Some(Writes { timeline, insert, flush, flush_starts_page }), None)
            }
            Role::Standby { received_timeline } => (None, received_timeline),
        };
        Self {
            life: (life.start, life.reset),
            writes,
            receives,
            replay: evidence.replay.map(tidegate_core::position::Position::scalar),
            row: evidence.row.map(epoch_id),
        }
    }
}

/// A poll that was answered.
pub(super) fn answered(node: &str, seen: &Observation) -> Poll {
    let (sent, received) = (seen.sent_at.as_nanos(), seen.received_at.as_nanos());
    Poll { node: node.to_owned(), sent, received, shown: Some(Shown::from(&seen.evidence)) }
}

/// The lab's own name of an epoch.
pub(super) const fn epoch_id(epoch: Epoch) -> EpochId {
    EpochId { timeline: epoch.timeline, start: epoch.life.start, reset: epoch.life.reset }
}
