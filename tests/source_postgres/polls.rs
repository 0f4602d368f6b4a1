//! Polls that go well: what a leader, a standby and a promoted standby show, and how often.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::ports::Demand;
use tidegate_core::evidence::{EvidenceKind, Role};
use tidegate_core::instant::Instant;
use tidegate_core::position::{Lsn, Position};
use tidegate_lab::install::Major;

use crate::on_both_versions;
use crate::running::{IDLE, Running, prepared, target};

on_both_versions! {
    each_role =>
        leader_standby_and_promoted_standby_show_what_the_server_itself_says_pg15,
        leader_standby_and_promoted_standby_show_what_the_server_itself_says_pg18;
    the_pace =>
        polls_keep_the_pace_and_a_sample_is_sent_at_once_pg15,
        polls_keep_the_pace_and_a_sample_is_sent_at_once_pg18;
    strange_defaults =>
        settings_of_the_role_do_not_disturb_the_poll_or_the_row_pg15,
        settings_of_the_role_do_not_disturb_the_poll_or_the_row_pg18;
}

fn position(lsn: tidegate_lab::postgres::Lsn) -> Position {
    Lsn::new(lsn.into()).into()
}

async fn each_role(major: Major) {
    let cluster = prepared(major, 1).await;
    let (clock, standby) = (Clock::new(), cluster.standby(0));
    let mut leader_source = Running::start(target(cluster.leader()));
    let mut standby_source = Running::start(target(standby));
    let root = leader_source.write_root().await;

    cluster
        .leader()
        .sql("create table t (i int); insert into t values (1)")
        .await
        .expect("written");
    let written = position(cluster.leader().insert_lsn().await.expect("a position"));
    let asked_at = clock.now();
    let seen = leader_source.observed_since(asked_at).await;
    assert!(seen.sent_at <= seen.received_at);
    assert_eq!(seen.evidence.kind, EvidenceKind::Poll);
    assert_eq!(seen.evidence.server_major(), major.number());
    assert_eq!(seen.evidence.row, Some(root.epoch));
    assert_eq!(seen.evidence.epoch(), Some(root.epoch));
    assert!(seen.evidence.position().is_some_and(|insert| insert.covers(written)));
    assert_eq!(seen.evidence.replay, None);

    cluster.catch_up().await.expect("the standby follows");
    let seen = standby_source.observed_since(clock.now()).await;
    assert_eq!(seen.evidence.role, Role::Standby { received_timeline: Some(1) });
    assert_eq!(seen.evidence.row, Some(root.epoch));
    assert_eq!(
        seen.evidence.incarnation.system,
        root.epoch.incarnation(seen.evidence.incarnation.system).system
    );
    assert!(seen.evidence.position().is_some_and(|replayed| replayed.covers(written)));
    let as_standby = seen.evidence.incarnation;

    let fork = position(standby.promote().await.expect("a promotion"));
    let writable = |role: &Role| matches!(role, Role::Writable { .. });
    let (seen, _) =
        standby_source.observed_when("promoted", |seen, _| writable(&seen.evidence.role)).await;
    assert_eq!(seen.evidence.incarnation, as_standby, "a promotion is no new incarnation");
    assert_eq!(seen.evidence.replay, Some(fork), "the end of the old line stays visible");
    assert_eq!(seen.evidence.epoch().map(|epoch| epoch.timeline), Some(2));
    assert_eq!(seen.evidence.row, Some(root.epoch));
    leader_source.end().await;
    standby_source.end().await;
}

/// A poll makes up for the lateness of the timer before it, at most this much.
const MADE_UP: Duration = Duration::from_millis(1);

async fn the_pace(major: Major) {
    let cluster = prepared(major, 0).await;
    let mut source = Running::paced(target(cluster.leader()), IDLE);
    let mut sent: Vec<Instant> = Vec::new();
    for _ in 0..4 {
        sent.push(source.observed().await.0.sent_at);
    }
    for pair in sent.windows(2) {
        assert!(pair[1].since(pair[0]) + MADE_UP >= IDLE, "{sent:?}");
    }
    // A sample that is demanded does not wait for the pace; one poll serves all who demand.
    let clock = Clock::new();
    let asked_at = clock.now();
    source.demand.send_replace(Demand { interval: IDLE, sample_after: Some(asked_at) });
    source.demand.send_replace(Demand { interval: IDLE, sample_after: Some(asked_at) });
    let (sample, _) = source.observed().await;
    assert!(sample.sent_at >= asked_at);
    assert!(sample.sent_at.since(asked_at) < IDLE / 2, "{:?}", sample.sent_at.since(asked_at));
    let (next, _) = source.observed().await;
    assert!(next.sent_at.since(sample.sent_at) + MADE_UP >= IDLE, "the demand is met once");

    let fast = Duration::from_millis(2);
    source.demand.send_replace(Demand { interval: fast, sample_after: None });
    let mut earlier = source.observed().await.0;
    let first = earlier.sent_at;
    for _ in 0..50 {
        let (later, _) = source.observed().await;
        assert!(later.sent_at >= earlier.received_at, "two polls were in flight");
        assert!(later.sent_at.since(earlier.sent_at) + MADE_UP >= fast);
        earlier = later;
    }
    assert!(earlier.sent_at.since(first) + MADE_UP >= fast * 50, "lateness is made up for once");
    source.end().await;
}

async fn strange_defaults(major: Major) {
    let cluster = prepared(major, 1).await;
    let leader = cluster.leader();
    for setting in [
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "statement_timeout = '1ms'",
        "idle_session_timeout = '1ms'",
        "search_path = evil",
        "timezone = 'Asia/Kolkata'",
        "datestyle = 'German'",
        "extra_float_digits = -15",
        "synchronous_commit = off",
    ] {
        leader.sql(&format!("alter role tidegate set {setting}")).await.expect("a default");
    }
    cluster.catch_up().await.expect("on the standby too");
    let mut source = Running::start(target(leader));
    source.write_root().await;
    let mut standby = Running::paced(target(cluster.standby(0)), Duration::from_millis(20));
    standby.observed_when("with the row", |seen, _| seen.evidence.row.is_some()).await;
    let name: String = leader
        .value("select application_name from pg_stat_activity where usename = 'tidegate'")
        .await
        .expect("one session");
    assert_eq!(name, "tidegate/test/one");
    source.end().await;
    standby.end().await;
}
