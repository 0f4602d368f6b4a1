//! A cluster with a service before it, and the calls and questions of these tests in few words.

use std::fmt::Debug;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_core::instant::Instant;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;
use tidegate_proto::v1::{self, record_request::Observed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::transport::Channel;

/// A client of the data listener.
pub(crate) type Client = RoutingServiceClient<Channel>;

/// The gauge of parked waits.
pub(crate) const PARKED: &str = "tidegate_parked_waits{partition=\"main\"}";

/// How late an answer may come after its budget, stalls of the machine aside.
pub(crate) const WINDOW: Duration = Duration::from_millis(50);

/// A cluster, and what measures time on this machine.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) clock: Clock,
    pub(crate) stall: Stall,
}

impl Stage {
    /// A leader with standbys and an empty table, caught up.
    pub(crate) async fn set(standbys: usize) -> Self {
        Self::of(Major::V15, standbys).await
    }

    /// The same of one major version.
    pub(crate) async fn of(major: Major, standbys: usize) -> Self {
        let options = ClusterOptions::new(major).standbys(standbys);
        let cluster = Cluster::start(options).await.expect("a cluster starts");
        let leader = cluster.leader();
        leader.sql("create table notes (id bigint primary key)").await.expect("a table");
        cluster.catch_up().await.expect("standbys have it too");
        let stall = Stall::watch().expect("a thread");
        Self { cluster, clock: Clock::new(), stall }
    }

    /// The options of a service before all its servers.
    pub(crate) async fn options(&self) -> ServiceOptions {
        ServiceOptions::of(&self.cluster).await.expect("the leader answers")
    }

    /// A service before all its servers, with a client.
    pub(crate) async fn serve(&self) -> (Service, Client) {
        let service = Service::start(self.options().await).await.expect("a service starts");
        // A busy machine may have let a first poll fail.
        until("every standby may serve", LIMIT, || async {
            let partition = service.partition().await?;
            Ok(partition.nodes.iter().all(|node| node.name == "l" || node.session_eligible))
        })
        .await
        .expect("they may");
        let client = connect(&service).await;
        (service, client)
    }

    /// Writes a row on the leader for a subject, or for nobody; the token of the session.
    pub(crate) async fn write(&self, client: &mut Client, subject: &str, id: i64) -> String {
        let leader = self.cluster.leader();
        leader.sql(&format!("insert into notes values ({id})")).await.expect("it is written");
        let evidence = leader.value("select tidegate.capture()").await.expect("a capture");
        let session = Some(v1::Session { subject: subject.to_owned(), ..session("") });
        let observed = Some(Observed::Evidence(evidence));
        let request = v1::RecordRequest { session, observed, ..v1::RecordRequest::default() };
        client.record(request).await.expect("it is recorded").into_inner().token
    }

    /// Holds the replay of every standby.
    pub(crate) async fn hold(&self) {
        for standby in self.cluster.standbys() {
            standby.pause_replay().await.expect("replay is held");
        }
    }

    /// Lets every standby replay again.
    pub(crate) async fn release(&self) {
        let all = self.cluster.standbys().iter().map(Server::resume_replay);
        futures::future::try_join_all(all).await.expect("replay goes on");
    }

    /// Tells whether a named node shows a row.
    pub(crate) async fn shows(&self, node: &str, id: i64) -> bool {
        let server = self.cluster.server(node).expect("an answer names a node of the cluster");
        let query = format!("select count(*) from notes where id = {id}");
        server.value::<i64>(&query).await.expect("it answers") == 1
    }

    /// Fails where something took longer than `limit` and three stalls of this machine.
    pub(crate) fn within(&self, what: impl Debug, since: Instant, limit: Duration) -> Duration {
        let took = self.clock.now().since(since);
        let allowed = self.stall.allow(limit);
        assert!(took <= allowed, "{what:?} took {took:?} of {allowed:?}");
        took
    }
}

/// A client on a connection of its own.
pub(crate) async fn connect(service: &Service) -> Client {
    Client::connect(service.endpoint()).await.expect("the service is reached")
}

/// The session that carries a token.
pub(crate) fn session(token: &str) -> v1::Session {
    let tokens = if token.is_empty() { Vec::new() } else { vec![token.to_owned()] };
    v1::Session { tokens, ..v1::Session::default() }
}

/// The session of a subject that carries nothing.
pub(crate) fn subject(subject: &str) -> v1::Session {
    v1::Session { subject: subject.to_owned(), ..v1::Session::default() }
}

/// A span of time as it is sent.
pub(crate) fn span(span: Duration) -> Option<prost_types::Duration> {
    span.try_into().ok()
}

/// A read of a session at a level.
pub(crate) fn read(session: v1::Session, level: v1::Level) -> v1::SelectReplicaRequest {
    let policy = v1::Policy { level: level.into(), ..v1::Policy::default() };
    v1::SelectReplicaRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        policy: Some(policy),
        ..v1::SelectReplicaRequest::default()
    }
}

/// A wait of a session for any replica.
pub(crate) fn wait(session: v1::Session, budget: Duration) -> v1::WaitUntilFreshRequest {
    v1::WaitUntilFreshRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        budget: span(budget),
        ..v1::WaitUntilFreshRequest::default()
    }
}

/// Asks for a node.
pub(crate) async fn select(
    client: &mut Client,
    request: v1::SelectReplicaRequest,
) -> v1::SelectReplicaResponse {
    client.select_replica(request).await.expect("a decision").into_inner()
}

/// The node an answer names, empty if it refuses.
pub(crate) fn named(answer: &v1::SelectReplicaResponse) -> &str {
    match &answer.outcome {
        Some(Outcome::Served(served)) => node_of(Some(served)),
        Some(Outcome::Refused(_)) => "",
        None => panic!("an answer without an outcome: {answer:?}"),
    }
}

/// The node that is to be read.
pub(crate) fn node_of(served: Option<&v1::Served>) -> &str {
    served.and_then(|served| served.node.as_ref()).map_or("", |node| node.name.as_str())
}

/// One page of the admin listener.
pub(crate) async fn page(service: &Service, path: &str) -> String {
    let stream = tokio::net::TcpStream::connect(service.admin_address()).await;
    let mut stream = stream.expect("the admin listener is reached");
    let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    answer
}

/// The value of one metric, labels included in its name.
pub(crate) async fn metric(service: &Service, name: &str) -> f64 {
    let page = page(service, "/metrics").await;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in\n{page}"))
}

/// Waits until so many reads are parked.
pub(crate) async fn until_parked(service: &Service, waits: u32) {
    let what = format!("{waits} waits are parked");
    let holds = || async { Ok(metric(service, PARKED).await.round() == f64::from(waits)) };
    until(&what, LIMIT, holds).await.expect("they are parked");
}

/// Waits until each node was tried, whatever came of it.
pub(crate) async fn until_tried(service: &Service) {
    let ready = || async { Ok(page(service, "/readyz").await.starts_with("HTTP/1.1 200")) };
    until("the service admits calls", LIMIT, ready).await.expect("it admits calls");
}
