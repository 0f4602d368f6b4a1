//! The spans of followed calls: how they are called, and what they carry.
//!
//! A span carries words of closed sets and names of the configuration, never what a caller sent.
//! Whether one is made at all is decided before, by `sampling`.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::field::{Empty, display};
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::TraceContext;
use super::labels::{Code, Label, Method, Step};

/// The target of every span, and of nothing else: what is sent is told by it from what is logged.
pub(super) const TARGET: &str = "tidegate::span";

/// The field that shows a log line's trace; in a span of its own it would say what the span says.
pub(super) const TRACE_ID: &str = "trace_id";

/// Some call was followed once. Until then nobody looks for the span of the current call.
static FOLLOWED: AtomicBool = AtomicBool::new(false);

/// The span of one call that is followed, below its caller's own if there is one.
pub fn call_span(method: Method, caller: Option<TraceContext>) -> Span {
    FOLLOWED.store(true, Ordering::Relaxed);
    let name = method.full_name();
    let span = info_span!(
        target: TARGET,
        parent: None,
        "call",
        otel.name = name,
        otel.kind = "server",
        otel.status_code = Empty,
        rpc.system.name = "grpc",
        rpc.method = name,
        rpc.response.status_code = Empty,
        tidegate.partition = Empty,
        tidegate.answer = Empty,
        tidegate.reason = Empty,
        tidegate.session = Empty,
        tidegate.wait.end = Empty,
        trace_id = Empty,
    );
    if let Some(caller) = caller {
        let flags = if caller.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let (trace, span_id) = (TraceId::from(caller.trace_id), SpanId::from(caller.span_id));
        let remote = SpanContext::new(trace, span_id, flags, true, TraceState::NONE);
        // It fails where nobody takes spans: then there is no trace to continue.
        _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }
    let own = span.context();
    let trace = own.span().span_context().trace_id();
    if trace != TraceId::INVALID {
        span.record(TRACE_ID, display(trace));
    }
    span
}

/// Notes in the span of a call what it was answered with.
pub fn answered(span: &Span, code: Code) {
    if span.is_disabled() {
        return;
    }
    span.record("rpc.response.status_code", code.word());
    if code.is_fault() {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of a step of the current call; none where that is not followed.
pub fn step_span(step: Step) -> Span {
    if current().is_none() {
        return Span::none();
    }
    match step {
        Step::Park => info_span!(target: TARGET, "park"),
        Step::Observe => info_span!(target: TARGET, "observe"),
        Step::Lookup => info_span!(target: TARGET, "lookup"),
        Step::Update => info_span!(target: TARGET, "update"),
    }
}

/// The span of the current call or step, where it is followed.
pub(super) fn current() -> Option<Span> {
    if !FOLLOWED.load(Ordering::Relaxed) {
        return None;
    }
    let span = Span::current();
    let is_ours = span.metadata().is_some_and(|metadata| metadata.target() == TARGET);
    is_ours.then_some(span)
}
