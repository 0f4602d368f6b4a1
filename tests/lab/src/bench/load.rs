//! Loads: as many calls as fit into a time, with so many in flight. Judges no server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::Stream;
use futures::future::try_join_all;
use futures::task::AtomicWaker;
use tidegate_proto::v1;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tonic::transport::Channel;

use super::spread::percentile;
use super::usage;

/// A client on a connection of its own.
pub(super) type Client = RoutingServiceClient<Channel>;

/// Builds the next request.
pub(super) type Requests = Arc<dyn Fn() -> v1::SelectReplicaRequest + Send + Sync>;

/// What one server did in one span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// Answers a second.
    pub(super) per_second: f64,
    /// Processor time of the server for each, in microseconds.
    pub(super) server_us: f64,
    /// Processor time of this process for each, in microseconds.
    pub(super) client_us: f64,
    /// Half of the answers came within this, in microseconds.
    pub(super) p50_us: f64,
    /// All but one in a hundred did.
    pub(super) p99_us: f64,
}

/// Connects so many times.
///
/// # Errors
/// When the server is not reached.
pub(super) async fn connect(endpoint: &str, connections: usize) -> Result<Vec<Client>> {
    let connect = || Client::connect(endpoint.to_owned());
    let clients = try_join_all(std::iter::repeat_with(connect).take(connections)).await;
    clients.with_context(|| format!("{endpoint} is not reached"))
}

/// Fails unless a replica was named that has everything: a benchmark of refusals shows nothing.
fn check(answer: &v1::SelectReplicaResponse) -> Result<()> {
    if answer.reason() == v1::Reason::Covered {
        return Ok(());
    }
    bail!("not the answer that is measured: {answer:?}")
}

/// What was counted while a load ran.
#[derive(Debug, Default)]
struct Counted {
    answers: u64,
    nanos: Vec<u64>,
}

impl Counted {
    fn note(&mut self, since: Instant, now: Instant) {
        self.answers += 1;
        self.nanos.push(u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Unary calls, `in_flight` at once over all connections.
///
/// # Errors
/// When a call fails, or is not answered as it should be.
pub(super) async fn unary(
    clients: &[Client],
    in_flight: usize,
    span: Duration,
    requests: &Requests,
    pid: u32,
) -> Result<Done> {
    let callers = clients.iter().cycle().take(in_flight);
    measured(span, pid, |until| {
        callers.map(move |client| tokio::spawn(call(client.clone(), Arc::clone(requests), until)))
    })
    .await
}

async fn call(mut client: Client, requests: Requests, until: Instant) -> Result<Counted> {
    let mut counted = Counted::default();
    let mut since = Instant::now();
    while since < until {
        check(client.select_replica(requests()).await?.get_ref())?;
        let now = Instant::now();
        counted.note(since, now);
        since = now;
    }
    Ok(counted)
}

/// `Route` streams, one a client, each with so many selects in flight.
///
/// # Errors
/// When a stream fails, or a select is not answered as it should be.
pub(super) async fn streams(
    clients: &[Client],
    window: usize,
    span: Duration,
    requests: &Requests,
    pid: u32,
) -> Result<Done> {
    measured(span, pid, |until| {
        clients.iter().map(move |client| {
            tokio::spawn(stream(client.clone(), window, Arc::clone(requests), until))
        })
    })
    .await
}

async fn stream(
    mut client: Client,
    window: usize,
    requests: Requests,
    until: Instant,
) -> Result<Counted> {
    let shared = Arc::new(Shared::new(window));
    let asks = Asks { shared: Arc::clone(&shared), requests };
    let mut answers = client.route(asks).await?.into_inner();
    let mut counted = Counted::default();
    while let Some(answer) = answers.message().await? {
        match &answer.frame {
            Some(Answer::Select(select)) => check(select)?,
            other => bail!("not the answer that is measured: {other:?}"),
        }
        let now = Instant::now();
        counted.note(shared.sent_at(answer.correlation), now);
        if now >= until {
            shared.ended.store(true, Ordering::Relaxed);
        }
        shared.free();
    }
    Ok(counted)
}

/// What the asking and the listening end of one stream share.
struct Shared {
    epoch: Instant,
    window: usize,
    in_flight: AtomicUsize,
    asked: AtomicU64,
    /// When each call in flight was sent, by its correlation, in nanoseconds.
    sent: Box<[AtomicU64]>,
    ended: AtomicBool,
    room: AtomicWaker,
}

impl Shared {
    fn new(window: usize) -> Self {
        // Answers come in any order: with room for many windows no two calls share a place.
        let sent = std::iter::repeat_with(AtomicU64::default).take(window * 64).collect();
        Self {
            epoch: Instant::now(),
            window,
            in_flight: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            sent,
            ended: AtomicBool::new(false),
            room: AtomicWaker::new(),
        }
    }

    fn place(&self, correlation: u64) -> &AtomicU64 {
        let places = self.sent.len() as u64;
        &self.sent[usize::try_from(correlation % places).unwrap_or(0)]
    }

    fn sent_at(&self, correlation: u64) -> Instant {
        self.epoch + Duration::from_nanos(self.place(correlation).load(Ordering::Relaxed))
    }

    fn free(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.room.wake();
    }
}

/// The asking end: a call as soon as the window has room.
struct Asks {
    shared: Arc<Shared>,
    requests: Requests,
}

impl Stream for Asks {
    type Item = v1::RouteRequest;

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<v1::RouteRequest>> {
        let shared = &self.shared;
        let has_room = || shared.in_flight.load(Ordering::Acquire) < shared.window;
        if !has_room() {
            shared.room.register(context.waker());
            if !has_room() {
                return Poll::Pending;
            }
        }
        if shared.ended.load(Ordering::Relaxed) {
            return Poll::Ready(None);
        }
        shared.in_flight.fetch_add(1, Ordering::AcqRel);
        let correlation = shared.asked.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(shared.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        shared.place(correlation).store(nanos, Ordering::Relaxed);
        let frame = Some(Ask::Select((self.requests)()));
        Poll::Ready(Some(v1::RouteRequest { correlation, frame }))
    }
}

/// Runs callers for a while and says what they and the server made of it.
async fn measured<Callers>(
    span: Duration,
    pid: u32,
    start: impl FnOnce(Instant) -> Callers,
) -> Result<Done>
where
    Callers: Iterator<Item = tokio::task::JoinHandle<Result<Counted>>>,
{
    let own = std::process::id();
    let (server, client) = (usage::cpu(pid)?, usage::cpu(own)?);
    let begun = Instant::now();
    let running: Vec<_> = start(begun + span).collect();
    let (mut answers, mut nanos) = (0, Vec::new());
    for counted in try_join_all(running).await? {
        let counted = counted?;
        answers += counted.answers;
        nanos.extend(counted.nanos);
    }
    let took = begun.elapsed().as_secs_f64();
    let (server, client) = (usage::cpu(pid)? - server, usage::cpu(own)? - client);
    nanos.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "no span has 2^53 answers or nanoseconds")]
    let (answers, p50, p99) =
        (answers as f64, percentile(&nanos, 50) as f64, percentile(&nanos, 99) as f64);
    Ok(Done {
        per_second: answers / took,
        server_us: server.as_secs_f64() * 1e6 / answers,
        client_us: client.as_secs_f64() * 1e6 / answers,
        p50_us: p50 / 1e3,
        p99_us: p99 / 1e3,
    })
}
