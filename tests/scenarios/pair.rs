//! Two instances of the service on one Redis, for the scenarios that need them.
//!
//! The first is the one of the bench; the second is a program of its own, which can be killed. The
//! store is a primary with a replica, as in production.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tidegate_lab::install::Major;
use tidegate_lab::ports::Port;
use tidegate_lab::redis::{Group, Kind, Options};
use tidegate_lab::service::{PARTITION, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::bench::{Bench, Routing};
use crate::session::Session;

/// A primary without its replica takes no write. Replicas answer once a second, and on a busy
/// machine later than that: this is the least for production, and the fence is as short as it
/// allows.
const MAX_LAG_SECONDS: u32 = 5;
const FENCE: &str = "12s";
/// A busy machine is slower than a store may be by default.
const TIMEOUT: &str = "150ms";
/// What the leader bears is not what these scenarios are about.
const FALLBACKS: &str = "100000";
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The bench, its store, and a second instance beside the one of the bench.
pub(crate) struct Pair {
    pub(crate) bench: Bench,
    pub(crate) store: Group,
    pub(crate) second: Program,
}

impl Pair {
    /// Starts everything; both instances believe the store when it returns.
    pub(crate) async fn start(major: Major) -> Self {
        let options = Options::new(Kind::Redis).min_replicas(1, MAX_LAG_SECONDS);
        let store = Group::start(options, 1).await.expect("a store");
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, SECRET).expect("written");
        let lines = format!(
            "kind = \"redis\"\nurls = [\"redis://{}\"]\nredundancy = \"fenced\"\n\
             timeout = \"{TIMEOUT}\"\n\
             fence = \"{FENCE}\"\nsecret_file = \"{}\"",
            store.primary().address(),
            secret.display()
        );
        let change =
            |options: ServiceOptions| options.store(&lines).limit("fallback_reads", FALLBACKS);
        let bench = Bench::with(major, change).await;
        let options = ServiceOptions::of(&bench.cluster).await.expect("a leader that answers");
        let second = Program::start(&change(options), folder).await;
        let pair = Self { bench, store, second };
        pair.await_belief().await;
        pair
    }

    /// Waits until no instance has anything left to write into the store.
    pub(crate) async fn await_written(&self) {
        let second = format!("http://{}", self.second.ports.1.address());
        for admin in [self.bench.service.admin_endpoint(), second] {
            let written = || async {
                let mut admin = AdminServiceClient::connect(admin.clone()).await?;
                let shown = admin.get_store(v1::GetStoreRequest {}).await?.into_inner().store;
                Ok(shown.is_some_and(|store| store.pending_count == 0))
            };
            until("all that waited is written", LIMIT, written).await.expect("it is");
        }
    }

    /// Waits until both instances believe the store.
    pub(crate) async fn await_belief(&self) {
        for routing in [self.bench.routing(), self.second.routing().await] {
            let believes = || {
                let request = selecting(&Session::of("nobody"), v1::Policy::default());
                let mut routing = routing.clone();
                async move {
                    let answer = routing.select_replica(request).await?.into_inner();
                    let doubts = [v1::Reason::StoreLost, v1::Reason::UnknownSession];
                    // Who is unknown and gets no leader sample in time is refused, for that reason.
                    let is_served = matches!(answer.outcome, Some(Outcome::Served(_)));
                    Ok(is_served && !doubts.contains(&answer.reason()))
                }
            };
            until("an instance believes the store", LIMIT, believes).await.expect("it does");
        }
    }
}

/// A select of a session.
pub(crate) fn selecting(session: &Session, policy: v1::Policy) -> v1::SelectReplicaRequest {
    v1::SelectReplicaRequest {
        session: Some(session.message()),
        partition: PARTITION.to_owned(),
        policy: Some(policy),
        ..v1::SelectReplicaRequest::default()
    }
}

/// The real `tidegate serve`, which can be killed and started again on the same ports.
pub(crate) struct Program {
    child: Option<Child>,
    folder: TempDir,
    /// Of the service and of its administration; both stay its own while it is down.
    ports: (Port, Port),
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Program {
    async fn start(options: &ServiceOptions, folder: TempDir) -> Self {
        let (data, admin) = (Port::reserve().expect("a port"), Port::reserve().expect("a port"));
        let options = options.clone().listen(data.address(), admin.address());
        let toml = options.toml(&folder.path().join("state")).expect("a configuration");
        std::fs::write(folder.path().join("tidegate.toml"), toml).expect("written");
        let mut program = Self { child: None, folder, ports: (data, admin) };
        program.start_again().await;
        program
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it with the state it left; returns as soon as it says that it is ready.
    pub(crate) async fn start_again(&mut self) {
        let log = File::options().create(true).append(true).open(self.file("log"));
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config"])
            .arg(self.file("tidegate.toml"))
            .stdin(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn();
        self.child = Some(child.expect("the program starts"));
        let ready = || async {
            let Ok(channel) = Channel::from_shared(self.endpoint())?.connect().await else {
                return Ok(false);
            };
            let mut health = HealthClient::new(channel);
            let request = HealthCheckRequest { service: String::new() };
            let answer = health.check(request).await;
            Ok(answer.is_ok_and(|answer| answer.get_ref().status() == ServingStatus::Serving))
        };
        let ready = until("the second instance is ready", LIMIT, ready).await;
        let log = || std::fs::read_to_string(self.file("log")).unwrap_or_default();
        ready.unwrap_or_else(|error| panic!("{error}\n{}", log()));
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that has ended by itself is told nothing.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Where it is asked, for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.ports.0.address())
    }

    /// A new connection to it.
    pub(crate) async fn routing(&self) -> Routing {
        RoutingServiceClient::connect(self.endpoint()).await.expect("it listens")
    }
}
