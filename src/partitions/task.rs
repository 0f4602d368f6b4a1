//! The loop that owns one partition: events in, effects performed, snapshots published.
//!
//! It decides nothing: what happens next is what the core's effects say.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::lineage::History;
use tidegate_core::partition::{Effect, Event, NeedId, Partition, RowOutcome, WaitEnd};
use tidegate_core::routing::CapShare;
use tidegate_core::snapshot::{Settings, Snapshot};
use tidegate_core::trail::Sample;
use tidegate_core::views::NodeId;
use tidegate_core::wait::WaitId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::field::display;
use tracing::{info, warn};

use super::feed::Feed;
use super::handle::{Ask, EVENTS_MAX, Health};
use super::node_seen::NodeSeen;
use super::quota::{Cap, Sharer};
use super::sharing::{LEARNERS_MAX, Learner, Sharing};
use super::{PartitionHandle, PartitionInfo, foreign, notable};
use crate::clock::Clock;
use crate::ports::{
    self, Command, Demand, FactSharer, FactStore, Look, LookTaker, QuotaStore, Reading,
    SourceErrorClass,
};
use crate::telemetry::{NodeTelemetry, PartitionTelemetry, PollOutcome};

/// Asks taken from the queue at once, before snapshots are published again.
const BATCH: usize = 1_024;
/// The lag of a node is reported at most this often.
const LAG_INTERVAL: Duration = Duration::from_millis(250);

/// The ends of one source that its partition holds.
#[derive(Debug)]
pub struct NodePort {
    /// How often it polls.
    pub demand: watch::Sender<Demand>,
    /// What it does besides.
    pub commands: mpsc::Sender<Command>,
}

/// One partition, ready to run.
#[derive(Debug)]
pub struct PartitionTask<F> {
    partition: Partition,
    info: PartitionInfo,
    snapshot: Arc<ArcSwap<Snapshot>>,
    asks: mpsc::Receiver<Ask>,
    readings: mpsc::Receiver<(NodeId, Reading)>,
    ports: Vec<NodePort>,
    facts: watch::Sender<Option<Arc<Facts>>>,
    kept: watch::Receiver<Option<Arc<Facts>>>,
    fact_store: Arc<F>,
    sampled: watch::Sender<Option<Sample>>,
    waits: HashMap<WaitId, oneshot::Sender<WaitEnd>>,
    needs: HashMap<NeedId, oneshot::Sender<()>>,
    health: Arc<Health>,
    telemetry: PartitionTelemetry,
    nodes: Vec<NodeTelemetry>,
    /// When the lag of each node was reported last.
    lag_reported_at: Vec<Instant>,
    /// Why the last lineage row was refused, and by which node.
    row_error: Option<(NodeId, String)>,
    feed: Arc<Feed>,
    /// Who is told of others that are connected.
    looks: Option<Arc<dyn LookTaker>>,
    /// What facts are shared by, with whoever asks for what others know.
    sharing: Option<Arc<dyn FactSharer>>,
    /// What it may ask of the leader, and with whom that is shared.
    cap: Arc<Cap>,
    sharer: Option<Arc<Sharer>>,
    /// Those who ask for what others know; closed where nothing is shared.
    learners: mpsc::Receiver<Learner>,
    own_asks: mpsc::WeakSender<Ask>,
    /// The history whose epochs the feed knows.
    fed: Arc<History>,
    clock: Clock,
}

impl<F: FactStore> PartitionTask<F> {
    /// A partition with the facts kept of it, what its sources tell, and what it tells them.
    ///
    /// `sampled` is told each newest leader sample.
    #[expect(clippy::too_many_arguments, reason = "the one place where a partition is wired")]
    pub fn new(
        info: PartitionInfo,
        settings: Arc<Settings>,
        facts: Facts,
        share: CapShare,
        readings: mpsc::Receiver<(NodeId, Reading)>,
        ports: Vec<NodePort>,
        fact_store: Arc<F>,
        sampled: watch::Sender<Option<Sample>>,
        telemetry: PartitionTelemetry,
        clock: Clock,
    ) -> (Self, Arc<PartitionHandle>) {
        let partition = Partition::new(info.id, info.system, settings, facts);
        let snapshot = Arc::new(ArcSwap::from_pointee(partition.snapshot().clone()));
        let (asks_in, asks) = mpsc::channel(EVENTS_MAX);
        let own_asks = asks_in.downgrade();
        let (learns, learners) = mpsc::channel(LEARNERS_MAX);
        let health = Arc::new(Health::new(info.nodes.len()));
        let guards = partition.snapshot().settings.guards;
        let cap = Arc::new(Cap::new(share, telemetry.clone(), guards, clock));
        let feed = Arc::new(Feed::new(clock));
        let watched = (Arc::clone(&health), Arc::clone(&feed), telemetry.clone());
        let shown = Arc::clone(&snapshot);
        let (asked, capped) = ((asks_in, learns), Arc::clone(&cap));
        let handle = PartitionHandle::new(info.clone(), shown, asked, capped, watched, clock);
        let nodes = info.nodes.iter().map(|node| telemetry.node(&node.name)).collect();
        let (facts, kept) = watch::channel(None);
        let lag_reported_at = vec![Instant::default(); info.nodes.len()];
        let (waits, needs) = (HashMap::new(), HashMap::new());
        let task = Self {
            partition,
            info,
            snapshot,
            asks,
            readings,
            ports,
            facts,
            kept,
            fact_store,
            sampled,
            waits,
            needs,
            health,
            telemetry,
            nodes,
            lag_reported_at,
            row_error: None,
            feed,
            looks: None,
            sharing: None,
            cap,
            sharer: None,
            learners,
            own_asks,
            fed: Arc::default(),
            clock,
        };
        (task, Arc::new(handle))
    }

    /// Tells `taker` who else is connected to the servers.
    #[must_use]
    pub fn looking(mut self, taker: Arc<dyn LookTaker>) -> Self {
        self.looks = Some(taker);
        self
    }

    /// Shares what is known of it with other instances.
    #[must_use]
    pub fn sharing(mut self, sharer: Arc<dyn FactSharer>) -> Self {
        self.sharing = Some(sharer);
        self
    }

    /// Shares its fallback cap with other instances.
    #[must_use]
    pub fn sharing_cap(mut self, store: Arc<dyn QuotaStore>) -> Self {
        let (cap, id, name) = (Arc::clone(&self.cap), self.info.id, self.info.name.clone());
        self.sharer = Some(Arc::new(Sharer { store, cap, id, name }));
        self
    }

    /// Starts to share, if it is to; what is returned ends that.
    fn share(&mut self) -> Option<AbortOnDropHandle<()>> {
        let (_, nobody) = mpsc::channel(1);
        let learners = std::mem::replace(&mut self.learners, nobody);
        let sharer = Arc::clone(self.sharing.as_ref()?);
        let (info, asks) = (self.info.clone(), self.own_asks.clone());
        let (newest, snapshot) = (self.kept.clone(), Arc::clone(&self.snapshot));
        let clock = self.clock;
        let sharing = Sharing { sharer, info, asks, learners, newest, snapshot, clock };
        Some(AbortOnDropHandle::new(tokio::spawn(sharing.run())))
    }

    /// Runs until `stop`; then keeps the latest facts and ends.
    pub async fn run(mut self, stop: CancellationToken) {
        let keeper = keep_facts(Arc::clone(&self.fact_store), self.info.clone(), self.kept.clone());
        let keeper = tokio::spawn(keeper);
        let _sharing = self.share();
        let sharer = self.sharer.take();
        let quota = sharer.clone().map(|it| AbortOnDropHandle::new(tokio::spawn(it.run())));
        let mut batch = Vec::with_capacity(BATCH);
        self.handle(Event::Tick);
        loop {
            let due = self.partition.poll_timeout();
            let tick = async {
                match due {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                reading = self.readings.recv() => match reading {
                    Some((node, reading)) => self.read(node, reading),
                    None => break,
                },
                count = self.asks.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        break;
                    }
                    for ask in batch.drain(..) {
                        self.ask(ask);
                    }
                }
                () = tick => self.handle(Event::Tick),
            }
            self.telemetry.parked(self.waits.len());
        }
        drop(quota);
        if let Some(sharer) = sharer {
            sharer.leave().await;
        }
        let last = Arc::clone(&self.partition.snapshot().facts);
        self.facts.send_replace(Some(last));
        drop(self);
        if keeper.await.is_err() {
            warn!("the keeper of facts ended early");
        }
    }

    fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Tell(event) => {
                match &event {
                    Event::Unpark(id) => _ = self.waits.remove(id),
                    Event::Unneed(id) => _ = self.needs.remove(id),
                    Event::Observed(_)
                    | Event::Need { .. }
                    | Event::Hurry(_)
                    | Event::Park { .. }
                    | Event::RowWritten { .. }
                    | Event::Drain { .. }
                    | Event::Learned(_)
                    | Event::Resume(_)
                    | Event::Resolve(_)
                    | Event::Tick => {}
                }
                self.handle(event);
            }
            Ask::Order(event, done) => {
                self.handle(event);
                // An operator who has gone hears nothing.
                _ = done.send(());
            }
            Ask::Park(id, event, done) => {
                if !done.is_closed() {
                    self.waits.insert(id, done);
                    self.handle(event);
                }
            }
            Ask::Need(id, event, done) => {
                if !done.is_closed() {
                    self.needs.insert(id, done);
                    self.handle(event);
                }
            }
        }
    }

    fn read(&mut self, node: NodeId, reading: Reading) {
        match reading {
            Reading::Observed { observation, faults } => {
                let sent_at = observation.sent_at;
                let before = NodeSeen::of(self.partition.snapshot(), node);
                self.handle(Event::Observed(observation));
                self.note_change(node, before);
                let fault = faults.first().map(ToString::to_string);
                self.note(node, (sent_at, true), fault.or_else(|| self.row_error_of(node)));
                self.report(node, sent_at);
            }
            Reading::Unreachable { error, sent_at, received_at: _ } => {
                if let Some(telemetry) = self.nodes.get(node.index()) {
                    telemetry.polled(outcome_of(error.class));
                    telemetry.beside_leader(false);
                }
                self.note(node, (sent_at, false), Some(error.to_string()));
            }
            Reading::Looked(look) => self.looked(node, &look),
            Reading::RowWritten { epoch, result } => {
                let outcome = match result {
                    Ok(ports::RowOutcome::Stands(row)) => RowOutcome::Stands(row),
                    Ok(ports::RowOutcome::Refused) => RowOutcome::NotThere,
                    Ok(ports::RowOutcome::NoTable) => RowOutcome::NoTable,
                    Err(error) => {
                        self.row_error = Some((node, error.to_string()));
                        RowOutcome::Failed
                    }
                };
                self.handle(Event::RowWritten { epoch, outcome });
            }
        }
    }

    /// Only the leader shows that nobody else is there; who is there, any server does.
    fn looked(&self, node: NodeId, look: &Look) {
        let Some(taker) = &self.looks else { return };
        let leader = self.partition.snapshot().leadership.leader();
        let leads = leader.is_some_and(|leader| leader.node == node);
        if leads || !look.others.is_empty() {
            let key = self.partition.snapshot().key;
            let beside_others = taker.looked(key, look, leads);
            self.telemetry.beside_others(beside_others);
            self.cap.beside_others(beside_others);
            foreign::report(&self.info, &self.feed, beside_others, &look.others);
        }
    }

    /// Why the row of a leader's epoch is still not written.
    fn row_error_of(&self, node: NodeId) -> Option<String> {
        let (refused_by, error) = self.row_error.as_ref()?;
        let stands = self.partition.snapshot().row_unwritable && *refused_by == node;
        stands.then(|| error.clone())
    }

    /// Logs what ails a node when it changes, not at every poll.
    fn note(&self, node: NodeId, tried: (Instant, bool), error: Option<String>) {
        if !self.health.note(node, tried, error.clone()) {
            return;
        }
        let name = self.info.nodes.get(node.index()).map(|info| info.name.as_str());
        let partition = self.info.name.as_str();
        match &error {
            Some(error) => warn!(partition, node = name, error, "node in trouble"),
            None => info!(partition, node = name, "node answers"),
        }
    }

    /// Counts and logs what an answered poll changed of a node.
    fn note_change(&mut self, node: NodeId, before: Option<NodeSeen>) {
        let Some(now) = NodeSeen::of(self.partition.snapshot(), node) else { return };
        let Some(telemetry) = self.nodes.get(node.index()) else { return };
        let name = self.info.nodes.get(node.index()).map(|info| info.name.as_str());
        let partition = self.info.name.as_str();
        telemetry.beside_leader(now.is_beside_leader);
        let was_beside = before.is_some_and(|before| before.is_beside_leader);
        if now.is_beside_leader && !was_beside {
            warn!(partition, node = name, "node is writable and does not lead");
        }
        if let Some(before) = before.filter(|before| now.went_back(*before)) {
            telemetry.went_back();
            let (from, to) = (before.applied.map(display), now.applied.map(display));
            warn!(partition, node = name, from, to, "node shows a lower position than before");
        }
    }

    /// Reports an answered poll; the lag, which costs a walk of the trail, at most so often.
    fn report(&mut self, node: NodeId, sent_at: Instant) {
        let now = self.clock.now();
        let Some(telemetry) = self.nodes.get(node.index()) else { return };
        telemetry.polled(PollOutcome::Observed);
        telemetry.seen(sent_at);
        let Some(reported_at) = self.lag_reported_at.get_mut(node.index()) else { return };
        if now.since(*reported_at) >= LAG_INTERVAL {
            *reported_at = now;
            let lag = self.partition.snapshot().lag(node, now);
            telemetry.lag(lag.map(|lag| lag.bytes), lag.map(|lag| lag.time));
        }
    }

    fn handle(&mut self, event: Event) {
        let effects = self.partition.handle(event, self.clock.now());
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Publish(snapshot) => {
                let newest = snapshot.trail.last();
                if !Arc::ptr_eq(&self.fed, &snapshot.history) {
                    self.fed = Arc::clone(&snapshot.history);
                    self.feed.seen(self.fed.rows().map(|row| row.epoch));
                }
                self.snapshot.store(snapshot);
                self.sampled.send_if_modified(|known| {
                    let moved = *known != newest;
                    *known = newest;
                    moved
                });
            }
            Effect::Wake(id, end) => {
                if let Some(done) = self.waits.remove(&id) {
                    // The caller may have gone; then nobody wants to know.
                    _ = done.send(end);
                }
            }
            Effect::Sampled(id) => {
                if let Some(done) = self.needs.remove(&id) {
                    _ = done.send(());
                }
            }
            Effect::Pace(node, pace) => {
                if let Some(port) = self.ports.get(node.index()) {
                    let demand =
                        Demand { interval: pace.interval, sample_after: pace.sample_after };
                    port.demand.send_replace(demand);
                }
            }
            Effect::WriteRow { node, incarnation, row } => {
                let command = Command::WriteRow { incarnation, row };
                let port = self.ports.get(node.index());
                if port.is_none_or(|port| port.commands.try_send(command).is_err()) {
                    let (epoch, outcome) = (row.epoch, RowOutcome::NotThere);
                    self.handle(Event::RowWritten { epoch, outcome });
                }
            }
            Effect::StoreFacts(facts) => {
                self.facts.send_replace(Some(facts));
            }
            Effect::Emit(notable) => notable::report(&self.info, &self.feed, notable),
        }
    }
}

/// Keeps the newest facts, one write at a time; ends when their partition does.
async fn keep_facts<F: FactStore>(
    store: Arc<F>,
    info: PartitionInfo,
    mut newest: watch::Receiver<Option<Arc<Facts>>>,
) {
    let names: Vec<String> = info.nodes.iter().map(|node| node.name.clone()).collect();
    while newest.changed().await.is_ok() {
        let facts = newest.borrow_and_update().clone();
        let Some(facts) = facts else { continue };
        if let Err(error) = store.save(info.id, &names, &facts).await {
            warn!(partition = info.name.as_str(), %error, "facts could not be kept");
        }
    }
}

const fn outcome_of(class: SourceErrorClass) -> PollOutcome {
    match class {
        SourceErrorClass::Unreachable => PollOutcome::Unreachable,
        SourceErrorClass::TimedOut => PollOutcome::TimedOut,
        SourceErrorClass::NotReady => PollOutcome::NotReady,
        SourceErrorClass::Denied => PollOutcome::Denied,
        SourceErrorClass::Tls => PollOutcome::Tls,
        SourceErrorClass::ServerTooOld => PollOutcome::ServerTooOld,
        SourceErrorClass::ForeignSystem => PollOutcome::ForeignSystem,
        SourceErrorClass::Rejected => PollOutcome::Rejected,
    }
}
