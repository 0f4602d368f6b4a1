//! What the tests of telemetry share: one cluster, and the real program in front of it.
//!
//! The program is a process of its own, as operators run it: its log is what it writes, and its
//! end is one by signal.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;
use tidegate_lab::install::Major;
use tidegate_lab::metrics::is_ready;
use tidegate_lab::ports::Port;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::service::{PARTITION, ServiceOptions, install};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, RwLock};
use tonic::Request;
use tonic::transport::Channel;

/// A client of `RoutingService`.
pub(crate) type Routing = RoutingServiceClient<Channel>;

/// The trace of a caller, and its own span in it.
pub(crate) const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
pub(crate) const CALLER: u64 = 0x00f0_67aa_0ba9_02b7;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
});
static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
static TURN: RwLock<()> = RwLock::const_new(());

async fn open() -> Cluster {
    let cluster = Cluster::start(ClusterOptions::new(Major::V15).standbys(1)).await;
    let cluster = cluster.expect("a cluster");
    let table = "create table notes (id bigserial primary key)";
    cluster.leader().sql(table).await.expect("a table");
    install(cluster.leader()).await.expect("the objects install");
    cluster.catch_up().await.expect("the standby replays");
    cluster
}

/// Plays a scene that leaves the servers alone, beside others.
pub(crate) fn beside<Scene: Future<Output = ()>>(scene: impl FnOnce(&'static Cluster) -> Scene) {
    RUNTIME.block_on(async {
        let cluster = CLUSTER.get_or_init(open).await;
        let _turn = TURN.read().await;
        scene(cluster).await;
    });
}

/// Plays a scene that pauses replay, alone; it must resume it.
pub(crate) fn alone<Scene: Future<Output = ()>>(scene: impl FnOnce(&'static Cluster) -> Scene) {
    RUNTIME.block_on(async {
        let cluster = CLUSTER.get_or_init(open).await;
        let _turn = TURN.write().await;
        scene(cluster).await;
    });
}

/// A running `tidegate serve`.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    folder: TempDir,
    data: Port,
    admin: Port,
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended by itself is told nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Program {
    /// Starts it with these lines in `[telemetry]` and waits until it knows its nodes.
    pub(crate) async fn start(cluster: &Cluster, telemetry: &str, log: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (data, admin) = (Port::reserve().expect("a port"), Port::reserve().expect("a port"));
        let options = ServiceOptions::of(cluster).await.expect("the leader answers");
        let options = options.listen(data.address(), admin.address());
        let toml = options.toml(&folder.path().join("state")).expect("a configuration");
        let file = folder.path().join("tidegate.toml");
        std::fs::write(&file, format!("{toml}\n[telemetry]\n{telemetry}\n")).expect("written");
        let events = File::create(folder.path().join("log")).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config"])
            .arg(&file)
            .env("RUST_LOG", log)
            .stdin(Stdio::null())
            .stderr(events)
            .spawn()
            .expect("the program starts");
        let program = Self { child, folder, data, admin };
        program.await_nodes().await;
        program
    }

    async fn await_nodes(&self) {
        let knows = || async {
            let address = format!("http://{}", self.admin.address());
            let Ok(mut admin) = AdminServiceClient::connect(address).await else {
                return Ok(false);
            };
            let request = v1::ListPartitionsRequest { partition: PARTITION.to_owned() };
            let Ok(answer) = admin.list_partitions(request).await else { return Ok(false) };
            let partitions = answer.into_inner().partitions;
            Ok(partitions.iter().all(|partition| {
                let mut nodes = partition.nodes.iter();
                !partition.leader_node.is_empty() && nodes.all(|node| node.session_eligible)
            }))
        };
        until("the program knows its nodes", LIMIT, knows).await.unwrap_or_else(|error| {
            panic!("{error}\n{}", self.log());
        });
        let ready = || async { is_ready(self.admin.address()).await };
        until("the program takes calls", LIMIT, ready).await.expect("it does");
    }

    /// A new connection to it.
    pub(crate) async fn routing(&self) -> Routing {
        let address = format!("http://{}", self.data.address());
        RoutingServiceClient::connect(address).await.expect("it listens")
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    pub(crate) fn data(&self) -> SocketAddr {
        self.data.address()
    }

    /// What it has written so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    /// What `/metrics` shows.
    pub(crate) async fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.admin()).await.expect("it listens");
        let ask = b"GET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        stream.write_all(ask).await.expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).await.expect("it answers");
        page
    }

    /// Asks it to end, as a supervisor does, and waits for that.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(told.success(), "the program is gone: {}", self.log());
        let child = &mut self.child;
        let has_ended = || {
            let status = child.try_wait();
            async move { Ok(status?.is_some()) }
        };
        until("the program ends", LIMIT, has_ended).await.expect("it ends");
        self.child.wait().expect("a child")
    }
}

/// A read of nobody in particular.
pub(crate) fn select(session: v1::Session, level: v1::Level) -> v1::SelectReplicaRequest {
    let policy = v1::Policy { level: level.into(), ..v1::Policy::default() };
    v1::SelectReplicaRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        policy: Some(policy),
        ..v1::SelectReplicaRequest::default()
    }
}

/// A request that belongs to a trace.
pub(crate) fn traced<T>(message: T, trace: u128, sampled: bool) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("00-{trace:032x}-{CALLER:016x}-{:02x}", u8::from(sampled));
    request.metadata_mut().insert("traceparent", value.parse().expect("ASCII"));
    request
}
