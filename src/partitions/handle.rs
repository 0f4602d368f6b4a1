//! `PartitionHandle`: what requests hold of a partition. Reads its snapshot without a lock, and
//! asks its task for everything else.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, Incarnation, SystemId};
use tidegate_core::partition::{Event, Need, NeedId, WaitEnd, WaitFor};
use tidegate_core::position::Position;
use tidegate_core::routing::CapFull;
use tidegate_core::snapshot::Snapshot;
use tidegate_core::token::{ComponentKey, PartitionId};
use tidegate_core::trail::Floor;
use tidegate_core::views::NodeId;
use tidegate_core::wait::WaitId;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tracing::{Instrument, warn};

use super::feed::{Announcement, Feed, Happened, Happening};
use super::quota::{self, Cap};
use super::sharing::Learner;
use crate::clock::Clock;
use crate::telemetry::{PartitionTelemetry, Step, step_span};

/// Events one partition may have in its queue; a caller beyond that waits for room.
pub(super) const EVENTS_MAX: usize = 16_384;

/// How clients reach a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Every physical connection meets the server itself.
    Direct,
    /// Through a pooler.
    Pooled,
    /// At an address of several servers.
    Shared,
}

/// What answers say of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// Unique in its partition.
    pub name: String,
    /// Where clients connect to.
    pub addresses: Vec<String>,
    /// How they reach it.
    pub reach: Reach,
    /// Where it stands.
    pub zone: String,
}

/// What does not change of a partition while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionInfo {
    /// For people and the API.
    pub name: String,
    /// Inside tokens and stores.
    pub id: PartitionId,
    /// The database cluster it is.
    pub system: SystemId,
    /// The tag of the system id it was upgraded from.
    pub upgraded_from: Option<u32>,
    /// Commits are never asynchronous there, says the operator.
    pub async_commits_never: bool,
    /// Its nodes, by [`NodeId`].
    pub nodes: Vec<NodeInfo>,
}

/// What a request asks of a partition's task.
#[derive(Debug)]
pub(super) enum Ask {
    /// Something for the core.
    Tell(Event),
    /// An operator's word, with whom to tell that it counts.
    Order(Event, oneshot::Sender<()>),
    /// A wait, with whom to tell of its end.
    Park(WaitId, Event, oneshot::Sender<WaitEnd>),
    /// A needed observation, with whom to tell that it came.
    Need(NeedId, Event, oneshot::Sender<()>),
}

/// What requests hold of a partition.
#[derive(Debug)]
pub struct PartitionHandle {
    info: PartitionInfo,
    snapshot: Arc<ArcSwap<Snapshot>>,
    asks: mpsc::Sender<Ask>,
    learns: mpsc::Sender<Learner>,
    next_id: AtomicU64,
    cap: Arc<Cap>,
    health: Arc<Health>,
    feed: Arc<Feed>,
    telemetry: PartitionTelemetry,
    clock: Clock,
}

/// Whether each node was tried, and what ails it.
#[derive(Debug)]
pub(super) struct Health {
    nodes: watch::Sender<Vec<NodeHealth>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct NodeHealth {
    /// When the last poll that came to an end was sent.
    tried_at: Option<Instant>,
    /// It was answered.
    answered: bool,
    error: Option<String>,
}

impl NodeHealth {
    fn is_tried_since(&self, since: Instant) -> bool {
        self.tried_at.is_some_and(|at| at >= since)
    }
}

impl Health {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes: watch::Sender::new(vec![NodeHealth::default(); nodes]) }
    }

    /// Notes what became of a poll: when it was sent, whether it was answered, what ails the node.
    /// Says whether the latter is news.
    pub(super) fn note(
        &self,
        node: NodeId,
        (sent_at, answered): (Instant, bool),
        error: Option<String>,
    ) -> bool {
        let mut is_news = false;
        self.nodes.send_if_modified(|nodes| {
            let Some(known) = nodes.get_mut(node.index()) else { return false };
            is_news = known.tried_at.is_none() || known.error != error;
            *known = NodeHealth { tried_at: Some(sent_at), answered, error };
            true
        });
        is_news
    }

    /// Waits until a poll of each node that was sent at or after `since` came to an end.
    async fn tried_since(&self, since: Instant) {
        let mut nodes = self.nodes.subscribe();
        // The sender lives in `self`.
        _ = nodes.wait_for(|nodes| nodes.iter().all(|node| node.is_tried_since(since))).await;
    }
}

/// Takes a wait or a need back when its caller is gone.
struct TakeBack<'a> {
    asks: &'a mpsc::Sender<Ask>,
    event: Option<Event>,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            // With no room the wait ends at its deadline, as every wait does.
            drop(self.asks.try_send(Ask::Tell(event)));
        }
    }
}

impl PartitionHandle {
    pub(super) fn new(
        info: PartitionInfo,
        snapshot: Arc<ArcSwap<Snapshot>>,
        (asks, learns): (mpsc::Sender<Ask>, mpsc::Sender<Learner>),
        cap: Arc<Cap>,
        (health, feed, telemetry): (Arc<Health>, Arc<Feed>, PartitionTelemetry),
        clock: Clock,
    ) -> Self {
        let next_id = AtomicU64::new(1);
        Self { info, snapshot, asks, learns, next_id, cap, health, feed, telemetry, clock }
    }

    /// The name of a node that was not tried yet; `None`: each was.
    pub fn first_untried(&self) -> Option<&str> {
        let nodes = self.health.nodes.borrow();
        let index = nodes.iter().position(|node| node.tried_at.is_none())?;
        self.info.nodes.get(index).map(|node| node.name.as_str())
    }

    /// Waits until each node was tried once.
    pub async fn all_tried(&self) {
        self.health.tried_since(Instant::default()).await;
    }

    /// What ails a node, with what to do; empty: nothing.
    pub fn poll_error(&self, node: NodeId) -> String {
        let nodes = self.health.nodes.borrow();
        nodes.get(node.index()).and_then(|node| node.error.clone()).unwrap_or_default()
    }

    /// Where what happens to its reads is counted.
    pub const fn telemetry(&self) -> &PartitionTelemetry {
        &self.telemetry
    }

    /// What does not change of it.
    pub const fn info(&self) -> &PartitionInfo {
        &self.info
    }

    /// The component sessions hold of it.
    pub const fn key(&self) -> ComponentKey {
        ComponentKey::new(self.info.id, self.info.system)
    }

    /// What is known of it now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// As [`Self::snapshot`], for who looks and waits for nothing meanwhile: readers do not count
    /// themselves where all of them would write.
    pub(crate) fn snapshot_held(&self) -> impl Deref<Target = Arc<Snapshot>> + use<> {
        self.snapshot.load()
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        let index = self.info.nodes.iter().position(|node| node.name == name)?;
        u16::try_from(index).ok().map(NodeId::new)
    }

    /// What answers say of a node.
    pub fn node_info(&self, node: NodeId) -> Option<&NodeInfo> {
        self.info.nodes.get(node.index())
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Says whether other instances may know what is not known here.
    pub fn shares_facts(&self) -> bool {
        !self.learns.is_closed()
    }

    /// Asks what other instances know, and waits until that is known here, until `until` at most.
    pub async fn learn(&self, until: Instant) {
        let (done, came) = oneshot::channel();
        if self.learns.try_send(done).is_ok() {
            // Without an answer a call goes on with what is known here.
            _ = self.clock.until(until, came).await;
        }
    }

    /// Waits for an observation sent at or after `since`; `false` if none came before `until`.
    pub async fn need(&self, need: Need, since: Instant, until: Instant) -> bool {
        let id = NeedId::new(self.next_id());
        let (done, came) = oneshot::channel();
        let ask = Ask::Need(id, Event::Need { id, need, since }, done);
        let mut back = TakeBack { asks: &self.asks, event: Some(Event::Unneed(id)) };
        let wait = async { self.asks.send(ask).await.is_ok() && came.await.is_ok() };
        let wait = self.clock.until(until, wait).instrument(step_span(Step::Observe));
        let came = wait.await.unwrap_or(false);
        if came {
            back.event = None;
        }
        came
    }

    /// Parks a read until one (or all) of `nodes` has the floor, or `deadline`.
    ///
    /// Dropping the future takes the wait back.
    pub async fn park(
        &self,
        floor: Floor,
        nodes: Vec<NodeId>,
        wait_for: WaitFor,
        deadline: Instant,
    ) -> WaitEnd {
        let id = WaitId::new(self.next_id());
        let (done, ended) = oneshot::channel();
        let ask = Ask::Park(id, Event::Park { id, floor, nodes, wait_for, deadline }, done);
        let mut back = TakeBack { asks: &self.asks, event: Some(Event::Unpark(id)) };
        if self.asks.send(ask).await.is_err() {
            back.event = None;
            return WaitEnd::Gone;
        }
        let end = ended.instrument(step_span(Step::Park)).await.unwrap_or(WaitEnd::Gone);
        back.event = None;
        end
    }

    /// Asks for fresh observations of every node; nobody waits for them here.
    pub fn hurry(&self) {
        // With no room the task is polling as fast as it can.
        drop(self.asks.try_send(Ask::Tell(Event::Hurry(self.clock.now()))));
    }

    /// Asks for fresh observations of every node and waits for them until `until`; returns the
    /// nodes that answered and those that did not.
    pub async fn look(&self, until: Instant) -> (Vec<NodeId>, Vec<NodeId>) {
        let since = self.clock.now();
        let looked = async {
            if self.asks.send(Ask::Tell(Event::Hurry(since))).await.is_ok() {
                self.health.tried_since(since).await;
            }
        };
        // What has not come by then is said to be missing.
        _ = self.clock.until(until, looked).await;
        let nodes = self.health.nodes.borrow();
        let answered = |node: &NodeId| {
            let health = nodes.get(node.index());
            health.is_some_and(|node| node.answered && node.is_tried_since(since))
        };
        self.snapshot.load().nodes().partition(answered)
    }

    /// Tells whoever watches what somebody says about a failover. Nothing of it is believed.
    pub fn announced(&self, announcement: Announcement) {
        self.feed.tell(Happening::Announced(announcement));
    }

    /// What happens from now on.
    pub fn watch(&self) -> broadcast::Receiver<Happened> {
        self.feed.watch()
    }

    /// When an epoch was first known to this instance, in seconds since 1970.
    pub fn first_seen(&self, epoch: Epoch) -> Option<u64> {
        self.feed.first_seen(epoch)
    }

    /// Looks whether a write that ended at `position` was made on a leader that is deposed: past
    /// the fork in which its epoch ended. Says so once for each epoch.
    pub fn note_write(&self, epoch: Epoch, position: Position) {
        let snapshot = self.snapshot.load();
        if !snapshot.is_deposed(epoch, position) {
            return;
        }
        self.telemetry.deposed_write();
        if self.feed.deposed(epoch, position) {
            let partition = self.info.name.as_str();
            let node = snapshot.facts.of(epoch).and_then(|facts| facts.node);
            let node = node.and_then(|node| self.node_info(node)).map(|info| info.name.as_str());
            warn!(
                partition,
                node,
                %epoch,
                %position,
                "a write on a deposed leader was recorded: end what still writes to it"
            );
        }
    }

    /// The epoch of a deposed leader on which a write was recorded lately.
    pub fn deposed_lately(&self) -> Option<Epoch> {
        self.feed.deposed_lately()
    }

    /// Other instances that are connected to its servers, as those list them.
    pub fn other_instances(&self) -> Vec<String> {
        self.feed.other_instances()
    }

    /// Takes a node out, or back in; `false` if the partition has ended.
    pub async fn drain(&self, node: NodeId, drained: bool) -> bool {
        self.order(Event::Drain { node, drained }).await
    }

    /// Lifts the quarantine of a node; `false` if the partition has ended.
    pub async fn resume(&self, node: NodeId) -> bool {
        self.order(Event::Resume(node)).await
    }

    /// Makes the node of an incarnation the one that counts, if it may be; `false` if the partition
    /// has ended.
    pub async fn resolve(&self, incarnation: Incarnation) -> bool {
        self.order(Event::Resolve(incarnation)).await
    }

    /// Returns when what the operator said can be seen.
    async fn order(&self, event: Event) -> bool {
        let (done, counts) = oneshot::channel();
        self.asks.send(Ask::Order(event, done)).await.is_ok() && counts.await.is_ok()
    }

    /// Admits so many freshness fallbacks from now on over all instances: the configured.
    pub fn configure_cap(&self, reads_per_second: u32) {
        self.cap.set(reads_per_second);
    }

    /// Admits one freshness fallback to the leader.
    ///
    /// # Errors
    /// [`CapFull`], with a time after which its caller may come back.
    pub fn try_admit(&self, now: Instant) -> Result<(), CapFull> {
        self.cap.try_admit(now).map_err(quota::spread)
    }

    /// As [`Self::try_admit`], for who waits here for room.
    ///
    /// # Errors
    /// [`CapFull`], with the time until one read fits again.
    pub fn try_admit_waiting(&self, now: Instant) -> Result<(), CapFull> {
        self.cap.try_admit(now)
    }
}
