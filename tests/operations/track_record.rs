//! What went wrong elsewhere, made to happen again with the service before real servers.
//!
//! Each shows first that the servers really are as they were then: the numbers look right and the
//! row is not there. Whose failures these were is in `docs/proof.md`.

use std::fs;
use std::time::Duration;

use tidegate::seal::{Key, Keyring};
use tidegate_core::lineage::{Epoch, Life};
use tidegate_core::position::Lsn;
use tidegate_core::token::{Component, ComponentKey, Mark, PartitionId, SessionToken};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Server, Stop};
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::Service;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::partition::State;
use tidegate_proto::v1::record_request::Observed;
use tidegate_proto::v1::{self, Level, Session};

use super::polls::{counting, on_both_versions};
use super::stage::{Client, Stage, connect, metric, named, read, select, session};

/// Reads made where nothing may be called fresh.
const READS: usize = 40;

/// Writes log that is no row, until the server's position has passed another one.
async fn write_past(server: &Server, position: tidegate_lab::postgres::Lsn) {
    while server.insert_lsn().await.expect("a leader") <= position {
        let message = "select pg_logical_emit_message(false, 'lab', repeat('x', 50000))";
        server.sql(message).await.expect("it is written");
    }
}

/// What is captured after a row was written on this leader.
async fn captured_write(leader: &Server, id: i64) -> String {
    leader.sql(&format!("insert into notes values ({id})")).await.expect("it is written");
    leader.value("select tidegate.capture()").await.expect("a capture")
}

/// The session that carries what was captured.
async fn recorded(client: &mut Client, evidence: &str) -> Session {
    let observed = Some(Observed::Evidence(evidence.to_owned()));
    let request = v1::RecordRequest { observed, ..v1::RecordRequest::default() };
    session(&client.record(request).await.expect("it is recorded").into_inner().token)
}

/// Whoever is named has the row, or the session is told that it may be gone.
async fn is_honest(stage: &Stage, answer: &v1::SelectReplicaResponse, id: i64) {
    let node = named(answer);
    // Whoever has just died cannot be read, whatever was known of it.
    let running = stage.cluster.server(node).is_some_and(Server::is_running);
    let honest = !running || !answer.notices.is_empty() || stage.shows(node, id).await;
    assert!(honest, "{node} was called fresh, lacks the row, and nobody was told: {answer:?}");
}

async fn a_promotion_that_loses(major: Major) {
    let stage = counting(major, 1).await;
    let (service, mut client) = stage.serve().await;
    let (leader, heir) = (stage.cluster.leader(), stage.cluster.standby(0));
    #[cfg(feature = "unsafe-guards")]
    let mut wrong = believing_numbers(&stage).await;
    let kept = session(&stage.write(&mut client, "", 1).await);
    until("r1 to serve it, flushed and applied", LIMIT, || async {
        let answer = select(&mut client.clone(), read(kept.clone(), Level::Session)).await;
        Ok(named(&answer) == "r1")
    })
    .await
    .expect("the heir has it");
    heir.cut_reception().await.expect("what is written now is lost");
    let evidence = captured_write(leader, 2).await;
    let lost = recorded(&mut client, &evidence).await;
    #[cfg(feature = "unsafe-guards")]
    let lost_there = recorded(&mut wrong.1, &evidence).await;
    let captured = leader.insert_lsn().await.expect("a position");
    leader.stop(Stop::Immediate).await.expect("a dead leader");
    let fork = heir.promote().await.expect("a promotion");

    // What misled others: an old timeline, a position that stands still, a number that is met.
    let control = "select timeline_id from pg_control_checkpoint()";
    assert_eq!(heir.value::<i32>(control).await.expect("an answer"), 1, "the control file is old");
    write_past(heir, captured).await;
    assert_eq!(heir.replay_lsn().await.expect("not null"), fork, "it stands still");
    assert!(!stage.shows("r1", 2).await, "the row was to be lost");

    let mut answer = v1::SelectReplicaResponse::default();
    let deadline = stage.clock.now() + LIMIT;
    while answer.outcome.is_none() || named(&answer) != "r1" {
        assert!(stage.clock.now() < deadline, "nobody serves: {answer:?}");
        answer = select(&mut client, read(lost.clone(), Level::Session)).await;
        is_honest(&stage, &answer, 2).await;
    }
    assert!(answer.epoch.starts_with("2."), "the new timeline is known: {}", answer.epoch);
    assert!(!answer.notices.is_empty(), "{answer:?}");
    let answer = select(&mut client, read(kept, Level::Session)).await;
    assert_eq!(named(&answer), "r1", "{answer:?}");
    assert!(answer.notices.is_empty() && stage.shows("r1", 1).await, "{answer:?}");
    #[cfg(feature = "unsafe-guards")]
    until("the wrong way: the lost row is called fresh", LIMIT, || async {
        let request = read(lost_there.clone(), Level::Session);
        let answer = select(&mut wrong.1.clone(), request).await;
        Ok(named(&answer) == "r1" && answer.notices.is_empty())
    })
    .await
    .expect("the number is met");
    service.stop().await.expect("it stops");
}

/// The wrong way: a service that asks for numbers before it asks whose they are.
#[cfg(feature = "unsafe-guards")]
async fn believing_numbers(stage: &Stage) -> (Service, Client) {
    let off = tidegate_core::guards::Guards::without("leader_first").expect("named");
    let service = Service::start(stage.options().await.guards(off)).await.expect("it starts");
    let client = connect(&service).await;
    (service, client)
}

async fn until_split(service: &Service) {
    until("two nodes to claim the lead", LIMIT, || async {
        Ok(service.partition().await?.state() == State::Split)
    })
    .await
    .expect("a split");
}

async fn twins(major: Major) {
    let stage = counting(major, 2).await;
    let (service, mut client) = stage.serve().await;
    let [first, second] = [0, 1].map(|number| stage.cluster.standby(number));
    stage.cluster.catch_up().await.expect("both stand at the same place");
    stage.cluster.leader().stop(Stop::Immediate).await.expect("a dead leader");
    first.promote().await.expect("a promotion");
    until("r1 to lead", LIMIT, || async { Ok(service.partition().await?.leader_node == "r1") })
        .await
        .expect("it leads");
    let carried = recorded(&mut client, &captured_write(first, 1).await).await;
    let captured = first.insert_lsn().await.expect("a position");
    first.stop(Stop::Immediate).await.expect("it dies");
    second.promote().await.expect("a second promotion");
    write_past(second, captured).await;

    // What misled others: the same system, the same timeline, a higher number, and no row.
    assert_eq!(second.timeline().await.expect("a timeline"), 2);
    assert!(!stage.shows("r2", 1).await, "the row is on the other twin");
    let mut honest = async |reads: usize| {
        for _ in 0..reads {
            let answer = select(&mut client, read(carried.clone(), Level::Session)).await;
            is_honest(&stage, &answer, 1).await;
            assert_ne!(named(&answer), "r2", "{answer:?}");
        }
    };
    honest(READS).await;
    until_split(&service).await;
    honest(READS).await;
    // Both run.
    first.start().await.expect("it comes back");
    assert_eq!(first.timeline().await.expect("a timeline"), 2);
    honest(READS).await;
    until_split(&service).await;
    honest(READS).await;
}

async fn the_corner_of_synchronous_replication(major: Major) {
    let stage = counting(major, 1).await;
    let (leader, standby) = (stage.cluster.leader(), stage.cluster.standby(0));
    leader.set("synchronous_standby_names", "nobody").await.expect("a setting");
    let connection = leader.connect("postgres", "postgres").await.expect("a connection");
    let write = async move { connection.batch_execute("insert into notes values (1)").await };
    let writing = tokio::spawn(write);
    until("r1 shows the row", LIMIT, || async { Ok(stage.shows("r1", 1).await) })
        .await
        .expect("it is replicated");
    assert!(!stage.shows("l", 1).await, "the leader was to wait for nobody");
    let passed = leader.insert_lsn().await.expect("a position");
    standby.wait_until_replayed(passed).await.expect("the same position on both");
    assert!(!stage.shows("l", 1).await, "at the same position");
    leader.unset("synchronous_standby_names").await.expect("a setting");
    writing.await.expect("no panic").expect("it is acknowledged");
    assert!(stage.shows("l", 1).await);
}

on_both_versions! {
    a_promotion_that_loses =>
        a_promotion_is_seen_though_the_control_file_is_old_and_the_lost_row_is_told_pg15,
        a_promotion_is_seen_though_the_control_file_is_old_and_the_lost_row_is_told_pg18;
    twins =>
        twins_of_one_timeline_are_told_apart_by_nobody_and_serve_nobody_pg15,
        twins_of_one_timeline_are_told_apart_by_nobody_and_serve_nobody_pg18;
    the_corner_of_synchronous_replication =>
        a_standby_may_show_a_commit_before_its_leader_does_pg15,
        a_standby_may_show_a_commit_before_its_leader_does_pg18;
}

/// The lag of r1 in bytes: on the page of metrics, and as the service's decisions see it.
async fn lags(service: &Service) -> (f64, Option<u64>) {
    let shown = metric(service, "tidegate_replica_lag_bytes{partition=\"main\",node=\"r1\"}").await;
    let nodes = service.partition().await.expect("it answers").nodes;
    let known = nodes.iter().find(|node| node.name == "r1").and_then(|node| node.lag.as_ref());
    (shown, known.map(|lag| lag.bytes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_say_what_decisions_know_after_a_reconnect() {
    let stage = Stage::set(1).await;
    let proxy = Proxy::start(stage.cluster.standby(0).address()).await.expect("a proxy");
    let options = stage.options().await.poll_through("r1", proxy.address());
    let service = Service::start(options).await.expect("a service starts");
    let leader = stage.cluster.leader();
    let agree = async |what: &str, right: fn(u64) -> bool| {
        until(what, LIMIT, || async {
            let (shown, known) = lags(&service).await;
            Ok(known.is_some_and(|known| right(known) && (shown - known as f64).abs() < 0.5))
        })
        .await
        .expect("metrics and decisions agree");
    };
    agree("nothing is missing", |bytes| bytes == 0).await;
    proxy.set(Mode::Cut).await.expect("a cut");
    until("r1 is not reached", LIMIT, || async {
        Ok(service.partition().await?.nodes.iter().any(|node| !node.poll_error.is_empty()))
    })
    .await
    .expect("it is said");
    stage.hold().await;
    let position = leader.insert_lsn().await.expect("a position");
    write_past(leader, position).await;
    proxy.set(Mode::Pass).await.expect("mended");
    agree("what is missing is seen after the reconnect", |bytes| bytes > 40_000).await;
    stage.release().await;
    agree("and that it came", |bytes| bytes == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_two_partitions_is_judged_for_the_one_that_is_read() {
    let stage = Stage::set(1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (file, key) = (folder.path().join("token.key"), Key::generate().expect("randomness"));
    fs::write(&file, key.to_hex()).expect("a key file");
    let service = Service::start(stage.options().await.token_key(&file)).await.expect("it starts");
    let mut client = connect(&service).await;
    let own = stage.write(&mut client, "", 1).await;
    stage.cluster.catch_up().await.expect("r1 has it");
    until("r1 to serve it", LIMIT, || async {
        let answer = select(&mut client.clone(), read(session(&own), Level::Session)).await;
        Ok(named(&answer) == "r1")
    })
    .await
    .expect("it has the row");

    // Another partition's component, far beyond anything that was ever applied anywhere.
    let far = Lsn::parse("FFFFFF/0").expect("a position").into();
    let mark =
        Mark { floor: far, after: None, upto: Some(far), saw: None, led: None, flushed: None };
    let epoch = Epoch::new(1, Life { start: 1, reset: 1 });
    let other = ComponentKey { partition: PartitionId::new(2), system_tag: 2 };
    let other = SessionToken::of(other, Component::of(epoch, mark)).encode(0);
    let other = Keyring::of_one("lab", "default", key, 8 * 1024).seal(&other);
    let both = Session { tokens: vec![own, other], ..Session::default() };
    for _ in 0..READS {
        let asked_at = stage.clock.now();
        let answer = select(&mut client, read(both.clone(), Level::Session)).await;
        stage.within(&answer, asked_at, Duration::from_millis(50));
        assert_eq!(named(&answer), "r1", "{answer:?}");
        assert!(answer.notices.is_empty(), "{answer:?}");
        assert_eq!(answer.reason(), v1::Reason::Covered, "{answer:?}");
    }
}
