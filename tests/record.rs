//! What becomes of evidence, on real servers: captures that moved to another life, and reads that
//! could not be sampled. The rows of the named servers decide.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

use tidegate_client::{AboveCap, Client, ClientOptions, DirectPool, Policy, SessionOptions};
use tidegate_core::guards::Guards;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::service::{Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::record_request::Observed;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;
use tonic::transport::Channel;

/// A leader, two standbys and a service under some rules.
struct Stage {
    cluster: Cluster,
    service: Service,
    routing: RoutingServiceClient<Channel>,
}

impl Stage {
    async fn start(major: Major, guards: Guards, idle_poll: &str) -> Self {
        let cluster = Cluster::start(ClusterOptions::new(major).standbys(2)).await;
        let cluster = cluster.expect("a cluster");
        cluster.leader().sql("create table t (id bigint primary key)").await.expect("a table");
        let options = ServiceOptions::of(&cluster).await.expect("a leader that answers");
        cluster.catch_up().await.expect("standbys that follow");
        let options = options.guards(guards).limit("idle_poll", idle_poll);
        let service = Service::start(options).await.expect("a service");
        let routing = RoutingServiceClient::connect(service.endpoint()).await.expect("it listens");
        Self { cluster, service, routing }
    }

    async fn record(&self, token: &str, observed: Observed, before: &str) -> v1::RecordResponse {
        let request = v1::RecordRequest {
            session: Some(session(token)),
            observed: Some(observed),
            before: before.to_owned(),
            ..v1::RecordRequest::default()
        };
        self.routing.clone().record(request).await.expect("a record").into_inner()
    }

    /// Where a read of this session goes, without a wait and without the leader.
    async fn select(&self, token: &str) -> v1::SelectReplicaResponse {
        let refuse = v1::AboveCapStep {
            kind: v1::above_cap_step::Kind::Refuse.into(),
            ..v1::AboveCapStep::default()
        };
        let policy = v1::Policy {
            fallback: Some(false),
            wait_budget: Some(prost_types::Duration::default()),
            above_cap: vec![refuse],
            ..v1::Policy::default()
        };
        let request = v1::SelectReplicaRequest {
            session: Some(session(token)),
            policy: Some(policy),
            ..v1::SelectReplicaRequest::default()
        };
        self.routing.clone().select_replica(request).await.expect("a decision").into_inner()
    }
}

fn session(token: &str) -> v1::Session {
    let tokens = if token.is_empty() { Vec::new() } else { vec![token.to_owned()] };
    v1::Session { tokens, ..v1::Session::default() }
}

fn node_of(answer: &v1::SelectReplicaResponse) -> Option<String> {
    match answer.outcome.as_ref() {
        Some(Outcome::Served(served)) => served.node.as_ref().map(|node| node.name.clone()),
        Some(Outcome::Refused(_)) | None => None,
    }
}

async fn text(server: &Server, question: &str) -> String {
    server.value(question).await.expect("an answer")
}

/// A write on the old leader, lost in the promotion, and a capture made on the new one.
async fn capture_of_another_life(
    major: Major,
    guards: Guards,
) -> (v1::SelectReplicaResponse, bool) {
    let stage = Stage::start(major, guards, "\"100ms\"").await;
    let leader = stage.cluster.leader();
    let heir = stage.cluster.standby(0);
    // What the heir does not receive is lost when it is promoted.
    for standby in stage.cluster.standbys() {
        standby.cut_reception().await.expect("a cut");
    }
    let connection = leader.connect("postgres", "postgres").await.expect("a connection");
    connection.batch_execute("begin; insert into t values (1)").await.expect("a write");
    let before = connection.query_one("select tidegate.before()", &[]).await;
    let before: String = before.expect("a reading").get(0);
    connection.batch_execute("commit").await.expect("a commit");
    leader.stop(tidegate_lab::postgres::Stop::Immediate).await.expect("a dead leader");
    heir.promote().await.expect("a promotion");
    // A pooler hands out a connection to the new leader for the statement after COMMIT.
    let capture = text(heir, "select tidegate.capture()").await;
    let recorded = stage.record("", Observed::Evidence(capture), &before).await;
    stage.cluster.standby(1).repoint(heir).await.expect("a new upstream");
    until("the new leader to be known and followed", LIMIT, || async {
        let partition = stage.service.partition().await?;
        Ok(partition.leader_node == heir.name()
            && partition.nodes.iter().any(|node| node.name == "r2" && node.session_eligible))
    })
    .await
    .expect("a failover");
    until("a decision on a replica", LIMIT, || async {
        Ok(node_of(&stage.select(&recorded.token).await).is_some())
    })
    .await
    .expect("a decision");
    // The token was not replaced meanwhile, so what is told is told again.
    let answer = stage.select(&recorded.token).await;
    let found: bool = stage
        .cluster
        .standby(1)
        .value("select exists (select from t where id = 1)")
        .await
        .expect("a read");
    (answer, found)
}

async fn moved_capture(major: Major) {
    let (answer, found) = capture_of_another_life(major, Guards::on()).await;
    assert!(!found, "the write was to be lost");
    assert!(!answer.notices.is_empty(), "served without the write, and not told: {answer:?}");
}

/// Without the guard the lost write is called fresh.
#[cfg(feature = "unsafe-guards")]
async fn believed_capture(major: Major) {
    let off = Guards::without("moved_capture").expect("named");
    let (answer, found) = capture_of_another_life(major, off).await;
    assert!(!found && answer.notices.is_empty(), "{answer:?}");
    assert!(answer.met.contains(&v1::Guarantee::ReadYourWrites.into()), "{answer:?}");
}

/// A session reads a row on r1 and records only where it read; r2 lacks the row.
async fn read_that_is_not_sampled(major: Major, guards: Guards) -> Option<String> {
    let stage = Stage::start(major, guards, "\"1s\"").await;
    let (r1, r2) = (stage.cluster.standby(0), stage.cluster.standby(1));
    r2.pause_replay().await.expect("a paused standby");
    // Directly after a poll of r1 the next one is far away.
    until("a young view of r1", LIMIT, || async {
        let partition = stage.service.partition().await?;
        let age = partition.nodes.iter().find(|node| node.name == "r1").and_then(|n| n.view_age);
        Ok(age.is_some_and(|age| age.seconds == 0 && age.nanos < 300_000_000))
    })
    .await
    .expect("polls");
    stage.cluster.leader().sql("insert into t values (1)").await.expect("a write");
    r1.catch_up_with(stage.cluster.leader()).await.expect("a standby that follows");
    let seen = text(r1, "select count(*)::text from t").await;
    assert_eq!(seen, "1");
    let incarnation = text(r1, "select tidegate.incarnation()").await;
    let recorded = stage.record("", Observed::Incarnation(incarnation), "").await;
    // Without the leader, r1 may be named or nobody; r2 would go back in time.
    for _ in 0..50 {
        let named = node_of(&stage.select(&recorded.token).await);
        if named.as_deref() == Some("r2") {
            return named;
        }
    }
    None
}

async fn sample_after(major: Major) {
    assert_eq!(read_that_is_not_sampled(major, Guards::on()).await, None);
}

#[cfg(feature = "unsafe-guards")]
async fn sampled_before(major: Major) {
    let off = Guards::without("sample_after").expect("named");
    assert_eq!(read_that_is_not_sampled(major, off).await.as_deref(), Some("r2"));
}

#[cfg(feature = "unsafe-guards")]
fn guarded(options: ClientOptions, guards: Guards) -> ClientOptions {
    options.guards(guards)
}

#[cfg(not(feature = "unsafe-guards"))]
fn guarded(options: ClientOptions, _: Guards) -> ClientOptions {
    options
}

/// A session reads on r1 a row that was written while it read; says whether it is then sent to r2,
/// which lacks the row.
async fn read_while_it_is_written(stage: &Stage, guards: Guards, id: i64) -> bool {
    let (leader, r1, r2) =
        (stage.cluster.leader(), stage.cluster.standby(0), stage.cluster.standby(1));
    r2.resume_replay().await.expect("a running standby");
    stage.cluster.catch_up().await.expect("standbys that follow");
    r2.pause_replay().await.expect("a paused standby");
    let options = guarded(ClientOptions::new(stage.service.endpoint()), guards);
    let client = Client::connect(options).await.expect("a service");
    let mut config = tokio_postgres::Config::new();
    config.user("postgres").dbname("postgres");
    let pool = DirectPool::new(config, 8);
    let policy = Policy::default().fallback(false).above_cap([AboveCap::Refuse]);
    let on_r1 = format!("{}", r1.port());
    let session = loop {
        let session = client.session(SessionOptions::new("main"));
        let read = session.read(&pool, &policy, async |db: &tokio_postgres::Client| {
            let here = db.query_one("select current_setting('port')", &[]).await?;
            if here.get::<_, String>(0) != on_r1 {
                return Ok::<bool, tokio_postgres::Error>(false);
            }
            leader.sql(&format!("insert into t values ({id})")).await.expect("a write");
            r1.catch_up_with(leader).await.expect("a standby that follows");
            let seen = db.query_one("select exists (select from t where id = $1)", &[&id]).await?;
            Ok(seen.get(0))
        });
        if read.await.expect("a read").value {
            break session;
        }
    };
    // As another holder of the token would: the session itself stays where it read last.
    let token = session.token().await.expect("a token").expect("the read raised one");
    for _ in 0..40 {
        if node_of(&stage.select(&token).await).as_deref() == Some("r2") {
            return true;
        }
    }
    false
}

async fn snapshot_order(major: Major) {
    let stage = Stage::start(major, Guards::on(), "\"100ms\"").await;
    for id in 1..=3 {
        assert!(!read_while_it_is_written(&stage, Guards::on(), id).await);
    }
}

#[cfg(feature = "unsafe-guards")]
#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_order_guard_keeps_a_session_from_what_it_saw_being_missed() {
    let stage = Stage::start(Major::V15, Guards::on(), "\"100ms\"").await;
    let off = Guards::without("snapshot_order").expect("named");
    for id in 1..=10 {
        if read_while_it_is_written(&stage, off, id).await {
            return;
        }
    }
    panic!("sampled before the read, and never sent back in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_sampled_after_it_pg15() {
    snapshot_order(Major::V15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_sampled_after_it_pg18() {
    snapshot_order(Major::V18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_of_another_life_never_makes_a_lost_write_fresh_pg15() {
    moved_capture(Major::V15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_of_another_life_never_makes_a_lost_write_fresh_pg18() {
    moved_capture(Major::V18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_learned_from_a_poll_sent_after_it_pg15() {
    sample_after(Major::V15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_learned_from_a_poll_sent_after_it_pg18() {
    sample_after(Major::V18).await;
}

#[cfg(feature = "unsafe-guards")]
#[tokio::test(flavor = "multi_thread")]
async fn the_moved_capture_guard_keeps_a_lost_write_from_being_called_fresh() {
    believed_capture(Major::V15).await;
}

#[cfg(feature = "unsafe-guards")]
#[tokio::test(flavor = "multi_thread")]
async fn the_sample_after_guard_keeps_a_session_from_going_back_in_time() {
    sampled_before(Major::V15).await;
}
