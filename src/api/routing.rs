//! `RoutingService`, unary: parse, ask the rooms, build the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::Stream;
use tidegate_core::instant::Instant;
use tidegate_proto::v1;
use tidegate_proto::v1::routing_service_server::RoutingService;
use tonic::{Request, Response, Status, Streaming};

use super::{build, count, parse, route, status};
use crate::clock::Deadline;
use crate::reads::policies::ReadPolicy;
use crate::reads::{Caller, ReadError, Reads, SelectAsked, Selected};
use crate::sessions::TokenStore;
use crate::sessions::{SessionState, parse_notice_id};
use crate::telemetry::SessionKind;

/// Ids one acknowledgement may name.
const IDS_MAX: usize = 16;

/// The bounds of the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApiLimits {
    /// Evidence strings a request may carry.
    pub evidence_max: usize,
    /// `Route` streams open at once.
    pub streams_max: usize,
    /// Frames of one stream that wait for their answers.
    pub frames_max: usize,
}

/// Whether calls are taken now.
pub trait Gatekeeper: Send + Sync + 'static {
    /// Says why not, if not.
    ///
    /// # Errors
    /// The status a call ends with.
    fn admit(&self) -> Result<(), Status>;

    /// Ends when the instance shuts down.
    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Answers `RoutingService`. Clones answer alike.
#[derive(Debug)]
pub struct Routing<S, G> {
    pub(super) reads: Arc<Reads<S>>,
    pub(super) gate: Arc<G>,
    pub(super) limits: ApiLimits,
    pub(super) streams: Arc<AtomicUsize>,
}

impl<S, G> Clone for Routing<S, G> {
    fn clone(&self) -> Self {
        Self {
            reads: Arc::clone(&self.reads),
            gate: Arc::clone(&self.gate),
            limits: self.limits,
            streams: Arc::clone(&self.streams),
        }
    }
}

/// One read, as it was asked for.
pub(super) struct Select {
    caller: Caller,
    asked: SelectAsked,
    /// What it brought to say whose session it is.
    brought: SessionKind,
}

impl<S: TokenStore, G: Gatekeeper> Routing<S, G> {
    /// Answers with these reads, while `gate` admits calls.
    pub fn new(reads: Arc<Reads<S>>, gate: Arc<G>, limits: ApiLimits) -> Self {
        Self { reads, gate, limits, streams: Arc::new(AtomicUsize::new(0)) }
    }

    /// One read.
    async fn select_one(
        &self,
        request: v1::SelectReplicaRequest,
        deadline: Option<Instant>,
    ) -> Result<v1::SelectReplicaResponse, Status> {
        let select = self.asked(request, deadline)?;
        match self.select_at_once(&select) {
            Some(selected) => selected,
            // Boxed: few need it, and a call is moved about as large as it may get.
            None => Box::pin(self.select_later(select)).await,
        }
    }

    /// What a read asks for.
    pub(super) fn asked(
        &self,
        request: v1::SelectReplicaRequest,
        deadline: Option<Instant>,
    ) -> Result<Select, Status> {
        let caller = parse::caller(request.session, self.limits.evidence_max)?;
        let ReadPolicy { policy, raise, loss_is_error } =
            parse::policy(request.policy, request.zone, self.reads.policies())?;
        let asked = SelectAsked {
            partition: request.partition,
            policy,
            raise,
            loss_is_error,
            previous: request.previous_node,
            shadow: request.shadow_node,
            deadline,
        };
        Ok(Select { brought: count::brought(&caller), caller, asked })
    }

    /// The answer to a read that needs to wait for nothing; `None`: ask [`Self::select_later`].
    pub(super) fn select_at_once(
        &self,
        select: &Select,
    ) -> Option<Result<v1::SelectReplicaResponse, Status>> {
        let selected = self.reads.select_at_once(&select.caller, &select.asked)?;
        Some(self.selected(&select.asked.partition, selected, select.brought))
    }

    /// The answer to any read.
    pub(super) async fn select_later(
        &self,
        select: Select,
    ) -> Result<v1::SelectReplicaResponse, Status> {
        let Select { caller, asked, brought } = select;
        let partition = asked.partition.clone();
        let selected = self.reads.select(caller, asked).await;
        self.selected(&partition, selected, brought)
    }

    fn selected(
        &self,
        partition: &str,
        selected: Result<Selected, ReadError>,
        brought: SessionKind,
    ) -> Result<v1::SelectReplicaResponse, Status> {
        let selected = selected.map_err(|e| status::of_read(&e))?;
        let partitions = self.reads.partitions();
        match partitions.named(partition) {
            Some(handle) => {
                count::select(handle.telemetry(), &selected, brought);
                Ok(build::select(partitions, handle, selected))
            }
            None => Err(status::internal("a partition vanished")),
        }
    }

    /// One wait.
    pub(super) async fn wait_one(
        &self,
        request: v1::WaitUntilFreshRequest,
        deadline: Option<Instant>,
    ) -> Result<v1::WaitUntilFreshResponse, Status> {
        let caller = parse::caller(request.session, self.limits.evidence_max)?;
        let brought = count::brought(&caller);
        let (target, budget) = parse::wait(request.target, request.budget)?;
        let name = &request.partition;
        let waited = self.reads.wait(caller, name, target, budget, deadline).await;
        let waited = waited.map_err(|e| status::of_read(&e))?;
        let partitions = self.reads.partitions();
        match partitions.named(name) {
            Some(handle) => {
                count::wait(handle.telemetry(), &waited, brought);
                Ok(build::wait(partitions, handle, waited))
            }
            None => Err(status::internal("a partition vanished")),
        }
    }

    /// One record.
    pub(super) async fn record_one(
        &self,
        request: v1::RecordRequest,
        deadline: Option<Instant>,
    ) -> Result<v1::RecordResponse, Status> {
        let mut caller = parse::caller(request.session, self.limits.evidence_max)?;
        let observed = parse::observed(request.observed, request.before, &mut caller)?;
        let raise = parse::raise(request.raise)?;
        let recorded =
            self.reads.record(caller, &request.partition, observed, raise, deadline).await;
        let recorded = recorded.map_err(|e| status::of_read(&e))?;
        Ok(build::record(self.reads.partitions(), recorded))
    }
}

fn deadline<T>(request: &Request<T>) -> Option<Instant> {
    request.extensions().get::<Deadline>().map(|deadline| deadline.0)
}

#[tonic::async_trait]
impl<S: TokenStore, G: Gatekeeper> RoutingService for Routing<S, G> {
    async fn select_replica(
        &self,
        request: Request<v1::SelectReplicaRequest>,
    ) -> Result<Response<v1::SelectReplicaResponse>, Status> {
        self.gate.admit()?;
        let deadline = deadline(&request);
        self.select_one(request.into_inner(), deadline).await.map(Response::new)
    }

    async fn wait_until_fresh(
        &self,
        request: Request<v1::WaitUntilFreshRequest>,
    ) -> Result<Response<v1::WaitUntilFreshResponse>, Status> {
        self.gate.admit()?;
        let deadline = deadline(&request);
        self.wait_one(request.into_inner(), deadline).await.map(Response::new)
    }

    async fn record(
        &self,
        request: Request<v1::RecordRequest>,
    ) -> Result<Response<v1::RecordResponse>, Status> {
        self.gate.admit()?;
        let deadline = deadline(&request);
        self.record_one(request.into_inner(), deadline).await.map(Response::new)
    }

    async fn resolve_session(
        &self,
        request: Request<v1::ResolveSessionRequest>,
    ) -> Result<Response<v1::ResolveSessionResponse>, Status> {
        use v1::resolve_session_response::State;
        self.gate.admit()?;
        let caller = parse::caller(request.into_inner().session, self.limits.evidence_max)?;
        let resolved = self.reads.resolve(caller).await.map_err(|e| status::of_read(&e))?;
        let state = match resolved.state {
            SessionState::None => State::None,
            SessionState::Known => State::Known,
            SessionState::Unknown => State::Unknown,
        };
        Ok(Response::new(v1::ResolveSessionResponse {
            state: state.into(),
            token: resolved.token,
            notices: build::notices(self.reads.partitions(), &resolved.notices),
        }))
    }

    async fn acknowledge_notices(
        &self,
        request: Request<v1::AcknowledgeNoticesRequest>,
    ) -> Result<Response<v1::AcknowledgeNoticesResponse>, Status> {
        self.gate.admit()?;
        let request = request.into_inner();
        if request.ids.is_empty() || request.ids.len() > IDS_MAX {
            let text = format!("`ids` names 1 to {IDS_MAX} notices: pass each `Notice.id` told");
            return Err(status::field("ids", text));
        }
        let id = |text: &String| {
            parse_notice_id(text).ok_or_else(|| {
                status::field("ids", format!("`{text}` is no notice id: pass `Notice.id` as it is"))
            })
        };
        let ids = request.ids.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        let caller = parse::caller(request.session, self.limits.evidence_max)?;
        let token = self.reads.acknowledge(caller, &ids).await;
        let token = token.map_err(|e| status::of_read(&e))?;
        Ok(Response::new(v1::AcknowledgeNoticesResponse { token }))
    }

    type RouteStream = Pin<Box<dyn Stream<Item = Result<v1::RouteResponse, Status>> + Send>>;

    async fn route(
        &self,
        request: Request<Streaming<v1::RouteRequest>>,
    ) -> Result<Response<Self::RouteStream>, Status> {
        self.gate.admit()?;
        let open = self.streams.fetch_add(1, Ordering::Relaxed);
        let place = StreamPlace(Arc::clone(&self.streams));
        if open >= self.limits.streams_max {
            return Err(status::streams_full(self.limits.streams_max));
        }
        let answers = route::serve(self.clone(), request.into_inner(), place);
        Ok(Response::new(Box::pin(answers)))
    }
}

/// The place of one open stream; free again when dropped.
#[derive(Debug)]
pub(super) struct StreamPlace(Arc<AtomicUsize>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
