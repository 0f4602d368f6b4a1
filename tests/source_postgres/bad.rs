//! What goes wrong: each failure has its class, says what to do, and ends by itself once mended.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::config::Password;
use tidegate::ports::{Fault, Reading, SourceErrorClass as Class};
use tidegate::sources::postgres::schema;
use tidegate_core::evidence::Role;
use tidegate_core::lineage::SystemId;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{ClusterOptions, Stop};
use tidegate_lab::proxy::{Mode, Proxy};

use crate::on_both_versions;
use crate::running::{Running, at, bare, prepared, target};

on_both_versions! {
    a_wrong_password =>
        a_wrong_password_is_denied_and_a_mended_file_is_read_again_pg15,
        a_wrong_password_is_denied_and_a_mended_file_is_read_again_pg18;
    a_foreign_system =>
        a_server_of_another_database_cluster_is_never_observed_pg15,
        a_server_of_another_database_cluster_is_never_observed_pg18;
    a_black_hole =>
        a_server_behind_a_black_hole_times_out_and_is_found_again_pg15,
        a_server_behind_a_black_hole_times_out_and_is_found_again_pg18;
    a_missing_schema =>
        a_missing_schema_is_told_with_each_answer_until_it_is_there_pg15,
        a_missing_schema_is_told_with_each_answer_until_it_is_there_pg18;
    a_missing_grant =>
        a_role_that_may_not_see_receivers_is_told_so_on_leader_and_standby_pg15,
        a_role_that_may_not_see_receivers_is_told_so_on_leader_and_standby_pg18;
    an_unreadable_table =>
        a_role_that_may_not_read_the_table_is_told_so_pg15,
        a_role_that_may_not_read_the_table_is_told_so_pg18;
    a_crash =>
        a_crashed_server_is_shown_at_once_and_comes_back_as_another_incarnation_pg15,
        a_crashed_server_is_shown_at_once_and_comes_back_as_another_incarnation_pg18;
}

async fn a_wrong_password(major: Major) {
    let cluster = bare(ClusterOptions::new(major).password("lab")).await;
    cluster.leader().sql(schema::HOME).await.expect("the schema is applied");
    cluster.leader().sql("alter role tidegate password 'right'").await.expect("a password");
    let file = cluster.folder().join("password");
    std::fs::write(&file, "wrong\n").expect("a password file");
    let mut wanted = target(cluster.leader());
    wanted.password = Password::File(file.clone());
    let mut source = Running::start(wanted);

    let error = source.failed().await;
    assert_eq!(error.class, Class::Denied);
    assert!(error.to_string().contains("check user and password"), "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");

    std::fs::write(&file, "\n").expect("an empty password file");
    assert!(source.failed().await.class == Class::Denied);
    std::fs::write(&file, "right\n").expect("a password file");
    source.observed().await;
    source.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_version_14_is_refused_with_advice() {
    let cluster = bare(ClusterOptions::new(Major::V14)).await;
    cluster.leader().sql("create role tidegate login").await.expect("a role");
    let mut source = Running::start(target(cluster.leader()));
    let error = source.failed().await;
    assert_eq!(error.class, Class::ServerTooOld);
    let text = error.to_string();
    assert!(text.contains("needs PostgreSQL 15 or later: upgrade"), "{text}");
    assert!(text.contains("`accepted_majors`"), "{text}");
    source.end().await;

    let mut wanted = target(cluster.leader());
    wanted.accepted_majors = vec![14];
    let mut source = Running::start(wanted);
    assert_eq!(source.observed().await.0.evidence.server_major(), 14, "by the operator's word");
    source.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_where_nobody_listens_and_a_missing_database_say_what_to_check_pg15() {
    let cluster = prepared(Major::V15, 0).await;
    let mut elsewhere = target(cluster.leader());
    elsewhere.database = "nowhere".to_owned();
    let mut source = Running::start(elsewhere);
    let error = source.failed().await;
    assert_eq!(error.class, Class::Denied);
    assert!(error.text.contains("`tidegate sql`"), "{error}");
    source.end().await;

    cluster.leader().stop(Stop::Fast).await.expect("it stops");
    let mut source = Running::start(target(cluster.leader()));
    let error = source.failed().await;
    assert_eq!(error.class, Class::Unreachable);
    assert!(error.text.contains("check the address"), "{error}");
    source.end().await;
}

async fn a_foreign_system(major: Major) {
    let cluster = prepared(major, 0).await;
    let mut wanted = target(cluster.leader());
    wanted.system = Some(SystemId::new(4711));
    let mut source = Running::start(wanted);
    for _ in 0..3 {
        let Reading::Unreachable { error, .. } = source.next().await else {
            panic!("a foreign server was observed");
        };
        assert_eq!(error.class, Class::ForeignSystem);
        assert!(error.text.contains("4711") && error.text.contains("system_id"), "{error}");
    }
    source.end().await;
}

async fn a_black_hole(major: Major) {
    let cluster = prepared(major, 0).await;
    let proxy = Proxy::start(cluster.leader().address()).await.expect("a proxy");
    let mut wanted = at(proxy.address());
    wanted.timeouts.poll = Duration::from_millis(300);
    wanted.timeouts.connect = Duration::from_millis(300);
    wanted.timeouts.backoff_max = Duration::from_millis(200);
    let mut swallowed = Running::start(wanted);
    let mut other = Running::start(target(cluster.leader()));
    swallowed.observed().await;

    proxy.set(Mode::BlackHole).await.expect("the network breaks");
    let clock = Clock::new();
    let broken_at = clock.now();
    let error = swallowed.failed_as(Class::TimedOut).await;
    let took = clock.now().since(broken_at);
    assert!(took < Duration::from_secs(2), "noticed after {took:?}");
    assert!(error.text.contains("no answer within 300ms"), "{error}");
    // Connecting fails the same way, and others are polled as before.
    swallowed.failed_as(Class::TimedOut).await;
    other.observed_since(broken_at).await;

    proxy.set(Mode::Pass).await.expect("the network is mended");
    swallowed.observed_since(clock.now()).await;
    swallowed.end().await;
    other.end().await;
}

async fn a_missing_schema(major: Major) {
    let cluster = bare(ClusterOptions::new(major)).await;
    cluster.leader().sql("create role tidegate login").await.expect("a role");
    cluster.leader().sql("grant pg_read_all_stats to tidegate").await.expect("a grant");
    let mut source = Running::start(target(cluster.leader()));
    for _ in 0..3 {
        let (seen, faults) = source.observed().await;
        assert_eq!(faults, [Fault::SchemaMissing]);
        assert!(seen.rows.is_none() && seen.evidence.row.is_none());
        assert!(seen.evidence.position().is_some());
    }
    cluster.leader().sql(schema::HOME).await.expect("the schema is applied");
    let (seen, _) = source.observed_when("whole", |_, faults| faults.is_empty()).await;
    assert_eq!(seen.rows, Some(vec![]));

    let old = "create or replace function tidegate.version() returns integer language sql \
               as 'select 0'";
    cluster.leader().sql(old).await.expect("an old version");
    cluster.leader().kill_backend().await.expect("a new connection is needed");
    let behind = Fault::SchemaBehind { found: 0, needed: schema::VERSION };
    source.observed_when("behind", |_, faults| faults == [behind]).await;

    cluster.leader().sql("drop schema tidegate cascade").await.expect("the schema is dropped");
    source.observed_when("missing", |_, faults| faults == [Fault::SchemaMissing]).await;
    source.end().await;
}

async fn a_missing_grant(major: Major) {
    let cluster = prepared(major, 1).await;
    cluster.leader().sql("revoke pg_read_all_stats from tidegate").await.expect("revoked");
    cluster.catch_up().await.expect("on the standby too");
    for server in cluster.servers() {
        let mut source = Running::start(target(server));
        let (seen, faults) = source.observed().await;
        assert_eq!(faults, [Fault::GrantMissing], "{}", server.name());
        if server.name() != "l" {
            assert_eq!(seen.evidence.role, Role::Standby { received_timeline: None });
        }
        source.end().await;
    }
    let mut source = Running::start(target(cluster.standby(0)));
    source.observed().await;
    cluster.leader().sql("grant pg_read_all_stats to tidegate").await.expect("granted");
    let follows = Role::Standby { received_timeline: Some(1) };
    let (seen, _) = source.observed_when("granted", |_, faults| faults.is_empty()).await;
    assert_eq!(seen.evidence.role, follows);
    source.end().await;
}

async fn an_unreadable_table(major: Major) {
    let cluster = prepared(major, 0).await;
    let mut source = Running::start(target(cluster.leader()));
    let (_, faults) = source.observed().await;
    assert_eq!(faults, []);
    // The statement is prepared by now: the right is missed when it runs.
    cluster.leader().sql("revoke all on tidegate.lineage from tidegate").await.expect("revoked");
    let unreadable = [Fault::SchemaUnreadable];
    source.observed_when("unreadable", |_, faults| faults == unreadable).await;
    cluster.leader().sql(schema::HOME).await.expect("a second run grants it again");
    source.observed_when("readable", |_, faults| faults.is_empty()).await;
    source.end().await;
}

async fn a_crash(major: Major) {
    let cluster = prepared(major, 0).await;
    let mut source = Running::start(target(cluster.leader()));
    let (before, _) = source.observed().await;
    cluster.leader().kill_backend().await.expect("a crash restart");
    source.failed().await;
    let (after, _) = source.observed().await;
    let (old, new) = (before.evidence.incarnation.life, after.evidence.incarnation.life);
    assert_eq!(old.start, new.start, "the postmaster lived on");
    assert_ne!(old.reset, new.reset);
    assert!(after.rows.is_some(), "rows are read under each incarnation");
    source.end().await;
}
