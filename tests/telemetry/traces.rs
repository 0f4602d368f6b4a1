//! Spans of a running program: whose trace they continue, what they carry, and who has none.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;

use crate::collector::{Collector, Mood, text};
use crate::stage::{CALLER, Program, TRACE, alone, beside, select, traced};

fn sends(collector: &Collector, ratio: &str) -> String {
    format!("otlp_endpoint = \"{}\"\nsample_ratio = {ratio}", collector.endpoint())
}

/// Waits for `count` spans of one trace.
async fn spans(collector: &Collector, trace: u128, count: usize) -> Vec<Span> {
    let came = || async { Ok(collector.received().trace(trace).len() >= count) };
    until("the spans come", LIMIT, came).await.expect("the collector is sent spans");
    collector.received().trace(trace)
}

#[test]
fn a_call_with_a_traceparent_continues_that_trace() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let program = Program::start(cluster, &sends(&collector, "0"), "info").await;
        let mut routing = program.routing().await;
        let request = select(v1::Session::default(), v1::Level::Eventual);
        routing.select_replica(traced(request, TRACE, true)).await.expect("an answer");

        let spans = spans(&collector, TRACE, 1).await;
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(span.parent_span_id, CALLER.to_be_bytes());
        assert_eq!(span.name, "tidegate.v1.RoutingService/SelectReplica");
        assert_eq!(span.kind(), SpanKind::Server);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
        assert_eq!(span.status.as_ref().map(|status| status.code()), Some(StatusCode::Unset));
        for (name, value) in [
            ("rpc.system.name", "grpc"),
            ("rpc.method", "tidegate.v1.RoutingService/SelectReplica"),
            ("rpc.response.status_code", "OK"),
            ("tidegate.partition", PARTITION),
            ("tidegate.answer", "replica"),
            ("tidegate.reason", "covered"),
            ("tidegate.session", "none"),
        ] {
            assert_eq!(text(&span.attributes, name).as_deref(), Some(value), "{name}: {span:?}");
        }
        let received = collector.received();
        for (name, value) in [
            ("service.name", "tidegate"),
            ("service.namespace", "lab"),
            ("service.instance.id", "a"),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ] {
            assert_eq!(text(&received.resource, name).as_deref(), Some(value), "{name}");
        }
    });
}

#[test]
fn what_a_followed_call_waits_for_is_a_span_below_its_own() {
    alone(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let program = Program::start(cluster, &sends(&collector, "0"), "info").await;
        let mut routing = program.routing().await;
        let standby = cluster.standby(0);
        standby.pause_replay().await.expect("it pauses");
        let (leader, insert) = (cluster.leader(), "insert into notes default values");
        leader.sql(insert).await.expect("the leader writes");
        let capture: String = leader.value("select tidegate.capture()").await.expect("a capture");
        let session = v1::Session { evidence: vec![capture], ..v1::Session::default() };
        let wait = v1::WaitUntilFreshRequest {
            session: Some(session),
            partition: PARTITION.to_owned(),
            budget: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }),
            ..v1::WaitUntilFreshRequest::default()
        };
        let waited = routing.wait_until_fresh(traced(wait, TRACE, true)).await;
        let global = select(v1::Session::default(), v1::Level::Global);
        let selected = routing.select_replica(traced(global, TRACE + 1, true)).await;
        standby.resume_replay().await.expect("it resumes");
        waited.expect("an answer");
        selected.expect("an answer");

        for (trace, step) in [(TRACE, "park"), (TRACE + 1, "observe")] {
            let spans = spans(&collector, trace, 2).await;
            let call = spans.iter().find(|span| span.kind() == SpanKind::Server);
            let call = call.unwrap_or_else(|| panic!("no call in {spans:?}"));
            let below = spans.iter().find(|span| span.name == step);
            let below = below.unwrap_or_else(|| panic!("no {step} in {spans:?}"));
            assert_eq!(below.parent_span_id, call.span_id, "{spans:?}");
        }
        let waited = spans(&collector, TRACE, 2).await;
        let end = waited.iter().find_map(|span| text(&span.attributes, "tidegate.wait.end"));
        assert_eq!(end.as_deref(), Some("timed_out"), "{waited:?}");
    });
}

#[test]
fn what_a_followed_call_asks_of_the_store_is_a_span_below_its_own() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let program = Program::start(cluster, &sends(&collector, "0"), "info").await;
        let mut routing = program.routing().await;
        let leader = cluster.leader();
        leader.sql("insert into notes default values").await.expect("the leader writes");
        let capture: String = leader.value("select tidegate.capture()").await.expect("a capture");
        let subject = "someone".to_owned();
        let record = v1::RecordRequest {
            session: Some(v1::Session { subject, ..v1::Session::default() }),
            observed: Some(v1::record_request::Observed::Evidence(capture)),
            ..v1::RecordRequest::default()
        };
        routing.record(traced(record, TRACE, true)).await.expect("a record");

        let spans = spans(&collector, TRACE, 3).await;
        let call = spans.iter().find(|span| span.kind() == SpanKind::Server).expect("a call");
        for step in ["lookup", "update"] {
            let below = spans.iter().find(|span| span.name == step);
            let below = below.unwrap_or_else(|| panic!("no {step} in {spans:?}"));
            assert_eq!(below.parent_span_id, call.span_id, "{spans:?}");
        }
    });
}

#[test]
fn an_unsampled_call_and_one_chance_passes_over_make_no_span() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let mut program = Program::start(cluster, &sends(&collector, "0"), "info").await;
        let mut routing = program.routing().await;
        let ask = || select(v1::Session::default(), v1::Level::Eventual);
        for _ in 0..20 {
            routing.select_replica(traced(ask(), TRACE, false)).await.expect("an answer");
            routing.select_replica(ask()).await.expect("an answer");
        }
        routing.select_replica(traced(ask(), TRACE + 1, true)).await.expect("an answer");
        assert!(program.end().await.success(), "{}", program.log());
        // Spans wait in the order in which they ended, and the end sends all of them.
        let received = collector.received();
        assert_eq!(received.spans.len(), 1, "{:?}", received.spans);
        assert_eq!(received.trace(TRACE + 1).len(), 1);
    });
}

#[test]
fn with_a_ratio_of_one_every_call_without_a_context_begins_a_trace() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let mut program = Program::start(cluster, &sends(&collector, "1"), "info").await;
        let mut routing = program.routing().await;
        for _ in 0..5 {
            let ask = select(v1::Session::default(), v1::Level::Eventual);
            routing.select_replica(ask).await.expect("an answer");
        }
        let unknown = v1::SelectReplicaRequest {
            partition: "elsewhere".to_owned(),
            ..select(v1::Session::default(), v1::Level::Eventual)
        };
        routing.select_replica(unknown).await.expect_err("no such partition");
        assert!(program.end().await.success(), "{}", program.log());
        let received = collector.received();
        assert_eq!(received.spans.len(), 6, "{:?}", received.spans);
        let mut traces: Vec<_> = received.spans.iter().map(|span| &span.trace_id).collect();
        traces.sort();
        traces.dedup();
        assert_eq!(traces.len(), 6, "two calls share a trace");
        assert!(received.spans.iter().all(|span| span.parent_span_id.is_empty()));
        let codes = received.spans.iter();
        let codes = codes.filter_map(|span| text(&span.attributes, "rpc.response.status_code"));
        let codes: Vec<_> = codes.collect();
        assert_eq!(codes.iter().filter(|code| *code == "NOT_FOUND").count(), 1, "{codes:?}");
    });
}

#[test]
fn an_event_within_a_followed_call_names_its_trace_in_the_log() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let settings = format!("{}\nlog_format = \"json\"", sends(&collector, "0"));
        let program = Program::start(cluster, &settings, "info,tidegate=trace").await;
        let mut routing = program.routing().await;
        let ask = select(v1::Session::default(), v1::Level::Eventual);
        routing.select_replica(traced(ask, TRACE, true)).await.expect("an answer");
        let log = program.log();
        let line = log.lines().find(|line| line.contains("answered"));
        let line = line.unwrap_or_else(|| panic!("no call was answered in {log}"));
        let event: serde_json::Value = serde_json::from_str(line).expect("an object a line");
        let trace = event["span"]["trace_id"].as_str().expect("a trace");
        assert_eq!(trace, format!("{TRACE:032x}"), "{line}");
        assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    });
}
