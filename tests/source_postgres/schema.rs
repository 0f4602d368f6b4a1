//! The schema: applied twice it changes nothing and disturbs nobody; every role gets evidence.

use tidegate::sources::postgres::schema;
use tidegate_core::evidence::{Evidence, EvidenceKind};
use tidegate_core::guards::Guards;
use tidegate_core::lineage::Incarnation;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{ClusterOptions, Server};

use crate::on_both_versions;
use crate::running::{Running, bare, prepared, target};

on_both_versions! {
    applied_twice =>
        a_second_run_takes_no_lock_that_a_reader_or_writer_of_the_table_notices_pg15,
        a_second_run_takes_no_lock_that_a_reader_or_writer_of_the_table_notices_pg18;
    without_the_right =>
        a_role_that_may_not_install_is_told_what_an_administrator_must_run_pg15,
        a_role_that_may_not_install_is_told_what_an_administrator_must_run_pg18;
    any_role =>
        a_role_with_login_alone_gets_evidence_in_every_kind_of_transaction_pg15,
        a_role_with_login_alone_gets_evidence_in_every_kind_of_transaction_pg18;
    another_database =>
        another_database_gives_the_same_evidence_with_an_empty_row_pg15,
        another_database_gives_the_same_evidence_with_an_empty_row_pg18;
}

async fn ask(server: &Server, database: &str, query: &str) -> String {
    let client = server.connect("app", database).await.expect("a connection");
    let row = client.query_one(query, &[]).await.expect("an answer");
    row.get(0)
}

fn parsed(text: &str) -> Evidence {
    Evidence::parse(text, &Guards::on()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

async fn applied_twice(major: Major) {
    let cluster = prepared(major, 1).await;
    let mut source = Running::start(target(cluster.leader()));
    source.write_root().await;
    cluster.catch_up().await.expect("the standby has it");
    let reader = cluster.standby(0).connect("tidegate", "postgres").await.expect("a reader");
    let reads = "begin isolation level repeatable read; select * from tidegate.lineage";
    reader.batch_execute(reads).await.expect("a snapshot is open");
    let writer = cluster.leader().connect("tidegate", "postgres").await.expect("a writer");
    let writes = "begin; insert into tidegate.lineage (system_id, timeline, start_us, reset_us, \
                  n, instance) values (1, 1, 1, 1, 1, 'open')";
    writer.batch_execute(writes).await.expect("a write is open");

    // What the run holds just before it ends; every lock is kept until then.
    let installer = cluster.leader().connect("postgres", "postgres").await.expect("a superuser");
    let (body, _) = schema::HOME.rsplit_once("commit;").expect("it ends with commit");
    installer.batch_execute("set lock_timeout = '5s'").await.expect("a limit");
    installer.batch_execute(body).await.expect("the second run waits for nobody");
    let held = "select coalesce(string_agg(distinct mode, ','), '') from pg_locks \
                where pid = pg_backend_pid() and relation in (select c.oid from pg_class c \
                where c.relnamespace = 'tidegate'::regnamespace)";
    let held: String = installer.query_one(held, &[]).await.expect("an answer").get(0);
    assert!(["", "AccessShareLock"].contains(&held.as_str()), "{held}");
    installer.batch_execute("commit").await.expect("it ends");

    cluster.catch_up().await.expect("replay is not held up by the open reader");
    reader.batch_execute("select * from tidegate.lineage; commit").await.expect("still reading");
    writer.batch_execute("rollback").await.expect("still writing");
    let (seen, faults) = source.observed().await;
    assert!(seen.evidence.row.is_some() && faults.is_empty());
    source.end().await;
}

async fn without_the_right(major: Major) {
    let cluster = bare(ClusterOptions::new(major)).await;
    let server = cluster.leader();
    server.sql("create role installer login").await.expect("a role");
    let client = server.connect("installer", "postgres").await.expect("a connection");
    let error = client.batch_execute(schema::HOME).await.expect_err("it may not create roles");
    let refusal = error.as_db_error().expect("the server's words").clone();
    assert!(refusal.message().contains("installer may not set up the roles"), "{refusal}");
    let hint = refusal.hint().expect("a hint");
    client.batch_execute("rollback").await.expect("nothing is left");

    // The hint works as it stands; what it does not name is the right to make a schema.
    let (_, statements) = hint.split_once("try again: ").expect("statements");
    server.sql(statements).await.expect("the administrator's part");
    server.sql("grant create on database postgres to installer").await.expect("a grant");
    client.batch_execute(schema::HOME).await.expect("the first run");
    client.batch_execute(schema::HOME).await.expect("the second run");
    let mut source = Running::start(target(server));
    source.write_root().await;
    source.end().await;
}

async fn any_role(major: Major) {
    let cluster = prepared(major, 1).await;
    let (leader, standby) = (cluster.leader(), cluster.standby(0));
    leader.sql("create role app login").await.expect("a role");
    let mut source = Running::start(target(leader));
    let root = source.write_root().await;
    cluster.catch_up().await.expect("the standby has it");

    let capture = parsed(&ask(leader, "postgres", "select tidegate.capture()").await);
    assert_eq!((capture.kind, capture.epoch()), (EvidenceKind::Capture, Some(root.epoch)));
    let sample = parsed(&ask(standby, "postgres", "select tidegate.sample()").await);
    assert_eq!((sample.kind, sample.row), (EvidenceKind::Sample, Some(root.epoch)));
    for (server, begin) in [
        (leader, "begin isolation level repeatable read"),
        (leader, "begin isolation level serializable"),
        (leader, "begin read only"),
        (standby, "begin isolation level repeatable read read only"),
    ] {
        let client = server.connect("app", "postgres").await.expect("a connection");
        client.batch_execute(begin).await.expect(begin);
        let row = client.query_one("select tidegate.before()", &[]).await.expect(begin);
        assert_eq!(parsed(row.get(0)).row, Some(root.epoch), "{begin}");
        let row = client.query_one("select tidegate.incarnation()", &[]).await.expect(begin);
        let incarnation = Incarnation::parse(row.get(0)).expect("an incarnation");
        let expected = if server.name() == "l" { capture.incarnation } else { sample.incarnation };
        assert_eq!(incarnation, expected);
    }
    // Settings of a session change nothing but the field that tells one.
    let client = leader.connect("app", "postgres").await.expect("a connection");
    let strange = "set timezone = 'Asia/Kolkata'; set datestyle = 'German'; \
                   set extra_float_digits = -15; set intervalstyle = 'iso_8601'; \
                   set search_path = nowhere; set synchronous_commit = off";
    client.batch_execute(strange).await.expect("settings");
    let row = client.query_one("select tidegate.capture()", &[]).await.expect("an answer");
    let under = parsed(row.get(0));
    assert_eq!((under.incarnation, under.row), (capture.incarnation, capture.row));
    assert!(under.asynchronous && !capture.asynchronous);
    let own = client.query_one("select count(*) from tidegate.lineage", &[]).await;
    assert!(own.is_err(), "the table is not for applications");
    source.end().await;
}

async fn another_database(major: Major) {
    let cluster = prepared(major, 1).await;
    let leader = cluster.leader();
    leader.sql("create role app login").await.expect("a role");
    leader.sql("create database other").await.expect("a database");
    let client = leader.connect("postgres", "other").await.expect("a connection");
    client.batch_execute(&schema::elsewhere()).await.expect("the first run");
    client.batch_execute(&schema::elsewhere()).await.expect("the second run");
    let mut source = Running::start(target(leader));
    source.write_root().await;
    cluster.catch_up().await.expect("the standby has it");
    for (server, query) in
        [(leader, "select tidegate.capture()"), (cluster.standby(0), "select tidegate.sample()")]
    {
        let home = parsed(&ask(server, "postgres", query).await);
        let other = parsed(&ask(server, "other", query).await);
        assert!(home.row.is_some() && other.row.is_none());
        assert_eq!((home.incarnation, home.kind), (other.incarnation, other.kind));
    }
    source.end().await;
}
