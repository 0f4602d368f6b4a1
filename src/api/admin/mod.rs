//! `AdminService`: what this instance knows of its partitions, and the operator's word on them.
//!
//! - `operate`: reloads
//! - `show`: partitions and nodes in words
//! - `epochs`: which leader lives followed which, what was lost, who was told
//! - `store`: what keeps the records of subjects, and how it is
//! - `watch`: what happens, as a stream
//!
//! It decides nothing: the core takes an operator's word or does not.

mod epochs;
mod operate;
mod show;
mod store;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::lineage::{History, Incarnation};
use tidegate_core::snapshot::NotResolved;
use tidegate_core::views::NodeId;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_server::AdminService;
use tokio::sync::Semaphore;
use tonic::{Code, Request, Response, Status};

pub use operate::Reloader;

use super::routing::Gatekeeper;
use super::status;
use crate::clock::Clock;
use crate::partitions::{Announcement, PartitionHandle, Partitions};
use crate::sessions::{LossLedger, StoreView};

/// Epochs listed where the request does not say how many.
const EPOCHS_LISTED: usize = 100;
/// Characters of what an announcement says of itself.
pub(crate) const SOURCE_CHARS_MAX: usize = 256;
/// Streams of events open at once: each costs what it has not read.
const WATCHERS_MAX: usize = 64;

/// Answers `AdminService`.
#[derive(Debug)]
pub struct Admin<G> {
    partitions: Arc<Partitions>,
    ledger: Arc<LossLedger>,
    store: Arc<dyn StoreView>,
    gate: Arc<G>,
    /// What reads the configuration again; `None`: nothing does.
    reloader: Option<Arc<dyn Reloader>>,
    /// How long an operator's word waits for polls.
    poll_timeout: Duration,
    watchers: Arc<Semaphore>,
    clock: Clock,
}

impl<G: Gatekeeper> Admin<G> {
    /// Answers for these partitions, until `gate` says that the instance shuts down.
    pub fn new(
        partitions: Arc<Partitions>,
        (ledger, store): (Arc<LossLedger>, Arc<dyn StoreView>),
        gate: Arc<G>,
        poll_timeout: Duration,
        clock: Clock,
    ) -> Self {
        let watchers = Arc::new(Semaphore::new(WATCHERS_MAX));
        let reloader = None;
        Self { partitions, ledger, store, gate, reloader, poll_timeout, watchers, clock }
    }

    /// Answers `Reload` with what `reloader` does.
    pub fn reloading(self, reloader: Arc<dyn Reloader>) -> Self {
        Self { reloader: Some(reloader), ..self }
    }

    fn partition(&self, name: &str) -> Result<&Arc<PartitionHandle>, Status> {
        self.partitions.named(name).ok_or_else(|| {
            let known: Vec<&str> = self.partitions.iter().map(|h| h.info().name.as_str()).collect();
            let known = known.join(", ");
            let text = format!(
                "there is no partition `{name}`: this instance serves {known}, as ListPartitions \
                 shows"
            );
            let facts = [("partition", name)];
            status::error(Code::NotFound, v1::ErrorReason::PartitionUnknown, text, None, &facts)
        })
    }

    fn node(&self, partition: &str, node: &str) -> Result<(&Arc<PartitionHandle>, NodeId), Status> {
        let handle = self.partition(partition)?;
        Ok((handle, node_of(handle, node)?))
    }

    /// The partitions of a name; all of them without one.
    fn partitions(&self, name: &str) -> Result<Vec<Arc<PartitionHandle>>, Status> {
        match name {
            "" => Ok(self.partitions.iter().map(Arc::clone).collect()),
            name => Ok(vec![Arc::clone(self.partition(name)?)]),
        }
    }

    fn node_state(&self, handle: &PartitionHandle, node: NodeId) -> v1::NodeState {
        show::node(handle, node, self.clock.now())
    }

    async fn hurried(&self, handle: &PartitionHandle) -> v1::HurriedPartition {
        let (answered, unanswered) = handle.look(self.clock.now() + self.poll_timeout).await;
        v1::HurriedPartition {
            partition: Some(show::partition(handle, self.clock.now())),
            answered_nodes: show::names(handle, &answered),
            unanswered_nodes: show::names(handle, &unanswered),
        }
    }
}

/// The node of a name; the error says which there are.
fn node_of(handle: &PartitionHandle, node: &str) -> Result<NodeId, Status> {
    handle.node(node).ok_or_else(|| {
        let partition = handle.info().name.as_str();
        let known: Vec<&str> = handle.info().nodes.iter().map(|n| n.name.as_str()).collect();
        let text = format!(
            "partition `{partition}` has no node `{node}`: it has {}, as ListPartitions shows",
            known.join(", ")
        );
        let facts = [("partition", partition), ("node", node)];
        status::error(Code::NotFound, v1::ErrorReason::NodeUnknown, text, None, &facts)
    })
}

/// Why an incarnation is not made the leader's, and what there is instead.
fn not_resolved(
    handle: &PartitionHandle,
    incarnation: Incarnation,
    why: NotResolved,
    there: &str,
) -> Status {
    let (code, node, problem) = match why {
        NotResolved::NobodyLivesIt => (Code::NotFound, None, "no node lives it"),
        NotResolved::InRecovery(node) => {
            (Code::FailedPrecondition, Some(node), "its node is in recovery: promote it first")
        }
        NotResolved::NotSeenLately(node) => {
            let problem = "its node has not answered lately: a word is taken on what answers";
            (Code::FailedPrecondition, Some(node), problem)
        }
    };
    let (partition, incarnation) = (handle.info().name.as_str(), incarnation.to_string());
    let node = node.map_or_else(String::new, |node| show::name(handle, node));
    let text = format!(
        "incarnation {incarnation} is not made the leader of `{partition}`: {problem}. There are: \
         {there}"
    );
    let facts = [("partition", partition), ("node", &node), ("incarnation", &incarnation)];
    status::error(code, v1::ErrorReason::NodeUnknown, text, None, &facts)
}

/// The node a request names, if it names one.
fn named(handle: &PartitionHandle, node: &str) -> Result<Option<NodeId>, Status> {
    if node.is_empty() { Ok(None) } else { node_of(handle, node).map(Some) }
}

#[tonic::async_trait]
impl<G: Gatekeeper> AdminService for Admin<G> {
    type WatchEventsStream = watch::Events;

    async fn list_partitions(
        &self,
        request: Request<v1::ListPartitionsRequest>,
    ) -> Result<Response<v1::ListPartitionsResponse>, Status> {
        let handles = self.partitions(&request.into_inner().partition)?;
        let now = self.clock.now();
        let status = self.store.status();
        let shown = |handle| store::with_alarm(show::partition(handle, now), &status);
        let partitions = handles.iter().map(|handle| shown(handle)).collect();
        Ok(Response::new(v1::ListPartitionsResponse { partitions }))
    }

    async fn list_epochs(
        &self,
        request: Request<v1::ListEpochsRequest>,
    ) -> Result<Response<v1::ListEpochsResponse>, Status> {
        let request = request.into_inner();
        let handle = self.partition(&request.partition)?;
        let limit = match request.limit_count {
            0 => EPOCHS_LISTED,
            count => usize::try_from(count).unwrap_or(usize::MAX),
        };
        if limit > History::EPOCHS_MAX {
            let text = format!("`limit_count` is at most {}", History::EPOCHS_MAX);
            return Err(status::field("limit_count", text));
        }
        let epochs = epochs::list(handle, &self.ledger, limit);
        Ok(Response::new(v1::ListEpochsResponse { epochs }))
    }

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> Result<Response<watch::Events>, Status> {
        let handles = self.partitions(&request.into_inner().partition)?;
        let place = Arc::clone(&self.watchers).try_acquire_owned();
        let place = place.map_err(|_| status::watchers_full(WATCHERS_MAX))?;
        let ledger = Arc::clone(&self.ledger);
        let draining = self.gate.draining();
        let store = Arc::clone(&self.store);
        let events = watch::events(handles, (ledger, store), draining, self.clock, place);
        Ok(Response::new(events))
    }

    async fn announce_failover(
        &self,
        request: Request<v1::AnnounceFailoverRequest>,
    ) -> Result<Response<v1::AnnounceFailoverResponse>, Status> {
        let v1::AnnounceFailoverRequest { partition, node, new_leader_node, source } =
            request.into_inner();
        if source.chars().count() > SOURCE_CHARS_MAX {
            let text = format!("`source` has at most {SOURCE_CHARS_MAX} characters");
            return Err(status::field("source", text));
        }
        if partition.is_empty() && !(node.is_empty() && new_leader_node.is_empty()) {
            let text = "`partition` must be named where `node` or `new_leader_node` is";
            return Err(status::field("partition", text));
        }
        let handles = self.partitions(&partition)?;
        // All is read before anything is done: what is wrong changes nothing.
        let mut announcements = Vec::new();
        for handle in &handles {
            announcements.push(Announcement {
                source: source.clone(),
                node: named(handle, &node)?,
                new_leader: named(handle, &new_leader_node)?,
            });
        }
        for (handle, announcement) in handles.iter().zip(announcements) {
            handle.announced(announcement);
        }
        let hurried = handles.iter().map(|handle| self.hurried(handle));
        let hurried = futures::future::join_all(hurried).await;
        Ok(Response::new(v1::AnnounceFailoverResponse { hurried }))
    }

    async fn resolve_split(
        &self,
        request: Request<v1::ResolveSplitRequest>,
    ) -> Result<Response<v1::ResolveSplitResponse>, Status> {
        let request = request.into_inner();
        let handle = self.partition(&request.partition)?;
        let incarnation = Incarnation::parse(&request.incarnation)
            .map_err(|wrong| status::field("incarnation", wrong.to_string()))?;
        // Judged by what the nodes show now.
        handle.look(self.clock.now() + self.poll_timeout).await;
        let now = self.clock.now();
        let (node, _) = handle.snapshot().may_resolve(incarnation, now).map_err(|why| {
            let there = show::what_is_there(handle, now);
            not_resolved(handle, incarnation, why, &there)
        })?;
        if !handle.resolve(incarnation).await {
            return Err(status::draining());
        }
        Ok(Response::new(v1::ResolveSplitResponse {
            partition: Some(show::partition(handle, self.clock.now())),
            node: show::name(handle, node),
        }))
    }

    async fn resume_node(
        &self,
        request: Request<v1::ResumeNodeRequest>,
    ) -> Result<Response<v1::ResumeNodeResponse>, Status> {
        let request = request.into_inner();
        let (handle, node) = self.node(&request.partition, &request.node)?;
        // Judged by what the node shows now, not by what it showed when it was thrown out.
        handle.look(self.clock.now() + self.poll_timeout).await;
        if !handle.resume(node).await {
            return Err(status::draining());
        }
        let node = Some(self.node_state(handle, node));
        Ok(Response::new(v1::ResumeNodeResponse { node }))
    }

    async fn reload(
        &self,
        _request: Request<v1::ReloadRequest>,
    ) -> Result<Response<v1::ReloadResponse>, Status> {
        operate::reload(self.reloader.as_deref()).await.map(Response::new)
    }

    async fn get_store(
        &self,
        _request: Request<v1::GetStoreRequest>,
    ) -> Result<Response<v1::GetStoreResponse>, Status> {
        let store = Some(store::state(self.store.status(), self.clock.now()));
        Ok(Response::new(v1::GetStoreResponse { store }))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        let request = request.into_inner();
        let (handle, node) = self.node(&request.partition, &request.node)?;
        if !handle.drain(node, !request.undrain).await {
            return Err(status::draining());
        }
        let node = Some(self.node_state(handle, node));
        Ok(Response::new(v1::DrainNodeResponse { node }))
    }
}
