//! Sampling is decided before a span is made: a call that is not followed costs no allocation.
//!
//! A program of its own, for its allocator counts; what it counts is the trace layer, with spans
//! taken and logs written as in a running service.

#![expect(clippy::expect_used, reason = "a program that does not start is a failed test")]

use std::alloc::System;
use std::convert::Infallible;

use futures::FutureExt;
use http::{HeaderValue, Request, Response, Uri};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate::clock::Clock;
use tidegate::layers::TraceLayer;
use tidegate::telemetry::{LogFormat, Sampling, Telemetry, span_queue, start_logs};
use tower::{Layer, Service, service_fn};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const CALLS: usize = 100;

/// Allocations of so many calls through the layer, requests apart.
fn allocations(sampling: Sampling, traceparent: Option<&'static str>) -> usize {
    let clock = Clock::new();
    let layer = TraceLayer::new(clock, Telemetry::new(move || clock.now()), sampling);
    let serve = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let mut service = layer.layer(serve);
    let requests = (0..=CALLS).map(|_| {
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_static("/tidegate.v1.RoutingService/SelectReplica");
        if let Some(value) = traceparent {
            request.headers_mut().insert("traceparent", HeaderValue::from_static(value));
        }
        request
    });
    let mut requests = requests.collect::<Vec<_>>().into_iter();
    let mut call = || {
        let answer = service.call(requests.next().expect("a request"));
        answer.now_or_never().expect("ready").expect("infallible");
    };
    // The first resolves its counters, and is not counted.
    call();
    let region = Region::new(ALLOCATOR);
    for _ in 0..CALLS {
        call();
    }
    let change = region.change();
    change.allocations + change.reallocations
}

#[test]
fn a_call_that_is_not_followed_allocates_nothing_for_a_span() {
    let (source, queue) = span_queue(CALLS * 4);
    start_logs(LogFormat::Json, Some(&source)).expect("nobody else writes events");
    let plain = allocations(Sampling::NONE, None);
    let all = Sampling::new(1.0, true);
    for (sampling, traceparent) in [
        (Sampling::new(0.0, true), None),
        (Sampling::new(0.0, true), Some("no trace context")),
        (all, Some(UNSAMPLED)),
    ] {
        let counted = allocations(sampling, traceparent);
        assert_eq!(counted, plain, "{sampling:?} {traceparent:?}: as without tracing");
    }
    assert!(queue.is_empty(), "a span was made");
    // The same count sees a span where there is one.
    for (sampling, traceparent) in [(Sampling::new(0.0, true), Some(SAMPLED)), (all, None)] {
        let counted = allocations(sampling, traceparent);
        assert!(counted >= plain + CALLS, "{counted} with spans, {plain} without");
    }
    assert_eq!(queue.len(), 2 * (CALLS + 1));
}
