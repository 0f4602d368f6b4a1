//! From the end of a span to who sends it: a queue that is never waited for.
//!
//! A span that ends while the queue is full is dropped and counted. Nothing is sent from here.

use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    Sampler, SdkTracerProvider, Span as SdkSpan, SpanData, SpanProcessor,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::{Semaphore, mpsc};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::labels::{Label, SpanLoss, Word};
use super::spans::{TARGET, TRACE_ID};

/// The name under which all spans are made.
const SCOPE: &str = "tidegate";

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(super) struct SpanLossLabels {
    cause: Word,
}

/// How many spans were sent, and how many were not. Copies count together.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanCounts {
    pub(super) sent: Counter,
    pub(super) lost: Family<SpanLossLabels, Counter>,
}

impl SpanCounts {
    pub(super) fn lose(&self, cause: SpanLoss, count: u64) {
        if count > 0 {
            let labels = SpanLossLabels { cause: Word(cause.word()) };
            self.lost.get_or_create_owned(&labels).inc_by(count);
        }
    }
}

/// Where spans come from: what logs are started with, so that spans are made at all.
#[derive(Debug)]
pub struct SpanSource(SdkTracerProvider);

/// The spans that ended and wait to be sent.
#[derive(Debug)]
pub struct SpanQueue {
    pub(super) ended: mpsc::Receiver<SpanData>,
    pub(super) counts: SpanCounts,
}

/// A source of spans, and the queue of at most `limit` they go through.
pub fn span_queue(limit: usize) -> (SpanSource, SpanQueue) {
    let (sender, ended) = mpsc::channel(limit.clamp(1, Semaphore::MAX_PERMITS));
    let counts = SpanCounts::default();
    let provider = SdkTracerProvider::builder()
        // Who is followed was decided before the span was made.
        .with_sampler(Sampler::AlwaysOn)
        .with_span_processor(Enqueue { sender, counts: counts.clone() })
        .build();
    (SpanSource(provider), SpanQueue { ended, counts })
}

impl SpanQueue {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.ended.len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }
}

impl SpanSource {
    /// What makes spans of `tracing` spans of our target, and of nothing else: events, whatever
    /// they say, stay in the log.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer(SCOPE))
            .with_context_activation(false)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == TARGET))
    }
}

/// Takes each span when it ends.
#[derive(Debug)]
struct Enqueue {
    sender: mpsc::Sender<SpanData>,
    counts: SpanCounts,
}

impl SpanProcessor for Enqueue {
    fn on_start(&self, _span: &mut SdkSpan, _context: &opentelemetry::Context) {}

    fn on_end(&self, mut span: SpanData) {
        span.attributes.retain(|attribute| attribute.key.as_str() != TRACE_ID);
        if self.sender.try_send(span).is_err() {
            self.counts.lose(SpanLoss::QueueFull, 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}
