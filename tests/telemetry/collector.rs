//! A collector in this process: takes OTLP over gRPC as a real one does, and keeps all of it.
//!
//! It can also be told to take nothing: to refuse, or never to answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics_v1;
use opentelemetry_proto::tonic::collector::trace::v1 as trace_v1;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What becomes of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    /// It is kept.
    Takes,
    /// It is answered with `INVALID_ARGUMENT`, which nobody should try again.
    Refuses,
    /// It is never answered.
    Hangs,
}

/// Everything that came.
#[derive(Default, Debug)]
pub(crate) struct Received {
    pub(crate) spans: Vec<Span>,
    /// The attributes of the resource of the last export of spans.
    pub(crate) resource: Vec<KeyValue>,
    /// The metrics of each export, the last one's last.
    pub(crate) metrics: Vec<Vec<Metric>>,
    /// All exports as they lie on the wire.
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Desk {
    mood: Mood,
    received: Arc<Mutex<Received>>,
}

/// A running collector.
#[derive(Debug)]
pub(crate) struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    serving: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Collector {
    pub(crate) async fn start(mood: Mood) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let desk = Desk { mood, received: Arc::default() };
        let received = Arc::clone(&desk.received);
        let serving = Server::builder()
            .add_service(trace_v1::trace_service_server::TraceServiceServer::new(desk.clone()))
            .add_service(metrics_v1::metrics_service_server::MetricsServiceServer::new(desk))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let serving = tokio::spawn(async move { serving.await.expect("the collector serves") });
        Ok(Self { address, received, serving })
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    async fn judge(&self) -> Result<MutexGuard<'_, Received>, Status> {
        match self.mood {
            Mood::Takes => Ok(self.received.lock().unwrap_or_else(PoisonError::into_inner)),
            Mood::Refuses => Err(Status::invalid_argument("not today")),
            Mood::Hangs => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl trace_v1::trace_service_server::TraceService for Desk {
    async fn export(
        &self,
        request: Request<trace_v1::ExportTraceServiceRequest>,
    ) -> Result<Response<trace_v1::ExportTraceServiceResponse>, Status> {
        let mut received = self.judge().await?;
        let request = request.into_inner();
        received.bytes.extend(request.encode_to_vec());
        for resource_spans in request.resource_spans {
            let resource = resource_spans.resource.map(|resource| resource.attributes);
            received.resource = resource.unwrap_or_default();
            let scopes = resource_spans.scope_spans.into_iter();
            received.spans.extend(scopes.flat_map(|scope| scope.spans));
        }
        Ok(Response::new(trace_v1::ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl metrics_v1::metrics_service_server::MetricsService for Desk {
    async fn export(
        &self,
        request: Request<metrics_v1::ExportMetricsServiceRequest>,
    ) -> Result<Response<metrics_v1::ExportMetricsServiceResponse>, Status> {
        let mut received = self.judge().await?;
        let request = request.into_inner();
        received.bytes.extend(request.encode_to_vec());
        let scopes = request.resource_metrics.into_iter().flat_map(|each| each.scope_metrics);
        received.metrics.push(scopes.flat_map(|scope| scope.metrics).collect());
        Ok(Response::new(metrics_v1::ExportMetricsServiceResponse::default()))
    }
}

impl Received {
    /// The spans of one trace, in the order in which they ended.
    pub(crate) fn trace(&self, trace: u128) -> Vec<Span> {
        let of = |span: &&Span| span.trace_id == trace.to_be_bytes();
        self.spans.iter().filter(of).cloned().collect()
    }

    /// The sum over all points of one metric in the last export; `None`: it has none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let metrics = self.metrics.last()?;
        let data = metrics.iter().find(|metric| metric.name == name)?.data.as_ref()?;
        let has = |attributes: &[KeyValue]| {
            labels.iter().all(|(name, value)| text(attributes, name).as_deref() == Some(value))
        };
        let numbers = match data {
            metric::Data::Sum(sum) => &sum.data_points,
            metric::Data::Gauge(gauge) => &gauge.data_points,
            metric::Data::Histogram(histogram) => {
                let points = histogram.data_points.iter().filter(|point| has(&point.attributes));
                return Some(points.map(|point| point.count).sum());
            }
            metric::Data::ExponentialHistogram(_) | metric::Data::Summary(_) => return None,
        };
        let points = numbers.iter().filter(|point| has(&point.attributes));
        let whole = points.map(|point| match point.value {
            Some(number_data_point::Value::AsInt(value)) => u64::try_from(value).expect("a count"),
            other => panic!("{name} shows {other:?}"),
        });
        Some(whole.sum())
    }
}

/// The text of an attribute.
pub(crate) fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == name)?;
    let value = attribute.value.as_ref()?.value.as_ref()?;
    let any_value::Value::StringValue(text) = value else { panic!("{name} is {value:?}") };
    Some(text.clone())
}
