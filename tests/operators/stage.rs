//! Servers with a service before them, sessions in few words, the program, and a watcher.

use std::process::Stdio;
use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::record_request::Observed;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::watch_events_response::Event;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tonic::Streaming;
use tonic::transport::Channel;

/// How long what was seen of a node counts.
pub(crate) const SEEN: Duration = Duration::from_secs(1);

/// Servers with an empty table `notes`, and a service.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) service: Service,
}

/// A commit, and what its connection was told.
pub(crate) struct Commit {
    pub(crate) before: String,
    pub(crate) capture: String,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Stage {
    /// A leader `l` with two standbys that have caught up, and a service that knows them.
    pub(crate) async fn set() -> Self {
        // Autovacuum commits, and would move a fork away from the last commit.
        let options = ClusterOptions::new(Major::V15).standbys(2).setting("autovacuum", "off");
        let cluster = Cluster::start(options).await.expect("a cluster starts");
        let table = "create table notes (id bigint primary key)";
        cluster.leader().sql(table).await.expect("a table is made");
        let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
        cluster.catch_up().await.expect("standbys follow");
        let options = options.limit("view_max_age", &format!("\"{}ms\"", SEEN.as_millis()));
        let service = Service::start(options).await.expect("a service starts");
        Self { cluster, service }
    }

    pub(crate) fn l(&self) -> &Server {
        self.cluster.leader()
    }

    pub(crate) fn r1(&self) -> &Server {
        self.cluster.standby(0)
    }

    pub(crate) fn r2(&self) -> &Server {
        self.cluster.standby(1)
    }

    pub(crate) async fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::connect(self.service.admin_endpoint()).await.expect("it listens")
    }

    pub(crate) async fn routing(&self) -> RoutingServiceClient<Channel> {
        RoutingServiceClient::connect(self.service.endpoint()).await.expect("it listens")
    }

    /// Runs a command against this service.
    pub(crate) async fn runs(&self, args: &[&str]) -> Ran {
        run(&self.service.admin_endpoint(), args).await
    }

    /// Runs a command that must succeed; what it printed.
    pub(crate) async fn shows(&self, args: &[&str]) -> String {
        let ran = self.runs(args).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}: {ran:?}");
        ran.out
    }

    /// Runs a command that goes on, and reads its first line.
    pub(crate) async fn follow(&self, args: &[&str]) -> Follower {
        let mut command = command(&self.service.admin_endpoint(), args);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program runs");
        let out = child.stdout.take().expect("a pipe");
        let mut follower = Follower { lines: BufReader::new(out).lines(), read: Vec::new(), child };
        let first = follower.next().await;
        follower.read.push(first);
        follower
    }

    /// Commits a row on a server.
    pub(crate) async fn commit(&self, server: &Server, id: i64) -> Commit {
        let client = server.connect("postgres", "postgres").await.expect("a connection");
        let write = format!("begin; insert into notes values ({id})");
        client.batch_execute(&write).await.expect("a row");
        let before = client.query_one("select tidegate.before()", &[]).await.expect("a reading");
        client.batch_execute("commit").await.expect("a commit");
        let capture = client.query_one("select tidegate.capture()", &[]).await.expect("a capture");
        Commit { before: before.get(0), capture: capture.get(0) }
    }

    /// Records evidence for a subject.
    pub(crate) async fn record(&self, subject: &str, evidence: &str, before: &str) {
        let request = v1::RecordRequest {
            session: Some(of_subject(subject)),
            observed: Some(Observed::Evidence(evidence.to_owned())),
            before: before.to_owned(),
            ..v1::RecordRequest::default()
        };
        self.routing().await.record(request).await.expect("it is recorded");
    }

    /// What a session is told at its next read.
    pub(crate) async fn told(&self, subject: &str) -> Vec<v1::notice::Kind> {
        let policy = v1::Policy {
            wait_budget: Some(prost_types::Duration { seconds: 10, nanos: 0 }),
            ..v1::Policy::default()
        };
        let request = v1::SelectReplicaRequest {
            session: Some(of_subject(subject)),
            partition: PARTITION.to_owned(),
            policy: Some(policy),
            ..v1::SelectReplicaRequest::default()
        };
        let answer = self.routing().await.select_replica(request).await.expect("an answer");
        answer.into_inner().notices.iter().map(v1::Notice::kind).collect()
    }

    /// The epochs, the latest first.
    pub(crate) async fn epochs(&self) -> Vec<v1::Epoch> {
        let request = v1::ListEpochsRequest { partition: PARTITION.to_owned(), limit_count: 0 };
        let listed = self.admin().await.list_epochs(request).await.expect("listed");
        listed.into_inner().epochs
    }

    /// What is known of a node.
    pub(crate) async fn node(&self, name: &str) -> v1::NodeState {
        let partition = self.service.partition().await.expect("listed");
        partition.nodes.into_iter().find(|node| node.name == name).expect("a node")
    }

    /// Waits until what was seen of a node counts no more.
    pub(crate) async fn forgotten(&self, name: &str) {
        until("what was seen of a node is old", LIMIT, || async {
            let age = self.node(name).await.view_age.expect("it was seen");
            Ok(Duration::try_from(age)? > SEEN)
        })
        .await
        .expect("it ages");
    }

    /// Watches the partition; the state of now was read.
    pub(crate) async fn watch(&self) -> Watcher {
        let request = v1::WatchEventsRequest { partition: PARTITION.to_owned() };
        let events = self.admin().await.watch_events(request).await.expect("a stream");
        let mut watcher = Watcher { events: events.into_inner() };
        let first = watcher.next().await;
        assert!(matches!(first, Event::Current(_)), "{first:?}");
        watcher
    }
}

/// Reads the events of one partition.
pub(crate) struct Watcher {
    pub(crate) events: Streaming<v1::WatchEventsResponse>,
}

impl Watcher {
    /// The next event.
    pub(crate) async fn next(&mut self) -> Event {
        let next = tokio::time::timeout(LIMIT, self.events.message()).await;
        let next = next.expect("something happens in time").expect("the stream goes on");
        let next = next.expect("the stream goes on");
        assert_eq!(next.partition, PARTITION);
        assert!(next.time.is_some_and(|time| time.seconds > 1_735_689_600));
        next.event.expect("of a known kind")
    }

    /// All events up to one that is wanted; that one is the last.
    pub(crate) async fn up_to(&mut self, is_wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut seen = Vec::new();
        loop {
            let next = self.next().await;
            let found = is_wanted(&next);
            seen.push(next);
            if found {
                return seen;
            }
        }
    }
}

/// The session of a subject that carries nothing.
fn of_subject(subject: &str) -> v1::Session {
    v1::Session { subject: subject.to_owned(), ..v1::Session::default() }
}

/// A command that goes on; it ends when this is dropped.
pub(crate) struct Follower {
    lines: Lines<BufReader<ChildStdout>>,
    read: Vec<String>,
    child: Child,
}

impl Follower {
    async fn next(&mut self) -> String {
        let next = tokio::time::timeout(LIMIT, self.lines.next_line()).await;
        let next = next.expect("it prints in time").expect("a pipe");
        next.unwrap_or_else(|| panic!("it ended: {:?}", self.child.try_wait()))
    }

    /// All lines from the first one up to one that has these words.
    pub(crate) async fn up_to(&mut self, words: &str) -> Vec<String> {
        while !self.read.iter().any(|line| line.contains(words)) {
            let next = self.next().await;
            self.read.push(next);
        }
        self.read.clone()
    }
}

/// A command against the admin listener at `url`.
fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).env("TIDEGATE_ADMIN", url).kill_on_drop(true);
    // What orchestrator sets for its hooks must come from the test alone.
    for name in ["ORC_FAILURE_TYPE", "ORC_SUCCESSOR_HOST"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command against the admin listener at `url`.
pub(crate) async fn run(url: &str, args: &[&str]) -> Ran {
    let output = command(url, args).output().await.expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let code = output.status.code().expect("it ended by itself");
    Ran { code, out: text(output.stdout), err: text(output.stderr) }
}
