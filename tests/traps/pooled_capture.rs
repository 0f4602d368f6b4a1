//! A pooler between the application and its leader: a capture that comes from another life than
//! the commit, and the two ways that are right.
//!
//! Reads that move are in `pooled`; what the record makes of such evidence is `tests/record.rs`.

use std::cell::Cell;

use tidegate_client::{
    Client, ClientOptions, DirectPool, Guarantee, Guards, Observed, Policy, Raise, Read, Session,
    SessionOptions,
};
use tidegate_lab::install::Major;
use tidegate_lab::pgbouncer::{Pgbouncer, PgbouncerOptions};
use tidegate_lab::postgres::{Cluster, ClusterOptions, Stop};
use tidegate_lab::service::{DATABASE, PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tokio_postgres::{Config, Error, SimpleQueryMessage};

use super::stage::on_both_majors;

on_both_majors! {
    a_capture_moves_with_a_restart =>
        trap_pooled_capture_after_a_restart_pg15, trap_pooled_capture_after_a_restart_pg18;
    a_capture_moves_with_a_failover =>
        trap_pooled_capture_after_a_failover_pg15, trap_pooled_capture_after_a_failover_pg18;
}

/// Writes made until a crash loses one.
const ATTEMPTS: i64 = 10;

/// What comes between a commit and a statement of its own that captures it.
#[derive(Clone, Copy)]
enum Between {
    /// The leader crashes and comes back without what it had not written out.
    Restart,
    /// A replica that lacks it is promoted, and the pooler leads there.
    Failover,
}

/// What sessions were told whose lost write was captured in different ways.
struct Told {
    /// By a capture alone, from the other life.
    alone: (Read<bool>, usize),
    /// The same, with what `before()` had said.
    with_before: (Read<bool>, usize),
    /// By the write scope, in one batch with COMMIT.
    by_scope: (Read<bool>, usize),
}

async fn a_capture_moves_with_a_restart(major: Major) {
    moved(major, Between::Restart).await;
}

async fn a_capture_moves_with_a_failover(major: Major) {
    moved(major, Between::Failover).await;
}

async fn moved(major: Major, between: Between) {
    if let Some(off) = believing() {
        let believed = told(major, between, off).await;
        assert_believed(&believed.alone);
        assert_believed(&believed.with_before);
        assert_honest(&believed.by_scope);
    }

    let right = told(major, between, Guards::on()).await;
    // No rule can know that this one came from another life.
    assert_believed(&right.alone);
    assert_told(&right.with_before);
    assert_honest(&right.by_scope);
}

/// The rules without the one that doubts such captures; none in builds that lack no rule.
#[cfg(feature = "unsafe-guards")]
fn believing() -> Option<Guards> {
    Some(Guards::without("moved_capture").expect("a guard"))
}

#[cfg(not(feature = "unsafe-guards"))]
fn believing() -> Option<Guards> {
    None
}

/// The write is gone, and called there.
fn assert_believed((read, notices): &(Read<bool>, usize)) {
    assert!(!read.value && read.met.contains(&Guarantee::ReadYourWrites), "{read:?}");
    assert_eq!(*notices, 0, "{read:?}");
}

/// The write is gone, and its session is told.
fn assert_told((read, notices): &(Read<bool>, usize)) {
    assert!(!read.value && *notices > 0, "{notices} notices: {read:?}");
}

/// The write is there, which a crash decides, or its session is told.
fn assert_honest((read, notices): &(Read<bool>, usize)) {
    assert!(read.value || *notices > 0, "gone and not told: {read:?}");
}

async fn told(major: Major, between: Between, guards: Guards) -> Told {
    // Long enough for a crash to come first, mostly.
    let cluster = ClusterOptions::new(major).standbys(1).setting("synchronous_commit", "off");
    let cluster = cluster.setting("wal_writer_delay", "1s");
    let cluster = Cluster::start(cluster).await.expect("a cluster starts");
    let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
    let leader = cluster.leader();
    leader.sql("create table t (id bigint primary key); checkpoint").await.expect("a table");
    cluster.catch_up().await.expect("the standby has it");
    let service = Service::start(options.guards(guards)).await.expect("the service starts");
    let client = Client::connect(ClientOptions::new(service.endpoint())).await;
    let client = client.expect("the service listens");
    let session = || client.session(SessionOptions::new(PARTITION));
    let pooler = Pgbouncer::start(PgbouncerOptions::new(), leader).await.expect("a pooler starts");
    if matches!(between, Between::Failover) {
        cluster.standby(0).cut_reception().await.expect("it receives nothing more");
    }

    let by_scope = session();
    let mut connection = pooler.connect(DATABASE).await.expect("it takes connections");
    let insert = async |tx: &tokio_postgres::Transaction<'_>| {
        tx.execute("insert into t values (1)", &[]).await
    };
    by_scope.write(&mut connection, insert).await.expect("it is written and recorded");

    let connection = pooler.connect(DATABASE).await.expect("it takes connections");
    let mut id = 2;
    let before = loop {
        let written = format!("begin; insert into t values ({id}); select tidegate.before()");
        let before = text(&connection, &written).await.expect("it is written");
        connection.batch_execute("commit").await.expect("it is acknowledged");
        let server = match between {
            Between::Restart => {
                leader.restart(Stop::Immediate).await.expect("it comes back");
                leader
            }
            Between::Failover => {
                leader.stop(Stop::Immediate).await.expect("it is gone");
                cluster.standby(0).promote().await.expect("it is promoted");
                pooler.point_to(cluster.standby(0)).await.expect("the pooler follows");
                cluster.standby(0)
            }
        };
        let query = format!("select exists (select from t where id = {id})");
        if !server.value::<bool>(&query).await.expect("it answers") {
            break before;
        }
        // It was written out before the crash.
        assert!(id < ATTEMPTS && matches!(between, Between::Restart), "no write was lost");
        id += 1;
    };
    let capture = text(&connection, "select tidegate.capture()").await;
    let capture = capture.expect("the same connection, without an error");
    assert_ne!(life(&capture), life(&before), "the capture did not move");

    let (alone, with_before) = (session(), session());
    alone.record_capture(capture.clone()).await.expect("it is recorded");
    let both = Observed::CaptureWithBefore { capture, before };
    with_before.record(both, Raise::Unspecified).await.expect("it is recorded");
    let told = Told {
        alone: read(&alone, id).await,
        with_before: read(&with_before, id).await,
        by_scope: read(&by_scope, 1).await,
    };
    drop(pooler);
    service.stop().await.expect("the service had not failed");
    told
}

/// Reads whether a row is there as soon as a read is served again, and how many losses were told.
async fn read(session: &Session, id: i64) -> (Read<bool>, usize) {
    let mut config = Config::new();
    config.user("postgres").dbname(DATABASE);
    let pool = DirectPool::new(config, 1);
    let exists = async |db: &tokio_postgres::Client| -> Result<bool, Error> {
        let query = "select exists (select from t where id = $1)";
        db.query_one(query, &[&id]).await?.try_get(0)
    };
    let served = Cell::new(None);
    until("the session is served", LIMIT, || async {
        let read = session.read(&pool, &Policy::default(), exists).await;
        Ok(read.is_ok_and(|read| served.replace(Some(read)).is_none()))
    })
    .await
    .expect("the service sees the new life");
    (served.take().expect("it was served"), session.take_notices().len())
}

/// The text in the last row of an answer.
async fn text(client: &tokio_postgres::Client, statements: &str) -> Result<String, Error> {
    let answer = client.simple_query(statements).await?;
    let rows = answer.iter().filter_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0)
    });
    Ok(rows.last().expect("a row with a text").to_owned())
}

/// Timeline, start and reset in an evidence string.
fn life(evidence: &str) -> Vec<&str> {
    evidence.split('|').skip(4).take(3).collect()
}
