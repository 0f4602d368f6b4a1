//! Metrics of a running program at a collector: the very counters that `/metrics` shows.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, metric};
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;

use crate::collector::{Collector, Mood, text};
use crate::stage::{Program, beside, select};

/// The names and labels of the series of a page, without those of the buckets of histograms.
fn series(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| line.starts_with("tidegate_"));
    let named = lines.filter_map(|line| line.rsplit_once(' ')).filter(|(_, value)| *value != "NaN");
    let name = |series: &str| series.split('{').next().unwrap_or_default().to_owned();
    let names = named.map(|(series, _)| (name(series), series.to_owned()));
    let plain = names.filter(|(name, _)| !name.ends_with("_bucket") && !name.ends_with("_sum"));
    plain.map(|(_, series)| series.replace("_seconds_count", "_seconds")).collect()
}

#[test]
fn the_collector_is_sent_the_counters_that_metrics_shows() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let settings = format!(
            "otlp_endpoint = \"{}\"\nsample_ratio = 0\nexport_interval = \"1s\"",
            collector.endpoint()
        );
        let program = Program::start(cluster, &settings, "info").await;
        let mut routing = program.routing().await;
        for _ in 0..7 {
            let ask = select(v1::Session::default(), v1::Level::Eventual);
            routing.select_replica(ask).await.expect("an answer");
        }
        let labels = [("partition", PARTITION), ("answer", "replica")];
        let told =
            || async { Ok(collector.received().sum("tidegate_selects_total", &labels) == Some(7)) };
        until("the collector is told of seven selects", LIMIT, told).await.expect("it is told");
        // Whatever begins later begins on the page first.
        let sent = collector.received().metrics.last().cloned().expect("an export");
        let page = series(&program.metrics().await);
        let mut sent_series = BTreeSet::new();
        for metric in &sent {
            let mut attributes = Vec::new();
            match metric.data.as_ref().expect("data") {
                metric::Data::Sum(sum) => {
                    assert!(sum.is_monotonic && metric.name.ends_with("_total"), "{metric:?}");
                    let temporality = sum.aggregation_temporality();
                    assert_eq!(temporality, AggregationTemporality::Cumulative, "{metric:?}");
                    let points = sum.data_points.iter();
                    assert!(points.clone().all(|p| p.start_time_unix_nano <= p.time_unix_nano));
                    attributes.extend(points.map(|point| point.attributes.clone()));
                }
                metric::Data::Gauge(gauge) => {
                    attributes.extend(gauge.data_points.iter().map(|p| p.attributes.clone()));
                }
                metric::Data::Histogram(histogram) => {
                    assert_eq!(metric.unit, "s", "{metric:?}");
                    for point in &histogram.data_points {
                        let bounds = point.explicit_bounds.len();
                        assert_eq!(point.bucket_counts.len(), bounds + 1, "{point:?}");
                        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                        assert!(point.explicit_bounds.iter().all(|bound| *bound <= 30.0));
                        attributes.push(point.attributes.clone());
                    }
                }
                metric::Data::ExponentialHistogram(_) | metric::Data::Summary(_) => {
                    panic!("{metric:?}")
                }
            }
            for labels in attributes {
                let pairs = labels.iter().map(|label| {
                    let value = text(&labels, &label.key).expect("text");
                    format!("{}=\"{value}\"", label.key)
                });
                let pairs = pairs.collect::<Vec<_>>().join(",");
                let labels = if pairs.is_empty() { pairs } else { format!("{{{pairs}}}") };
                sent_series.insert(format!("{}{labels}", metric.name));
            }
        }
        let unknown: Vec<_> = sent_series.difference(&page).collect();
        assert!(unknown.is_empty(), "`/metrics` does not show {unknown:?}\n{page:#?}");
        // What is on the page and was not sent began after the export.
        assert!(sent_series.len() >= 15, "{sent_series:?}");
        for begun in page.difference(&sent_series) {
            let late = begun.starts_with("tidegate_exports_total");
            assert!(late || begun.starts_with("tidegate_polls_total"), "{begun} was not sent");
        }
    });
}

#[test]
fn the_end_sends_the_last_spans_and_the_last_counts() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let settings = format!(
            "otlp_endpoint = \"{}\"\nsample_ratio = 1\nexport_interval = \"10m\"",
            collector.endpoint()
        );
        let mut program = Program::start(cluster, &settings, "info").await;
        let mut routing = program.routing().await;
        for _ in 0..100 {
            let ask = select(v1::Session::default(), v1::Level::Eventual);
            routing.select_replica(ask).await.expect("an answer");
        }
        drop(routing);
        assert!(program.end().await.success(), "{}", program.log());
        let received = collector.received();
        let labels = [("method", "SelectReplica"), ("code", "OK")];
        let count = received.sum("tidegate_call_duration_seconds", &labels);
        assert_eq!(count, Some(100), "{:?}", received.metrics);
        assert_eq!(received.metrics.len(), 1, "it waited for no interval");
        let selects = received.spans.iter().filter(|span| span.name.ends_with("/SelectReplica"));
        assert_eq!(selects.count(), 100);
    });
}
