//! A collector that is not there, refuses or hangs: calls do not notice, and nothing grows.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_lab::metrics::counter;
use tidegate_lab::ports::Port;
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;

use crate::collector::{Collector, Mood};
use crate::stage::{Program, Routing, beside, select};

/// What one call may take on a machine that does other things too: a decision takes a millisecond,
/// and each export below hangs for a second or is tried three times with pauses.
const CALL: Duration = Duration::from_millis(500);

/// Spans that may wait.
const QUEUE: usize = 8;

/// Makes more calls than spans may wait, each followed, and holds each to its limit.
async fn calls(mut routing: Routing, stall: &Stall) {
    let clock = Clock::new();
    for call in 0..4 * QUEUE {
        let began_at = clock.now();
        let ask = select(v1::Session::default(), v1::Level::Eventual);
        routing.select_replica(ask).await.expect("an answer");
        let took = clock.now().since(began_at);
        assert!(took <= stall.allow(CALL), "call {call} took {took:?}");
    }
}

fn settings(endpoint: &str) -> String {
    format!(
        "otlp_endpoint = \"{endpoint}\"\nsample_ratio = 1\nexport_interval = \"1s\"\n\
         export_timeout = \"1s\"\nspan_queue = {QUEUE}\nflush_limit = \"500ms\""
    )
}

/// Waits until the program counts something of its exports.
async fn counts(program: &Program, name: &str, labels: &[(&str, &str)]) -> u64 {
    let admin = program.admin();
    let counted = || async { Ok(counter(admin, name, labels).await? > 0) };
    let what = format!("{name} {labels:?} is counted");
    until(&what, LIMIT, counted).await.unwrap_or_else(|error| panic!("{error}\n{}", program.log()));
    counter(admin, name, labels).await.expect("metrics")
}

/// Plays calls and an end in front of a collector of this kind.
async fn troubled(program: &mut Program, outcome: &str) {
    let stall = Stall::watch().expect("a thread");
    let routing = program.routing().await;
    calls(routing.clone(), &stall).await;
    counts(program, "exports", &[("signal", "spans"), ("outcome", outcome)]).await;
    counts(program, "exports", &[("signal", "metrics"), ("outcome", outcome)]).await;
    // While one batch is tried the next spans wait, and what finds their queue full is lost.
    let (admin, full) = (program.admin(), [("cause", "queue_full")]);
    let lost = || async {
        calls(routing.clone(), &stall).await;
        Ok(counter(admin, "spans_lost", &full).await? > 0)
    };
    until("a span finds the queue full", LIMIT, lost).await.expect("spans are lost");
    drop(routing);
    let log = program.log();
    let told = log.lines().filter(|line| line.contains("the collector takes no exports"));
    assert_eq!(told.count(), 2, "once for spans and once for metrics: {log}");
    let clock = Clock::new();
    let told_at = clock.now();
    assert!(program.end().await.success(), "{}", program.log());
    let took = clock.now().since(told_at);
    // The flush has half a second, the admin listener's goodbye another.
    let limit = stall.allow(Duration::from_secs(5));
    assert!(took <= limit, "the end took {took:?}\n{}", program.log());
}

#[test]
fn a_collector_that_is_not_there_delays_and_fails_no_call() {
    beside(async |cluster| {
        let nobody = Port::reserve().expect("a port");
        let settings = settings(&format!("http://{}", nobody.address()));
        let mut program = Program::start(cluster, &settings, "info").await;
        troubled(&mut program, "failed").await;
    });
}

#[test]
fn a_collector_that_never_answers_delays_and_fails_no_call() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Hangs).await.expect("a collector");
        let mut program = Program::start(cluster, &settings(&collector.endpoint()), "info").await;
        troubled(&mut program, "timed_out").await;
    });
}

#[test]
fn what_a_collector_refuses_is_not_tried_again() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Refuses).await.expect("a collector");
        let program = Program::start(cluster, &settings(&collector.endpoint()), "info").await;
        let mut routing = program.routing().await;
        let ask = select(v1::Session::default(), v1::Level::Eventual);
        routing.select_replica(ask).await.expect("an answer");
        let lost = counts(&program, "spans_lost", &[("cause", "failed")]).await;
        let sent = [("signal", "spans"), ("outcome", "failed")];
        assert_eq!((lost, counts(&program, "exports", &sent).await), (1, 1));
    });
}
