//! Signs that mean something else: a position below an observed flush, a reset, a time as text.
//!
//! By plausible rules each of them throws out a healthy leader or tells a loss that never was.

use tidegate_client::Policy;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Lsn, Server, Stop};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::fork::Kind;
use tokio_postgres::Client;

use super::desk::replica_now;
use super::experiments_sight::Sight;
use super::stage::{Stage, commit, connection, life, on_both_majors, shows, text};

on_both_majors! {
    a_torn_record => a_torn_record_throws_out_no_healthy_leader_pg15,
        a_torn_record_throws_out_no_healthy_leader_pg18;
    a_reset_in_a_gap => a_statistics_reset_in_a_gap_is_no_crash_pg15,
        a_statistics_reset_in_a_gap_is_no_crash_pg18;
    times_as_text => a_time_as_text_names_one_leader_twice_pg15,
        a_time_as_text_names_one_leader_twice_pg18;
}

const PAGE_BYTES: u64 = 8192;

/// What the leader is known to have flushed.
async fn flushed(leader: &Server) -> Lsn {
    leader.value("select pg_current_wal_flush_lsn()").await.expect("a leader answers")
}

/// Rows of an open transaction, until what is flushed ends inside one of their records.
async fn flush_inside_a_record(leader: &Server, bulk: &Client) -> Lsn {
    let rows = "insert into bulk select repeat('x', 900) from generate_series(1, 60)";
    bulk.batch_execute(rows).await.expect("rows nobody committed");
    let written = leader.insert_lsn().await.expect("a leader answers");
    // Nobody waits for the rest of the last page, so nobody writes it out.
    let stands = || async {
        let at = u64::from(flushed(leader).await);
        Ok(at.is_multiple_of(PAGE_BYTES) && at / PAGE_BYTES == u64::from(written) / PAGE_BYTES)
    };
    until("whole pages are flushed", LIMIT, stands).await.expect("they are");
    flushed(leader).await
}

/// B: a bulk transaction is open, its flush was polled, and one backend is killed.
async fn a_torn_record(major: Major) {
    let stage = Stage::set(major, 1).await;
    let (l, r1) = (stage.l(), stage.r1());
    l.sql("create table bulk (t text); alter table bulk alter t set storage plain")
        .await
        .expect("a table");
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "torn_record").await;
    for round in 0..3 {
        let bulk = connection(l).await;
        bulk.batch_execute("begin").await.expect("it begins");
        let seen = flush_inside_a_record(l, &bulk).await;
        let kept = commit(l, round).await;
        let sessions = [right.desk.wrote(&kept).await, wrong.desk.wrote(&kept).await];
        right.desk.until_served_by(&sessions[0], "r1").await;
        assert!(flush_inside_a_record(l, &bulk).await > seen);
        let seen = flushed(l).await;
        for sight in [&right, &wrong] {
            let holds = || async {
                Ok(sight.leading_epoch().await.flush_seen.parse::<Lsn>().ok() == Some(seen))
            };
            until("the flush is polled", LIMIT, holds).await.expect("it is");
            sight.lose().await;
        }
        l.kill_backend().await.expect("a crash");
        let ended = l.replay_lsn().await.expect("where its recovery ended");

        // The rule: a leader below what it was seen to have flushed lost what is on its disk.
        assert!(
            ended < seen && u64::from(seen).is_multiple_of(PAGE_BYTES),
            "{round}: {ended} {seen}"
        );
        assert!(kept.position() <= ended, "{ended}: {kept:?}");
        assert!(shows(l, kept.id).await && shows(r1, kept.id).await, "and nothing is lost");

        // It writes down that nothing is known of the end: whoever knows more is not misled.
        wrong.regain().await;
        wrong.desk.until_leads(l).await;
        let answer = wrong.answer(&sessions[1]).await;
        assert_ne!(answer.told(), [], "{round}: a loss that never was: {answer:?}");

        right.regain().await;
        right.desk.until_leads(l).await;
        let answer = right.answer(&sessions[0]).await;
        assert_eq!(answer.told(), [], "{round}: {answer:?}");
        let fork = right.leading_epoch().await.fork.expect("it is no root");
        let ends = [fork.at_least.parse().ok(), fork.at_most.parse().ok()];
        assert_eq!(ends, [Some(ended); 2], "{round}: {fork:?}");
        assert_eq!(right.desk.node("l").await.quarantine_reason, "");
        let answer = right.desk.until_served_by(&sessions[0], "r1").await;
        assert_eq!(answer.told(), [], "{round}: {answer:?}");
    }
}

/// H: while nobody looks, the statistics of a promoted leader are reset.
async fn a_reset_in_a_gap(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (r1, r2) = (stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    stage.l().stop(Stop::Fast).await.expect("it ends");
    let promoted = r1.promote().await.expect("a promotion");
    r2.repoint(r1).await.expect("r2 follows it");
    right.desk.until_leads(r1).await;
    let polled = commit(r1, 1).await;
    let early = right.desk.wrote(&polled).await;
    right.desk.until_served_by(&early, "r2").await;
    let (before, started) = (life(r1).await, start_of(r1).await);

    right.lose().await;
    r2.pause_replay().await.expect("r2 falls behind");
    let unpolled = commit(r1, 2).await;
    let late = right.desk.wrote(&unpolled).await;
    r1.reset_statistics().await.expect("a reset");

    // The rule: the connection broke and the reset time is another, so it crashed, and all that is
    // left of its former life lies below its replay position.
    assert_ne!(before, life(r1).await);
    assert_eq!(r1.replay_lsn().await.expect("it answers"), promoted);
    assert!(promoted < polled.position() && promoted < unpolled.position(), "called lost");
    assert!(shows(r1, 1).await && shows(r1, 2).await && shows(r2, 1).await, "and all is there");
    assert_eq!(started, start_of(r1).await, "what tells that it did not");

    right.regain().await;
    right.desk.until_leads(r1).await;
    let fork = right.leading_epoch().await.fork.expect("it is no root");
    assert_eq!(fork.kind(), Kind::Unbounded, "{fork:?}");
    for session in [&early, &late] {
        let answer = right.answer(session).await;
        assert_eq!(answer.told(), [], "{answer:?}");
    }
    let answer = right.desk.select(&late, &replica_now()).await;
    assert_eq!(answer.node, "", "its floor was to stay: {answer:?}");
    r2.resume_replay().await.expect("r2 goes on");
    right.desk.until_served_by(&late, "r2").await;
    assert!(shows(r2, 2).await);
}

async fn start_of(server: &Server) -> String {
    server.value("select pg_postmaster_start_time()::text").await.expect("it answers")
}

/// F: two applications, each with its own idea of how a time is printed.
async fn times_as_text(major: Major) {
    let stage = Stage::set(major, 1).await;
    let desk = stage.desk().await;
    let (plain, other) = (connection(stage.l()).await, connection(stage.l()).await);
    let settings = "set timezone = 'Asia/Kolkata'; set datestyle = 'German'";
    other.batch_execute(settings).await.expect("settings");
    // The rule: who reads the start of the leader's process may hash it to a name.
    let start = "select pg_postmaster_start_time()::text";
    assert_ne!(text(&plain, start).await, text(&other, start).await, "two leaders, by their names");

    let mut epochs = Vec::new();
    for (id, client) in [(1, &plain), (2, &other)] {
        let row = format!("insert into notes values ({id})");
        client.batch_execute(&row).await.expect("a row");
        let capture = text(client, "select tidegate.capture()").await;
        let session = desk.session();
        let observed = tidegate_client::Observed::Evidence(capture);
        let raise = tidegate_client::Raise::Unspecified;
        session.record(observed, raise).await.expect("it is recorded");
        let answer = desk.until_served_by(&session, "r1").await;
        assert_eq!(answer.told(), [], "{answer:?}");
        assert!(shows(stage.r1(), id).await);
        let answer = desk.select(&session, &Policy::new(tidegate_client::Level::Leader)).await;
        epochs.push(answer.selection.epoch);
    }
    assert_eq!(epochs[0], epochs[1]);
    assert_eq!(desk.epochs().await.len(), 1, "one leader has one life");
}
