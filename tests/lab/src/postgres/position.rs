//! Where a server stands in the log, and waiting until it stands further.
//!
//! The truth that tests hold answers against: asked of the server itself, remembered nowhere.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Lsn;
use super::server::Server;
use crate::wait::{LIMIT, until};

impl Server {
    /// Tells whether the server replays another's log.
    ///
    /// # Errors
    /// When the server is unreachable.
    pub async fn is_in_recovery(&self) -> Result<bool> {
        self.value("select pg_is_in_recovery()").await
    }

    /// Where the leader's log ends now, by the insert position.
    ///
    /// Page headers are taken off: a standby never reaches a position inside one.
    ///
    /// # Errors
    /// When the server is unreachable or in recovery.
    pub async fn insert_lsn(&self) -> Result<Lsn> {
        let raw: Lsn = self.value("select pg_current_wal_insert_lsn()").await?;
        Ok(without_header(raw))
    }

    /// Up to where the server has replayed; after a promotion, up to where it had.
    ///
    /// # Errors
    /// When the server is unreachable or never was in recovery.
    pub async fn replay_lsn(&self) -> Result<Lsn> {
        self.value("select pg_last_wal_replay_lsn()").await
    }

    /// Waits until a position is replayed; returns how long that took.
    ///
    /// # Errors
    /// When it is not replayed within [`LIMIT`].
    pub async fn wait_until_replayed(&self, lsn: Lsn) -> Result<Duration> {
        let what = format!("{} has replayed {lsn}", self.name());
        until(&what, LIMIT, || async { Ok(self.replay_lsn().await? >= lsn) }).await
    }

    /// Waits until everything a leader has written so far is replayed here.
    ///
    /// # Errors
    /// Those of [`Server::wait_until_replayed`].
    pub async fn catch_up_with(&self, leader: &Self) -> Result<Duration> {
        let started_at = Instant::now();
        let lsn = leader.insert_lsn().await?;
        self.wait_until_replayed(lsn).await?;
        Ok(started_at.elapsed())
    }
}

/// The end of the record before a page header, for a position that stands behind one.
pub(crate) fn without_header(lsn: Lsn) -> Lsn {
    const PAGE_BYTES: u64 = 8 << 10;
    const SEGMENT_BYTES: u64 = 16 << 20;
    let raw = u64::from(lsn);
    if raw % SEGMENT_BYTES == 40 {
        Lsn::from(raw - 40)
    } else if raw % PAGE_BYTES == 24 {
        Lsn::from(raw - 24)
    } else {
        lsn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_behind_a_page_header_is_the_end_of_the_record_before_it() {
        for (raw, end) in [
            (0x500_0028_u64, 0x500_0000_u64),
            (0x500_4018, 0x500_4000),
            (0x500_4028, 0x500_4028),
            (0x500_0018, 0x500_0000),
            (0x500_0000, 0x500_0000),
        ] {
            assert_eq!(u64::from(without_header(Lsn::from(raw))), end, "{raw:x}");
        }
    }
}
