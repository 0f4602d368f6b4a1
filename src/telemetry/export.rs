//! Sends spans and metrics to a collector over OTLP, beside the calls and never in their way.
//!
//! Nobody waits for it: spans come through a bounded queue, metrics are read when their time has
//! come. An export that fails is told once and counted; spans are tried a few times, and metrics
//! are not kept, since the next ones say everything again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client as metrics_client;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use opentelemetry_sdk::trace::SpanData;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use tracing::{info, warn};

use super::Telemetry;
use super::labels::{ExportEnd, Label, Signal, SpanLoss};
use super::points::{self, attribute};
use super::span_queue::SpanQueue;

/// Spans of one request: some 300 kB.
const BATCH: usize = 512;
/// Time a span waits for others to be sent with.
const GATHER: Duration = Duration::from_millis(500);
/// Times one batch is tried, and the pause after the first time; it doubles.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Silence after which a collector is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Where to send, how often, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct ExportSettings {
    /// The collector, as `http://host:port`.
    pub endpoint: String,
    /// Time between two exports of metrics.
    pub interval: Duration,
    /// Time one export may take.
    pub timeout: Duration,
    /// Time the last exports have together.
    pub flush_limit: Duration,
    /// Who this is, as attributes.
    pub resource: Vec<(String, String)>,
}

/// The address is no URI.
#[derive(Debug, Error)]
#[error("`telemetry.otlp_endpoint`: {0}")]
pub struct EndpointError(#[from] tonic::transport::Error);

/// The exports of one instance, until they are ended.
#[derive(Debug)]
pub struct Exports {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Exports {
    /// Begins to send metrics, and the spans of `queue`. `wall` reads nanoseconds since 1970.
    ///
    /// # Errors
    /// [`EndpointError`]. A collector that does not answer is none: it may come later.
    pub fn begin(
        settings: ExportSettings,
        telemetry: &Telemetry,
        queue: Option<SpanQueue>,
        wall: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self, EndpointError> {
        let channel = Endpoint::from_shared(settings.endpoint.clone())?
            .connect_timeout(settings.timeout)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(settings.timeout)
            .keep_alive_while_idle(true)
            .connect_lazy();
        let resource = Resource {
            attributes: settings.resource.iter().map(|(k, v)| attribute(k, v)).collect(),
            ..Resource::default()
        };
        let stop = CancellationToken::new();
        let sender = |signal| Sender {
            signal,
            timeout: settings.timeout,
            telemetry: telemetry.clone(),
            in_trouble: false,
        };
        let flush_limit = settings.flush_limit;
        let metrics = Metrics {
            client: metrics_client::MetricsServiceClient::new(channel.clone()),
            sender: sender(Signal::Metrics),
            interval: settings.interval,
            since: wall(),
            wall: Arc::new(wall),
            resource: resource.clone(),
        };
        let mut tasks = vec![tokio::spawn(metrics.run(stop.clone(), flush_limit))];
        if let Some(queue) = queue {
            let spans = Spans {
                client: TraceServiceClient::new(channel),
                sender: sender(Signal::Spans),
                queue,
                batch: Vec::with_capacity(BATCH),
                resource,
            };
            tasks.push(tokio::spawn(spans.run(stop.clone(), flush_limit)));
        }
        Ok(Self { stop, tasks })
    }

    /// Sends what is left, within the flush limit.
    pub async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            if task.await.is_err() {
                warn!("an export ended early");
            }
        }
    }
}

/// What both kinds of export have in common: a limit, a count, and one line for each trouble.
struct Sender {
    signal: Signal,
    timeout: Duration,
    telemetry: Telemetry,
    in_trouble: bool,
}

impl Sender {
    /// Waits for one export; `Err`: whether to try it again.
    async fn send<A>(
        &mut self,
        export: impl Future<Output = Result<Response<A>, Status>>,
    ) -> Result<A, bool> {
        let (end, why, again) = match timeout(self.timeout, export).await {
            Ok(Ok(answer)) => {
                self.telemetry.exported(self.signal, ExportEnd::Taken);
                if std::mem::take(&mut self.in_trouble) {
                    info!(signal = self.signal.word(), "the collector takes exports again");
                }
                return Ok(answer.into_inner());
            }
            Ok(Err(status)) => {
                (ExportEnd::Failed, status.message().to_owned(), is_transient(status.code()))
            }
            Err(_) => (ExportEnd::TimedOut, format!("no answer in {:?}", self.timeout), true),
        };
        self.telemetry.exported(self.signal, end);
        if !std::mem::replace(&mut self.in_trouble, true) {
            warn!(signal = self.signal.word(), error = why, "the collector takes no exports");
        }
        Err(again)
    }
}

/// Whether the same export may succeed later.
fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}

struct Metrics {
    client: metrics_client::MetricsServiceClient<Channel>,
    sender: Sender,
    interval: Duration,
    since: u64,
    wall: Arc<dyn Fn() -> u64 + Send + Sync>,
    resource: Resource,
}

impl Metrics {
    async fn run(mut self, stop: CancellationToken, flush_limit: Duration) {
        while stop.run_until_cancelled(sleep(self.interval)).await.is_some() {
            // One that is under way when the end comes is left for the last one.
            if stop.run_until_cancelled(self.export()).await.is_none() {
                break;
            }
        }
        if timeout(flush_limit, self.export()).await.is_err() {
            warn!(?flush_limit, "the last metrics were not sent in time");
        }
    }

    async fn export(&mut self) {
        let Some(families) = self.sender.telemetry.families() else { return };
        let span = points::Span { since: self.since, at: (self.wall)() };
        for request in points::requests(&families, span, &self.resource) {
            if self.sender.send(self.client.export(request)).await.is_err() {
                return;
            }
        }
    }
}

struct Spans {
    client: TraceServiceClient<Channel>,
    sender: Sender,
    queue: SpanQueue,
    /// Taken from the queue and not sent yet.
    batch: Vec<SpanData>,
    resource: Resource,
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spans({} to send)", self.batch.len())
    }
}

impl Spans {
    async fn run(mut self, stop: CancellationToken, flush_limit: Duration) {
        loop {
            // What was under way when the end comes stays in the batch.
            let turn = async {
                self.gather().await;
                self.send().await;
            };
            if stop.run_until_cancelled(turn).await.is_none() {
                break;
            }
        }
        let flush = async {
            while self.take() {
                self.send().await;
            }
        };
        let in_time = timeout(flush_limit, flush).await.is_ok();
        let left = self.batch.len() + self.queue.ended.len();
        if !in_time && left > 0 {
            warn!(?flush_limit, spans = left, "the last spans were not sent in time");
            self.queue.counts.lose(SpanLoss::Shutdown, left as u64);
        }
    }

    /// Waits for a span and a little longer for others.
    async fn gather(&mut self) {
        let Self { queue, batch, .. } = self;
        if batch.is_empty() {
            queue.ended.recv_many(batch, BATCH).await;
        }
        let others = async {
            while batch.len() < BATCH {
                let room = BATCH - batch.len();
                if queue.ended.recv_many(batch, room).await == 0 {
                    return;
                }
            }
        };
        // Whoever comes later goes with the next batch.
        _ = timeout(GATHER, others).await;
    }

    /// Takes what is there; `false`: there is nothing to send.
    fn take(&mut self) -> bool {
        while self.batch.len() < BATCH
            && let Ok(span) = self.queue.ended.try_recv()
        {
            self.batch.push(span);
        }
        !self.batch.is_empty()
    }

    /// Sends the batch, or loses it.
    async fn send(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let (counts, count) = (self.queue.counts.clone(), self.batch.len() as u64);
        let request = self.request();
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            match self.sender.send(self.client.export(request.clone())).await {
                Ok(answer) => {
                    let refused = answer.partial_success.map_or(0, |part| part.rejected_spans);
                    let refused = u64::try_from(refused).unwrap_or(0).min(count);
                    counts.lose(SpanLoss::Refused, refused);
                    counts.sent.inc_by(count - refused);
                    self.batch.clear();
                    return;
                }
                Err(true) if attempt < ATTEMPTS => sleep(pause).await,
                Err(_) => break,
            }
            pause *= 2;
        }
        counts.lose(SpanLoss::Failed, count);
        self.batch.clear();
    }

    fn request(&self) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope { name: "tidegate".to_owned(), ..Default::default() };
        let spans = self.batch.iter().map(|span| span.clone().into()).collect();
        let scope_spans = ScopeSpans { scope: Some(scope), spans, ..Default::default() };
        let resource_spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope_spans],
            ..Default::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![resource_spans] }
    }
}
