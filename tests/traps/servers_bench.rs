//! A cluster, the services before it, and the truth: a row read where an answer points.
//!
//! Several services may stand before one cluster, so that the same servers answer one with all its
//! rules and one without. It asks no node that was not named and decides nothing.

use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;
use tidegate_proto::v1::{self, record_request::Observed};
use tonic::transport::Channel;

/// Longer than any test: a commit hidden for so long is hidden until the test says otherwise.
#[cfg(feature = "unsafe-guards")]
pub(crate) const HIDDEN: Duration = Duration::from_secs(3600);

/// Real servers with an empty table `notes`.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
}

impl Bench {
    /// A leader with standbys that have caught up, and the objects of Tidegate.
    pub(crate) async fn set(major: Major, standbys: usize) -> Self {
        let cluster = Cluster::start(ClusterOptions::new(major).standbys(standbys)).await;
        let cluster = cluster.expect("a cluster");
        let table = "create table notes (id bigint primary key); \
                     create role app login; grant select, insert on notes to app";
        cluster.leader().sql(table).await.expect("a table");
        let bench = Self { cluster };
        drop(bench.options().await);
        bench.cluster.catch_up().await.expect("standbys follow");
        bench
    }

    pub(crate) fn leader(&self) -> &Server {
        self.cluster.leader()
    }

    pub(crate) fn r1(&self) -> &Server {
        self.cluster.standby(0)
    }

    /// A service before all servers, not started yet.
    pub(crate) async fn options(&self) -> ServiceOptions {
        ServiceOptions::of(&self.cluster).await.expect("the leader answers")
    }

    /// Commits a row on the leader; what a writer captures after it.
    pub(crate) async fn commit(&self, id: i64) -> String {
        commit_on(self.leader(), id).await
    }

    /// Says whether a node of the cluster shows a row.
    pub(crate) async fn shows(&self, node: &str, id: i64) -> bool {
        let server = self.cluster.server(node).expect("a node of the cluster");
        shown_by(server, id).await
    }
}

/// Commits a row on a server that leads; what a writer captures after it.
pub(crate) async fn commit_on(leader: &Server, id: i64) -> String {
    leader.sql(&format!("insert into notes values ({id})")).await.expect("it is written");
    leader.value("select tidegate.capture()").await.expect("a capture")
}

/// Says whether a server shows a row.
pub(crate) async fn shown_by(server: &Server, id: i64) -> bool {
    let query = format!("select count(*) from notes where id = {id}");
    server.value::<i64>(&query).await.expect("it answers") == 1
}

/// The life a server is in.
pub(crate) async fn life(server: &Server) -> String {
    server.value("select tidegate.incarnation()").await.expect("it answers")
}

/// The start of a server's process, as it is printed.
#[cfg(feature = "unsafe-guards")]
pub(crate) async fn start_time(server: &Server) -> String {
    server.value("select pg_postmaster_start_time()::text").await.expect("it answers")
}

/// A service with a client of its own.
pub(crate) struct Desk {
    pub(crate) service: Service,
    routing: RoutingServiceClient<Channel>,
}

impl Desk {
    /// Starts a service and waits until it knows its nodes.
    pub(crate) async fn open(options: ServiceOptions) -> Self {
        Self::at(Service::start(options).await.expect("a service starts")).await
    }

    /// Starts a service and waits until it takes calls.
    pub(crate) async fn launch(options: ServiceOptions) -> Self {
        Self::at(Service::launch(options).await.expect("a service starts")).await
    }

    async fn at(service: Service) -> Self {
        service.await_ready().await.expect("it takes calls");
        let routing = RoutingServiceClient::connect(service.endpoint()).await;
        Self { service, routing: routing.expect("it listens") }
    }

    /// Records what a writer captured; the token of the session.
    pub(crate) async fn record(&self, evidence: &str) -> String {
        let observed = Some(Observed::Evidence(evidence.to_owned()));
        let session = Some(v1::Session::default());
        let request = v1::RecordRequest { session, observed, ..v1::RecordRequest::default() };
        let answer = self.routing.clone().record(request).await;
        answer.expect("it is recorded").into_inner().token
    }

    /// Decides one read of a session that carries a token.
    pub(crate) async fn select(
        &self,
        token: &str,
        policy: v1::Policy,
    ) -> v1::SelectReplicaResponse {
        let tokens = if token.is_empty() { Vec::new() } else { vec![token.to_owned()] };
        let session = v1::Session { tokens, ..v1::Session::default() };
        let request = v1::SelectReplicaRequest {
            session: Some(session),
            partition: PARTITION.to_owned(),
            policy: Some(policy),
            ..v1::SelectReplicaRequest::default()
        };
        self.routing.clone().select_replica(request).await.expect("a decision").into_inner()
    }

    /// Selects until a replica serves a session; the answer that names it.
    pub(crate) async fn until_served_by(&self, token: &str, node: &str) -> v1::Served {
        let what = format!("{node} serves the session");
        let asked = || async { Ok(named(&self.select(token, waiting()).await) == node) };
        let came = until(&what, LIMIT, asked).await;
        let (answer, state) = (self.select(token, waiting()).await, self.node(node).await);
        came.unwrap_or_else(|error| panic!("{error:#}: {answer:?}, {state:?}"));
        served(&self.select(token, waiting()).await)
    }

    /// What the service says of a node.
    pub(crate) async fn node(&self, name: &str) -> v1::NodeState {
        let partition = self.service.partition().await.expect("the service answers");
        let node = partition.nodes.into_iter().find(|node| node.name == name);
        node.expect("a configured node")
    }

    /// Waits until what the service says of a node is as wished.
    pub(crate) async fn until_node(
        &self,
        name: &str,
        wished: impl Fn(&v1::NodeState) -> bool,
    ) -> v1::NodeState {
        let what = format!("{name} is as wished");
        let holds = || async { Ok(wished(&self.node(name).await)) };
        if let Err(error) = until(&what, LIMIT, holds).await {
            panic!("{error:#}: {:?}", self.node(name).await);
        }
        self.node(name).await
    }

    /// Waits until the service has seen the life a server is in now; that life.
    pub(crate) async fn until_lives(&self, server: &Server) -> String {
        let life = life(server).await;
        self.until_node(server.name(), |node| node.incarnation == life).await;
        life
    }

    /// Waits until an alarm stands, or none does.
    pub(crate) async fn until_alarm(&self, name: &str, stands: bool) {
        let what = format!("{name} stands: {stands}");
        let holds = || async {
            let alarms = self.service.partition().await?.alarms;
            Ok(alarms.iter().any(|alarm| alarm.starts_with(name)) == stands)
        };
        until(&what, LIMIT, holds).await.expect("the service tells");
    }
}

/// A read that takes a replica or nothing, at once.
pub(crate) fn replica_now() -> v1::Policy {
    let wait_budget = Duration::ZERO.try_into().ok();
    v1::Policy { wait_budget, fallback: Some(false), ..v1::Policy::default() }
}

/// A read that waits for a replica, and never falls back.
pub(crate) fn waiting() -> v1::Policy {
    let wait_budget = Duration::from_secs(2).try_into().ok();
    v1::Policy { wait_budget, fallback: Some(false), ..v1::Policy::default() }
}

/// A read that takes a replica now, else the leader.
pub(crate) fn either_now() -> v1::Policy {
    v1::Policy { fallback: Some(true), ..replica_now() }
}

/// A read of this level, as it comes.
pub(crate) fn of_level(level: v1::Level) -> v1::Policy {
    v1::Policy { level: level.into(), ..v1::Policy::default() }
}

/// The node an answer names, empty if it refuses.
pub(crate) fn named(answer: &v1::SelectReplicaResponse) -> &str {
    match &answer.outcome {
        Some(Outcome::Served(served)) => served.node.as_ref().map_or("", |node| &node.name),
        Some(Outcome::Refused(_)) => "",
        None => panic!("an answer without an outcome: {answer:?}"),
    }
}

/// The node of an answer, which there must be.
pub(crate) fn served(answer: &v1::SelectReplicaResponse) -> v1::Served {
    match &answer.outcome {
        Some(Outcome::Served(served)) => served.clone(),
        Some(Outcome::Refused(_)) | None => panic!("no node was named: {answer:?}"),
    }
}
