//! Commits that are acknowledged before they are safe, and the positions that miss them.
//!
//! The WAL writer is stopped, so an asynchronous commit stays where no standby gets it for as long
//! as the trap needs. A slow disk does the same.

use tidegate_client::{Guarantee, Level, Observed, Raise};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Lsn;
use tidegate_lab::wait::LIMIT;
use tokio_postgres::Client;

use crate::stage::{
    IN_VAIN, Stage, await_fresh, covers, flushed_in, fresh_within, named, on_both_majors,
    position_in, select, shows, standby_only, text,
};

on_both_majors! {
    capture => trap_capture_by_written_or_flushed_position_pg15,
        trap_capture_by_written_or_flushed_position_pg18;
    leader_sample => trap_leader_sample_by_flushed_position_pg15,
        trap_leader_sample_by_flushed_position_pg18;
    set_local => trap_set_local_is_invisible_after_the_commit_pg15,
        trap_set_local_is_invisible_after_the_commit_pg18;
}

const WAL_WRITER: &str = "walwriter";

/// Each wrong capture function, after the commit and on its connection.
async fn capture(major: Major) {
    let stage = Stage::set(major, 1).await;
    stage.tell_leaders(WAL_WRITER, "STOP").await;
    let writer = stage.writer().await;
    commit_unsafely(&writer, 1).await;
    for function in ["pg_current_wal_lsn", "pg_current_wal_flush_lsn"] {
        let row = writer.query_one(&format!("select {function}()"), &[]).await;
        let captured: Lsn = row.expect("a position").get(0);
        assert!(covers(stage.r1(), captured).await, "{function} was to miss the commit");
        assert!(!shows(stage.r1(), 1).await, "nobody can have sent the row");
    }
    let evidence = text(&writer, "select tidegate.capture()").await;
    assert!(!covers(stage.r1(), position_in(&evidence)).await, "{evidence}");
    let session = stage.ruled.recorded(&evidence).await;
    assert!(!fresh_within(&session, "r1", IN_VAIN).await, "called fresh without the row");
    assert!(shows(stage.leader(), 1).await && !shows(stage.r1(), 1).await);

    stage.tell_leaders(WAL_WRITER, "CONT").await;
    await_fresh(&session, "r1").await;
    assert!(shows(stage.r1(), 1).await, "called fresh without the row");
}

/// What the leader has flushed, taken for what it has acknowledged.
async fn leader_sample(major: Major) {
    let stage = Stage::without("insert_lsn", major, 1, |options| options).await;
    stage.tell_leaders(WAL_WRITER, "STOP").await;
    commit_unsafely(&stage.writer().await, 1).await;
    if let Some(unruled) = stage.unruled() {
        let read = select(&unruled.session(), &standby_only(Level::Global, LIMIT)).await;
        assert_eq!(named(&read), Some("r1"), "{read:?}");
        assert!(read.met.contains(&Guarantee::Global), "{read:?}");
        assert!(!shows(stage.r1(), 1).await, "nobody can have sent the row");
    }
    let session = stage.ruled.session();
    let read = select(&session, &standby_only(Level::Global, IN_VAIN)).await;
    assert_eq!(named(&read), None, "acknowledged and missing there: {read:?}");

    stage.tell_leaders(WAL_WRITER, "CONT").await;
    let read = select(&session, &standby_only(Level::Global, LIMIT)).await;
    assert_eq!(named(&read), Some("r1"), "{read:?}");
    assert!(shows(stage.r1(), 1).await, "everything acknowledged before the call");
}

/// After COMMIT the setting of the finished transaction is gone: it says that commits wait.
async fn set_local(major: Major) {
    let stage = Stage::set(major, 1).await;
    stage.tell_leaders(WAL_WRITER, "STOP").await;
    let writer = stage.writer().await;
    let write = "begin; set local synchronous_commit = off; insert into t values (1)";
    writer.batch_execute(write).await.expect("a row");
    let before = text(&writer, "select tidegate.before()").await;
    writer.batch_execute("commit").await.expect("a commit");
    let capture = text(&writer, "select tidegate.capture()").await;

    // The wrong way: the flush position, because commits wait for the flush here.
    assert!(capture.ends_with("|on"), "{capture}");
    let flushed = flushed_in(&capture);
    assert!(covers(stage.r1(), flushed).await, "{flushed} was to miss the commit");
    assert!(!shows(stage.r1(), 1).await, "nobody can have sent the row");

    assert!(before.ends_with("|off"), "{before}");
    let alone = stage.ruled.recorded(&capture).await;
    let both = stage.ruled.session();
    let observed = Observed::CaptureWithBefore { capture, before };
    both.record(observed, Raise::Unspecified).await.expect("it is recorded");
    for session in [&alone, &both] {
        assert!(!fresh_within(session, "r1", IN_VAIN).await, "called fresh without the row");
    }
    assert!(!shows(stage.r1(), 1).await, "nobody can have sent the row");
    stage.tell_leaders(WAL_WRITER, "CONT").await;
    for session in [&alone, &both] {
        await_fresh(session, "r1").await;
        assert!(shows(stage.r1(), 1).await, "called fresh without the row");
    }
}

/// Commits a row that stays in the leader's memory.
async fn commit_unsafely(writer: &Client, id: i64) {
    writer.batch_execute("set synchronous_commit = off").await.expect("a setting");
    let row = format!("insert into t values ({id})");
    writer.batch_execute(&row).await.expect("a commit that is acknowledged");
}
