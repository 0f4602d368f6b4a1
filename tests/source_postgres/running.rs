//! A source at work in a test: its channels, and waits for what it says.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::config::{Password, Tls};
use tidegate::ports::{
    Command, Demand, Fault, PositionSource, Reading, RowOutcome, SourceError, SourceErrorClass,
};
use tidegate::sources::postgres::{Address, PostgresSource, Target, Timeouts, schema};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Fork, Incarnation, LineageRow};
use tidegate_core::views::{NodeId, Observation};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What a test waits for at most; a source that is well answers within milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

/// The pace of an idle partition.
pub(crate) const IDLE: Duration = Duration::from_millis(250);

/// Starts a leader and standbys, with the schema in place.
pub(crate) async fn prepared(major: Major, standbys: usize) -> Cluster {
    let cluster = bare(ClusterOptions::new(major).standbys(standbys)).await;
    cluster.leader().sql(schema::HOME).await.expect("the schema is applied");
    cluster.catch_up().await.expect("standbys have it too");
    cluster
}

/// Starts servers without anything of Tidegate's.
pub(crate) async fn bare(options: ClusterOptions) -> Cluster {
    Cluster::start(options).await.expect("a cluster")
}

/// The role `tidegate` on one server, by TCP.
pub(crate) fn target(server: &Server) -> Target {
    at(server.address())
}

/// The role `tidegate` at an address.
pub(crate) fn at(address: SocketAddr) -> Target {
    Target {
        node: NodeId::new(3),
        address: Address::Tcp { host: address.ip().to_string(), port: address.port() },
        database: "postgres".to_owned(),
        user: "tidegate".to_owned(),
        password: Password::None,
        tls: Tls::Off,
        cluster: "test".to_owned(),
        instance: "one".to_owned(),
        tag: None,
        system: None,
        accepted_majors: Vec::new(),
        timeouts: Timeouts::new(Duration::from_secs(1)),
        guards: Guards::on(),
    }
}

/// A source at work. It ends with this value.
pub(crate) struct Running {
    pub(crate) demand: watch::Sender<Demand>,
    pub(crate) commands: mpsc::Sender<Command>,
    readings: mpsc::Receiver<(NodeId, Reading)>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(target: Target) -> Self {
        Self::paced(target, Duration::from_millis(5))
    }

    pub(crate) fn paced(target: Target, interval: Duration) -> Self {
        let (demand, demanded) = watch::channel(Demand { interval, sample_after: None });
        let (commands, commanded) = mpsc::channel(8);
        let (told, readings) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let source = PostgresSource::new(target, Clock::new());
        let task = tokio::spawn(source.run(demanded, commanded, told, stop.clone()));
        Self { demand, commands, readings, stop, task }
    }

    pub(crate) async fn next(&mut self) -> Reading {
        let next = tokio::time::timeout(LIMIT, self.readings.recv()).await;
        let (node, reading) = next.expect("a reading in time").expect("the source lives");
        assert_eq!(node, NodeId::new(3));
        reading
    }

    /// The next answer of the server; failures before it are passed over.
    pub(crate) async fn observed(&mut self) -> (Observation, Vec<Fault>) {
        loop {
            if let Reading::Observed { observation, faults } = self.next().await {
                return (observation, faults);
            }
        }
    }

    /// The next failure; answers before it are passed over.
    pub(crate) async fn failed(&mut self) -> SourceError {
        loop {
            if let Reading::Unreachable { error, sent_at, received_at } = self.next().await {
                assert!(sent_at <= received_at);
                return error;
            }
        }
    }

    /// The first failure of this class.
    pub(crate) async fn failed_as(&mut self, class: SourceErrorClass) -> SourceError {
        loop {
            let error = self.failed().await;
            if error.class == class {
                return error;
            }
        }
    }

    /// The first answer that is as wished, among those of the next 20 seconds.
    pub(crate) async fn observed_when(
        &mut self,
        what: &str,
        mut wished: impl FnMut(&Observation, &[Fault]) -> bool,
    ) -> (Observation, Vec<Fault>) {
        let search = async {
            loop {
                let (observation, faults) = self.observed().await;
                if wished(&observation, &faults) {
                    return (observation, faults);
                }
            }
        };
        tokio::time::timeout(LIMIT, search).await.unwrap_or_else(|_| panic!("never {what}"))
    }

    /// The first answer sent at or after `at`.
    pub(crate) async fn observed_since(&mut self, at: Instant) -> Observation {
        self.observed_when("sent later", |seen, _| seen.sent_at >= at).await.0
    }

    /// Has one row written; answers in between are passed over.
    pub(crate) async fn write(
        &mut self,
        incarnation: Incarnation,
        row: LineageRow,
    ) -> Result<RowOutcome, SourceError> {
        let command = Command::WriteRow { incarnation, row };
        self.commands.send(command).await.expect("the source takes commands");
        loop {
            if let Reading::RowWritten { epoch, result } = self.next().await {
                assert_eq!(epoch, row.epoch);
                return result;
            }
        }
    }

    /// Has the first row of a leader written, and returns it.
    pub(crate) async fn write_root(&mut self) -> LineageRow {
        let (seen, _) = self.observed().await;
        let epoch = seen.evidence.epoch().expect("a leader");
        let row = LineageRow { epoch, parent: None, fork: Fork::Unknown, n: 1 };
        let outcome = self.write(seen.evidence.incarnation, row).await;
        assert_eq!(outcome, Ok(RowOutcome::Stands(row)));
        row
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.task).await.expect("it stops").expect("without a panic");
    }
}
