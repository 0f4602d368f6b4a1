//! Rows, grants and disks: what the database refuses, and how it is told.
//!
//! The row of an epoch is what tells one line of leaders from another. In each trap it cannot be
//! read or written: then sessions are served by the leader alone, the reason is told, and what was
//! wrong heals by itself. That a row is written by the polled life alone is
//! `tests/source_postgres/rows.rs`.

use tidegate_lab::install::Major;
use tidegate_lab::postgres::Stop;
use tidegate_lab::service::install;
use tidegate_proto::v1::{Level, Reason};
use tokio_postgres::error::SqlState;

use super::servers_bench::{Bench, Desk, either_now, named, of_level, replica_now, waiting};
use super::stage::on_both_majors;

on_both_majors! {
    a_role_without_select => trap_role_without_select_pg15, trap_role_without_select_pg18;
    pruned_rows => trap_pruned_rows_pg15, trap_pruned_rows_pg18;
    a_role_of_the_application => trap_raw_query_aborts_the_transaction_pg15,
        trap_raw_query_aborts_the_transaction_pg18;
    a_role_without_statistics => trap_role_without_statistics_pg15,
        trap_role_without_statistics_pg18;
    a_role_without_usage_or_insert => trap_role_without_usage_or_insert_pg15,
        trap_role_without_usage_or_insert_pg18;
}

/// Old rows are deleted, and the leader begins a life while the newest cannot be read: a row
/// written then would be a root below the last one, for good.
async fn pruned_rows(major: Major) {
    let bench = Bench::set(major, 1).await;
    let desk = Desk::open(bench.options().await).await;
    let leader = bench.leader();
    for id in [1, 2] {
        leader.restart(Stop::Fast).await.expect("a restart");
        desk.until_lives(leader).await;
        let token = desk.record(&bench.commit(id).await).await;
        desk.until_served_by(&token, "r1").await;
    }
    let prune = "delete from tidegate.lineage where n < (select max(n) from tidegate.lineage)";
    leader.sql(prune).await.expect("somebody tidies up");
    leader.sql("revoke select on tidegate.lineage from tidegate").await.expect("revoked");
    desk.until_node("l", |node| !node.poll_error.is_empty()).await;
    leader.restart(Stop::Fast).await.expect("a restart");
    desk.until_lives(leader).await;
    let token = desk.record(&bench.commit(3).await).await;
    assert_eq!(named(&desk.select(&token, either_now()).await), "l");

    leader.sql("grant select on tidegate.lineage to tidegate").await.expect("granted");
    desk.until_served_by(&token, "r1").await;
    assert!(bench.shows("r1", 3).await);
    let depths = "select string_agg(n::text, ' ' order by n) from tidegate.lineage";
    assert_eq!(leader.value::<String>(depths).await.expect("rows"), "3 4");
}

/// A service whose role lost a right: nobody is served by what cannot be told, and all is well
/// again once the right is back.
async fn a_role_without_select(major: Major) {
    let bench = Bench::set(major, 1).await;
    let desk = Desk::open(bench.options().await).await;
    let token = desk.record(&bench.commit(1).await).await;
    desk.until_served_by(&token, "r1").await;

    let leader = bench.leader();
    leader.sql("revoke select on tidegate.lineage from tidegate").await.expect("revoked");
    bench.cluster.catch_up().await.expect("on the standby too");
    let state = desk.until_node("r1", |node| node.row_epoch.is_empty()).await;
    assert!(state.poll_error.contains("may not read `tidegate.lineage`"), "{state:?}");
    assert!(!state.session_eligible, "{state:?}");
    assert_eq!(state.quarantine_reason, "", "nothing was seen that contradicts itself: {state:?}");
    desk.until_node("l", |node| !node.poll_error.is_empty()).await;
    desk.until_alarm("LINEAGE_UNWRITABLE", true).await;
    let token = desk.record(&bench.commit(2).await).await;
    assert_eq!(named(&desk.select(&token, of_level(Level::Leader)).await), "l");
    let answer = desk.select(&token, either_now()).await;
    assert_eq!((named(&answer), answer.notices.len()), ("l", 0), "{answer:?}");
    assert_eq!(answer.reason(), Reason::LineageUnwritable, "{answer:?}");
    assert_eq!(named(&desk.select(&token, replica_now()).await), "");
    leader.sql("grant select on tidegate.lineage to tidegate").await.expect("granted");
    desk.until_served_by(&token, "r1").await;
    assert!(bench.shows("r1", 2).await);
    desk.until_alarm("LINEAGE_UNWRITABLE", false).await;

    // The leader begins a new life while the rows cannot be read: nobody tells what it grew from.
    leader.sql("revoke select on tidegate.lineage from tidegate").await.expect("revoked");
    bench.cluster.catch_up().await.expect("on the standby too");
    desk.until_node("l", |node| !node.poll_error.is_empty()).await;
    leader.restart(Stop::Fast).await.expect("a restart");
    desk.until_lives(leader).await;
    let written = desk.record(&bench.commit(3).await).await;
    assert_eq!(named(&desk.select(&written, either_now()).await), "l");
    assert_eq!(named(&desk.select(&written, replica_now()).await), "");
    leader.sql("grant select on tidegate.lineage to tidegate").await.expect("granted");
    desk.until_served_by(&written, "r1").await;
    assert!(bench.shows("r1", 3).await);
    let answer = desk.select(&token, waiting()).await;
    assert_eq!(named(&answer), "r1", "{answer:?}");
}

/// A raw query of the evidence, as it stands in manuals: the branch that reads the table is never
/// taken for a role that may not.
const RAW: &str = "select case when has_table_privilege('tidegate.lineage', 'select') then \
                   (select max(l.n)::text from tidegate.lineage l) else '' end";

/// What the application's role is refused inside its own transaction aborts that transaction.
async fn a_role_of_the_application(major: Major) {
    let bench = Bench::set(major, 1).await;
    let evidence = bench.commit(1).await;
    bench.cluster.catch_up().await.expect("the standby follows");
    for server in bench.cluster.servers() {
        let app = server.connect("app", "postgres").await.expect("the role may log in");
        app.batch_execute("begin; select from notes").await.expect("a read");
        let refused = app.query_one(RAW, &[]).await.expect_err("the table is not granted");
        assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{refused}");
        let aborted = app.query_one("select count(*) from notes", &[]).await;
        let aborted = aborted.expect_err("the user's own transaction is gone");
        assert_eq!(aborted.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION), "{aborted}");
        app.batch_execute("rollback").await.expect("nothing is left of it");

        app.batch_execute("begin; select from notes").await.expect("a read");
        for function in ["sample", "before", "capture", "incarnation"] {
            let query = format!("select tidegate.{function}()");
            let row = app.query_one(&query, &[]).await.expect("every role is answered");
            assert!(!row.get::<_, String>(0).is_empty(), "{function} on {}", server.name());
        }
        let row = app.query_one("select count(*) from notes", &[]).await.expect("it goes on");
        assert_eq!(row.get::<_, i64>(0), 1);
        app.batch_execute("commit").await.expect("it ends well");
    }
    assert!(evidence.starts_with("tge1|capture|"), "{evidence}");
}

/// Without `pg_read_all_stats` a standby's receiver is there, but every column of it is null.
async fn a_role_without_statistics(major: Major) {
    let bench = Bench::set(major, 1).await;
    let desk = Desk::open(bench.options().await).await;
    let first = desk.record(&bench.commit(1).await).await;
    desk.until_served_by(&first, "r1").await;
    bench.leader().sql("revoke pg_read_all_stats from tidegate").await.expect("revoked");
    bench.cluster.catch_up().await.expect("on the standby too");
    let role = bench.r1().connect("tidegate", "postgres").await.expect("the role may log in");
    let receiver = "select status is null and received_tli is null from pg_stat_wal_receiver";
    let row = role.query_one(receiver, &[]).await.expect("there is a receiver");
    assert!(row.get::<_, bool>(0), "nothing says that the role may not see it");

    let second = desk.record(&bench.commit(2).await).await;
    bench.cluster.catch_up().await.expect("it has the row");
    // What was proven before stays proven; what came after is nobody's.
    let state = desk.until_node("r1", |node| !node.session_eligible).await;
    assert!(state.poll_error.contains("GRANT pg_read_all_stats"), "{state:?}");
    assert!(state.ineligible_reasons.iter().any(|why| why.contains("receiver")), "{state:?}");
    assert_eq!(named(&desk.select(&second, replica_now()).await), "");
    let answer = desk.select(&second, either_now()).await;
    assert_eq!((named(&answer), answer.notices.len()), ("l", 0), "{answer:?}");
    let eventual = desk.select("", of_level(Level::Eventual)).await;
    assert_eq!(named(&eventual), "r1", "a place that does not count is good enough for it");

    bench.leader().sql("grant pg_read_all_stats to tidegate").await.expect("granted");
    desk.until_served_by(&second, "r1").await;
    assert!(bench.shows("r1", 2).await);
    desk.until_node("r1", |node| node.poll_error.is_empty()).await;
}

/// The role may not use the schema, and then may not insert: no row can be written.
async fn a_role_without_usage_or_insert(major: Major) {
    let bench = Bench::set(major, 1).await;
    let options = bench.options().await;
    for (taken, reason) in [
        ("revoke usage on schema tidegate from public", Reason::LineageUnwritable),
        ("revoke insert on tidegate.lineage from tidegate", Reason::LineageUnwritable),
    ] {
        // No row: whoever leads begins anew.
        let begin = format!("truncate tidegate.lineage; {taken}");
        bench.leader().sql(&begin).await.expect("revoked");
        bench.cluster.catch_up().await.expect("on the standby too");
        let desk = Desk::launch(options.clone()).await;
        desk.until_alarm("LINEAGE_UNWRITABLE", true).await;
        desk.until_node("r1", |node| !node.incarnation.is_empty()).await;
        let state = desk.node("l").await;
        assert!(state.poll_error.contains("tidegate sql | psql"), "{taken}: {state:?}");
        let token = written_by_the_owner(&bench, &desk).await;
        assert_eq!(named(&desk.select(&token, of_level(Level::Leader)).await), "l");
        let answer = desk.select(&token, either_now()).await;
        assert_eq!((named(&answer), answer.reason()), ("l", reason), "{taken}: {answer:?}");
        assert_eq!(named(&desk.select(&token, replica_now()).await), "", "{taken}");

        // As the operator is told: the same file once more.
        install(bench.leader()).await.expect("it grants what is missing");
        desk.until_served_by(&token, "r1").await;
        desk.until_alarm("LINEAGE_UNWRITABLE", false).await;
        desk.until_node("l", |node| node.poll_error.is_empty()).await;
    }
}

/// Commits a row as superuser, whom no missing grant keeps from capturing.
async fn written_by_the_owner(bench: &Bench, desk: &Desk) -> String {
    let next = "select coalesce(max(id), 0) + 1 from notes";
    let id: i64 = bench.leader().value(next).await.expect("a number");
    desk.record(&bench.commit(id).await).await
}
