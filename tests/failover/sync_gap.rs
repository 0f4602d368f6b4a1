//! What is not promised: under synchronous replication another standby may show a commit before its
//! leader does. The gap is as long as the commit waits, and is measured here.

use std::time::Duration;

use tidegate::clock::Instant;
use tidegate_client::{Guarantee, Observed, Raise};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Server;
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tokio::task::JoinHandle;

use super::desk::{Desk, either_now};
use super::lost_write::CLOCK;
use super::stage::{Stage, commit, connection, on_both_majors, shows, text};

on_both_majors! {
    gap =>
        the_synchronous_gap_is_as_long_as_the_commit_waits_pg15,
        the_synchronous_gap_is_as_long_as_the_commit_waits_pg18;
}

/// How long r2, which the leader waits for, applies a commit later.
const WAITS: [u64; 3] = [100, 300, 900];

/// From one look to the next, and what a look takes.
const LOOK: Duration = Duration::from_millis(50);

/// One commit that waited.
#[derive(Debug)]
struct Gap {
    /// From the commit to its acknowledgement.
    waited: Duration,
    /// From the row on r1 to the row on the leader.
    open: Duration,
}

async fn gap(major: Major) {
    let stage = Stage::set(major, 2).await;
    let desk = stage.desk().await;
    answered_meanwhile(&stage, &desk).await;

    stage.l().set("synchronous_standby_names", "r2").await.expect("it waits for r2");
    let mut gaps = Vec::new();
    for (id, wait) in (1..).zip(WAITS) {
        stage.r2().apply_delay(Duration::from_millis(wait)).await.expect("r2 delays");
        stage.stall.forget();
        let gap = measured(&stage, id).await;
        let (wait, look) = (Duration::from_millis(wait), stage.stall.allow(LOOK));
        assert!(gap.waited >= wait, "{gap:?}");
        assert!(gap.open + look >= wait && gap.open <= gap.waited + look, "{look:?}: {gap:?}");
        gaps.push(gap);
    }
    // The control: nobody is waited for, and the leader shows a commit before anybody else.
    stage.l().set("synchronous_standby_names", "").await.expect("it waits for nobody");
    commit(stage.l(), 100).await;
    assert!(shows(stage.l(), 100).await, "it is acknowledged");
    for Gap { waited, open } in &gaps {
        println!("sync gap {major:?}: the commit waited {waited:?}, the gap was open {open:?}");
    }
}

/// Commits a row that waits until r2 has applied it, and looks for it on r1 and on the leader.
async fn measured(stage: &Stage, id: i64) -> Gap {
    let asked_at = CLOCK.now();
    let commit = begin_commit(stage.l(), id).await;
    await_row(stage.r1(), id).await;
    let open_at = CLOCK.now();
    await_row(stage.l(), id).await;
    let closed_at = CLOCK.now();
    let acknowledged_at = commit.await.expect("it is acknowledged");
    Gap { waited: acknowledged_at.since(asked_at), open: closed_at.since(open_at) }
}

/// What is answered while a commit waits for a standby that never comes: a session that read the
/// row on r1 is sent to the leader, which has the position and does not show the row.
async fn answered_meanwhile(stage: &Stage, desk: &Desk) {
    stage.l().set("synchronous_standby_names", "nobody").await.expect("it waits for ever");
    stage.r2().pause_replay().await.expect("r2 pauses");
    let commit = begin_commit(stage.l(), 0).await;
    await_row(stage.r1(), 0).await;
    let session = desk.session();
    let reader = connection(stage.r1()).await;
    let sample = text(&reader, "select tidegate.sample()").await;
    session.record(Observed::Evidence(sample), Raise::Unspecified).await.expect("it is recorded");
    drain_r1(desk, true).await;
    let answer = desk.select(&session, &either_now()).await;
    assert_eq!(answer.node, "l", "{answer:?}");
    assert!(answer.met.contains(&Guarantee::MonotonicReads), "{answer:?}");
    assert_eq!(answer.told(), [], "{answer:?}");
    let (on_r1, on_leader) = (shows(stage.r1(), 0).await, shows(stage.l(), 0).await);
    assert!(on_r1 && !on_leader, "the leader is behind the standby: {on_r1}, {on_leader}");
    stage.r2().resume_replay().await.expect("r2 resumes");
    drain_r1(desk, false).await;
    stage.l().set("synchronous_standby_names", "").await.expect("it waits for nobody");
    commit.await.expect("it is acknowledged");
    assert!(shows(stage.l(), 0).await, "the gap is closed");
}

/// Begins a commit on another connection; when it was acknowledged.
async fn begin_commit(leader: &Server, id: i64) -> JoinHandle<Instant> {
    let writer = connection(leader).await;
    writer.batch_execute("set synchronous_commit = remote_apply").await.expect("set");
    tokio::spawn(async move {
        let insert = format!("insert into notes values ({id})");
        writer.batch_execute(&insert).await.expect("it is acknowledged");
        CLOCK.now()
    })
}

/// Takes r1 out, so that the leader must answer, or back in.
async fn drain_r1(desk: &Desk, out: bool) {
    let (partition, node) = (PARTITION.to_owned(), "r1".to_owned());
    let request = v1::DrainNodeRequest { partition, node, undrain: !out };
    desk.admin().await.drain_node(request).await.expect("r1 is drained");
}

async fn await_row(server: &Server, id: i64) {
    let what = format!("{} shows the row", server.name());
    until(&what, LIMIT, || async { Ok(shows(server, id).await) }).await.expect("it does");
}
