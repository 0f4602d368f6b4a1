//! The row of an epoch is refused by settings, a full disk or a lock: the leader alone serves
//! sessions, the reason is told, and the row is written once that is possible.
//!
//! What rights the role needs is `lineage`.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_lab::install::Major;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::{Level, Reason};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::lineage_disk::Full;
use super::servers_bench::{Bench, Desk, either_now, life, named, of_level, replica_now};
use super::stage::on_both_majors;

on_both_majors! {
    a_read_only_default => trap_read_only_default_pg15, trap_read_only_default_pg18;
    a_full_tablespace => trap_full_tablespace_pg15, trap_full_tablespace_pg18;
    a_locked_table => trap_locked_table_pg15, trap_locked_table_pg18;
}

/// A row as an insert that knows nothing of these traps writes it.
const PLAIN: &str = "insert into tidegate.lineage (system_id, timeline, start_us, reset_us, n, \
                     instance) values (7, 7, 7, 7, 7, 'plain')";

/// Shorter than usual, so that a view from before a lock is soon too old.
const VIEW_MAX_AGE: Duration = Duration::from_secs(2);

/// The role of the service, on a connection with nobody's settings but the server's.
async fn as_tidegate(bench: &Bench) -> Client {
    bench.leader().connect("tidegate", "postgres").await.expect("the role may log in")
}

/// While no row can be written: the leader serves, and nobody else.
async fn only_the_leader_serves(bench: &Bench, desk: &Desk, id: i64) -> String {
    let token = desk.record(&bench.commit(id).await).await;
    bench.cluster.catch_up().await.expect("r1 follows");
    assert_eq!(named(&desk.select(&token, of_level(Level::Leader)).await), "l");
    let answer = desk.select(&token, either_now()).await;
    assert_eq!(named(&answer), "l", "{answer:?}");
    assert_eq!(answer.reason(), Reason::LineageUnwritable, "{answer:?}");
    assert!(answer.notices.is_empty(), "{answer:?}");
    assert_eq!(named(&desk.select(&token, replica_now()).await), "");
    token
}

/// Transactions of the role are read-only unless they say otherwise.
async fn a_read_only_default(major: Major) {
    let bench = Bench::set(major, 1).await;
    for setting in [
        "alter role tidegate set default_transaction_read_only = on",
        "alter role tidegate in database postgres set default_transaction_read_only = on",
    ] {
        bench.leader().sql(setting).await.expect("a default");
    }
    let refused = as_tidegate(&bench).await.execute(PLAIN, &[]).await.expect_err("read-only");
    assert_eq!(refused.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION), "{refused}");

    // The service says otherwise: its one row is no data of the database.
    let desk = Desk::open(bench.options().await).await;
    let token = desk.record(&bench.commit(1).await).await;
    desk.until_served_by(&token, "r1").await;
    assert!(bench.shows("r1", 1).await);
    desk.until_alarm("LINEAGE_UNWRITABLE", false).await;
}

/// The disk of the table is full, that of the log is not.
async fn a_full_tablespace(major: Major) {
    let bench = Bench::set(major, 1).await;
    let full = Full::under_lineage(bench.leader()).await;
    let before = life(bench.leader()).await;
    let refused = as_tidegate(&bench).await.execute(PLAIN, &[]).await.expect_err("no room");
    let said = refused.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
    assert!(said.contains(full.refusal()), "{refused}: {said}");

    let desk = Desk::launch(bench.options().await).await;
    desk.until_alarm("LINEAGE_UNWRITABLE", true).await;
    desk.until_node("r1", |node| !node.incarnation.is_empty()).await;
    let state = desk.until_node("l", |node| !node.poll_error.is_empty()).await;
    assert!(state.poll_error.contains(full.refusal()), "{state:?}");
    let token = only_the_leader_serves(&bench, &desk, 1).await;
    assert_eq!(life(bench.leader()).await, before, "the server was to live on");

    full.make_room().await;
    desk.until_served_by(&token, "r1").await;
    assert!(bench.shows("r1", 1).await);
    desk.until_alarm("LINEAGE_UNWRITABLE", false).await;
    desk.until_node("l", |node| node.poll_error.is_empty()).await;
}

/// A migration holds the table: nobody inserts, and later nobody reads.
async fn a_locked_table(major: Major) {
    let bench = Bench::set(major, 1).await;
    let migration = bench.leader().connect("postgres", "postgres").await.expect("a connection");
    migration.batch_execute("begin; lock table tidegate.lineage in share mode").await.expect("it");
    // An insert without a limit waits as long as the migration lasts.
    let plain = as_tidegate(&bench).await;
    let waits = tokio::spawn(async move { plain.execute(PLAIN, &[]).await });
    let stuck = "select count(*) from pg_stat_activity where usename = 'tidegate' \
                 and wait_event_type = 'Lock' \
                 and query_start < clock_timestamp() - interval '1s'";
    let is_stuck = || async { Ok(bench.leader().value::<i64>(stuck).await? == 1) };
    until("a plain insert is stuck", LIMIT, is_stuck).await.expect("it is");
    assert!(!waits.is_finished());
    waits.abort();

    let age = format!("\"{}ms\"", VIEW_MAX_AGE.as_millis());
    let options = bench.options().await.limit("view_max_age", &age);
    let desk = Desk::launch(options).await;
    desk.until_alarm("LINEAGE_UNWRITABLE", true).await;
    let state = desk.until_node("l", |node| !node.poll_error.is_empty()).await;
    assert!(state.poll_error.contains("`tidegate.lineage` is locked"), "{state:?}");
    desk.until_node("r1", |node| !node.incarnation.is_empty()).await;
    let token = only_the_leader_serves(&bench, &desk, 1).await;
    migration.batch_execute("commit").await.expect("the migration ends");
    desk.until_served_by(&token, "r1").await;
    desk.until_alarm("LINEAGE_UNWRITABLE", false).await;

    // Now so that nobody reads it either, for longer than a view may be old.
    let token = desk.record(&bench.commit(2).await).await;
    desk.until_served_by(&token, "r1").await;
    let lock = "begin; lock table tidegate.lineage in access exclusive mode";
    migration.batch_execute(lock).await.expect("a lock");
    // Captures read it too: what bounds them is the application's own limit.
    let app = bench.leader().connect("app", "postgres").await.expect("the role may log in");
    app.batch_execute("set lock_timeout = '50ms'").await.expect("a setting");
    let refused = app.query_one("select tidegate.capture()", &[]).await.expect_err("locked");
    assert_eq!(refused.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{refused}");
    // The lock goes to the standby with the next flush of the log.
    bench.leader().sql("insert into notes values (3)").await.expect("another commit");
    desk.until_node("r1", |node| !node.session_eligible).await;
    let clock = Clock::new();
    let began_at = clock.now();
    until("no view from before the lock is young enough", LIMIT, || async {
        for policy in [of_level(Level::Leader), either_now()] {
            let answer = desk.select(&token, policy).await;
            assert_eq!(named(&answer), "l", "{answer:?}");
            assert!(answer.notices.is_empty(), "{answer:?}");
        }
        Ok(clock.now().since(began_at) > VIEW_MAX_AGE * 3 / 2)
    })
    .await
    .expect("time passes");
    assert_eq!(named(&desk.select(&token, replica_now()).await), "");
    let state = desk.node("r1").await;
    assert!(state.poll_error.contains("`tidegate.lineage` is locked"), "{state:?}");
    assert_eq!(state.quarantine_reason, "", "{state:?}");
    migration.batch_execute("commit").await.expect("the migration ends");
    desk.until_served_by(&token, "r1").await;
    assert!(bench.shows("r1", 2).await);
    desk.until_alarm("LINEAGE_UNWRITABLE", false).await;
    desk.until_node("l", |node| node.poll_error.is_empty()).await;
}
