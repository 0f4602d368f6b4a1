//! A twin attached to the other twin, and a clone promoted to a number that was used before.
//!
//! Sender, timeline, streaming and start times all look right, and the rows are others.

use tidegate_client::NoticeKind;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{ClusterOptions, Lsn, Server, Stop};
use tidegate_proto::v1::partition::State;

use super::desk::replica_now;
use super::experiments_sight::{Sight, allow_rows, refuse_rows};
use super::placement::streams_from;
use super::stage::{Commit, Stage, commit, life, on_both_majors, shows, write_past};

on_both_majors! {
    an_attached_twin => a_twin_attached_without_rewind_streams_and_serves_other_rows_pg15,
        a_twin_attached_without_rewind_streams_and_serves_other_rows_pg18;
    a_used_number => a_clone_promoted_to_a_used_number_looks_like_a_restart_pg15,
        a_clone_promoted_to_a_used_number_looks_like_a_restart_pg18;
}

const SEGMENT_BYTES: u64 = 16 << 20;
/// Something else may write between two rows; then both begin a new file and try again.
const TRIES: i64 = 10;
/// Between the row of one twin and that of the other in its place.
const APART: i64 = 500;
/// Sorts behind all of those, so that both indexes have room for it at the same place.
const LATER: i64 = 5000;

/// Writes the same number of bytes in the same places on two leaders, and different rows.
///
/// Returned is what the first one wrote last; the other wrote what is [`APART`] from it.
async fn write_alike(one: &Server, other: &Server) -> Commit {
    for attempt in 0..TRIES {
        let (mut a, mut b) = (begin_segment(one).await, begin_segment(other).await);
        while a < b {
            a = begin_segment(one).await;
        }
        while b < a {
            b = begin_segment(other).await;
        }
        let mut last = None;
        for id in [2 * attempt + 1000, 2 * attempt + 1001] {
            commit(other, id + APART).await;
            last = Some(commit(one, id).await);
        }
        let ends = (one.insert_lsn().await.ok(), other.insert_lsn().await.ok());
        if ends.0 == ends.1
            && let Some(last) = last
        {
            return last;
        }
    }
    panic!("the two never wrote alike");
}

/// Begins a new file of the log; its number.
async fn begin_segment(leader: &Server) -> u64 {
    leader.sql("select pg_switch_wal()").await.expect("a switch");
    let at: Lsn = leader.insert_lsn().await.expect("it leads");
    u64::from(at) / SEGMENT_BYTES
}

/// Both standbys are promoted; one is stopped and attached to the other as it is.
async fn an_attached_twin(major: Major) {
    let options = ClusterOptions::new(major).standbys(2).setting("wal_writer_delay", "10s");
    let stage = Stage::of(options).await;
    let (l, r1, r2) = (stage.l(), stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "former_twin").await;
    l.stop(Stop::Fast).await.expect("it ends");
    right.lose().await;
    wrong.lose().await;
    let (one, other) = tokio::join!(r1.promote(), r2.promote());
    assert_eq!(one.expect("a promotion"), other.expect("a promotion"), "one fork");
    // One of them is polled first, and would get its row before anybody knows of the other.
    for twin in [r1, r2] {
        refuse_rows(twin).await;
    }
    for sight in [&right, &wrong] {
        sight.regain().await;
        let split = sight.desk.until_partition("it is split", |p| p.state() == State::Split);
        split.await;
    }
    for twin in [r1, r2] {
        allow_rows(twin).await;
        // Nothing but the test writes from here on.
        twin.sql("checkpoint").await.expect("the one of the promotion is over");
    }
    let written = write_alike(r1, r2).await;
    r2.stop(Stop::Kill).await.expect("it ends");
    commit(r1, LATER).await;
    r2.repoint(r1).await.expect("it is stopped");
    r2.start().await.expect("it starts");
    r2.await_streaming().await.expect("it streams");
    r2.catch_up_with(r1).await.expect("it has replayed all of it");

    // The rule: it streams from the leader, on its timeline, and has replayed more than that.
    assert!(streams_from(r2, r1, 2).await);
    assert!(r2.replay_lsn().await.expect("it answers") >= written.position(), "so r2 is fresh");
    assert!(shows(r1, written.id).await && shows(r2, LATER).await);
    assert!(
        !shows(r2, written.id).await && shows(r2, written.id + APART).await,
        "and has other rows"
    );

    right.desk.until_leads(r1).await;
    let session = right.desk.wrote(&written).await;
    let answer = right.desk.select(&session, &replica_now()).await;
    assert_eq!(answer.node, "", "{answer:?}");
    let answer = right.answer(&session).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("r1", vec![]), "{answer:?}");
    let node = right.desk.node("r2").await;
    assert_ne!(node.quarantine_reason, "", "{node:?}");
    wrong.desk.until_leads(r1).await;
    let session = wrong.desk.wrote(&written).await;
    wrong.desk.until_served_by(&session, "r2").await;

    // A new clone is sound, and only the operator knows that it is one.
    r2.clone_from(r1).await.expect("a clone");
    right.desk.until_lives(r2).await;
    let node = right.desk.node("r2").await;
    assert_ne!(node.quarantine_reason, "", "{node:?}");
    right.resume("r2").await;
    let session = right.desk.wrote(&commit(r1, 2).await).await;
    right.desk.until_served_by(&session, "r2").await;
    assert!(shows(r2, 2).await && shows(r2, written.id).await);
}

/// r1 leads on timeline 2, is cloned anew from the old leader, and is promoted to 2 again.
async fn a_used_number(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (l, r1, r2) = (stage.l(), stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "unknown_upward").await;
    r1.promote().await.expect("a promotion");
    right.desk.until_leads(r1).await;
    wrong.desk.until_leads(r1).await;
    let lost = commit(r1, 1).await;
    let sessions = [right.desk.wrote(&lost).await, wrong.desk.wrote(&lost).await];
    let answer = right.answer(&sessions[0]).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("r1", vec![]), "{answer:?}");
    let before = life(r1).await;

    right.lose().await;
    wrong.lose().await;
    write_past(l, lost.position(), 100).await;
    r1.clone_from(l).await.expect("a clone");
    r1.catch_up_with(l).await.expect("it follows");
    l.stop(Stop::Fast).await.expect("it ends");
    let frozen = r1.promote().await.expect("a promotion");
    r2.repoint(r1).await.expect("r2 follows it");

    // The rule: the same node, the same timeline, another start and reset, a replay position at or
    // above what was flushed: it crashed, and lost nothing up to there.
    assert_eq!(r1.timeline().await.expect("it leads"), 2);
    assert_ne!(before, life(r1).await);
    assert!(lost.position() <= frozen, "{frozen}: {lost:?}");
    assert!(!shows(r1, lost.id).await, "and the row is gone");

    right.regain().await;
    right.desk.until_leads(r1).await;
    let answer = right.answer(&sessions[0]).await;
    assert_eq!(answer.told(), [NoticeKind::PossiblyLost], "{answer:?}");
    let fresh = right.desk.wrote(&commit(r1, 2).await).await;
    right.desk.until_served_by(&fresh, "r2").await;
    assert!(shows(r2, 2).await);

    wrong.regain().await;
    wrong.desk.until_leads(r1).await;
    let answer = wrong.desk.until_served_by(&sessions[1], "r2").await;
    assert_eq!(answer.told(), [], "{answer:?}");
    assert!(!shows(r2, lost.id).await);
}
