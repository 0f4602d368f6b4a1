//! Servers whose data is not what it was: several failovers in one gap, a restored leader, another
//! server at a node's address, standbys cloned anew.
//!
//! Addresses, system ids, timelines and growing positions vouch for none of them.

use tidegate_client::{Level, NoticeKind, Policy, WaitOutcome, WaitTarget};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Lsn, Server, Stop};
use tidegate_lab::service::{install, system_id};
use tidegate_lab::wait::{LIMIT, until};

use super::desk::replica_now;
use super::experiments_sight::{Sight, allow_rows, refuse_rows};
use super::stage::{Stage, commit, life, on_both_majors, shows, write_past};

on_both_majors! {
    failovers_in_one_gap => failovers_in_one_gap_are_told_to_nobody_falsely_pg15,
        failovers_in_one_gap_are_told_to_nobody_falsely_pg18;
    a_restored_leader => a_restored_leader_covers_nothing_of_its_former_life_pg15,
        a_restored_leader_covers_nothing_of_its_former_life_pg18;
    a_foreign_server => a_foreign_server_at_a_known_address_is_never_named_pg15,
        a_foreign_server_at_a_known_address_is_never_named_pg18;
    standbys_cloned_anew => standbys_cloned_anew_are_measured_anew_pg15,
        standbys_cloned_anew_are_measured_anew_pg18;
}

/// From `l` to r1 to r2, in good order, and the former leaders follow; nobody saw any of it.
async fn failovers_in_one_gap(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (l, r1, r2) = (stage.l(), stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let first = right.desk.wrote(&commit(l, 1).await).await;
    right.desk.until_served_by(&first, "r2").await;

    right.lose().await;
    l.stop(Stop::Fast).await.expect("it ends");
    r1.promote().await.expect("a promotion");
    r2.repoint(r1).await.expect("r2 follows r1");
    let second = right.desk.wrote(&commit(r1, 2).await).await;
    r2.catch_up_with(r1).await.expect("r2 has it");
    r1.stop(Stop::Fast).await.expect("it ends");
    r2.promote().await.expect("a promotion");
    let third = right.desk.wrote(&commit(r2, 3).await).await;
    for former in [l, r1] {
        former.repoint(r2).await.expect("it is stopped");
        former.start().await.expect("it starts");
        former.await_streaming().await.expect("it follows r2");
    }
    let waits = second.wait(WaitTarget::Any, LIMIT);
    let waits = tokio::time::timeout(LIMIT * 2, async { tokio::join!(waits, right.regain()) });
    let (waited, ()) = waits.await.expect("no wait is stuck");
    let outcome = waited.expect("an end of the wait").outcome;
    assert!(!matches!(outcome, WaitOutcome::Lost | WaitOutcome::Gone), "{outcome:?}");

    right.desk.until_leads(r2).await;
    assert_eq!(r2.timeline().await.expect("it leads"), 3);
    let answer = right.answer(&first).await;
    assert_eq!(answer.told(), [], "it was proven on r2 itself: {answer:?}");
    let answer = right.answer(&third).await;
    assert_eq!(answer.told(), [], "it is the leader's own: {answer:?}");
    // Nobody saw timeline 2: what was written there cannot be placed, and nothing worse is said.
    let answer = right.answer(&second).await;
    let told = answer.told();
    assert!(told.is_empty() || told == [NoticeKind::PossiblyLost], "{answer:?}");
    let fresh = right.desk.wrote(&commit(r2, 4).await).await;
    for (session, id) in [(&first, 1), (&second, 2), (&third, 3), (&fresh, 4)] {
        for server in [l, r1] {
            right.desk.until_served_by(session, server.name()).await;
            assert!(shows(server, id).await);
        }
    }
    for node in right.desk.partition().await.nodes {
        assert_eq!(node.quarantine_reason, "", "{node:?}");
    }
}

/// The volume of the leader is replaced by a copy from yesterday; it starts, grows, and restarts.
async fn a_restored_leader(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (l, r1, r2) = (stage.l(), stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "restored").await;
    let kept = commit(l, 1).await;
    let early = right.desk.wrote(&kept).await;
    right.desk.until_served_by(&early, "r2").await;
    let copy = r2.copy_data_dir().await.expect("a copy");
    r2.stop(Stop::Fast).await.expect("only its copy is of use");
    let lost = commit(l, 2).await;
    let sessions = [right.desk.wrote(&lost).await, wrong.desk.wrote(&lost).await];
    // More than a leader writes by itself, page images of what it reads.
    l.sql("insert into notes select generate_series(10000, 30000)").await.expect("rows");
    let last = commit(l, 3).await;
    right.until_applied(l, last.position()).await;
    wrong.until_applied(l, last.position()).await;
    right.desk.until_served_by(&sessions[0], "r1").await;
    let (system, timeline) = (system_id(l).await.ok(), l.timeline().await.expect("it leads"));

    right.lose().await;
    wrong.lose().await;
    l.restore_data_dir(&copy).await.expect("the old copy");
    l.start().await.expect("it starts");
    refuse_rows(l).await;
    write_past(l, lost.position(), 1000).await;
    l.restart(Stop::Fast).await.expect("it forgets where its recovery ended");
    let found: Lsn = l.insert_lsn().await.expect("it is writable");

    // The rule: the same address, system and timeline; what it comes back with is what it kept.
    let now = (system_id(l).await.ok(), l.timeline().await.expect("it leads"));
    assert_eq!(now, (system, timeline));
    assert!(lost.position() <= found && found < last.position(), "{found}: {lost:?} {last:?}");
    assert!(shows(l, kept.id).await && !shows(l, lost.id).await, "and the row is gone");

    wrong.regain().await;
    wrong.desk.until_lives(l).await;
    let answer = wrong.answer(&sessions[1]).await;
    assert_eq!(answer.told(), [], "it was to know nothing of the loss: {answer:?}");
    wrong.lose().await;

    right.regain().await;
    right.desk.until_lives(l).await;
    for session in [&sessions[0], &early] {
        let answer = right.answer(session).await;
        assert_eq!(answer.told(), [NoticeKind::PossiblyLost], "{answer:?}");
        assert_eq!(answer.node, "l", "r1 is not of this line: {answer:?}");
    }
    right.until_applied(r1, last.position()).await;
    assert_eq!(right.desk.node("l").await.quarantine_reason, "");
    allow_rows(l).await;
    right.desk.until_leads(l).await;
    let answer = right.desk.select(&right.desk.session(), &replica_now()).await;
    assert_eq!(answer.node, "", "what r1 has is not the leader's: {answer:?}");
    let node = right.desk.node("r1").await;
    assert!(!node.session_eligible, "{node:?}");
    let answer = right.desk.select(&right.desk.session(), &Policy::new(Level::Eventual)).await;
    assert_ne!(answer.node, "r1", "not even a read that demands nothing: {answer:?}");
    // Whatever it shows: nobody but the operator knows that it is whole.
    r1.clone_from(l).await.expect("a clone");
    right.desk.until_lives(r1).await;
    assert_ne!(right.desk.node("r1").await.quarantine_reason, "");
    right.resume("r1").await;
    let fresh = right.desk.wrote(&commit(l, 4).await).await;
    right.desk.until_served_by(&fresh, "r1").await;
    assert!(shows(r1, 4).await);
}

/// The data of another database comes to stand in r1's place.
async fn a_foreign_server(major: Major) {
    let (stage, foreign) = tokio::join!(Stage::set(major, 1), elsewhere(major));
    let (l, r1) = (stage.l(), stage.r1());
    let right = stage.desk().await;
    let written = commit(l, 1).await;
    let session = right.wrote(&written).await;
    right.until_served_by(&session, "r1").await;
    let mut ahead = 100;
    while foreign.leader().insert_lsn().await.expect("it writes") <= written.position() {
        let rows = format!("insert into notes select generate_series({ahead}, {ahead} + 9999)");
        foreign.leader().sql(&rows).await.expect("rows of somebody else");
        ahead += 10_000;
    }
    let copy = foreign.leader().copy_data_dir().await.expect("a copy");
    r1.restore_data_dir(&copy).await.expect("the wrong volume");
    r1.start().await.expect("it starts");

    // The rule: the address is r1's, it is in recovery, and it has replayed more than that.
    assert!(r1.is_in_recovery().await.expect("it answers"));
    let timeline = "select timeline_id from pg_control_checkpoint()";
    assert_eq!(r1.value::<i32>(timeline).await.expect("it answers"), 1);
    assert!(r1.replay_lsn().await.expect("it answers") >= written.position());
    assert!(!shows(r1, written.id).await, "and it is another database");
    assert_ne!(system_id(r1).await.ok(), system_id(l).await.ok(), "which is all that tells");

    let named = "r1 is told to be another database";
    let told = right.until_partition(named, |partition| {
        partition.nodes.iter().any(|n| n.name == "r1" && n.poll_error.contains("database cluster"))
    });
    told.await;
    right.until_unseen(r1).await;
    let either = Policy::new(Level::Session);
    for policy in [&replica_now(), &either, &Policy::new(Level::Eventual)] {
        let answer = right.select(&session, policy).await;
        assert_ne!(answer.node, "r1", "{answer:?}");
        assert_eq!(answer.told(), [], "{answer:?}");
    }
    let leads = || async { Ok(right.select(&session, &either).await.node == "l") };
    until("the leader serves it", LIMIT, leads).await.expect("it does");
    r1.clone_from(l).await.expect("the right data");
    right.until_served_by(&session, "r1").await;
    assert!(shows(r1, written.id).await);
}

/// Another database with a table of the same name.
async fn elsewhere(major: Major) -> Cluster {
    let cluster = Cluster::start(ClusterOptions::new(major)).await.expect("a cluster starts");
    let table = "create table notes (id bigint primary key)";
    cluster.leader().sql(table).await.expect("a table");
    install(cluster.leader()).await.expect("the role may log in there too");
    cluster
}

/// Both standbys are cloned anew from a copy that is behind what they had shown.
async fn standbys_cloned_anew(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (l, r1, r2) = (stage.l(), stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let wrong = Sight::slow_without(&stage, "incarnation").await;
    let copy = r1.copy_data_dir().await.expect("a copy");
    let written = commit(l, 1).await;
    let sessions = [right.desk.wrote(&written).await, wrong.desk.wrote(&written).await];
    for standby in [r1, r2] {
        right.desk.until_served_by(&sessions[0], standby.name()).await;
        wrong.desk.until_served_by(&sessions[1], standby.name()).await;
    }
    let before = [place_of(r1).await, place_of(r2).await];
    for standby in [r1, r2] {
        standby.restore_data_dir(&copy).await.expect("the copy");
        standby.cut_reception().await.expect("it stays behind");
        standby.start().await.expect("it starts");
    }

    wrong.desk.wrote(&written).await;

    // The rule: under one address, system and timeline, a position only grows.
    for (standby, (life_before, position)) in [r1, r2].into_iter().zip(before) {
        let (life_now, now) = place_of(standby).await;
        assert!(now < position && position >= written.position(), "{now} {position}");
        assert!(!shows(standby, written.id).await, "and the row is not there");
        assert_ne!(life_before, life_now);
        right.desk.until_lives(standby).await;
        wrong.desk.until_lives(standby).await;
    }
    let answer = wrong.desk.select(&sessions[1], &replica_now()).await;
    assert!(["r1", "r2"].contains(&answer.node.as_str()), "{answer:?}");
    let answer = right.desk.select(&sessions[0], &replica_now()).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("", vec![]), "{answer:?}");

    for standby in [r1, r2] {
        standby.restore_reception().await.expect("it follows again");
        let answer = right.desk.until_served_by(&sessions[0], standby.name()).await;
        assert_eq!(answer.told(), [], "{answer:?}");
        assert!(shows(standby, written.id).await);
        assert_eq!(right.desk.node(standby.name()).await.quarantine_reason, "");
    }
}

async fn place_of(standby: &Server) -> (String, Lsn) {
    (life(standby).await, standby.replay_lsn().await.expect("it answers"))
}
