//! Wires the rooms and serves: the only place, with `main` and `cli`, that may use all of them.
//!
//! Start: sources and partitions first, then the listeners; calls are admitted once each node was
//! tried. End: health says so, streams are ended, calls in progress get a bounded time.

mod connections;
mod exporting;
mod gate;
mod reload;
mod wiring;

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_core::guards::Guards;
use tidegate_proto::v1::admin_service_server::AdminServiceServer;
use tidegate_proto::v1::routing_service_server::RoutingServiceServer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::Server as Transport;
use tonic_health::server::HealthReporter;
use tower::ServiceBuilder;
use tracing::{info, warn};

use crate::admin;
use crate::api::{Admin, ApiLimits, Routing, status};
use crate::clock::Clock;
use crate::config::{Config, EVIDENCE_PER_REQUEST};
use crate::layers::{DeadlineLayer, ShedLayer, TraceLayer};
use crate::reads::Reads;
use crate::store::AnyStore;
use crate::telemetry::{Exports, Sampling, SpanQueue, Telemetry};

use connections::Connections;
use gate::Gate;
use reload::Reload;
use wiring::Wired;

/// Time the admin listener has to end its answers once the data listener has.
const GOODBYE: Duration = Duration::from_millis(500);

type DataService = RoutingServiceServer<Routing<AnyStore, Gate>>;

/// A running instance.
#[derive(Debug)]
pub struct Running {
    /// Where `RoutingService` answers.
    pub data: SocketAddr,
    /// Where `AdminService` and metrics answer.
    pub admin: SocketAddr,
    stop: CancellationToken,
    reload: Reload,
    serving: JoinHandle<Result<()>>,
}

impl Running {
    /// Reads the configuration again, as SIGHUP does; the log says what came of it.
    pub async fn reload(&self) {
        drop(self.reload.run().await);
    }

    /// Ends the instance: calls in progress get the drain limit.
    ///
    /// # Errors
    /// If serving had failed.
    pub async fn shutdown(self) -> Result<()> {
        let Self { stop, reload, serving, .. } = self;
        // Nothing may outlive the service.
        drop(reload);
        stop.cancel();
        serving.await.context("serving ended early")?
    }
}

/// Starts an instance; it serves until [`Running::shutdown`].
///
/// # Errors
/// If keys, facts or listeners cannot be had: the message says which and what to do.
pub async fn start(config: Config, guards: Guards) -> Result<Running> {
    start_sending(config, guards, None).await
}

/// As [`start`]; sends the spans of `spans` too, which the whole process has only once.
///
/// # Errors
/// As [`start`].
pub async fn start_sending(
    config: Config,
    guards: Guards,
    spans: Option<SpanQueue>,
) -> Result<Running> {
    let clock = Clock::new();
    let telemetry = match &spans {
        Some(queue) => Telemetry::with_spans(move || clock.now(), queue),
        None => Telemetry::new(move || clock.now()),
    };
    let data = listen("listen.data", config.listen.data).await?;
    let admin = listen("listen.admin", config.listen.admin).await?;
    let addresses = (data.local_addr()?, admin.local_addr()?);
    let stop = CancellationToken::new();
    // Partitions outlive the calls that still wait on them.
    let halt = CancellationToken::new();
    let wired = wiring::wire(&config, guards, clock, &telemetry, (&stop, &halt)).await?;
    info!(data = %addresses.0, admin = %addresses.1, "listening");
    let exports = exporting::begin(&config, spans, &telemetry, clock)?;
    let stops = (stop.clone(), halt);
    let (reads, partitions) = (Arc::clone(&wired.reads), Arc::clone(&wired.partitions));
    let reload = Reload::new(config.clone(), reads, partitions, telemetry.clone(), clock);
    let operated = reload.clone();
    let serving = serve(config, wired, (clock, operated), telemetry, (data, admin), stops);
    let serving = ended(serving, exports);
    let serving = tokio::spawn(serving);
    Ok(Running { data: addresses.0, admin: addresses.1, stop, reload, serving })
}

/// Serves until the process is told to stop; SIGHUP has it read its configuration again.
///
/// # Errors
/// As [`start`].
pub async fn run(config: Config, spans: Option<SpanQueue>) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminated = signal(SignalKind::terminate()).context("signals cannot be watched")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("signals cannot be watched")?;
    let mut hung_up = signal(SignalKind::hangup()).context("signals cannot be watched")?;
    let running = start_sending(config, Guards::on(), spans).await?;
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
            _ = hung_up.recv() => running.reload().await,
        }
    }
    info!("shutting down");
    running.shutdown().await
}

async fn listen(setting: &str, address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("`{setting}`: cannot listen on {address}: set a free one"))
}

/// Serves, and tells the collector of the last calls when all have ended.
async fn ended(serving: impl Future<Output = Result<()>>, exports: Option<Exports>) -> Result<()> {
    let served = serving.await;
    if let Some(exports) = exports {
        exports.end().await;
    }
    served
}

/// Serves both listeners until `stop`, then drains.
async fn serve(
    config: Config,
    wired: Wired,
    (clock, reload): (Clock, Reload),
    telemetry: Telemetry,
    (data, admin): (TcpListener, TcpListener),
    (stop, halt): (CancellationToken, CancellationToken),
) -> Result<()> {
    let limits = config.limits.clone();
    let exported = config.telemetry.otlp_endpoint.is_some();
    let sampling = Sampling::new(config.telemetry.sample_ratio, exported);
    let gate = Arc::clone(&wired.gate);
    let ledger = Arc::clone(wired.reads.sessions().ledger());
    let store = Arc::clone(&wired.store);
    let (health, routes) = routes(&config, wired.reads, &gate).await?;
    let closing = stop.child_token();
    let most = limits.calls_in_flight;
    let shed = ShedLayer::new(most, telemetry.clone(), move || {
        status::calls_full(most).into_http::<tonic::body::Body>()
    });
    let layers = ServiceBuilder::new()
        .layer(TraceLayer::new(clock, telemetry.clone(), sampling))
        .layer(shed)
        .layer(DeadlineLayer::new(clock, limits.deadline_margin))
        .map_response(status::reasoned)
        .into_inner();
    let serving = Transport::builder()
        .accept_http1(true)
        .http2_keepalive_interval(Some(limits.keepalive_interval))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout))
        .max_concurrent_streams(limits.streams_per_connection)
        .http2_max_header_list_size(u32::try_from(limits.header_list_bytes).unwrap_or(u32::MAX))
        .layer(layers)
        .add_routes(routes)
        .serve_with_incoming_shutdown(
            connections::accept(data, Connections::new(limits.connections)),
            closing.clone().cancelled_owned(),
        );
    let pages = {
        let gate = Arc::clone(&gate);
        admin::router(telemetry, move || gate.readiness())
    };
    let poll_timeout = limits.poll_timeout;
    let own_gate = Arc::clone(&gate);
    let admin_api = Admin::new(wired.partitions, (ledger, store), own_gate, poll_timeout, clock)
        .reloading(Arc::new(reload));
    let pages = Routes::new(AdminServiceServer::new(admin_api)).into_axum_router().merge(pages);
    let closed = halt.clone().cancelled_owned();
    let admin = axum::serve(admin, pages).with_graceful_shutdown(closed);
    let mut admin = tokio::spawn(admin.into_future());
    let watching = tokio::spawn(watch_health(health, Arc::clone(&gate), stop.clone()));

    let drain_limit = limits.drain_limit;
    let deadline = async {
        stop.cancelled().await;
        clock.sleep_until(clock.now() + drain_limit).await;
    };
    let served = tokio::select! {
        served = serving => served.context("the data listener failed"),
        () = deadline => {
            warn!(?drain_limit, "calls in progress were cut off");
            Ok(())
        }
    };
    stop.cancel();
    halt.cancel();
    // Whoever watches events is told of the end; whoever does not listen is not waited for.
    if clock.until(clock.now() + GOODBYE, &mut admin).await.is_err() {
        admin.abort();
    }
    watching.abort();
    for task in wired.tasks {
        if task.await.is_err() {
            warn!("a partition ended early");
        }
    }
    served
}

/// Health, `RoutingService`, and reflection where it is wanted.
async fn routes(
    config: &Config,
    reads: Arc<Reads<AnyStore>>,
    gate: &Arc<Gate>,
) -> Result<(HealthReporter, Routes)> {
    let limits = &config.limits;
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, false).await;
    let api_limits = ApiLimits {
        evidence_max: EVIDENCE_PER_REQUEST,
        streams_max: limits.route_streams,
        frames_max: limits.route_in_flight,
    };
    let routing = Routing::new(reads, Arc::clone(gate), api_limits);
    let routing =
        RoutingServiceServer::new(routing).max_decoding_message_size(limits.message_bytes);
    let mut routes = Routes::new(health_service).add_service(routing);
    if config.listen.reflection {
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tidegate_proto::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let unreadable = "the descriptors of the API cannot be read";
        routes = routes
            .add_service(described().build_v1().context(unreadable)?)
            .add_service(described().build_v1alpha().context(unreadable)?);
    }
    Ok((health, routes))
}

async fn set_health(health: &HealthReporter, serving: bool) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    let status = if serving { Serving } else { NotServing };
    health.set_service_status("", status).await;
    health.set_service_status(DataService::NAME, status).await;
}

/// Keeps health as the gate says.
async fn watch_health(health: HealthReporter, gate: Arc<Gate>, stop: CancellationToken) {
    gate.ready().await;
    set_health(&health, true).await;
    stop.cancelled().await;
    set_health(&health, false).await;
    // The reporter's statuses live as long as the service that shows them.
    std::future::pending::<()>().await;
}
