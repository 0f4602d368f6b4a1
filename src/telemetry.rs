//! What is reported of the service: metrics by resolved handles, events, and spans of some calls.
//!
//! - `labels`, `table`, `partition`, `store`, `config`: the one set of counters, which `/metrics`
//!   shows;
//! - `points`, `export`: the same counters, and spans, sent to a collector over OTLP;
//! - `context`, `sampling`: which calls are followed, decided before a span is made;
//! - `spans`, `span_queue`: what a span carries, and the bounded way it takes when it ends;
//! - `logs`: events on standard error.
//!
//! Every label is of a closed set or a name from the configuration. It decides nothing and keeps
//! nothing of a session. `docs/telemetry.md` lists every metric and span.

mod config;
mod context;
#[cfg(test)]
mod documented;
mod export;
mod labels;
mod logs;
mod partition;
mod points;
mod sampling;
mod span_queue;
mod spans;
mod store;
mod table;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::prometheus_protobuf::{self, prometheus_data_model};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::instant::Instant;

use config::ConfigMetrics;
use labels::Word;
use labels::{ExportEnd, Signal};
use partition::{Families, SeenAt};
use span_queue::SpanCounts;
use store::StoreMetrics;
use table::Table;

pub use config::ReloadEnd;
pub use context::TraceContext;
pub use export::{EndpointError, ExportSettings, Exports};
pub use labels::{
    Admission, Agreement, Answer, Code, Label, Method, PollOutcome, SessionKind, Step, WaitEnd,
};
pub use logs::{LogError, LogFormat, start_logs};
pub use partition::{NodeTelemetry, PartitionTelemetry};
pub use sampling::Sampling;
pub use span_queue::{SpanQueue, SpanSource, span_queue};
pub use spans::{answered, call_span, step_span};
pub use store::StoreFigures;

/// Bounds of durations inside the service, in seconds: from one poll to the longest wait.
const SECONDS: [f64; 15] =
    [0.000_25, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// A gauge that may be unknown, which is `NaN`.
type FloatGauge = Gauge<f64, AtomicU64>;

/// A family of histograms over [`SECONDS`].
type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

fn seconds_histogram() -> Histogram {
    Histogram::new(SECONDS)
}

/// The metrics of one process. Copies report to the same ones.
#[derive(Clone)]
pub struct Telemetry(Arc<Inner>);

struct Inner {
    registry: Registry,
    now: Box<dyn Fn() -> Instant + Send + Sync>,
    families: Families,
    /// Filled in when somebody asks: an age grows by itself.
    seen: Mutex<Vec<SeenAt>>,
    calls: Table<Histogram>,
    call_family: Durations<CallLabels>,
    calls_in_flight: Gauge,
    calls_shed: Counter,
    exports: Family<ExportLabels, Counter>,
    store: StoreMetrics,
    config: ConfigMetrics,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ExportLabels {
    signal: Word,
    outcome: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CallLabels {
    method: Word,
    code: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct BuildLabels {
    version: Word,
}

impl Telemetry {
    /// Metrics that read the time of a report from `now`, the boot-time clock.
    pub fn new(now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self::counting(now, &SpanCounts::default())
    }

    /// As [`Self::new`]; shows also what becomes of the spans of `queue`.
    pub fn with_spans(
        now: impl Fn() -> Instant + Send + Sync + 'static,
        queue: &SpanQueue,
    ) -> Self {
        Self::counting(now, &queue.counts)
    }

    fn counting(now: impl Fn() -> Instant + Send + Sync + 'static, spans: &SpanCounts) -> Self {
        let mut registry = Registry::with_prefix("tidegate");
        let build = BuildLabels { version: Word(env!("CARGO_PKG_VERSION")) };
        registry.register("build", "The version of this process", Info::new(build));
        let families = Families::register(&mut registry);
        let call_family: Durations<CallLabels> =
            Family::new_with_constructor(seconds_histogram as fn() -> Histogram);
        registry.register_with_unit(
            "call_duration",
            "Time from a call to its answer; for a stream, to its beginning",
            Unit::Seconds,
            call_family.clone(),
        );
        let calls_in_flight = Gauge::default();
        registry.register(
            "calls_in_flight",
            "Calls without an answer yet, waits included; a stream counts until it begins",
            calls_in_flight.clone(),
        );
        let calls_shed = Counter::default();
        registry.register(
            "calls_shed",
            "Calls refused because limits.calls_in_flight were in progress",
            calls_shed.clone(),
        );
        let exports = register_exports(&mut registry, spans);
        let store = StoreMetrics::register(&mut registry);
        let config = ConfigMetrics::register(&mut registry);
        Self(Arc::new(Inner {
            registry,
            now: Box::new(now),
            families,
            seen: Mutex::new(Vec::new()),
            calls: Table::new(Method::ALL.len() * Code::ALL.len()),
            call_family,
            calls_in_flight,
            calls_shed,
            exports,
            store,
            config,
        }))
    }

    /// The metrics of one partition. Ask once and keep it.
    pub fn partition(&self, name: &str) -> PartitionTelemetry {
        PartitionTelemetry::new(self.clone(), name)
    }

    /// Counts a call that was answered, `took` after it came.
    pub fn called(&self, method: Method, code: Code, took: Duration) {
        let inner = &self.0;
        let cell = table::cell(method, code);
        let histogram = inner.calls.resolve(cell, || {
            let labels = CallLabels { method: Word(method.word()), code: Word(code.word()) };
            inner.call_family.get_or_create_owned(&labels)
        });
        histogram.observe(took.as_secs_f64());
    }

    /// Counts a call that was refused because too many were in progress.
    pub fn shed(&self) {
        self.0.calls_shed.inc();
    }

    /// Counts a call as in progress until what it returns is dropped.
    pub fn call_begun(&self) -> CallInProgress {
        self.0.calls_in_flight.inc();
        CallInProgress(self.0.calls_in_flight.clone())
    }

    /// Counts one export.
    fn exported(&self, signal: Signal, end: ExportEnd) {
        let labels = ExportLabels { signal: Word(signal.word()), outcome: Word(end.word()) };
        self.0.exports.get_or_create_owned(&labels).inc();
    }

    /// Shows what `source` says of the token store whenever somebody asks for metrics.
    pub fn store(&self, source: impl Fn() -> StoreFigures + Send + Sync + 'static) {
        self.0.store.read_from(Box::new(source));
    }

    /// The configuration in force was read at `wall_seconds` since 1970.
    pub fn config_loaded(&self, wall_seconds: u64) {
        self.0.config.loaded(wall_seconds);
    }

    /// Counts a configuration that was read again.
    pub fn config_reloaded(&self, end: ReloadEnd) {
        self.0.config.reloaded(end);
    }

    /// Sets what grows by itself or is kept elsewhere.
    fn age(&self) {
        self.0.store.report();
        let now = (self.0.now)();
        for seen in self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            seen.report(now);
        }
    }

    /// Every metric, for whoever writes it in a form of their own.
    fn families(&self) -> Option<Vec<prometheus_data_model::MetricFamily>> {
        self.age();
        let families = prometheus_protobuf::encode(&self.0.registry);
        families.inspect_err(|_| tracing::warn!("the metrics could not be read")).ok()
    }

    /// Every metric as OpenMetrics text.
    pub fn encode(&self) -> String {
        self.age();
        let mut text = String::new();
        // Writing to a string cannot fail; a metric that cannot be written ends the report early.
        if text::encode(&mut text, &self.0.registry).is_err() {
            tracing::warn!("the metrics could not be written to their end");
        }
        text
    }
}

/// Registers what is told of the telemetry itself.
fn register_exports(registry: &mut Registry, spans: &SpanCounts) -> Family<ExportLabels, Counter> {
    let exports = Family::default();
    registry.register(
        "exports",
        "Exports to the collector by what was sent and what became of it",
        exports.clone(),
    );
    registry.register(
        "spans_sent",
        "Spans of followed calls that the collector took",
        spans.sent.clone(),
    );
    registry.register(
        "spans_lost",
        "Spans of followed calls that never reached the collector, by cause",
        spans.lost.clone(),
    );
    exports
}

/// One call in progress.
#[derive(Debug)]
pub struct CallInProgress(Gauge);

impl Drop for CallInProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::routing::Reason;
    use tidegate_core::token::NoticeKind;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn telemetry() -> Telemetry {
        Telemetry::new(|| at(100))
    }

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|other| other == line), "no line {line} in\n{text}");
    }

    #[test]
    fn what_never_happened_is_not_reported() {
        let telemetry = telemetry();
        telemetry.partition("main");
        let text = telemetry.encode();
        assert!(!text.contains("tidegate_selects_total{"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        has(&text, "tidegate_calls_shed_total 0");
        has(&text, "tidegate_parked_waits{partition=\"main\"} 0");
        has(&text, "tidegate_beside_other_instances{partition=\"main\"} 0");
    }

    #[test]
    fn a_node_never_seen_has_no_age_and_no_lag() {
        let telemetry = telemetry();
        let node = telemetry.partition("main").node("pg-1");
        let labels = "{partition=\"main\",node=\"pg-1\"}";
        let text = telemetry.encode();
        for name in ["view_age_seconds", "replica_lag_bytes", "replica_lag_seconds"] {
            has(&text, &format!("tidegate_{name}{labels} NaN"));
        }
        node.seen(at(97));
        node.lag(Some(4096), Some(Duration::from_millis(1500)));
        let text = telemetry.encode();
        has(&text, &format!("tidegate_view_age_seconds{labels} 3.0"));
        has(&text, &format!("tidegate_replica_lag_bytes{labels} 4096.0"));
        has(&text, &format!("tidegate_replica_lag_seconds{labels} 1.5"));
    }

    #[test]
    fn fallbacks_are_told_from_reads_the_policy_sends_to_the_leader() {
        let telemetry = telemetry();
        let main = telemetry.partition("main");
        main.select(Answer::Leader, Reason::LeaderFallback, SessionKind::Token);
        main.select(Answer::Leader, Reason::LeaderByPolicy, SessionKind::None);
        main.select(Answer::Leader, Reason::LeaderByPolicy, SessionKind::None);
        main.select(Answer::Stale, Reason::StaleByPolicy, SessionKind::Subject);
        let text = telemetry.encode();
        for (labels, count) in [
            ("answer=\"leader\",reason=\"leader_fallback\"", 1),
            ("answer=\"leader\",reason=\"leader_by_policy\"", 2),
            ("answer=\"stale\",reason=\"stale_by_policy\"", 1),
        ] {
            has(&text, &format!("tidegate_selects_total{{partition=\"main\",{labels}}} {count}"));
        }
        let none = "{partition=\"main\",session=\"none\"} 2";
        has(&text, &format!("tidegate_read_sessions_total{none}"));
    }

    #[test]
    fn every_answer_and_reason_has_a_series_of_its_own() {
        let telemetry = telemetry();
        let main = telemetry.partition("main");
        for answer in Answer::ALL {
            for reason in Reason::ALL {
                main.select(*answer, *reason, SessionKind::Token);
            }
        }
        let text = telemetry.encode();
        let series = text.lines().filter(|line| line.starts_with("tidegate_selects_total{"));
        let series: Vec<_> = series.collect();
        assert_eq!(series.len(), Answer::ALL.len() * Reason::ALL.len());
        assert!(series.iter().all(|line| line.ends_with(" 1")), "{series:?}");
    }

    #[test]
    fn waits_caps_polls_and_calls_are_counted() {
        let telemetry = telemetry();
        let main = telemetry.partition("main");
        main.wait(WaitEnd::TimedOut, Duration::from_millis(50));
        main.fallback(Admission::Admitted);
        main.fallback(Admission::Refused);
        main.cap_in_force(100);
        main.node("pg-1").polled(PollOutcome::TimedOut);
        telemetry.called(Method::SelectReplica, Code::OK, Duration::from_millis(1));
        telemetry.called(Method::Other, Code::new(12), Duration::ZERO);
        telemetry.shed();
        main.parked(3);
        let call = telemetry.call_begun();
        drop(telemetry.call_begun());
        let text = telemetry.encode();
        for line in [
            "tidegate_wait_duration_seconds_count{partition=\"main\",end=\"timed_out\"} 1",
            "tidegate_fallbacks_total{partition=\"main\",verdict=\"admitted\"} 1",
            "tidegate_fallbacks_total{partition=\"main\",verdict=\"refused\"} 1",
            "tidegate_fallback_cap_reads_per_second{partition=\"main\"} 100",
            "tidegate_polls_total{partition=\"main\",node=\"pg-1\",outcome=\"timed_out\"} 1",
            "tidegate_call_duration_seconds_count{method=\"SelectReplica\",code=\"OK\"} 1",
            "tidegate_call_duration_seconds_count{method=\"Other\",code=\"UNIMPLEMENTED\"} 1",
            "tidegate_calls_shed_total 1",
            "tidegate_calls_in_flight 1",
            "tidegate_parked_waits{partition=\"main\"} 3",
            concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ] {
            has(&text, line);
        }
        drop(call);
        has(&telemetry.encode(), "tidegate_calls_in_flight 0");
    }

    #[test]
    fn failovers_and_what_they_cost_are_counted() {
        let telemetry = telemetry();
        let main = telemetry.partition("main");
        let node = main.node("pg-1");
        let text = telemetry.encode();
        // An alert must find these before anything is wrong.
        for name in ["crossed_answers_total", "node_regressions_total", "node_beside_leader"] {
            let zero = |line: &str| line.starts_with(&format!("tidegate_{name}{{"));
            assert!(text.lines().any(|line| zero(line) && line.ends_with(" 0")), "{name}: {text}");
        }
        main.lost(NoticeKind::WriteLost);
        main.lost(NoticeKind::WriteLost);
        main.lost(NoticeKind::PossiblyLost);
        main.crossed();
        main.compared(Agreement::Fits);
        node.went_back();
        node.beside_leader(true);
        let text = telemetry.encode();
        for line in [
            "tidegate_losses_total{partition=\"main\",kind=\"write_lost\"} 2",
            "tidegate_losses_total{partition=\"main\",kind=\"possibly_lost\"} 1",
            "tidegate_crossed_answers_total{partition=\"main\"} 1",
            "tidegate_timeline_ends_total{partition=\"main\",agreement=\"fits\"} 1",
            "tidegate_node_regressions_total{partition=\"main\",node=\"pg-1\"} 1",
            "tidegate_node_beside_leader{partition=\"main\",node=\"pg-1\"} 1",
        ] {
            has(&text, line);
        }
        node.beside_leader(false);
        let line = "tidegate_node_beside_leader{partition=\"main\",node=\"pg-1\"} 0";
        has(&telemetry.encode(), line);
    }

    #[test]
    fn two_handles_of_one_partition_count_together() {
        let telemetry = telemetry();
        for _ in 0..2 {
            telemetry.partition("main").fallback(Admission::Admitted);
        }
        let line = "tidegate_fallbacks_total{partition=\"main\",verdict=\"admitted\"} 2";
        has(&telemetry.encode(), line);
    }
}
