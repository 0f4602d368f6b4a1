//! Standbys that look well and stand still: delayed, paused, or held by a reader of their own.
//!
//! In each the standby answers, streams and has received the row; only its replay position says
//! that the row is not there.

use std::pin::pin;
use std::time::Duration;

use tidegate_client::{DirectPool, Level, ReadError};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Server;
use tidegate_lab::service::DATABASE;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::NodeState;
use tokio_postgres::Config;

use crate::stage::{
    IN_VAIN, Stage, await_fresh, await_received, await_replay_held, connection, covers,
    hold_commits_back, named, on_both_majors, position_in, select, shows, standby_only, text,
};

on_both_majors! {
    delayed => trap_delayed_replay_pg15, trap_delayed_replay_pg18;
    paused => trap_paused_replay_pg15, trap_paused_replay_pg18;
    conflict => trap_replay_conflict_pg15, trap_replay_conflict_pg18;
}

/// Longer than any test; ended by the test.
const HOUR: Duration = Duration::from_secs(3_600);

async fn delayed(major: Major) {
    let stage = Stage::set(major, 1).await;
    hold_commits_back(stage.leader(), stage.r1(), HOUR).await;
    let evidence = stage.write(1).await;
    await_replay_held(stage.r1(), "RecoveryApplyDelay").await;
    // Everything but the commit is replayed: the position is honest.
    is_stale_until(&stage, &evidence, 1, async || {
        stage.r1().apply_delay(Duration::ZERO).await.expect("the delay ends");
    })
    .await;
}

async fn paused(major: Major) {
    let stage = Stage::set(major, 1).await;
    stage.r1().pause_replay().await.expect("r1 pauses");
    let evidence = stage.write(1).await;
    is_stale_until(&stage, &evidence, 1, async || {
        stage.r1().resume_replay().await.expect("r1 goes on");
    })
    .await;
}

/// A reader on the standby still needs what the leader has cleaned away.
async fn conflict(major: Major) {
    let stage = Stage::set(major, 1).await;
    stage.leader().sql("insert into t values (-3), (-2), (-1)").await.expect("rows");
    stage.cluster.catch_up().await.expect("r1 follows");

    // Replay waits for the reader, however long it takes.
    set_patience(stage.r1(), "-1").await;
    let reader = connection(stage.r1()).await;
    let begin = "begin isolation level repeatable read; select from t";
    reader.batch_execute(begin).await.expect("a snapshot");
    stage.leader().sql("delete from t where id = -3").await.expect("a row less");
    until("replay waits for the reader", LIMIT, || async {
        // A poll's snapshot may keep the row from being cleaned away at once.
        stage.leader().sql("vacuum (truncate off) t").await?;
        let waits = "select exists (select from pg_stat_activity where backend_type = 'startup' \
                     and wait_event = 'RecoveryConflictSnapshot')";
        stage.r1().value(waits).await
    })
    .await
    .expect("it does");
    let evidence = stage.write(1).await;
    is_stale_until(&stage, &evidence, 1, async || {
        assert_eq!(text(&reader, "select count(*)::text from t").await, "3");
        reader.batch_execute("commit").await.expect("the reader ends by itself");
    })
    .await;

    // Replay waits for nobody: the reader is cancelled, and told so.
    set_patience(stage.r1(), "0").await;
    let mut config = Config::new();
    config.user("postgres").dbname(DATABASE);
    let (pool, policy) = (DirectPool::new(config, 1), standby_only(Level::Session, LIMIT));
    let session = stage.ruled.session();
    let read = session.read_transaction(&pool, &policy, async |transaction| {
        let count = "select count(*) from t";
        let first = transaction.query_one(count, &[]).await?.try_get::<_, i64>(0)?;
        stage.leader().sql("delete from t where id = -2").await.expect("a row less");
        until("the reader is cancelled", LIMIT, || async {
            stage.leader().sql("vacuum (truncate off) t").await?;
            stage.r1().catch_up_with(stage.leader()).await?;
            Ok(transaction.query_one(count, &[]).await.is_err())
        })
        .await
        .expect("it is");
        let again = transaction.query_one(count, &[]).await?.try_get::<_, i64>(0)?;
        Ok::<_, tokio_postgres::Error>((first, again))
    });
    let read = read.await;
    assert!(matches!(read, Err(ReadError::Body(_))), "{read:?}");
    let session = stage.ruled.recorded(&stage.write(2).await).await;
    await_fresh(&session, "r1").await;
    assert!(shows(stage.r1(), 2).await, "called fresh without row 2");
}

/// How long replay waits for readers: -1 for ever, 0 not at all.
async fn set_patience(standby: &Server, limit: &str) {
    standby.set("max_standby_streaming_delay", limit).await.expect("a setting");
}

/// The wrong ways call r1 good; the service does when the row is there, and not before.
async fn is_stale_until(stage: &Stage, evidence: &str, id: i64, release: impl AsyncFnOnce()) {
    let r1 = stage.r1();
    // The wrong ways: it streams, and it has received the row.
    r1.await_streaming().await.expect("it streams");
    await_received(r1, position_in(evidence)).await;
    assert!(!shows(r1, id).await, "row {id} was to be held back");

    assert!(!covers(r1, position_in(evidence)).await, "the position is not honest");
    let session = stage.ruled.recorded(evidence).await;
    let read = select(&session, &standby_only(Level::Session, IN_VAIN)).await;
    assert_eq!(named(&read), None, "{read:?}");
    let mut wait = pin!(await_fresh(&session, "r1"));
    let early = tokio::time::timeout(IN_VAIN, &mut wait).await;
    assert!(early.is_err() && !shows(r1, id).await, "called fresh without row {id}");
    until("the service sees r1 well", LIMIT, || async {
        let partition = stage.ruled.service.partition().await?;
        let well = |node: &NodeState| node.session_eligible && node.poll_error.is_empty();
        Ok(partition.nodes.iter().any(|node| node.name == "r1" && well(node)))
    })
    .await
    .expect("it does");

    release().await;
    wait.await;
    assert!(shows(r1, id).await, "called fresh without row {id}");
}
