//! A session of one write and its reads, and what the operator's word for a major changes.
//!
//! Short by intent: what a session may rely on is `tests/scenarios.rs`, on two majors.

use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, Server};
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;
use tidegate_proto::v1::{self, Level, record_request::Observed};
use tonic::transport::Channel;

use super::measured::VISITOR;

/// A commit hidden for so long is hidden until the test says otherwise.
const HIDDEN: Duration = Duration::from_secs(3600);

/// A write, a read of it, a crash of both standbys, a read that they may not serve.
pub(super) async fn a_round(cluster: &Cluster) {
    let options = ServiceOptions::of(cluster).await.expect("the leader answers");
    let service = Service::start(options).await.expect("a service starts");
    let mut visitor = Visitor::arrive(&service, cluster.leader()).await;
    for standby in cluster.standbys() {
        standby.anchor(cluster.leader()).await.expect("a restartpoint");
    }
    visitor.write(1).await;
    let standby = visitor.served_by_standby().await;
    assert!(shows(cluster, &standby, 1).await, "{standby} was named and lacks the row");

    // Both had it, both were believed, and both come back without it.
    cluster.catch_up().await.expect("both show the row");
    let crashes = cluster.standbys().iter().map(|standby| standby.crash_behind(HIDDEN));
    futures::future::try_join_all(crashes).await.expect("both come back behind");
    for standby in cluster.standbys() {
        assert!(!shows(cluster, standby.name(), 1).await, "the row is hidden");
    }
    let lives = [life(cluster.standby(0)).await, life(cluster.standby(1)).await];
    let seen_again = || async {
        // Until its next poll the service may name one that has crashed: under the life that
        // ended, so that whoever compares lives does not read from this one.
        let answer = visitor.clone().select(Duration::ZERO).await;
        let read_from = |life: &&String| answer.lives.contains(*life);
        assert_eq!(lives.iter().find(read_from), None, "{answer:?} lacks the row");
        let nodes = service.partition().await?.nodes;
        Ok(nodes.iter().filter(|node| lives.contains(&node.incarnation)).count() == lives.len())
    };
    until("both are polled again", LIMIT, seen_again).await.expect("they are");
    for _ in 0..20 {
        let answer = visitor.select(Duration::from_millis(20)).await;
        assert!(["", "l"].contains(&answer.node.as_str()), "{answer:?} lacks the row");
    }
    for standby in cluster.standbys() {
        standby.apply_delay(Duration::ZERO).await.expect("it may go on");
    }
    let standby = visitor.served_by_standby().await;
    assert!(shows(cluster, &standby, 1).await, "{standby} was named and lacks the row");
    service.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_an_untested_major_serves_only_by_the_operators_word_pg14() {
    let cluster = super::prepared(Major::V14, 1).await;
    let options = ServiceOptions::of(&cluster).await.expect("the leader answers");
    let service = Service::launch(options.clone()).await.expect("a service starts");
    service.await_ready().await.expect("it takes calls");
    until("the reason is shown, with the setting", LIMIT, || async {
        let nodes = service.partition().await?.nodes;
        Ok(nodes.iter().all(|node| node.poll_error.contains("`accepted_majors`")))
    })
    .await
    .expect("it is shown");
    let mut client = connect(&service).await;
    for level in [Level::Session, Level::Eventual, Level::Leader] {
        let answer = select(&mut client, "", level, Duration::from_millis(50)).await;
        assert_eq!(answer.node, "", "{level:?} names an untested server");
    }
    service.stop().await.expect("it stops");

    let options = options.partition("accepted_majors", "[14]");
    let service = Service::start(options).await.expect("a service starts");
    let mut visitor = Visitor::arrive(&service, cluster.leader()).await;
    visitor.write(1).await;
    let standby = visitor.served_by_standby().await;
    assert!(shows(&cluster, &standby, 1).await, "{standby} was named and lacks the row");
    service.stop().await.expect("it stops");
}

/// The node an answer names, and the lives of it that may be read from; empty for a refusal.
#[derive(Debug, Default)]
struct Answer {
    node: String,
    lives: Vec<String>,
}

/// One session that carries its token.
#[derive(Clone)]
struct Visitor {
    client: RoutingServiceClient<Channel>,
    leader: Server,
    token: String,
}

impl Visitor {
    async fn arrive(service: &Service, leader: &Server) -> Self {
        Self { client: connect(service).await, leader: leader.clone(), token: String::new() }
    }

    /// Commits a row, captures on the same connection after it, and records that.
    async fn write(&mut self, id: i64) {
        let grant = format!("grant insert, select on notes to {VISITOR}");
        self.leader.sql(&grant).await.expect("a grant");
        let database = self.leader.connect(VISITOR, "postgres").await.expect("a connection");
        database.execute("insert into notes values ($1)", &[&id]).await.expect("a row");
        let captured = database.query_one("select tidegate.capture()", &[]).await;
        let evidence: String = captured.expect("a capture").get(0);
        let request = v1::RecordRequest {
            session: Some(session(&self.token)),
            partition: PARTITION.to_owned(),
            observed: Some(Observed::Evidence(evidence)),
            ..v1::RecordRequest::default()
        };
        self.token = self.client.record(request).await.expect("it is recorded").into_inner().token;
    }

    async fn select(&mut self, budget: Duration) -> Answer {
        select(&mut self.client, &self.token, Level::Session, budget).await
    }

    /// The standby that serves the session in the end.
    async fn served_by_standby(&mut self) -> String {
        let asked = tokio::time::timeout(LIMIT, async {
            loop {
                let answer = self.select(Duration::from_millis(200)).await;
                if !["", "l"].contains(&answer.node.as_str()) {
                    return answer.node;
                }
            }
        });
        asked.await.expect("a standby serves the session")
    }
}

async fn connect(service: &Service) -> RoutingServiceClient<Channel> {
    RoutingServiceClient::connect(service.endpoint()).await.expect("the service is reached")
}

fn session(token: &str) -> v1::Session {
    let tokens = if token.is_empty() { Vec::new() } else { vec![token.to_owned()] };
    v1::Session { tokens, ..v1::Session::default() }
}

async fn select(
    client: &mut RoutingServiceClient<Channel>,
    token: &str,
    level: Level,
    budget: Duration,
) -> Answer {
    let wait_budget = budget.try_into().ok();
    let policy = v1::Policy { level: level.into(), wait_budget, ..v1::Policy::default() };
    let request = v1::SelectReplicaRequest {
        session: Some(session(token)),
        partition: PARTITION.to_owned(),
        policy: Some(policy),
        ..v1::SelectReplicaRequest::default()
    };
    match client.select_replica(request).await.expect("a decision").into_inner().outcome {
        Some(Outcome::Served(served)) => {
            let node = served.node.expect("a node");
            Answer { node: node.name, lives: served.acceptable_incarnations }
        }
        Some(Outcome::Refused(_)) => Answer::default(),
        None => panic!("an answer without an outcome"),
    }
}

async fn life(server: &Server) -> String {
    let client = server.connect(VISITOR, "postgres").await.expect("a connection");
    let row = client.query_one("select tidegate.incarnation()", &[]).await;
    row.expect("a role with LOGIN alone may ask").get(0)
}

async fn shows(cluster: &Cluster, node: &str, id: i64) -> bool {
    let server = cluster.server(node).expect("an answer names a node of the cluster");
    let query = format!("select exists (select from notes where id = {id})");
    server.value(&query).await.expect("it answers")
}
