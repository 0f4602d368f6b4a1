//! What happens in a polling gap: crashes and promotions that nobody saw.
//!
//! In each, the raw evidence after the gap is read on the servers and a plausible rule is applied:
//! it calls a mark covered whose row is gone. The product without one rule does the same; with
//! all of them it tells of the loss.

use tidegate_client::NoticeKind;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{ClusterOptions, Lsn, Stop};

use super::desk::replica_now;
use super::experiments_sight::Sight;
use super::stage::{Stage, commit, commit_unflushed, life, on_both_majors, shows, write_past};

on_both_majors! {
    two_crashes => two_crashes_in_one_gap_look_like_one_pg15,
        two_crashes_in_one_gap_look_like_one_pg18;
    an_unseen_promotion => a_frozen_replay_position_is_no_fork_of_an_older_line_pg15,
        a_frozen_replay_position_is_no_fork_of_an_older_line_pg18;
    unseen_siblings => a_sibling_of_the_same_number_is_no_restart_pg15,
        a_sibling_of_the_same_number_is_no_restart_pg18;
}

/// A: between two polls the leader crashes, writes, and crashes again.
async fn two_crashes(major: Major) {
    let options = ClusterOptions::new(major).standbys(1).setting("wal_writer_delay", "10s");
    let stage = Stage::of(options).await;
    let (l, r1) = (stage.l(), stage.r1());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "fork_interval").await;
    let kept = commit(l, 1).await;
    let [survives, also] = [right.desk.wrote(&kept).await, wrong.desk.wrote(&kept).await];
    right.desk.until_served_by(&survives, "r1").await;
    wrong.desk.until_served_by(&also, "r1").await;

    right.lose().await;
    wrong.lose().await;
    let lost = commit_unflushed(l, 2).await;
    let sessions = [right.desk.wrote(&lost).await, wrong.desk.wrote(&lost).await];
    l.kill_backend().await.expect("the first crash");
    let first = l.replay_lsn().await.expect("where its recovery ended");
    write_past(l, lost.position(), 100).await;
    l.kill_backend().await.expect("the second crash");
    let second = l.replay_lsn().await.expect("where its recovery ended");
    r1.catch_up_with(l).await.expect("r1 follows");

    // The rule: after a crash, the leader's replay position is where its former life ended.
    assert!(first < lost.position() && lost.position() <= second, "{first} {second}: {lost:?}");
    assert!(r1.replay_lsn().await.expect("it answers") >= lost.position(), "so r1 is fresh");
    assert!(!shows(r1, lost.id).await && !shows(l, lost.id).await, "and the row is gone");

    right.regain().await;
    right.desk.until_leads(l).await;
    let answer = right.answer(&sessions[0]).await;
    assert_eq!(answer.told(), [NoticeKind::PossiblyLost], "{answer:?}");
    let answer = right.desk.until_served_by(&survives, "r1").await;
    let fork = right.leading_epoch().await.fork.expect("it is no root");
    assert_eq!(answer.told(), [], "{fork:?}: {answer:?}");
    assert_eq!(fork.at_most.parse::<Lsn>().ok(), Some(second), "{fork:?}");

    wrong.regain().await;
    wrong.desk.until_leads(l).await;
    let answer = wrong.desk.until_served_by(&sessions[1], "r1").await;
    assert_eq!(answer.told(), [], "it was to know nothing of the loss");
}

/// C: r1's promotion is not seen; r2 follows it by a reload, in the life it was polled in, and is
/// promoted in turn.
async fn an_unseen_promotion(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (r1, r2) = (stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "fork_interval").await;
    let kept = commit(stage.l(), 1).await;
    let [survives, also] = [right.desk.wrote(&kept).await, wrong.desk.wrote(&kept).await];
    right.desk.until_served_by(&survives, "r2").await;
    wrong.desk.until_served_by(&also, "r2").await;

    right.lose().await;
    wrong.lose().await;
    let before = life(r2).await;
    let (_, lost) = stage.part(2, 3).await;
    let sessions = [right.desk.wrote(&lost).await, wrong.desk.wrote(&lost).await];
    let fork = stage.succeed(r1).await;
    write_past(r1, lost.position(), 100).await;
    r2.repoint(r1).await.expect("a reload is enough");
    r2.catch_up_with(r1).await.expect("r2 follows");
    r1.stop(Stop::Immediate).await.expect("it dies");
    let frozen = r2.promote().await.expect("a promotion");

    // The rule: it was seen in recovery, so its frozen replay position is the fork.
    assert_eq!(before, life(r2).await, "it was seen in recovery in this life");
    assert_eq!(r2.timeline().await.expect("it leads"), 3);
    assert!(fork < lost.position() && lost.position() <= frozen, "{fork} {frozen}: {lost:?}");
    assert!(!shows(r2, lost.id).await, "and the row is gone");
    assert!(shows(r2, kept.id).await);

    right.desk.until_unseen(r1).await;
    right.regain().await;
    right.desk.until_leads(r2).await;
    let answer = right.answer(&sessions[0]).await;
    assert_eq!(answer.told(), [NoticeKind::PossiblyLost], "{answer:?}");
    let answer = right.answer(&survives).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("r2", vec![]), "{answer:?}");

    wrong.regain().await;
    wrong.desk.until_leads(r2).await;
    let answer = wrong.answer(&sessions[1]).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("r2", vec![]), "{answer:?}");
}

/// D: r1, which is behind, is promoted and dies; r2 is promoted by itself to the same number.
async fn unseen_siblings(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (r1, r2) = (stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "unknown_upward").await;

    r1.cut_reception().await.expect("r1 falls behind");
    // More than a leader writes by itself, page images of what it reads.
    stage.l().sql("insert into notes select generate_series(10000, 30000)").await.expect("rows");
    r2.catch_up_with(stage.l()).await.expect("r2 does not");
    right.lose().await;
    wrong.lose().await;
    stage.succeed(r1).await;
    let before = life(r1).await;
    let lost = commit(r1, 2).await;
    let sessions = [right.desk.wrote(&lost).await, wrong.desk.wrote(&lost).await];
    r1.stop(Stop::Immediate).await.expect("it dies");
    let frozen = r2.promote().await.expect("a promotion");

    // The rule: the same timeline, another start, another reset and a replay position above: the
    // leader crashed, and everything up to there is still in its log.
    assert_eq!(r2.timeline().await.expect("it leads"), 2);
    assert_ne!(before, life(r2).await);
    assert!(lost.position() <= frozen, "{frozen}: {lost:?}");
    assert!(!shows(r2, lost.id).await, "and the row is gone");

    right.desk.until_unseen(r1).await;
    right.regain().await;
    right.desk.until_leads(r2).await;
    let answer = right.answer(&sessions[0]).await;
    assert_eq!(answer.told(), [NoticeKind::PossiblyLost], "{answer:?}");
    let answer = right.desk.select(&sessions[0], &replica_now()).await;
    assert_eq!(answer.node, "", "{answer:?}");

    wrong.regain().await;
    wrong.desk.until_leads(r2).await;
    let answer = wrong.answer(&sessions[1]).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("r2", vec![]), "{answer:?}");
}
