//! What a restart looks like from outside, on every accepted major.
//!
//! An incarnation is (system id, start of the postmaster, reset time of the background writer's
//! statistics). That each crash changes the reset time is a side effect that PostgreSQL promises
//! nowhere, so it is measured here, line by line; a major on which one line is otherwise serves no
//! session. What follows from an incarnation is the core's to say, and is not tested here.

#[path = "crash_table/measured.rs"]
mod measured;
#[path = "crash_table/positions.rs"]
mod positions;
#[path = "crash_table/session.rs"]
mod session;

use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server, Stop};
use tidegate_lab::service::install;
use tidegate_lab::wait::{LIMIT, until};

use measured::{
    Expected,
    Memory::{Kept, Lost},
    Replay, Table, VISITOR,
};

/// Where statistics of the checkpointer are apart from the background writer's, and a reset of all
/// exists.
const SPLIT_STATISTICS: u32 = 17;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_crash_table_pg15() {
    everything(Major::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_crash_table_pg16() {
    everything(Major::V16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_crash_table_pg17() {
    everything(Major::V17).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_crash_table_pg18() {
    everything(Major::V18).await;
}

/// All that is asked of a major before it serves sessions, on one cluster.
async fn everything(major: Major) {
    let cluster = prepared(major, 2).await;
    positions::fields(&cluster, major).await;
    positions::page_headers(&cluster).await;
    session::a_round(&cluster).await;
    let mut table = Table::new(major);
    standby_lines(&mut table, cluster.standby(0)).await;
    leader_lines(&mut table, cluster.leader()).await;
    statistics_lines(&mut table, major, cluster.leader()).await;
    promotion_lines(&mut table, &cluster).await;
    positions::timelines(&cluster, major).await;
    table.print();
    table.needs_both_times();
}

/// A leader with standbys, the schema, a table of notes, and a role with LOGIN alone.
async fn prepared(major: Major, standbys: usize) -> Cluster {
    // Nobody but the test is to write, or to write out what a crash is to hide.
    let options = ClusterOptions::new(major).standbys(standbys).setting("autovacuum", "off");
    let cluster = Cluster::start(options).await.expect("a cluster starts");
    install(cluster.leader()).await.expect("the schema");
    let role = format!("create role {VISITOR} login; create table notes (id bigint primary key)");
    cluster.leader().sql(&role).await.expect("a role and a table");
    cluster.catch_up().await.expect("the standbys have it too");
    cluster
}

async fn standby_lines(table: &mut Table, standby: &Server) {
    let expected = |start, reset| Expected { start, reset, replay: Replay::Standby };
    let (both, reset, start) = (expected(true, true), expected(false, true), expected(true, false));
    table.line(standby, "one backend killed", standby.kill_backend(), Lost, reset).await;
    table.line(standby, "restart -m fast", standby.restart(Stop::Fast), Lost, start).await;
    let crash = standby.restart(Stop::Immediate);
    table.line(standby, "restart -m immediate", crash, Lost, both).await;
    table.line(standby, "postmaster killed", standby.restart(Stop::Kill), Lost, both).await;
    table.line(standby, "immediate, then fast", crash_unseen(standby), Lost, both).await;
    let statistics = standby.reset_statistics();
    table.line(standby, "reset of `bgwriter`", statistics, Kept, reset).await;
}

async fn leader_lines(table: &mut Table, leader: &Server) {
    let expected = |start, reset, replay| Expected { start, reset, replay };
    let killed = expected(false, true, Replay::New);
    table.line(leader, "one backend killed", leader.kill_backend(), Lost, killed).await;
    let clean = expected(true, false, Replay::Null);
    table.line(leader, "restart -m fast", leader.restart(Stop::Fast), Lost, clean).await;
    let crashed = expected(true, true, Replay::New);
    let crash = leader.restart(Stop::Immediate);
    table.line(leader, "restart -m immediate", crash, Lost, crashed).await;
    table.line(leader, "postmaster killed", leader.restart(Stop::Kill), Lost, crashed).await;
    // Between two polls, this leaves no fork to read.
    let forgotten = expected(true, true, Replay::Null);
    table.line(leader, "immediate, then fast", crash_unseen(leader), Lost, forgotten).await;
    // The next lines are to show what becomes of a replay position.
    table.line(leader, "one backend killed", leader.kill_backend(), Lost, killed).await;
}

/// A crash, and a clean restart before anybody looks.
async fn crash_unseen(server: &Server) -> anyhow::Result<()> {
    server.restart(Stop::Immediate).await?;
    server.restart(Stop::Fast).await
}

async fn statistics_lines(table: &mut Table, major: Major, leader: &Server) {
    let nothing = Expected { start: false, reset: false, replay: Replay::Kept };
    let reset = Expected { reset: true, ..nothing };
    let bgwriter = leader.reset_statistics();
    table.line(leader, "reset of `bgwriter`", bgwriter, Kept, reset).await;
    let database = leader.sql("select pg_stat_reset()");
    table.line(leader, "pg_stat_reset()", database, Kept, nothing).await;
    let all = leader.sql("select pg_stat_reset_shared(null)");
    let split = major.number() >= SPLIT_STATISTICS;
    let of_all = if split { reset } else { nothing };
    table.line(leader, "reset of null", all, Kept, of_all).await;
    let checkpointer = "select pg_stat_reset_shared('checkpointer')";
    if split {
        let checkpointer = leader.sql(checkpointer);
        table.line(leader, "reset of `checkpointer`", checkpointer, Kept, nothing).await;
        let all = leader.sql("select pg_stat_reset_shared()");
        table.line(leader, "pg_stat_reset_shared()", all, Kept, reset).await;
    } else {
        let refused = leader.sql(checkpointer).await.expect_err("no such target yet");
        let refused = format!("{refused:#?}");
        assert!(refused.contains("unrecognized reset target"), "{refused}");
    }
}

/// The leader goes, and a standby that has all it received is promoted; the other follows it.
async fn promotion_lines(table: &mut Table, cluster: &Cluster) {
    let (leader, next, other) = (cluster.leader(), cluster.standby(0), cluster.standby(1));
    leader.stop(Stop::Fast).await.expect("it stops");
    let settled = || async {
        next.value("select pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()").await
    };
    until("all that was received is replayed", LIMIT, settled).await.expect("it is");
    let nothing = Expected { start: false, reset: false, replay: Replay::Kept };
    let promotion = async { next.promote().await.map(drop) };
    table.line(next, "promotion", promotion, Kept, nothing).await;
    let reset = Expected { reset: true, ..nothing };
    // Read as a crash, this would make a fork of the old promotion point.
    let statistics = next.reset_statistics();
    table.line(next, "promoted: reset of `bgwriter`", statistics, Kept, reset).await;
    other.repoint(next).await.expect("it follows");
    other.catch_up_with(next).await.expect("to the end");
}
