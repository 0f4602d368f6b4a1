//! Two standbys of one dead leader, each promoted by itself: two histories under one name.
//!
//! Nothing in either database tells them apart but what was written after the fork. Which of them
//! is right is the operator's to say, and a wait for that is no answer to a session.

use std::fs;

use tidegate_client::{Level, NoticeKind, Policy, Reason};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Server, Stop};
use tidegate_lab::service::{PARTITION, system_id};
use tidegate_proto::v1::ResolveSplitRequest;
use tidegate_proto::v1::partition::State;

use super::desk::{Desk, either_soon, replica_now};
use super::stage::{Stage, commit, life, on_both_majors, rule_off, shows, write_past};

on_both_majors! {
    twins_of_one_fork =>
        twins_with_the_same_history_file_are_never_taken_for_each_other_pg15,
        twins_with_the_same_history_file_are_never_taken_for_each_other_pg18;
    twins_of_two_forks =>
        a_mark_that_only_one_twin_has_is_served_by_neither_pg15,
        a_mark_that_only_one_twin_has_is_served_by_neither_pg18;
}

/// What PostgreSQL wrote down of how timeline 2 began.
fn history_file(server: &Server) -> Vec<u8> {
    fs::read(server.data_dir().join("pg_wal/00000002.history")).expect("a history file")
}

/// The timeline a standby receives.
async fn received_timeline(standby: &Server) -> i32 {
    let query = "select received_tli from pg_stat_wal_receiver";
    standby.value(query).await.expect("a receiver")
}

impl Desk {
    /// Waits until nobody leads, because several do.
    async fn until_split(&self) {
        self.until_partition("the partition is split", |p| p.state() == State::Split).await;
    }
}

/// E5, H17: same database, same timeline, the same history file byte for byte.
async fn twins_of_one_fork(major: Major) {
    let stage = Stage::set(major, 3).await;
    let desk = stage.desk().await;
    let (a, b, follower) = (stage.r1(), stage.r2(), stage.cluster.standby(2));
    let first = commit(stage.l(), 1).await;
    let common = desk.wrote(&first).await;
    desk.until_flushed(&first).await;
    stage.cluster.catch_up().await.expect("standbys follow");
    stage.l().stop(Stop::Immediate).await.expect("it dies");
    let (at, bt) = (a.promote().await, b.promote().await);
    assert_eq!(at.expect("a promotion"), bt.expect("a promotion"), "where they part");
    follower.repoint(b).await.expect("it follows b");
    let on_a = commit(a, 10).await;
    write_past(b, on_a.position(), 1000).await;
    follower.catch_up_with(b).await.expect("it has all of b");

    // By the names and the numbers the follower of b has what was written on a.
    assert_eq!(history_file(a), history_file(b));
    assert_eq!(system_id(a).await.expect("an id"), system_id(b).await.expect("an id"));
    let timelines = (a.timeline().await.expect("2"), received_timeline(follower).await);
    assert_eq!(timelines, (2, 2));
    assert!(follower.replay_lsn().await.expect("it answers") >= on_a.position());
    assert!(!shows(follower, on_a.id).await && !shows(b, on_a.id).await);

    desk.until_split().await;
    let (written_on_a, on_b) = (desk.wrote(&on_a).await, commit(b, 20).await);
    let written_on_b = desk.wrote(&on_b).await;
    for session in [&written_on_a, &written_on_b] {
        for policy in [replica_now(), either_soon(), Policy::new(Level::Leader)] {
            let answer = desk.select(session, &policy).await;
            assert_eq!((answer.node.as_str(), answer.reason), ("", Reason::Split), "{answer:?}");
            assert_eq!(answer.told(), [], "nobody knows yet: {answer:?}");
        }
    }
    let answer = desk.select(&written_on_a, &Policy::new(Level::Eventual)).await;
    assert_eq!(answer.node, "r3", "{answer:?}");
    assert_eq!(answer.met, [], "{answer:?}");
    let answer = desk.select(&common, &replica_now()).await;
    assert!(["", "r3"].contains(&answer.node.as_str()), "{answer:?}");
    assert!(shows(follower, 1).await);

    // Without the rule the first of the two leads, and lacks what the other acknowledged.
    let first = stage.options.clone().without("l").guards(rule_off("who_leads"));
    let first = Desk::launch(first).await;
    first.until_partition("one of them leads", |p| p.state() == State::Led).await;
    let wrong = first.wrote(&on_b).await;
    let answer = first.select(&wrong, &Policy::new(Level::Leader)).await;
    let named = stage.cluster.server(&answer.node).expect("somebody is named");
    let lacks = if named.name() == b.name() { on_a.id } else { on_b.id };
    assert!(!shows(named, lacks).await, "{answer:?}");

    // Only the operator can say which one is right; the other is then known to be wrong.
    let verdict =
        ResolveSplitRequest { partition: PARTITION.to_owned(), incarnation: life(b).await };
    let resolved = desk.admin().await.resolve_split(verdict).await;
    assert_eq!(resolved.expect("it is taken").into_inner().node, "r2");
    desk.until_leads(b).await;
    let answer = desk.until_served_by(&written_on_b, "r3").await;
    assert_eq!(answer.told(), [], "{answer:?}");
    assert!(shows(follower, on_b.id).await);
    let answer = desk.select(&written_on_a, &either_soon()).await;
    let told = answer.told();
    assert!(matches!(told[..], [NoticeKind::WriteLost | NoticeKind::PossiblyLost]), "{answer:?}");
    let ids = [answer.notices[0].id.clone()];
    written_on_a.acknowledge(&ids).await.expect("it is acknowledged");
    let answer = desk.until_served_by(&written_on_a, "r3").await;
    assert_eq!(answer.told(), [], "{answer:?}");
    let answer = desk.until_served_by(&common, "r3").await;
    assert_eq!(answer.told(), [], "both had it: {answer:?}");
}

/// One twin had replayed a commit, the other had not.
async fn twins_of_two_forks(major: Major) {
    let stage = Stage::set(major, 3).await;
    let (desk, any) = (stage.desk().await, stage.desk_without("split").await);
    let (short, long, follower) = (stage.r1(), stage.r2(), stage.cluster.standby(2));
    let both = commit(stage.l(), 1).await;
    stage.cluster.catch_up().await.expect("standbys follow");
    for behind in [short, follower] {
        behind.cut_reception().await.expect("reception ends");
    }
    let one = commit(stage.l(), 2).await;
    long.catch_up_with(stage.l()).await.expect("one has it");
    let sessions = [desk.wrote(&both).await, desk.wrote(&one).await];
    let fooled = any.wrote(&one).await;
    for desk in [&desk, &any] {
        desk.until_flushed(&one).await;
    }
    let fork = stage.succeed(short).await;
    for desk in [&desk, &any] {
        desk.until_leads(short).await;
    }
    let later = long.promote().await.expect("a promotion");
    assert!(fork < one.position() && one.position() <= later, "{fork} {later} {one:?}");
    follower.repoint(short).await.expect("it follows the one that lacks the row");
    write_past(short, one.position(), 1000).await;
    follower.catch_up_with(short).await.expect("it has all of it");
    assert!(!shows(follower, one.id).await && shows(long, one.id).await);

    any.until_split().await;
    let wrong = any.until_served_by(&fooled, "r3").await;
    assert_eq!(wrong.reason, Reason::Covered, "alive for one of two: {wrong:?}");

    desk.until_split().await;
    let answer = desk.select(&sessions[1], &replica_now()).await;
    assert_eq!((answer.node.as_str(), answer.reason), ("", Reason::Split), "{answer:?}");
    assert_eq!(answer.told(), [], "{answer:?}");
    let answer = desk.select(&sessions[0], &replica_now()).await;
    assert!(["", "r3"].contains(&answer.node.as_str()), "{answer:?}");
    assert!(shows(follower, both.id).await);
    assert_ne!(answer.told(), [NoticeKind::WriteLost], "{answer:?}");
}
