//! Recipes in which the leader stays the leader: crashes, restarts, resets, a restored copy.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use super::promotions::ROW_WITHIN;
use super::trio::{Commit, Trio};
use crate::postgres::{Server, Stop};
use crate::wait::until;

/// How long to wait for a flush that ends inside a record; a busy leader has none that stays.
const TORN_WITHIN: Duration = Duration::from_secs(5);

/// Commits a row that is acknowledged and never flushed, and ends the leader.
pub(super) async fn lose_unflushed(trio: &mut Trio, leader: &Server) -> Result<()> {
    const WAL_WRITER: &str = "walwriter";
    leader.signal_process(WAL_WRITER, "STOP").await?;
    trio.write(leader, Commit::Unflushed).await?;
    trio.did(format!("{} acknowledged a row that it has not flushed", leader.name()));
    trio.seen(leader).await?;
    // A stopped process cannot be asked to end; killed, it flushes nothing.
    leader.signal_process(WAL_WRITER, "KILL").await?;
    leader.stop(Stop::Immediate).await?;
    trio.did(format!("{} is killed", leader.name()));
    Ok(())
}

/// Writes to the leader, is seen, and asks everybody.
async fn goes_on(trio: &mut Trio, leader: &Server) -> Result<()> {
    trio.write(leader, Commit::Flushed).await?;
    trio.seen(leader).await?;
    trio.accepted(leader, ROW_WITHIN).await?;
    trio.write(leader, Commit::Flushed).await?;
    for standby in trio.others() {
        standby.await_streaming().await?;
        standby.catch_up_with(leader).await?;
    }
    trio.ask_all().await
}

/// An acknowledged commit is lost by a crash on one timeline.
pub(super) async fn async_lost(trio: &mut Trio) -> Result<()> {
    let leader = trio.leader().clone();
    lose_unflushed(trio, &leader).await?;
    leader.start().await?;
    trio.did(format!("{} is started", leader.name()));
    goes_on(trio, &leader).await
}

/// The whole server recovers because one of its processes was killed.
pub(super) async fn backend_killed(trio: &mut Trio) -> Result<()> {
    let leader = trio.leader().clone();
    trio.write(&leader, Commit::Flushed).await?;
    leader.kill_backend().await?;
    trio.did(format!("a backend of {} was killed", leader.name()));
    goes_on(trio, &leader).await
}

/// As [`backend_killed`], while the flush position is a page start inside a record.
pub(super) async fn torn_record(trio: &mut Trio) -> Result<()> {
    const ENDS_IN_A_RECORD: &str = "select pg_current_wal_flush_lsn() - '0/0' > 0 \
        and (pg_current_wal_flush_lsn() - '0/0') % 8192 = 0 \
        and pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()";
    let leader = trio.leader().clone();
    let bulk = leader.connect("postgres", "postgres").await?;
    bulk.batch_execute(
        "begin; insert into failover_noise select repeat('x', 970) from generate_series(1, 900)",
    )
    .await?;
    let torn = async || leader.value::<bool>(ENDS_IN_A_RECORD).await;
    let what = "the flush ends at a page start inside a record";
    let word = if until(what, TORN_WITHIN, torn).await.is_ok() { "at" } else { "not at" };
    trio.did(format!("a bulk transaction is open, flush is {word} a page start"));
    trio.seen(&leader).await?;
    leader.kill_backend().await?;
    trio.did(format!("a backend of {} was killed", leader.name()));
    goes_on(trio, &leader).await
}

/// A stop and a start that lose nothing.
pub(super) async fn clean_restart(trio: &mut Trio) -> Result<()> {
    let leader = trio.leader().clone();
    trio.write(&leader, Commit::Flushed).await?;
    leader.restart(Stop::Fast).await?;
    trio.did(format!("{} is restarted cleanly", leader.name()));
    goes_on(trio, &leader).await
}

/// An operator resets statistics.
pub(super) async fn reset(trio: &mut Trio) -> Result<()> {
    let leader = trio.leader().clone();
    trio.write(&leader, Commit::Flushed).await?;
    leader.reset_statistics().await?;
    trio.did(format!("statistics of {} are reset", leader.name()));
    goes_on(trio, &leader).await
}

/// The leader goes back in time; its standbys are ahead of it and cannot follow.
///
/// The copy is one of its own, taken at a clean stop, or one of a standby.
pub(super) async fn restored(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (leader, standby, _) = trio.roles(random)?;
    let copied = if random.bool() { &leader } else { &standby };
    let copy = copied.copy_data_dir().await?;
    trio.did(format!("{} is copied", copied.name()));
    for standby in trio.others() {
        standby.await_streaming().await?;
    }
    trio.write(&leader, Commit::Flushed).await?;
    trio.noise(&leader, 200).await?;
    trio.write(&leader, Commit::Flushed).await?;
    for standby in trio.others() {
        standby.catch_up_with(&leader).await?;
    }
    trio.all_seen().await?;
    trio.accepted(&leader, ROW_WITHIN).await?;
    leader.restore_data_dir(&copy).await?;
    copy.remove().await?;
    for standby in trio.others() {
        trio.breaks(&standby);
    }
    leader.start().await?;
    trio.did(format!("{} is started from the copy", leader.name()));
    trio.write(&leader, Commit::Flushed).await?;
    trio.all_seen().await?;
    trio.ask_all().await
}
