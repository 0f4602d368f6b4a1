//! What a poll costs a database, and how soon after the row a wait is answered.
//!
//! Measured on the servers and printed with every run; a bar is asserted only where a busy machine
//! cannot break it. How often polls are sent is `polls.rs`.

use std::fs;
use std::io::{Write, stdout};
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Server;
use tidegate_lab::service::DATABASE;
use tidegate_lab::wait::until;
use tidegate_proto::v1;
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tokio_postgres::{Client as Database, Statement};

use super::polls::{PER_SECOND_BUSY, PER_SECOND_IDLE, counting, on_both_versions};
use super::stage::{Client, Stage, session, until_parked, wait};

/// Each query is run this often in a row, in this many turns with the others.
const IN_A_ROW: u32 = 400;
const TURNS: u32 = 20;
/// The poll that knows a position and nothing else.
const TWO_COLUMNS: &str = "select pg_is_in_recovery(), pg_last_wal_replay_lsn()";
/// The time between two polls while somebody waits.
const BUSY_POLL: Duration = Duration::from_millis(2);
/// How long the processor time of busy polls is watched.
const BUSY_SPAN: Duration = Duration::from_secs(2);
const WAITS: i64 = 240;
/// More than a wait of this file takes.
const BUDGET: Duration = Duration::from_secs(20);
/// A poll may take this much of a core: many times what was ever seen.
const POLL_MAX: Duration = Duration::from_millis(1);

fn say(line: &str) {
    // Past the capture of the test runner: the figures belong to every run.
    writeln!(stdout(), "{line}").expect("standard output is open");
}

/// Processor time a process has used, in steps of ten milliseconds.
fn used(pid: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the backend lives");
    // The name before the last bracket may hold anything.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

/// The connection of the service to a server: its process, and the statement it runs again and
/// again.
async fn poller(server: &Server) -> (i32, String) {
    let row = server
        .row(
            "select pid, query from pg_stat_activity \
             where usename = 'tidegate' and query like '%tge1|poll|%'",
        )
        .await
        .expect("one connection of the service");
    (row.get(0), row.get(1))
}

/// What one query cost, by three clocks.
#[derive(Default)]
struct Cost {
    /// In the executor, as the server says.
    executor: f64,
    /// Of the server process altogether.
    processor: f64,
    /// Until the answer is there, over a Unix socket.
    round_trip: f64,
}

/// Runs the queries in turns on one connection; microseconds each.
async fn costs(stage: &Stage, server: &Server, queries: [&str; 3]) -> [Cost; 3] {
    let database = server.connect("tidegate", DATABASE).await.expect("the role may log in");
    let pid: i32 =
        database.query_one("select pg_backend_pid()", &[]).await.expect("a process").get(0);
    let mut costs = [Cost::default(), Cost::default(), Cost::default()];
    let mut prepared: Vec<Statement> = Vec::new();
    server.sql("select pg_stat_statements_reset()").await.expect("it forgets");
    for query in queries {
        prepared.push(database.prepare(query).await.expect("it is valid"));
    }
    let runs = f64::from(IN_A_ROW * TURNS);
    for _ in 0..TURNS {
        for (statement, cost) in prepared.iter().zip(&mut costs) {
            let (began_at, used_before) = (stage.clock.now(), used(pid));
            for _ in 0..IN_A_ROW {
                database.query_one(statement, &[]).await.expect("an answer");
            }
            cost.round_trip += stage.clock.now().since(began_at).as_secs_f64() * 1e6 / runs;
            cost.processor += (used(pid) - used_before).as_secs_f64() * 1e6 / runs;
        }
    }
    for (pattern, cost) in
        ["%pg_stat_wal_receiver%", "%pg_last_wal_replay_lsn()", "select $1"].iter().zip(&mut costs)
    {
        let query = format!(
            "select max(mean_exec_time) * 1000 from pg_stat_statements s \
             join pg_roles r on r.oid = s.userid \
             where r.rolname = 'tidegate' and s.query like '{pattern}' and s.calls >= {IN_A_ROW}"
        );
        cost.executor = server.value(&query).await.expect("the server has timed it");
    }
    costs
}

/// The share of a core that a server's poller uses while somebody waits.
async fn busy_share(stage: &Stage, pids: &[i32]) -> Vec<f64> {
    let used_before: Vec<Duration> = pids.iter().map(|pid| used(*pid)).collect();
    let began_at = stage.clock.now();
    let over = || async { Ok(stage.clock.now().since(began_at) >= BUSY_SPAN) };
    until("time to pass", BUSY_SPAN * 2, over).await.expect("time passes");
    let took = stage.clock.now().since(began_at).as_secs_f64();
    let shares = pids.iter().zip(used_before);
    shares.map(|(pid, before)| (used(*pid) - before).as_secs_f64() / took).collect()
}

async fn a_poll_costs_little(major: Major) {
    let stage = counting(major, 1).await;
    let (service, mut client) = stage.serve().await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let servers = [stage.cluster.leader(), stage.cluster.standby(0)];
    let request = wait(carried, BUDGET);
    let waiting = tokio::spawn(async move { client.wait_until_fresh(request).await.map(drop) });
    until_parked(&service, 1).await;
    // While somebody waits, nothing but polls is sent.
    let [leader, standby] = [poller(servers[0]).await, poller(servers[1]).await];
    let shares = busy_share(&stage, &[leader.0, standby.0]).await;
    waiting.abort();
    // Nobody else asks while the queries are timed.
    service.stop().await.expect("it stops");
    for ((server, poll), busy) in servers.into_iter().zip([leader.1, standby.1]).zip(shares) {
        let costs = costs(&stage, server, [&poll, TWO_COLUMNS, "select 1"]).await;
        let [poll, two_columns, one] = &costs;
        let idle = poll.processor * PER_SECOND_IDLE / 1e6;
        say(&format!(
            "PostgreSQL {major}, {}: a poll takes {:.0} us of a core ({:.0} in the executor, {:.0} \
             until answered): {:.1} of the two-column poll ({:.0}, {:.0}, {:.0}), {:.1} of \
             select 1 ({:.0}, {:.0}, {:.0}); of a core {:.3} % while idle, {:.1} % while somebody \
             waits",
            server.name(),
            poll.processor,
            poll.executor,
            poll.round_trip,
            poll.processor / two_columns.processor,
            two_columns.processor,
            two_columns.executor,
            two_columns.round_trip,
            poll.processor / one.processor,
            one.processor,
            one.executor,
            one.round_trip,
            idle * 100.0,
            busy * 100.0,
        ));
        assert!(poll.processor <= POLL_MAX.as_secs_f64() * 1e6, "a poll takes too much");
        let most = POLL_MAX.as_secs_f64() * PER_SECOND_BUSY;
        assert!(busy <= most, "the pace of waiting takes {busy} of a core");
    }
    stage.release().await;
}

/// A loop as somebody would write it who has no service: ask for the row until it is there.
async fn raw_loop(stage: &Stage, database: &Database, asks: &Statement, id: i64) -> Instant {
    loop {
        if database.query_one(asks, &[&id]).await.expect("an answer").get(0) {
            return stage.clock.now();
        }
    }
}

async fn answered(
    stage: &Stage,
    client: &mut Client,
    request: v1::WaitUntilFreshRequest,
) -> Instant {
    let answer = client.wait_until_fresh(request).await.expect("an outcome").into_inner();
    let at = stage.clock.now();
    assert_eq!(answer.outcome(), Ended::Fresh, "{answer:?}");
    at
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() * percent / 100]
}

async fn a_wait_follows_the_row(major: Major) {
    let stage = counting(major, 1).await;
    let (service, mut client) = stage.serve().await;
    let replica = stage.cluster.standby(0);
    let database = replica.connect("postgres", DATABASE).await.expect("a connection");
    let asks = database.prepare("select exists (select from notes where id = $1)").await;
    let asks = asks.expect("it is valid");
    let (mut raw, mut waited, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for id in 1..=WAITS {
        stage.hold().await;
        let carried = session(&stage.write(&mut client, "", id).await);
        let request = wait(carried, BUDGET);
        let released = async {
            until_parked(&service, 1).await;
            let at = stage.clock.now();
            replica.sql("select pg_wal_replay_resume()").await.expect("replay goes on");
            (at, raw_loop(&stage, &database, &asks, id).await)
        };
        let ((released_at, row_at), answered_at) =
            tokio::join!(released, answered(&stage, &mut client, request));
        raw.push(row_at.since(released_at));
        waited.push(answered_at.since(released_at));
        late.push(answered_at.since(row_at));
    }
    let [raw50, raw99] = [50, 99].map(|percent| percentile(&raw, percent));
    let [waited50, waited99] = [50, 99].map(|percent| percentile(&waited, percent));
    let [late50, late99] = [50, 99].map(|percent| percentile(&late, percent));
    say(&format!(
        "PostgreSQL {major}: {WAITS} rows released: a raw loop sees them after p50 {raw50:.1?}, \
         p99 {raw99:.1?}; the wait is answered after p50 {waited50:.1?}, p99 {waited99:.1?}: ratio \
         {:.2}, {:.2}; after the loop saw it p50 {late50:.1?}, p99 {late99:.1?}",
        waited50.as_secs_f64() / raw50.as_secs_f64(),
        waited99.as_secs_f64() / raw99.as_secs_f64(),
    ));
    let allowed = stage.stall.allow(raw50 + BUSY_POLL);
    assert!(waited50 <= allowed, "{waited50:?}, {allowed:?} allowed");
}

on_both_versions! {
    a_poll_costs_little =>
        a_poll_costs_a_server_next_to_nothing_pg15,
        a_poll_costs_a_server_next_to_nothing_pg18;
    a_wait_follows_the_row =>
        a_wait_is_answered_an_interval_after_the_row_pg15,
        a_wait_is_answered_an_interval_after_the_row_pg18;
}
