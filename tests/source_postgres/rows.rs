//! Lineage rows: written by the polled incarnation alone, once, and read when they are new.

use tidegate::ports::{RowOutcome, SourceErrorClass as Class};
use tidegate_core::lineage::{Epoch, Fork, Life, LineageRow};
use tidegate_core::position::Lsn;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Stop;

use crate::on_both_versions;
use crate::running::{Running, prepared, target};

on_both_versions! {
    a_row_of_another_life =>
        a_row_is_refused_by_a_restarted_server_and_by_a_standby_pg15,
        a_row_is_refused_by_a_restarted_server_and_by_a_standby_pg18;
    a_row_without_the_grant =>
        a_row_that_cannot_be_written_leaves_the_polls_alone_pg15,
        a_row_that_cannot_be_written_leaves_the_polls_alone_pg18;
    a_lost_synchronous_standby =>
        a_row_does_not_wait_for_a_synchronous_standby_that_is_gone_pg15,
        a_row_does_not_wait_for_a_synchronous_standby_that_is_gone_pg18;
    one_row =>
        the_row_that_came_first_stands_and_is_read_back_pg15,
        the_row_that_came_first_stands_and_is_read_back_pg18;
    an_early_row =>
        a_row_that_would_not_be_the_last_is_refused_pg15,
        a_row_that_would_not_be_the_last_is_refused_pg18;
    new_rows =>
        all_rows_come_with_the_first_answer_that_shows_a_new_last_row_pg15,
        all_rows_come_with_the_first_answer_that_shows_a_new_last_row_pg18;
}

fn child(parent: Epoch, n: u64) -> LineageRow {
    let epoch = Epoch::new(parent.timeline, Life { start: n.cast_signed(), reset: -1 });
    let fork = Fork::between(Lsn::new(0x10).into(), Lsn::new(0xF_FFFF_FFFF).into());
    LineageRow { epoch, parent: Some(parent), fork, n }
}

async fn a_row_of_another_life(major: Major) {
    let cluster = prepared(major, 1).await;
    let mut source = Running::start(target(cluster.leader()));
    let (polled, _) = source.observed().await;
    let old = polled.evidence.incarnation;
    let epoch = polled.evidence.epoch().expect("a leader");
    let row = LineageRow { epoch, parent: None, fork: Fork::Unknown, n: 1 };

    let mut standby = Running::start(target(cluster.standby(0)));
    let (on_standby, _) = standby.observed().await;
    let own = on_standby.evidence.incarnation;
    // A standby refuses any insert by itself, before its conditions are looked at.
    let refused = standby.write(own, row).await;
    assert!(refused.is_err_and(|error| error.class == Class::Rejected));
    standby.observed().await;

    cluster.leader().restart(Stop::Fast).await.expect("a restart");
    source.observed_when("restarted", |seen, _| seen.evidence.incarnation != old).await;
    assert_eq!(source.write(old, row).await, Ok(RowOutcome::Refused));
    let (seen, _) = source.observed().await;
    assert_eq!(seen.evidence.row, None);
    source.end().await;
    standby.end().await;
}

#[cfg(feature = "unsafe-guards")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guarded_insert_guard_keeps_a_row_from_a_restarted_server() {
    use tidegate_core::guards::Guards;

    let cluster = prepared(Major::V15, 0).await;
    let mut unguarded = target(cluster.leader());
    unguarded.guards = Guards::without("guarded_insert").expect("named");
    let mut source = Running::start(unguarded);
    let (polled, _) = source.observed().await;
    let old = polled.evidence.incarnation;
    let epoch = polled.evidence.epoch().expect("a leader");
    cluster.leader().restart(Stop::Fast).await.expect("a restart");
    source.observed_when("restarted", |seen, _| seen.evidence.incarnation != old).await;
    let row = LineageRow { epoch, parent: None, fork: Fork::Unknown, n: 1 };
    // The server of the new life now shows the row of the old one, as if nobody had led since.
    assert_eq!(source.write(old, row).await, Ok(RowOutcome::Stands(row)));
    source.end().await;

    let mut guarded = Running::start(target(cluster.leader()));
    let later = child(epoch, 2);
    assert_eq!(guarded.write(old, later).await, Ok(RowOutcome::Refused));
    guarded.end().await;
}

async fn a_row_without_the_grant(major: Major) {
    let cluster = prepared(major, 0).await;
    cluster.leader().sql("revoke insert on tidegate.lineage from tidegate").await.expect("revoked");
    let mut source = Running::start(target(cluster.leader()));
    let (polled, _) = source.observed().await;
    let epoch = polled.evidence.epoch().expect("a leader");
    let row = LineageRow { epoch, parent: None, fork: Fork::Unknown, n: 1 };
    let error = source.write(polled.evidence.incarnation, row).await.expect_err("refused");
    assert_eq!(error.class, Class::Rejected);
    assert!(error.text.contains("run `tidegate sql | psql` again"), "{error}");
    for _ in 0..3 {
        assert!(matches!(source.next().await, tidegate::ports::Reading::Observed { .. }));
    }
    cluster.leader().sql("grant insert on tidegate.lineage to tidegate").await.expect("granted");
    source.write_root().await;
    source.end().await;
}

async fn a_lost_synchronous_standby(major: Major) {
    let cluster = prepared(major, 0).await;
    cluster.leader().set("synchronous_standby_names", "gone").await.expect("a setting");
    let mut source = Running::start(target(cluster.leader()));
    source.write_root().await;
    source.end().await;
}

async fn one_row(major: Major) {
    let cluster = prepared(major, 0).await;
    let mut source = Running::start(target(cluster.leader()));
    let mut other = Running::start(target(cluster.leader()));
    let root = source.write_root().await;
    let incarnation = source.observed().await.0.evidence.incarnation;

    let first = child(root.epoch, 2);
    assert_eq!(source.write(incarnation, first).await, Ok(RowOutcome::Stands(first)));
    let second = LineageRow { fork: Fork::Unbounded, ..first };
    assert_eq!(other.write(incarnation, second).await, Ok(RowOutcome::Stands(first)));
    let count: i64 =
        cluster.leader().value("select count(*) from tidegate.lineage").await.expect("a count");
    assert_eq!(count, 2);
    let open: i64 = cluster
        .leader()
        .value("select count(*) from pg_stat_activity where state like 'idle in transaction%'")
        .await
        .expect("a count");
    assert_eq!(open, 0);
    source.end().await;
    other.end().await;
}

/// Whoever could not read the rows took its epoch for a root; by now the rows are there again, and
/// the first ones were tidied away.
async fn an_early_row(major: Major) {
    let cluster = prepared(major, 0).await;
    let mut source = Running::start(target(cluster.leader()));
    let root = source.write_root().await;
    let incarnation = source.observed().await.0.evidence.incarnation;
    let last = child(root.epoch, 2);
    assert_eq!(source.write(incarnation, last).await, Ok(RowOutcome::Stands(last)));
    cluster.leader().sql("delete from tidegate.lineage where n = 1").await.expect("tidied");

    for n in [1, 2] {
        let late = LineageRow { parent: None, n, ..child(root.epoch, 9) };
        assert_eq!(source.write(incarnation, late).await, Ok(RowOutcome::Refused), "n = {n}");
    }
    let next = child(last.epoch, 3);
    assert_eq!(source.write(incarnation, next).await, Ok(RowOutcome::Stands(next)));
    source.end().await;
}

async fn new_rows(major: Major) {
    let cluster = prepared(major, 1).await;
    let mut source = Running::start(target(cluster.leader()));
    let mut standby = Running::start(target(cluster.standby(0)));
    assert_eq!(standby.observed().await.0.rows, Some(vec![]), "an empty table is told once");
    assert_eq!(standby.observed().await.0.rows, None);
    let root = source.write_root().await;
    let incarnation = source.observed().await.0.evidence.incarnation;
    let next = child(root.epoch, 2);
    source.write(incarnation, next).await.expect("written");

    // Rows of other database clusters are there but not shown.
    let foreign = "insert into tidegate.lineage (system_id, timeline, start_us, reset_us, n, \
                   instance) values (1, 9, 9, 9, 99, 'dump')";
    cluster.leader().sql(foreign).await.expect("written");
    let (seen, _) =
        standby.observed_when("the new row", |seen, _| seen.evidence.row == Some(next.epoch)).await;
    assert_eq!(seen.rows, Some(vec![next, root]));
    let (seen, _) = standby.observed().await;
    assert_eq!((seen.evidence.row, seen.rows), (Some(next.epoch), None));
    source.end().await;
    standby.end().await;
}
