//! Holds `docs/telemetry.md` to the code: its tables are what is really shown and sent, no more.
//!
//! Only tests compile it. A table that differs is printed as it should be.

use std::time::Duration;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricType;
use tidegate_core::instant::Instant;
use tidegate_core::routing::Reason;
use tidegate_core::token::NoticeKind;
use tracing_subscriber::layer::SubscriberExt;

use super::labels::{ExportEnd, Signal, SpanLoss};
use super::*;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/telemetry.md"));

/// The rows of the table below a heading of the page, without its head.
fn table(heading: &str) -> Vec<String> {
    let (_, below) = PAGE.split_once(&format!("\n## {heading}\n")).expect("a heading");
    let below = below.split_once("\n## ").map_or(below, |(section, _)| section);
    let rows = below.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(str::to_owned).collect()
}

fn assert_table(heading: &str, expected: Vec<String>) {
    let expected_text = expected.join("\n");
    assert_eq!(table(heading), expected, "`{heading}` of the page should be\n{expected_text}\n");
}

/// Metrics in which everything has happened.
fn everything() -> Telemetry {
    let counts = SpanCounts::default();
    let telemetry = Telemetry::counting(Instant::default, &counts);
    let main = telemetry.partition("main");
    main.select(Answer::Replica, Reason::Covered, SessionKind::Token);
    main.wait(WaitEnd::Fresh, Duration::ZERO);
    main.fallback(Admission::Admitted);
    main.lost(NoticeKind::WriteLost);
    main.compared(Agreement::Fits);
    let node = main.node("pg-1");
    node.polled(PollOutcome::Observed);
    node.seen(Instant::default());
    telemetry.called(Method::Record, Code::OK, Duration::ZERO);
    telemetry.exported(Signal::Spans, ExportEnd::Taken);
    counts.lose(SpanLoss::Failed, 1);
    telemetry
}

#[test]
fn every_metric_is_on_the_page_and_the_page_has_no_other() {
    let families = everything().families().expect("metrics");
    let row = |family: &prometheus_data_model::MetricFamily| {
        let kind = match family.r#type() {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::Summary | MetricType::Untyped | MetricType::GaugeHistogram => "other",
        };
        let labels = family.metric.first().map(|member| &member.label).expect("a member");
        let labels = labels.iter().map(|label| format!("`{}`", label.name));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let help = family.help.trim_end_matches('.');
        format!("| `{}` | {kind} | {labels} | {help} |", family.name)
    };
    let mut rows: Vec<_> = families.iter().map(row).collect();
    rows.sort();
    assert_table("Metrics", rows);
}

/// The words of one set.
fn words<L: Label>(name: &str) -> String {
    let words = L::ALL.iter().map(|label| format!("`{}`", label.word()));
    format!("| {name} | {} |", words.collect::<Vec<_>>().join(" "))
}

#[test]
fn every_label_is_on_the_page_with_all_its_words() {
    assert_table(
        "Labels",
        vec![
            "| `partition`, `node` | names of the configuration |".to_owned(),
            "| `version` | of the program |".to_owned(),
            words::<Answer>("`answer`"),
            words::<Reason>("`reason`"),
            words::<SessionKind>("`session`"),
            words::<WaitEnd>("`end`"),
            words::<Admission>("`verdict`"),
            words::<NoticeKind>("`kind`"),
            words::<Agreement>("`agreement`"),
            words::<PollOutcome>("`outcome` of polls"),
            words::<ExportEnd>("`outcome` of exports"),
            words::<ReloadEnd>("`outcome` of reloads"),
            words::<Signal>("`signal`"),
            words::<SpanLoss>("`cause`"),
            words::<Method>("`method`"),
            words::<Code>("`code`"),
        ],
    );
}

#[test]
fn every_span_is_on_the_page_with_all_it_carries() {
    let (source, _queue) = span_queue(16);
    let subscriber = tracing_subscriber::registry().with(source.layer());
    // With one subscriber alone, a thread that has none may switch spans off for all.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || {
        let fields = |span: &tracing::Span| {
            let fields = span.metadata().expect("it is followed").fields();
            let names = fields.iter().map(|field| field.name());
            let sent = names.filter(|name| !name.starts_with("otel.") && *name != spans::TRACE_ID);
            sent.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let call = call_span(Method::SelectReplica, None);
        let mut rows = vec![format!("| service and method | server | {} |", fields(&call))];
        call.in_scope(|| {
            for step in Step::ALL {
                let span = step_span(*step);
                assert_eq!(span.metadata().map(tracing::Metadata::name), Some(step.word()));
                rows.push(format!("| `{}` | internal | {} |", step.word(), fields(&span)));
            }
        });
        assert!(step_span(Step::Park).is_none(), "a step of no followed call");
        assert_table("Spans", rows);
    });
}
