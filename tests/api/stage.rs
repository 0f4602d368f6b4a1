//! What all tests of the API share: one cluster, one service, and clients of it.
//!
//! It judges nothing. Servers end with this process, whatever ends it.

use std::sync::LazyLock;

use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, RwLock};
use tonic::transport::Channel;

/// A client of `RoutingService`.
pub(crate) type Routing = RoutingServiceClient<Channel>;

/// The servers, and whose turn it is to disturb them.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) service: Service,
    turn: RwLock<()>,
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
});
static STAGE: OnceCell<Stage> = OnceCell::const_new();

async fn open() -> Stage {
    let options = ClusterOptions::new(Major::V15).standbys(2);
    let cluster = Cluster::start(options).await.expect("a cluster");
    let table = "create table notes (id bigserial primary key, text text not null)";
    cluster.leader().sql(table).await.expect("a table");
    let options = ServiceOptions::of(&cluster).await.expect("the objects install");
    let service = Service::start(options).await.expect("the service starts");
    cluster.catch_up().await.expect("the standbys replay");
    Stage { cluster, service, turn: RwLock::new(()) }
}

/// Plays a scene that leaves the servers alone, beside others.
pub(crate) fn beside<Scene: Future<Output = ()>>(scene: impl FnOnce(&'static Stage) -> Scene) {
    RUNTIME.block_on(async {
        let stage = STAGE.get_or_init(open).await;
        let _turn = stage.turn.read().await;
        scene(stage).await;
    });
}

/// Plays a scene that pauses or drains nodes, alone; it must leave them as they were.
pub(crate) fn alone<Scene: Future<Output = ()>>(scene: impl FnOnce(&'static Stage) -> Scene) {
    RUNTIME.block_on(async {
        let stage = STAGE.get_or_init(open).await;
        let _turn = stage.turn.write().await;
        scene(stage).await;
    });
}

impl Stage {
    /// A new connection to `RoutingService`.
    pub(crate) async fn routing(&self) -> Routing {
        RoutingServiceClient::connect(self.service.endpoint()).await.expect("it listens")
    }

    /// A new connection to `AdminService`.
    pub(crate) async fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::connect(self.service.admin_endpoint()).await.expect("it listens")
    }

    /// A server by its name.
    pub(crate) fn server(&self, name: &str) -> &Server {
        let mut servers = self.cluster.servers().iter();
        servers.find(|server| server.name() == name).expect("a server of the cluster")
    }

    /// Writes a note on the leader; its id, and the capture made after the commit.
    pub(crate) async fn write(&self) -> (i64, String) {
        let leader = self.cluster.leader();
        let insert = "insert into notes (text) values ('a note') returning id";
        let id = leader.value(insert).await.expect("the leader writes");
        let capture = leader.value("select tidegate.capture()").await;
        (id, capture.expect("a capture"))
    }

    /// Says whether a server shows the note.
    pub(crate) async fn shows(&self, server: &str, id: i64) -> bool {
        let query = format!("select count(*) from notes where id = {id}");
        self.server(server).value::<i64>(&query).await.expect("it answers") == 1
    }

    /// Writes a note and records it for a session; its id, and the answer.
    pub(crate) async fn written(
        &self,
        routing: &mut Routing,
        session: v1::Session,
    ) -> (i64, v1::RecordResponse) {
        let (id, capture) = self.write().await;
        let answer = routing.record(record(session, &capture)).await;
        (id, answer.expect("a record").into_inner())
    }

    /// Holds the replay of standbys for as long as a scene takes.
    pub(crate) async fn paused(&self, names: &[&str], scene: impl Future<Output = ()>) {
        for name in names {
            self.server(name).pause_replay().await.expect("it pauses");
        }
        scene.await;
        for name in names {
            self.server(name).resume_replay().await.expect("it resumes");
        }
        self.cluster.catch_up().await.expect("the standbys replay");
    }
}

/// The session of a subject.
pub(crate) fn of_subject(subject: &str) -> v1::Session {
    v1::Session { subject: subject.to_owned(), ..v1::Session::default() }
}

/// A session that carries these tokens.
pub(crate) fn carrying(tokens: &[&str]) -> v1::Session {
    let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
    v1::Session { tokens, ..v1::Session::default() }
}

/// The record of one evidence string.
pub(crate) fn record(session: v1::Session, evidence: &str) -> v1::RecordRequest {
    let observed = v1::record_request::Observed::Evidence(evidence.to_owned());
    let session = Some(session);
    v1::RecordRequest { session, observed: Some(observed), ..v1::RecordRequest::default() }
}

/// A read of the lab's partition at one level, patient enough for a crowded machine.
pub(crate) fn select(session: v1::Session, level: v1::Level) -> v1::SelectReplicaRequest {
    let wait_budget = Some(prost_types::Duration { seconds: 3, nanos: 0 });
    let policy = v1::Policy { level: level.into(), wait_budget, ..v1::Policy::default() };
    v1::SelectReplicaRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        policy: Some(policy),
        ..v1::SelectReplicaRequest::default()
    }
}

/// The node an answer names.
pub(crate) fn named(answer: &v1::SelectReplicaResponse) -> String {
    served(answer).node.as_ref().expect("an answer names its node").name.clone()
}

/// What an answer serves.
pub(crate) fn served(answer: &v1::SelectReplicaResponse) -> &v1::Served {
    match &answer.outcome {
        Some(v1::select_replica_response::Outcome::Served(served)) => served,
        other => panic!("not served but {other:?}, because of {:?}", answer.reason()),
    }
}
