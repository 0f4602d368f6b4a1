//! The bench of `scenarios.md`: a leader, the standbys r1 and r2, the service, and the truth.
//!
//! The truth check connects to the address of an answer and reads the row there. It asks no node
//! that was not named and believes nothing the service says.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use tidegate::clock::Clock;
use tidegate_client::{ClientOptions, DirectPool};
use tidegate_core::evidence::Evidence;
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::position::{Lsn, Position};
use tidegate_lab::install::Major;
use tidegate_lab::metrics;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::service::{DATABASE, PARTITION, Service, ServiceOptions};
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::LIMIT;
use tidegate_proto::v1;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;
use tidegate_proto::v1::wait_until_fresh_request::Target;
use tokio_postgres::{Client, NoTls};
use tonic::transport::Channel;

use crate::session::Session;

/// A connection to a service.
pub(crate) type Routing = RoutingServiceClient<Channel>;

/// How often an idle service asks a node.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A commit that was acknowledged.
pub(crate) struct Commit {
    /// When it was asked for: no standby delays it from an earlier instant.
    pub(crate) asked_at: Instant,
    /// When it was acknowledged.
    pub(crate) at: Instant,
    /// What its connection captured after it.
    capture: String,
}

impl Commit {
    /// What its connection captured.
    pub(crate) fn capture(&self) -> &str {
        &self.capture
    }

    /// What is recorded of it.
    pub(crate) fn position(&self) -> Position {
        position_in(&self.capture)
    }
}

/// What a server itself shows.
pub(crate) struct Truth {
    /// The row is there.
    pub(crate) found: bool,
    pub(crate) incarnation: String,
    pub(crate) in_recovery: bool,
}

/// Servers, service, and a tester's connections to all of them.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) service: Service,
    pub(crate) stall: Stall,
    pub(crate) clock: Clock,
    routing: Routing,
    by_address: BTreeMap<String, Client>,
}

impl Bench {
    /// Starts everything, with an empty table `t(id, v)` on all nodes.
    pub(crate) async fn start(major: Major) -> Self {
        Self::with(major, |options| options).await
    }

    /// Starts everything, the service as `change` has it.
    pub(crate) async fn with(
        major: Major,
        change: impl FnOnce(ServiceOptions) -> ServiceOptions,
    ) -> Self {
        Self::of(major, 2, change).await
    }

    /// Starts everything with this many standbys, the service as `change` has it.
    pub(crate) async fn of(
        major: Major,
        standbys: usize,
        change: impl FnOnce(ServiceOptions) -> ServiceOptions,
    ) -> Self {
        let cluster = Cluster::start(ClusterOptions::new(major).standbys(standbys)).await;
        let cluster = cluster.expect("a cluster");
        let table = "create table t (id bigint primary key, v text not null)";
        cluster.leader().sql(table).await.expect("a table");
        let options = ServiceOptions::of(&cluster).await.expect("a leader that answers");
        cluster.catch_up().await.expect("standbys that follow");
        let service = Service::start(change(options)).await.expect("a service");
        let routing = RoutingServiceClient::connect(service.endpoint()).await.expect("it listens");
        let mut by_address = BTreeMap::new();
        for server in cluster.servers() {
            let address = server.address().to_string();
            by_address.insert(address, connected(server).await);
        }
        let stall = Stall::watch().expect("a thread");
        Self { cluster, service, stall, clock: Clock::new(), routing, by_address }
    }

    pub(crate) fn r1(&self) -> &Server {
        self.cluster.standby(0)
    }

    pub(crate) fn r2(&self) -> &Server {
        self.cluster.standby(1)
    }

    /// Commits one row on the leader, and captures on the same connection after it.
    pub(crate) async fn commit(&self, id: i64) -> Commit {
        let client = self.connection(&self.cluster.leader().address().to_string());
        let row = "insert into t values ($1, 'written')";
        let asked_at = self.clock.now();
        client.execute(row, &[&id]).await.expect("a row");
        let at = self.clock.now();
        let captured = client.query_one("select tidegate.capture()", &[]).await;
        Commit { asked_at, at, capture: captured.expect("a capture").get(0) }
    }

    /// Commits one row as a session and records it there.
    pub(crate) async fn write(&self, session: &mut Session, id: i64) -> Commit {
        let commit = self.commit(id).await;
        self.record(session, &commit.capture, v1::Raise::Unspecified).await;
        commit
    }

    /// Records evidence for a session, which keeps the answer's token.
    pub(crate) async fn record(&self, session: &mut Session, evidence: &str, raise: v1::Raise) {
        let observed = v1::record_request::Observed::Evidence(evidence.to_owned());
        let request = v1::RecordRequest {
            session: Some(session.message()),
            observed: Some(observed),
            raise: raise.into(),
            ..v1::RecordRequest::default()
        };
        let answer = self.routing.clone().record(request).await.expect("a record").into_inner();
        session.keep(&answer.token);
    }

    /// Selects a node for one read of a session, which keeps the answer's token.
    pub(crate) async fn select(
        &self,
        session: &mut Session,
        policy: v1::Policy,
    ) -> v1::SelectReplicaResponse {
        let request = v1::SelectReplicaRequest {
            session: Some(session.message()),
            partition: PARTITION.to_owned(),
            policy: Some(policy),
            ..v1::SelectReplicaRequest::default()
        };
        let answer = self.routing.clone().select_replica(request).await;
        let answer = answer.expect("a decision").into_inner();
        session.keep(&answer.token);
        answer
    }

    /// Selects a node, which there must be.
    pub(crate) async fn served(&self, session: &mut Session, policy: v1::Policy) -> v1::Served {
        served(&self.select(session, policy).await)
    }

    /// Selects again and again until an answer names this node.
    pub(crate) async fn served_by(&self, session: &mut Session, node: &str) -> v1::Served {
        let started_at = self.clock.now();
        while self.clock.now().since(started_at) < LIMIT {
            let served = self.served(session, v1::Policy::default()).await;
            if name_of(&served) == node {
                return served;
            }
        }
        panic!("{node} was not named within {LIMIT:?}");
    }

    /// Waits until any node has what a session depends on.
    pub(crate) async fn wait(
        &self,
        session: &mut Session,
        budget: Duration,
    ) -> v1::WaitUntilFreshResponse {
        let request = v1::WaitUntilFreshRequest {
            session: Some(session.message()),
            partition: PARTITION.to_owned(),
            target: Some(Target::Any(v1::AnyNode {})),
            budget: Some(wire(budget)),
        };
        let answer = self.routing.clone().wait_until_fresh(request).await;
        let answer = answer.expect("an end of the wait").into_inner();
        session.keep(&answer.token);
        answer
    }

    /// Joins what is known of a session into one token.
    pub(crate) async fn resolve(&self, session: &Session) -> v1::ResolveSessionResponse {
        let request = v1::ResolveSessionRequest { session: Some(session.message()) };
        let answer = self.routing.clone().resolve_session(request).await;
        answer.expect("what is known").into_inner()
    }

    /// Reads the row on the node of an answer: whether it is there decides.
    ///
    /// The node must be in a life that the answer holds for.
    pub(crate) async fn reads(&self, served: &v1::Served, id: i64) -> bool {
        let truth = self.truth_at(address_of(served), id).await;
        assert!(served.acceptable_incarnations.contains(&truth.incarnation), "{served:?}");
        assert_eq!(served.leader.is_some(), !truth.in_recovery, "{served:?}");
        truth.found
    }

    /// Reads the row at an address.
    pub(crate) async fn truth_at(&self, address: &str, id: i64) -> Truth {
        let question = "select exists (select from t where id = $1), tidegate.incarnation(), \
                        pg_is_in_recovery()";
        let row = self.connection(address).query_one(question, &[&id]).await.expect("a read");
        Truth { found: row.get(0), incarnation: row.get(1), in_recovery: row.get(2) }
    }

    /// The newest row on the node of an answer, which must be in a life that it holds for.
    pub(crate) async fn newest(&self, served: &v1::Served) -> i64 {
        let question = "select coalesce(max(id), 0), tidegate.incarnation() from t";
        let row = self.named(served).query_one(question, &[]).await.expect("a read");
        let incarnation: String = row.get(1);
        assert!(served.acceptable_incarnations.contains(&incarnation), "{served:?}");
        row.get(0)
    }

    /// The newest row on a server.
    pub(crate) async fn newest_at(&self, server: &Server) -> i64 {
        let client = self.connection(&server.address().to_string());
        let row = client.query_one("select coalesce(max(id), 0) from t", &[]).await;
        row.expect("a read").get(0)
    }

    /// The connection to the service.
    pub(crate) fn routing(&self) -> Routing {
        self.routing.clone()
    }

    /// A client of the service, with a pool of its own.
    pub(crate) async fn client(&self) -> (tidegate_client::Client, DirectPool) {
        self.client_of(self.service.endpoint()).await
    }

    /// A client of any service, with a pool of its own.
    pub(crate) async fn client_of(
        &self,
        endpoint: String,
    ) -> (tidegate_client::Client, DirectPool) {
        let options = ClientOptions::new(endpoint);
        let client = tidegate_client::Client::connect(options).await.expect("it listens");
        let mut config = tokio_postgres::Config::new();
        config.user("postgres").dbname(DATABASE);
        (client, DirectPool::new(config, 4))
    }

    /// An application's connection to the leader.
    pub(crate) async fn leader_connection(&self) -> Client {
        connected(self.cluster.leader()).await
    }

    /// Samples the node of an answer, on the connection that read there.
    pub(crate) async fn sample(&self, served: &v1::Served) -> String {
        let sampled = self.named(served).query_one("select tidegate.sample()", &[]).await;
        sampled.expect("a sample").get(0)
    }

    /// Whether a standby stands at a position, as it says itself.
    pub(crate) async fn has_applied(&self, standby: &Server, position: Position) -> bool {
        let lsn = standby.replay_lsn().await.expect("a standby that answers");
        Position::from(Lsn::new(lsn.into())).covers(position)
    }

    /// Delays replay on both standbys, and returns when a commit is seen to be delayed.
    ///
    /// Writes rows of negative ids to see it.
    pub(crate) async fn delay_replay(&self, delay: Duration) {
        for standby in self.cluster.standbys() {
            standby.apply_delay(delay).await.expect("a delay");
        }
        for probe in 1.. {
            self.commit(-probe).await;
            let behind = self.cluster.standbys().iter();
            let behind = behind.map(|standby| standby.catch_up_with(self.cluster.leader()));
            let behind = try_join_all(behind).await.expect("standbys that follow");
            if behind.iter().all(|behind| *behind >= delay * 4 / 5) {
                return;
            }
        }
    }

    /// A counter of the service.
    pub(crate) async fn counter(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        metrics::counter(self.service.admin_address(), name, labels).await.expect("metrics")
    }

    /// Freshness fallbacks that were asked for, whatever the cap said.
    pub(crate) async fn fallbacks(&self) -> u64 {
        self.counter("fallbacks", &[]).await
    }

    fn named(&self, served: &v1::Served) -> &Client {
        self.connection(address_of(served))
    }

    fn connection(&self, address: &str) -> &Client {
        self.by_address.get(address).expect("an address of the cluster")
    }
}

async fn connected(server: &Server) -> Client {
    let address = server.address();
    let mut config = tokio_postgres::Config::new();
    config.host(address.ip().to_string()).port(address.port()).user("postgres").dbname(DATABASE);
    let (client, connection) = config.connect(NoTls).await.expect("a server that answers");
    // Ends by itself with the client; its errors reach whoever uses the client.
    drop(tokio::spawn(connection));
    client
}

/// The node of a decision, which there must be.
pub(crate) fn served(answer: &v1::SelectReplicaResponse) -> v1::Served {
    match &answer.outcome {
        Some(Outcome::Served(served)) => served.clone(),
        Some(Outcome::Refused(_)) | None => panic!("no node was named: {answer:?}"),
    }
}

fn address_of(served: &v1::Served) -> &str {
    let addresses = served.node.as_ref().map_or(&[][..], |node| &node.addresses[..]);
    addresses.first().expect("an address")
}

/// The name of the node of an answer.
pub(crate) fn name_of(served: &v1::Served) -> &str {
    served.node.as_ref().map_or("", |node| &node.name)
}

/// The position that evidence names.
pub(crate) fn position_in(evidence: &str) -> Position {
    let evidence = Evidence::parse(evidence, &Guards::on()).expect("evidence");
    evidence.position().expect("a position")
}

/// A duration of the wire.
pub(crate) fn wire(span: Duration) -> prost_types::Duration {
    span.try_into().expect("a short time")
}

/// A policy that waits this long.
pub(crate) fn waiting(budget: Duration) -> v1::Policy {
    v1::Policy { wait_budget: Some(wire(budget)), ..v1::Policy::default() }
}
