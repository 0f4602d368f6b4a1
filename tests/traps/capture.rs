//! Where a write is captured, and what each wrong way misses.
//!
//! The standby of each trap stands right before the commit record of the row: a capture below the
//! commit's end is covered there, and the row is missing. What asynchronous commits and page
//! headers do to a capture made in the right place is for `capture_async` and `capture_pages`.

use std::time::Duration;

use tidegate_lab::install::Major;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::capture_wire::pipeline;
use crate::stage::{
    IN_VAIN, Stage, await_fresh, await_received, await_replay_held, covers, fresh_within,
    hold_commits_back, on_both_majors, position_in, shows, text,
};

on_both_majors! {
    inside => trap_capture_inside_the_transaction_pg15, trap_capture_inside_the_transaction_pg18;
    returning => trap_capture_by_returning_pg15, trap_capture_by_returning_pg18;
    implicit => trap_capture_in_an_implicit_transaction_pg15,
        trap_capture_in_an_implicit_transaction_pg18;
    prepared => trap_capture_of_a_prepared_transaction_pg15,
        trap_capture_of_a_prepared_transaction_pg18;
}

/// Longer than any test; ended by the test.
const HOUR: Duration = Duration::from_secs(3_600);

const CAPTURE: &str = "select tidegate.capture()";

async fn inside(major: Major) {
    let stage = Stage::set(major, 1).await;
    let (session, mut writer) = (stage.ruled.session(), stage.writer().await);
    hold(&stage).await;
    let written = session.write(&mut writer, async |transaction| {
        transaction.execute("insert into t values (1)", &[]).await?;
        transaction.query_one(CAPTURE, &[]).await?.try_get::<_, String>(0)
    });
    let written = written.await.expect("it is written");
    is_too_low(&stage, 1, &written.value).await;
    // The client's own capture, which the session carries already.
    assert!(!fresh_within(&session, "r1", IN_VAIN).await);
    is_right(&stage, 1, &written.capture).await;
}

async fn returning(major: Major) {
    let stage = Stage::set(major, 1).await;
    let writer = stage.writer().await;
    hold(&stage).await;
    let wrong = "insert into t values (1) returning tidegate.capture()";
    let wrong = text(&writer, wrong).await;
    let right = text(&writer, CAPTURE).await;
    is_too_low(&stage, 1, &wrong).await;
    is_right(&stage, 1, &right).await;
}

/// Statements sent together without BEGIN are one transaction, which ends with the last of them.
async fn implicit(major: Major) {
    let stage = Stage::set(major, 1).await;
    let writer = stage.writer().await;

    hold(&stage).await;
    let wrong = batch(&writer, "insert into t values (1); select tidegate.capture()").await;
    is_too_low(&stage, 1, &wrong).await;
    is_right(&stage, 1, &text(&writer, CAPTURE).await).await;

    hold(&stage).await;
    let wrong = pipeline(stage.leader(), &["insert into t values (2)", CAPTURE]).await;
    is_too_low(&stage, 2, &wrong).await;
    is_right(&stage, 2, &text(&writer, CAPTURE).await).await;

    // With BEGIN and COMMIT the capture comes after the commit, in one packet all the same.
    hold(&stage).await;
    let right = "begin; insert into t values (3); commit; select tidegate.capture()";
    is_right(&stage, 3, &batch(&writer, right).await).await;

    hold(&stage).await;
    let right = ["begin", "insert into t values (4)", "commit", CAPTURE];
    is_right(&stage, 4, &pipeline(stage.leader(), &right).await).await;
}

async fn prepared(major: Major) {
    let stage = Stage::set(major, 1).await;
    let (first, second) = (stage.writer().await, stage.writer().await);
    hold(&stage).await;
    let prepare = "begin; insert into t values (1); prepare transaction 'one'";
    first.batch_execute(prepare).await.expect("it is prepared");
    let wrong = text(&first, CAPTURE).await;
    // Whoever decides is often somebody else.
    second.batch_execute("commit prepared 'one'").await.expect("it is committed");
    let right = text(&second, CAPTURE).await;
    is_too_low(&stage, 1, &wrong).await;
    is_right(&stage, 1, &right).await;
}

/// Lets r1 stop right before the commit record of the next transaction.
async fn hold(stage: &Stage) {
    hold_commits_back(stage.leader(), stage.r1(), HOUR).await;
}

/// Waits until r1 has received the row and stands before its commit.
async fn await_held(stage: &Stage, id: i64) {
    assert!(shows(stage.leader(), id).await, "row {id} is to be committed");
    let end = stage.leader().insert_lsn().await.expect("a leader that answers");
    await_received(stage.r1(), end).await;
    await_replay_held(stage.r1(), "RecoveryApplyDelay").await;
    assert!(!shows(stage.r1(), id).await, "r1 was to be held before row {id}");
}

/// The wrong way: r1 stands past the capture, is called fresh for it, and lacks the row.
async fn is_too_low(stage: &Stage, id: i64, evidence: &str) {
    await_held(stage, id).await;
    let captured = position_in(evidence);
    assert!(covers(stage.r1(), captured).await, "{captured} was to be below the commit");
    let session = stage.ruled.recorded(evidence).await;
    await_fresh(&session, "r1").await;
    assert!(!shows(stage.r1(), id).await, "row {id} came too early to be missed");
}

/// The right way: r1 is fresh when it shows the row, and not before; r1 follows again afterwards.
async fn is_right(stage: &Stage, id: i64, evidence: &str) {
    await_held(stage, id).await;
    let captured = position_in(evidence);
    assert!(!covers(stage.r1(), captured).await, "{captured} is below the commit");
    let session = stage.ruled.recorded(evidence).await;
    assert!(!fresh_within(&session, "r1", IN_VAIN).await, "called fresh without row {id}");
    stage.r1().apply_delay(Duration::ZERO).await.expect("the delay ends");
    await_fresh(&session, "r1").await;
    assert!(shows(stage.r1(), id).await, "called fresh without row {id}");
    stage.cluster.catch_up().await.expect("r1 follows");
}

/// What the last statement of one simple query returns.
async fn batch(client: &Client, statements: &str) -> String {
    let messages = client.simple_query(statements).await.expect("an answer");
    let rows = messages.iter().filter_map(|message| {
        if let SimpleQueryMessage::Row(row) = message { row.get(0) } else { None }
    });
    rows.last().expect("a row").to_owned()
}
