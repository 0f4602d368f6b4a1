//! The counters of `/metrics` as metrics of OTLP: same names, same labels, same numbers.
//!
//! It counts nothing itself. A gauge that is not known has no point; a histogram keeps its bounds.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as shown;

/// Points of one request: with names and labels some 1 MB, of the 4 MiB collectors take.
const POINTS_PER_REQUEST: usize = 4_000;

/// When the counters began to count and when they were read, in nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) since: u64,
    pub(super) at: u64,
}

/// An attribute whose value is text.
pub(super) fn attribute(name: &str, value: &str) -> KeyValue {
    let value = any_value::Value::StringValue(value.to_owned());
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// The requests that tell a collector all of `families`.
pub(super) fn requests(
    families: &[shown::MetricFamily],
    span: Span,
    resource: &Resource,
) -> Vec<ExportMetricsServiceRequest> {
    let mut requests = Vec::new();
    let (mut metrics, mut points) = (Vec::new(), 0);
    for family in families {
        for members in family.metric.chunks(POINTS_PER_REQUEST) {
            if points + members.len() > POINTS_PER_REQUEST {
                requests.push(request(std::mem::take(&mut metrics), resource));
                points = 0;
            }
            points += members.len();
            metrics.extend(metric(family, members, span));
        }
    }
    if !metrics.is_empty() {
        requests.push(request(metrics, resource));
    }
    requests
}

fn request(metrics: Vec<Metric>, resource: &Resource) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope { name: "tidegate".to_owned(), ..Default::default() };
    let scope_metrics = ScopeMetrics { scope: Some(scope), metrics, ..Default::default() };
    let resource_metrics = ResourceMetrics {
        resource: Some(resource.clone()),
        scope_metrics: vec![scope_metrics],
        ..Default::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }
}

/// Some members of one family; `None`: none of them is known.
fn metric(family: &shown::MetricFamily, members: &[shown::Metric], span: Span) -> Option<Metric> {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let is_count = family.unit.is_empty();
    let counters =
        points(members, |member| Some(counter(member.counter.as_ref()?.value, is_count, span)));
    let gauges = points(members, |member| gauge(member.gauge.as_ref()?.value, span));
    let histograms = points_of(members, |member, attributes| {
        Some(histogram(member.histogram.as_ref()?, attributes, span))
    });
    let data = if !counters.is_empty() {
        let is_monotonic = true;
        metric::Data::Sum(Sum { data_points: counters, aggregation_temporality, is_monotonic })
    } else if !histograms.is_empty() {
        metric::Data::Histogram(Histogram { data_points: histograms, aggregation_temporality })
    } else if !gauges.is_empty() {
        metric::Data::Gauge(Gauge { data_points: gauges })
    } else {
        return None;
    };
    let unit = match family.unit.as_str() {
        "seconds" => "s",
        "bytes" => "By",
        other => other,
    };
    Some(Metric {
        name: family.name.clone(),
        description: family.help.clone(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

/// A point of each member that has one, with its labels as attributes.
fn points_of<P>(
    members: &[shown::Metric],
    make: impl Fn(&shown::Metric, Vec<KeyValue>) -> Option<P>,
) -> Vec<P> {
    let each = members.iter().filter_map(|member| {
        let labels = member.label.iter();
        make(member, labels.map(|label| attribute(&label.name, &label.value)).collect())
    });
    each.collect()
}

fn points(
    members: &[shown::Metric],
    make: impl Fn(&shown::Metric) -> Option<NumberDataPoint>,
) -> Vec<NumberDataPoint> {
    points_of(members, |member, attributes| Some(NumberDataPoint { attributes, ..make(member)? }))
}

/// What has a unit, such as seconds, need not be whole.
fn counter(value: f64, is_count: bool, span: Span) -> NumberDataPoint {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a count came as a float, exact up to 2^53, which none of ours reaches"
    )]
    let whole = number_data_point::Value::AsInt(value as i64);
    let value = Some(if is_count { whole } else { number_data_point::Value::AsDouble(value) });
    NumberDataPoint {
        start_time_unix_nano: span.since,
        time_unix_nano: span.at,
        value,
        ..NumberDataPoint::default()
    }
}

fn gauge(value: f64, span: Span) -> Option<NumberDataPoint> {
    let value = Some(number_data_point::Value::AsDouble(value)).filter(|_| !value.is_nan())?;
    Some(NumberDataPoint {
        time_unix_nano: span.at,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(
    shown: &shown::Histogram,
    attributes: Vec<KeyValue>,
    span: Span,
) -> HistogramDataPoint {
    // Prometheus counts all up to a bound, OTLP those between two.
    let mut below = 0;
    let counts = shown.bucket.iter().map(|bucket| {
        let count = bucket.cumulative_count.saturating_sub(below);
        below = bucket.cumulative_count;
        count
    });
    let bucket_counts = counts.collect();
    // The last bucket takes all that is left: OTLP leaves its bound out.
    let bounds = shown.bucket.iter().map(|bucket| bucket.upper_bound);
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: span.since,
        time_unix_nano: span.at,
        count: shown.sample_count,
        sum: Some(shown.sample_sum),
        bucket_counts,
        explicit_bounds: bounds.take(shown.bucket.len().saturating_sub(1)).collect(),
        ..HistogramDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { since: 1, at: 2 };

    fn counter_family(members: usize) -> shown::MetricFamily {
        let member = shown::Metric {
            counter: Some(shown::Counter { value: 3.0, ..Default::default() }),
            ..Default::default()
        };
        shown::MetricFamily { metric: vec![member; members], ..Default::default() }
    }

    fn points_of_request(request: &ExportMetricsServiceRequest) -> usize {
        let metrics = request.resource_metrics.iter().flat_map(|all| &all.scope_metrics);
        let data = metrics.flat_map(|scope| &scope.metrics).filter_map(|m| m.data.as_ref());
        data.map(|data| {
            let metric::Data::Sum(sum) = data else { panic!("{data:?}") };
            sum.data_points.len()
        })
        .sum()
    }

    #[test]
    fn a_request_never_holds_more_points_than_a_collector_takes() {
        let families = [
            counter_family(POINTS_PER_REQUEST - 1),
            counter_family(2),
            counter_family(2 * POINTS_PER_REQUEST + 1),
        ];
        let requests = requests(&families, SPAN, &Resource::default());
        let points: Vec<_> = requests.iter().map(points_of_request).collect();
        assert!(points.iter().all(|points| *points <= POINTS_PER_REQUEST), "{points:?}");
        assert_eq!(points.iter().sum::<usize>(), 3 * POINTS_PER_REQUEST + 2, "{points:?}");
    }

    #[test]
    fn counts_are_whole_and_sums_of_seconds_are_not() {
        let value = |is_count| counter(2.5, is_count, SPAN).value;
        assert_eq!(value(true), Some(number_data_point::Value::AsInt(2)));
        assert_eq!(value(false), Some(number_data_point::Value::AsDouble(2.5)));
    }

    #[test]
    fn an_unknown_gauge_is_not_sent() {
        let gauge = |value| shown::Metric {
            gauge: Some(shown::Gauge { value }),
            ..shown::Metric::default()
        };
        let family = |metric: Vec<shown::Metric>| shown::MetricFamily {
            metric,
            ..shown::MetricFamily::default()
        };
        let unknown = family(vec![gauge(f64::NAN), gauge(f64::NAN)]);
        assert!(requests(&[unknown], SPAN, &Resource::default()).is_empty());
        let known = family(vec![gauge(f64::NAN), gauge(1.5)]);
        let Some(metric::Data::Gauge(sent)) =
            metric(&known, &known.metric, SPAN).and_then(|metric| metric.data)
        else {
            panic!("no gauge");
        };
        let values: Vec<_> = sent.data_points.iter().filter_map(|point| point.value).collect();
        assert_eq!(values, [number_data_point::Value::AsDouble(1.5)]);
    }

    #[test]
    fn buckets_are_counted_between_their_bounds() {
        let bucket = |upper_bound, cumulative_count| shown::Bucket {
            upper_bound,
            cumulative_count,
            ..shown::Bucket::default()
        };
        let shown = shown::Histogram {
            sample_count: 7,
            sample_sum: 4.5,
            bucket: vec![bucket(0.5, 2), bucket(1.0, 2), bucket(f64::MAX, 7)],
            ..shown::Histogram::default()
        };
        let sent = histogram(&shown, Vec::new(), SPAN);
        assert_eq!((sent.count, sent.sum), (7, Some(4.5)));
        assert_eq!(sent.explicit_bounds, [0.5, 1.0]);
        assert_eq!(sent.bucket_counts, [2, 0, 5]);
        assert_eq!((sent.start_time_unix_nano, sent.time_unix_nano), (1, 2));
    }
}
