//! Which server answered, in which life: what an address cannot tell.
//!
//! A server that crashed may open behind what it had shown, and one address may lead to two
//! servers. Each trap shows a rule that looks right naming a node that lacks the row, and the
//! product on the same servers not doing so. Poolers are `pooled`, majors are `crash_table`.

#![cfg(feature = "unsafe-guards")]

use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Lsn, Server, Stop};
use tidegate_lab::service::ServiceOptions;
use tidegate_proto::v1::Level;
use tidegate_proto::v1::notice::Kind;

use super::servers_bench::{
    Bench, Desk, HIDDEN, commit_on, either_now, life, named, of_level, replica_now, served,
    shown_by, start_time, waiting,
};
use super::stage::on_both_majors;

on_both_majors! {
    a_standby_crash => trap_standby_opens_behind_after_a_crash_pg15,
        trap_standby_opens_behind_after_a_crash_pg18;
    a_standby_backend_crash => trap_standby_backend_crash_keeps_the_start_time_pg15,
        trap_standby_backend_crash_keeps_the_start_time_pg18;
    a_leader_backend_crash => trap_leader_backend_crash_reuses_positions_pg15,
        trap_leader_backend_crash_reuses_positions_pg18;
    a_clean_restart => trap_clean_restart_is_another_life_pg15,
        trap_clean_restart_is_another_life_pg18;
    a_restored_copy => trap_restored_copy_answers_at_the_old_address_pg15,
        trap_restored_copy_answers_at_the_old_address_pg18;
    a_statistics_reset_of_a_leader => trap_statistics_reset_of_a_leader_pg15,
        trap_statistics_reset_of_a_leader_pg18;
}

/// A service without one of its rules, which looks at nobody twice by itself.
///
/// What is wrong without one rule is often put right by another at the next poll: here the test
/// says when that comes.
pub(crate) fn naive(options: ServiceOptions, off: &str) -> ServiceOptions {
    let mut guards = Guards::without(off).expect("a guard");
    if off == "incarnation" {
        // A position that goes back is noticed at the second poll of the other server.
        guards = guards.and_without("regression").expect("a guard");
    }
    let options = options.guards(guards);
    options.limit("idle_poll", "\"20s\"").limit("view_max_age", "\"10m\"")
}

/// A service under all rules and one without a rule, and the session of each.
struct Pair {
    right: Desk,
    wrong: Desk,
    tokens: [String; 2],
    evidence: String,
}

impl Pair {
    async fn open(options: ServiceOptions, off: &str) -> Self {
        let right = Desk::open(options.clone()).await;
        let wrong = Desk::open(naive(options, off)).await;
        Self { right, wrong, tokens: Default::default(), evidence: String::new() }
    }

    /// Commits row 1 and waits until both serve it from r1.
    async fn write(&mut self, bench: &Bench) {
        self.evidence = bench.commit(1).await;
        let evidence = &self.evidence;
        self.tokens = [self.right.record(evidence).await, self.wrong.record(evidence).await];
        self.right.until_served_by(&self.tokens[0], "r1").await;
        self.wrong.until_served_by(&self.tokens[1], "r1").await;
    }

    /// Both have seen r1 in its new life, which lacks the row: only one of them notices.
    async fn judge(&self, bench: &Bench) {
        // A record has every node asked once.
        self.wrong.record(&self.evidence).await;
        let now = self.wrong.until_lives(bench.r1()).await;
        assert!(!bench.shows("r1", 1).await, "r1 was to come back without the row");
        let answer = self.wrong.select(&self.tokens[1], replica_now()).await;
        assert_eq!(named(&answer), "r1", "{answer:?}");
        let lives = served(&answer).acceptable_incarnations;
        assert!(lives.contains(&now), "nothing keeps a client from missing the row: {lives:?}");

        self.right.until_lives(bench.r1()).await;
        let answer = self.right.select(&self.tokens[0], replica_now()).await;
        assert_eq!(named(&answer), "", "{answer:?}");
        let answer = self.right.select(&self.tokens[0], either_now()).await;
        assert_eq!(named(&answer), "l", "{answer:?}");
    }
}

/// E6: a standby that crashed opens where it is consistent, not where it had been.
async fn a_standby_crash(major: Major) {
    let bench = Bench::set(major, 1).await;
    let mut pair = Pair::open(bench.options().await, "incarnation").await;
    bench.r1().anchor(bench.leader()).await.expect("an anchor");
    pair.write(&bench).await;
    let early = served(&pair.right.select(&pair.tokens[0], replica_now()).await);
    let behind = bench.r1().crash_behind(HIDDEN).await.expect("a restart behind");
    assert!(behind.bytes() > 0, "{behind:?}");
    let now = life(bench.r1()).await;
    // An answer from before names an address that still answers, and the life it holds for.
    assert!(!early.acceptable_incarnations.contains(&now), "{early:?}");
    pair.judge(&bench).await;
    bench.r1().apply_delay(Duration::ZERO).await.expect("it goes on");
    pair.right.until_served_by(&pair.tokens[0], "r1").await;
    assert!(bench.shows("r1", 1).await);
}

/// One backend of the standby is killed: its postmaster lives on, and so does its start time.
async fn a_standby_backend_crash(major: Major) {
    let bench = Bench::set(major, 1).await;
    let mut pair = Pair::open(bench.options().await, "incarnation").await;
    bench.r1().anchor(bench.leader()).await.expect("an anchor");
    pair.write(&bench).await;
    let before = Place::of(bench.r1()).await;
    bench.r1().apply_delay(HIDDEN).await.expect("later commits are hidden");
    bench.r1().kill_backend().await.expect("a crash");
    let after = Place::of(bench.r1()).await;
    assert_eq!(before.start, after.start, "the start time was to tell two lives apart");
    assert_ne!(before.life, after.life);
    assert!(after.replayed < before.replayed, "{after:?} after {before:?}");
    assert!(before.vouches_by_start_for(&after), "and r1 lacks what it vouches for");
    pair.judge(&bench).await;
}

/// What a poll could remember of a standby.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    start: String,
    life: String,
    replayed: Lsn,
}

impl Place {
    async fn of(server: &Server) -> Self {
        let replayed = server.replay_lsn().await.expect("a standby that answers");
        Self { start: start_time(server).await, life: life(server).await, replayed }
    }

    /// The naive rule: under one start time a position only grows.
    fn vouches_by_start_for(&self, later: &Self) -> bool {
        self.start == later.start && self.replayed.max(later.replayed) == self.replayed
    }
}

/// One backend of the leader is killed: what was acknowledged and not flushed is gone.
async fn a_leader_backend_crash(major: Major) {
    let bench = Bench::set(major, 1).await;
    let desk = Desk::open(bench.options().await).await;
    let first = desk.record(&bench.commit(1).await).await;
    desk.until_served_by(&first, "r1").await;
    let started = start_time(bench.leader()).await;
    let (id, evidence) = lost_commit(&bench).await;
    assert_eq!(started, start_time(bench.leader()).await, "and the timeline is the same too");

    // Other rows take the place of the lost one in the log.
    let lost_at = captured(&evidence);
    let query = format!("select pg_current_wal_flush_lsn() > '{lost_at}'::pg_lsn");
    let mut next = 1_000;
    while !bench.leader().value::<bool>(&query).await.expect("it answers") {
        bench.commit(next).await;
        next += 1;
    }
    bench.cluster.catch_up().await.expect("r1 follows");
    let query = format!("select pg_last_wal_replay_lsn() >= '{lost_at}'::pg_lsn");
    assert!(bench.r1().value::<bool>(&query).await.expect("it answers"), "r1 looks fresh");
    assert!(!bench.shows("r1", id).await && !bench.shows("l", id).await, "and lacks the row");

    desk.until_lives(bench.leader()).await;
    let token = desk.record(&evidence).await;
    let answer = desk.select(&token, waiting()).await;
    let told: Vec<Kind> = answer.notices.iter().map(|notice| notice.kind()).collect();
    assert!(matches!(told[..], [Kind::PossiblyLost | Kind::WriteLost]), "{answer:?}");
}

/// The insert position that a capture names.
fn captured(evidence: &str) -> &str {
    evidence.split('|').nth(8).expect("a capture")
}

/// A row that was acknowledged asynchronously and lost with a backend, and what was captured.
async fn lost_commit(bench: &Bench) -> (i64, String) {
    // Nothing is flushed by itself.
    bench.leader().set("wal_writer_delay", "10s").await.expect("a setting");
    for id in 10..30 {
        let client = bench.leader().connect("postgres", "postgres").await.expect("a connection");
        client.batch_execute("set synchronous_commit = off").await.expect("a setting");
        let row = format!("insert into notes values ({id})");
        client.batch_execute(&row).await.expect("it is acknowledged");
        let row = client.query_one("select tidegate.capture()", &[]).await.expect("a capture");
        bench.leader().kill_backend().await.expect("a crash");
        if !bench.shows("l", id).await {
            bench.leader().unset("wal_writer_delay").await.expect("a setting");
            return (id, row.get(0));
        }
        // Something flushed it in time.
    }
    panic!("no asynchronous commit was lost");
}

/// A standby that restarts in order comes back with everything, and is another one all the same.
async fn a_clean_restart(major: Major) {
    let bench = Bench::set(major, 1).await;
    let desk = Desk::open(bench.options().await).await;
    let token = desk.record(&bench.commit(1).await).await;
    let early = desk.until_served_by(&token, "r1").await;
    let before = Place::of(bench.r1()).await;
    let reset = "select pg_stat_get_bgwriter_stat_reset_time()::text";
    let reset_before: String = bench.r1().value(reset).await.expect("it answers");
    bench.r1().restart(Stop::Fast).await.expect("a restart");
    let after = Place::of(bench.r1()).await;
    let reset_after: String = bench.r1().value(reset).await.expect("it answers");
    assert_eq!(reset_before, reset_after, "the reset time was to tell two lives apart");
    assert_ne!(before.life, after.life);
    assert!(after.replayed >= before.replayed, "{after:?} after {before:?}");
    assert!(!early.acceptable_incarnations.contains(&after.life), "{early:?}");
    desk.until_lives(bench.r1()).await;
    let again = desk.until_served_by(&token, "r1").await;
    assert_eq!(again.acceptable_incarnations, [after.life]);
    assert!(bench.shows("r1", 1).await);
    assert_eq!(desk.node("r1").await.quarantine_reason, "");
}

/// An older copy of a standby is put in its place: same address, same database, same timeline.
async fn a_restored_copy(major: Major) {
    let bench = Bench::set(major, 1).await;
    let mut pair = Pair::open(bench.options().await, "incarnation").await;
    let copy = bench.r1().copy_data_dir().await.expect("a copy");
    bench.r1().await_streaming().await.expect("it follows again");
    pair.write(&bench).await;
    bench.r1().restore_data_dir(&copy).await.expect("the old copy");
    bench.r1().cut_reception().await.expect("it stays old");
    bench.r1().start().await.expect("it starts");
    pair.judge(&bench).await;
}

/// The statistics of a promoted leader are reset: another id, and its old promotion point as the
/// end of a recovery.
async fn a_statistics_reset_of_a_leader(major: Major) {
    let bench = Bench::set(major, 2).await;
    let desk = Desk::open(bench.options().await).await;
    let (leader, r2) = (bench.r1(), bench.cluster.standby(1));
    bench.leader().stop(Stop::Fast).await.expect("it ends");
    let fork = leader.promote().await.expect("a promotion");
    r2.repoint(leader).await.expect("r2 follows it");
    let evidence = commit_on(leader, 1).await;
    let token = desk.record(&evidence).await;
    desk.until_served_by(&token, "r2").await;

    let (started, before) = (start_time(leader).await, life(leader).await);
    let held = leader.connect("postgres", "postgres").await.expect("a connection");
    leader.reset_statistics().await.expect("reset");
    let now = desk.until_lives(leader).await;
    assert_ne!(before, now);
    // The naive rule: a changed reset time is a crash, and the replay position its end.
    assert_eq!(started, start_time(leader).await);
    assert_eq!(leader.replay_lsn().await.expect("it answers"), fork);
    let past = format!("select '{}'::pg_lsn > '{fork}'::pg_lsn", captured(&evidence));
    assert!(leader.value::<bool>(&past).await.expect("it answers"), "called lost");
    assert!(shown_by(leader, 1).await && shown_by(r2, 1).await, "and there it is");

    let answer = desk.select(&token, waiting()).await;
    assert_eq!(named(&answer), "r2", "{answer:?}");
    assert!(answer.notices.is_empty(), "{answer:?}");
    let answer = desk.select(&token, of_level(Level::Leader)).await;
    assert_eq!(served(&answer).acceptable_incarnations, [now.as_str()], "{answer:?}");
    let row = held.query_one("select tidegate.incarnation()", &[]).await.expect("it never broke");
    assert_eq!(row.get::<_, String>(0), now, "asked anew, the held connection is accepted");
    let later = desk.record(&commit_on(leader, 2).await).await;
    desk.until_served_by(&later, "r2").await;
    assert!(shown_by(r2, 2).await);
    assert!(desk.select(&token, waiting()).await.notices.is_empty());
}
