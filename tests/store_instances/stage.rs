//! A PostgreSQL leader with a standby, a Redis, and instances that share both.

use std::path::PathBuf;

use tempfile::TempDir;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::redis;
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;
use tidegate_proto::v1::token_store::Condition;
use tidegate_proto::v1::{self, record_request::Observed};
use tonic::transport::Channel;

/// Between two looks at an instance that starts.
const LOOKS_APART: std::time::Duration = std::time::Duration::from_millis(20);
/// The subject of these tests.
pub(crate) const ALICE: &str = "alice@example.com";

/// What the instances share.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    folder: TempDir,
}

impl Stage {
    /// A leader and a standby with an empty table, caught up.
    pub(crate) async fn set() -> Self {
        let options = ClusterOptions::new(Major::V15).standbys(1);
        let cluster = Cluster::start(options).await.expect("a cluster starts");
        cluster.leader().sql("create table notes (id bigint primary key)").await.expect("a table");
        cluster.catch_up().await.expect("the standby has it too");
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["secret", "token"] {
            let key = if name == "secret" { "5e" } else { "70" };
            std::fs::write(folder.path().join(name), key.repeat(32)).expect("a key");
        }
        Self { cluster, folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The options of an instance that keeps its records in `redis`, with more lines of `[store]`.
    pub(crate) async fn options(&self, redis: &redis::Server, more: &str) -> ServiceOptions {
        let secret = self.file("secret");
        // A second is long enough that a loaded machine takes no store for dead.
        let lines = format!(
            "kind = \"redis\"\nurls = [\"redis://{}\"]\nsecret_file = \"{}\"\n\
             timeout = \"1s\"\n{more}",
            redis.address(),
            secret.display()
        );
        let options = ServiceOptions::of(&self.cluster).await.expect("the leader answers");
        options.store(&lines).token_key(&self.file("token"))
    }

    pub(crate) async fn instance(&self, redis: &redis::Server, more: &str) -> Instance {
        Instance::start(self.options(redis, more).await).await
    }

    /// Writes a row on the leader; what it captured.
    pub(crate) async fn write(&self, id: i64) -> String {
        let leader = self.cluster.leader();
        leader.sql(&format!("insert into notes values ({id})")).await.expect("it is written");
        leader.value("select tidegate.capture()").await.expect("a capture")
    }

    /// Holds the replay of the standby.
    pub(crate) async fn hold(&self) {
        for standby in self.cluster.standbys() {
            standby.pause_replay().await.expect("replay is held");
        }
    }

    /// Lets the standby replay again.
    pub(crate) async fn release(&self) {
        let all = self.cluster.standbys().iter().map(Server::resume_replay);
        futures::future::try_join_all(all).await.expect("replay goes on");
        self.cluster.catch_up().await.expect("it has caught up");
    }

    /// Expects that the node an answer names shows the row; an answer may name none.
    pub(crate) async fn fresh(&self, answer: &v1::SelectReplicaResponse, id: i64) {
        let name = named(answer);
        if name.is_empty() {
            return;
        }
        let server = self.cluster.server(name).expect("an answer names a node of the cluster");
        let query = format!("select count(*) from notes where id = {id}");
        let count: i64 = server.value(&query).await.expect("it answers");
        assert_eq!(count, 1, "row {id} is missing on {name}: {answer:?}");
    }
}

/// One instance, with clients.
pub(crate) struct Instance {
    pub(crate) service: Service,
    routing: RoutingServiceClient<Channel>,
    admin: AdminServiceClient<Channel>,
}

impl Instance {
    pub(crate) async fn start(options: ServiceOptions) -> Self {
        let service = Service::start(options).await.expect("an instance starts");
        let (routing, admin) = clients(&service).await;
        Self { service, routing, admin }
    }

    pub(crate) async fn restart(&mut self) {
        self.service.restart().await.expect("it starts again");
        (self.routing, self.admin) = clients(&self.service).await;
    }

    /// Restarts it; how operators saw the store until it was ready.
    pub(crate) async fn restart_seen(&mut self) -> Vec<Condition> {
        self.service.restart_unawaited().await.expect("it starts again");
        (self.routing, self.admin) = clients(&self.service).await;
        let (ready, mut seen) = (self.service.await_leader(), Vec::new());
        tokio::pin!(ready);
        loop {
            seen.push(self.store().await.condition());
            tokio::select! {
                ready = &mut ready => {
                    ready.expect("it is ready");
                    return seen;
                }
                () = tokio::time::sleep(LOOKS_APART) => {}
            }
        }
    }

    /// A client of it.
    pub(crate) fn routing(&self) -> RoutingServiceClient<Channel> {
        self.routing.clone()
    }

    /// Records a write of a session.
    pub(crate) async fn record(
        &self,
        session: v1::Session,
        evidence: String,
    ) -> v1::RecordResponse {
        let observed = Some(Observed::Evidence(evidence));
        let session = Some(session);
        let request = v1::RecordRequest { session, observed, ..v1::RecordRequest::default() };
        self.routing.clone().record(request).await.expect("it is recorded").into_inner()
    }

    /// Asks for a node for a session.
    pub(crate) async fn select(&self, session: v1::Session) -> v1::SelectReplicaResponse {
        let policy = v1::Policy { level: v1::Level::Session.into(), ..v1::Policy::default() };
        let request = v1::SelectReplicaRequest {
            session: Some(session),
            partition: PARTITION.to_owned(),
            policy: Some(policy),
            ..v1::SelectReplicaRequest::default()
        };
        self.routing.clone().select_replica(request).await.expect("a decision").into_inner()
    }

    /// Waits at most 300 ms until the standby has all that a session depends on.
    pub(crate) async fn wait(&self, session: v1::Session) -> v1::WaitUntilFreshResponse {
        let request = v1::WaitUntilFreshRequest {
            session: Some(session),
            partition: PARTITION.to_owned(),
            target: Some(v1::wait_until_fresh_request::Target::Node("r1".to_owned())),
            budget: std::time::Duration::from_millis(300).try_into().ok(),
        };
        self.routing.clone().wait_until_fresh(request).await.expect("an outcome").into_inner()
    }

    /// What an operator sees of the store.
    pub(crate) async fn store(&self) -> v1::TokenStore {
        let answer = self.admin.clone().get_store(v1::GetStoreRequest {}).await;
        answer.expect("it answers").into_inner().store.expect("a store")
    }

    /// The alarms of the partition.
    pub(crate) async fn alarms(&self) -> Vec<String> {
        self.service.partition().await.expect("it answers").alarms
    }

    /// Waits until the store is so.
    pub(crate) async fn until_store(&self, condition: Condition) -> v1::TokenStore {
        let what = format!("the store is {condition:?}");
        let holds = || async { Ok(self.store().await.condition() == condition) };
        until(&what, LIMIT, holds).await.expect("it is");
        self.store().await
    }

    /// Everything that befalls the store from now on.
    pub(crate) async fn watch(&self) -> Watched {
        let request = v1::WatchEventsRequest::default();
        let events = self.admin.clone().watch_events(request).await.expect("a stream");
        Watched(events.into_inner())
    }
}

async fn clients(
    service: &Service,
) -> (RoutingServiceClient<Channel>, AdminServiceClient<Channel>) {
    let routing = RoutingServiceClient::connect(service.endpoint()).await;
    let admin = AdminServiceClient::connect(service.admin_endpoint()).await;
    (routing.expect("the service is reached"), admin.expect("its admin listener is reached"))
}

/// A stream of events.
pub(crate) struct Watched(tonic::Streaming<v1::WatchEventsResponse>);

impl Watched {
    /// Waits for this to befall the store; its cause.
    pub(crate) async fn until(&mut self, kind: v1::store_changed::Kind) -> String {
        use tidegate_proto::v1::watch_events_response::Event;
        let came = async {
            loop {
                let event = self.0.message().await.expect("it goes on").expect("it has no end");
                if let Some(Event::StoreChanged(changed)) = event.event
                    && changed.kind() == kind
                {
                    return changed.cause;
                }
            }
        };
        let came = tokio::time::timeout(LIMIT, came).await;
        came.unwrap_or_else(|_| panic!("{kind:?} did not befall the store"))
    }
}

/// The session of a subject that carries nothing.
pub(crate) fn subject(subject: &str) -> v1::Session {
    v1::Session { subject: subject.to_owned(), ..v1::Session::default() }
}

/// The session that carries a token alone.
pub(crate) fn carrying(token: &str) -> v1::Session {
    v1::Session { tokens: vec![token.to_owned()], ..v1::Session::default() }
}

/// The node an answer names, empty if it refuses.
pub(crate) fn named(answer: &v1::SelectReplicaResponse) -> &str {
    match &answer.outcome {
        Some(Outcome::Served(served)) => served.node.as_ref().map_or("", |node| &node.name),
        Some(Outcome::Refused(_)) => "",
        None => panic!("an answer without an outcome: {answer:?}"),
    }
}
