//! Pollers and the log of what they read: Tidegate's own source, once per server, and nothing else.
//!
//! In place of Tidegate's core stands the least that writes lineage rows: a writable server gets
//! its row while every other one known to be writable is on a lower timeline.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate::clock::Clock;
use tidegate::config::{Password, Tls};
use tidegate::ports::{Command, Demand, PositionSource, Reading};
use tidegate::sources::postgres::{Address, PostgresSource, Target, Timeouts};
use tidegate_core::guards::Guards;
use tidegate_core::lineage::{Epoch, Fork, LineageRow};
use tidegate_core::views::{NodeId, Observation};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::evidence::{Poll, answered};
use super::trio::Trio;
use crate::service::DATABASE;

/// As the service waits for a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);
/// Readings on their way; a source waits when so many were not taken yet.
const READINGS: usize = 64;

/// Running pollers. They end with [`Watch::end`].
#[derive(Debug)]
pub(super) struct Watch {
    stop: CancellationToken,
    // While one lives, its source keeps its pace.
    _demand: watch::Sender<Demand>,
    sources: Vec<JoinHandle<()>>,
    recorder: JoinHandle<Result<Vec<Poll>>>,
}

impl Watch {
    /// Polls all servers at this pace and writes what they answer into a file.
    pub(super) async fn start(trio: &mut Trio, interval: Duration, file: &Path) -> Result<Self> {
        let file = File::create(file).with_context(|| format!("cannot open {}", file.display()))?;
        let (demand, demanded) = watch::channel(Demand { interval, sample_after: None });
        let (told, readings) = mpsc::channel(READINGS);
        let stop = CancellationToken::new();
        let (mut sources, mut desks) = (Vec::new(), Vec::new());
        for (index, server) in (0..).zip(trio.cluster().servers()) {
            let address = trio.poll_address(server);
            let target = Target {
                node: NodeId::new(index),
                address: Address::Tcp { host: address.ip().to_string(), port: address.port() },
                database: DATABASE.to_owned(),
                user: "tidegate".to_owned(),
                password: Password::None,
                tls: Tls::Off,
                cluster: "lab".to_owned(),
                instance: "failovers".to_owned(),
                tag: None,
                system: None,
                accepted_majors: Vec::new(),
                timeouts: Timeouts::new(POLL_TIMEOUT),
                guards: Guards::on(),
            };
            let (commands, commanded) = mpsc::channel(READINGS);
            desks.push((server.name().to_owned(), commands));
            let source = PostgresSource::new(target, Clock::new());
            let run = source.run(demanded.clone(), commanded, told.clone(), stop.clone());
            sources.push(tokio::spawn(run));
        }
        let recorder = Recorder {
            desks,
            file: BufWriter::new(file),
            writable: BTreeMap::new(),
            numbers: BTreeMap::new(),
            polls: Vec::new(),
        };
        let recorder = tokio::spawn(recorder.run(readings));
        trio.watched_by(1);
        let leader = trio.leader().clone();
        if !trio.accepted(&leader, crate::wait::LIMIT).await? {
            anyhow::bail!("the first lineage row was not written");
        }
        Ok(Self { stop, _demand: demand, sources, recorder })
    }

    /// Ends the pollers; returns all they read, in the order in which it came.
    pub(super) async fn end(self) -> Result<Vec<Poll>> {
        self.stop.cancel();
        for source in self.sources {
            source.await.context("a poller panicked")?;
        }
        self.recorder.await.context("the recorder panicked")?
    }
}

/// Writes down what is read, and has lineage rows written.
struct Recorder {
    /// Of each node: its name, and where its commands go.
    desks: Vec<(String, mpsc::Sender<Command>)>,
    file: BufWriter<File>,
    /// The timeline each node was last seen to write; none in recovery.
    writable: BTreeMap<NodeId, Option<u32>>,
    /// The number of each row that was seen.
    numbers: BTreeMap<Epoch, u64>,
    polls: Vec<Poll>,
}

impl Recorder {
    async fn run(mut self, mut readings: mpsc::Receiver<(NodeId, Reading)>) -> Result<Vec<Poll>> {
        while let Some((node, reading)) = readings.recv().await {
            let name = self.desks.get(node.index()).map_or("", |(name, _)| name).to_owned();
            match reading {
                Reading::Observed { observation, .. } => {
                    self.note(answered(&name, &observation))?;
                    self.accept(node, &observation);
                }
                Reading::Unreachable { sent_at, received_at, .. } => {
                    let (sent, received) = (sent_at.as_nanos(), received_at.as_nanos());
                    self.note(Poll { node: name, sent, received, shown: None })?;
                }
                Reading::Looked(_) | Reading::RowWritten { .. } => {}
            }
        }
        self.file.flush()?;
        Ok(self.polls)
    }

    fn note(&mut self, poll: Poll) -> Result<()> {
        serde_json::to_writer(&mut self.file, &poll)?;
        self.file.write_all(b"\n")?;
        self.polls.push(poll);
        Ok(())
    }

    /// Has the row of a leader written that shows none of its own and to whom all others give way.
    fn accept(&mut self, node: NodeId, seen: &Observation) {
        let rows = seen.rows.iter().flatten();
        self.numbers.extend(rows.map(|row| (row.epoch, row.n)));
        let epoch = seen.evidence.epoch();
        self.writable.insert(node, epoch.map(|epoch| epoch.timeline));
        let Some(epoch) = epoch.filter(|epoch| seen.evidence.row != Some(*epoch)) else { return };
        let mut others = self.writable.iter().filter(|(other, _)| **other != node);
        if others.any(|(_, timeline)| timeline.is_some_and(|other| other >= epoch.timeline)) {
            return;
        }
        let parent = seen.evidence.row;
        let n = match parent {
            None => 1,
            Some(parent) => match self.numbers.get(&parent) {
                Some(number) => number + 1,
                None => return,
            },
        };
        let row = LineageRow { epoch, parent, fork: Fork::Unknown, n };
        let command = Command::WriteRow { incarnation: seen.evidence.incarnation, row };
        if let Some((_, commands)) = self.desks.get(node.index()) {
            // A full queue is a row that is asked for at the next poll.
            drop(commands.try_send(command));
        }
    }
}
