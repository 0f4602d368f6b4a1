//! The client of one Tidegate: a connection and the one stream on it, shared by all sessions.
//!
//! It keeps no session and decides nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tonic::transport::{Channel, Endpoint};

use crate::error::{ClientError, ServiceError};
use crate::options::{ClientOptions, SessionOptions};
use crate::route::Route;
use crate::session::Session;

/// A ping goes out after this much silence, also while no call is open.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// The connection is lost when a ping is not answered for so long.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// 16 MiB: with less, ten thousand small answers at once look like an attack to HTTP/2 and end the
/// connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Nodes of which it is said that a pooler was found before them; of more it is not.
const POOLERS_SAID_MAX: usize = 256;

/// A client of one Tidegate. Clones share its connection; with the last one, and the last session,
/// its task ends.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    route: Route,
    rpc: RoutingServiceClient<Channel>,
    options: ClientOptions,
    /// Nodes found behind a pooler that nobody had declared.
    poolers: Mutex<BTreeSet<String>>,
}

impl Client {
    /// Connects now, so that a wrong endpoint shows here.
    ///
    /// # Errors
    /// [`ClientError::Endpoint`], or [`ClientError::Unreachable`].
    pub async fn connect(options: ClientOptions) -> Result<Self, ClientError> {
        let endpoint = endpoint(&options)?;
        let channel = endpoint.connect().await.map_err(|error| ClientError::Unreachable {
            endpoint: options.endpoint.clone(),
            attempts: 1,
            last: causes(&error),
            retry_after: None,
        })?;
        Ok(Self::over(channel, options))
    }

    /// Connects with the first call. Needs a running tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Endpoint`].
    pub fn lazy(options: ClientOptions) -> Result<Self, ClientError> {
        let channel = endpoint(&options)?.connect_lazy();
        Ok(Self::over(channel, options))
    }

    fn over(channel: Channel, options: ClientOptions) -> Self {
        let rpc = RoutingServiceClient::new(channel);
        let route = Route::start(rpc.clone(), &options);
        Self { inner: Arc::new(Inner { route, rpc, options, poolers: Mutex::default() }) }
    }

    /// A session of this client. It costs nothing: make one for each request of your own.
    pub fn session(&self, options: SessionOptions) -> Session {
        Session::new(self.clone(), options)
    }

    pub(crate) fn route(&self) -> &Route {
        &self.inner.route
    }

    pub(crate) fn guards(&self) -> &Guards {
        &self.inner.options.guards
    }

    pub(crate) fn call_grace(&self) -> Duration {
        self.inner.options.call_grace
    }

    /// Says once of each node that it is reached through a pooler though it is declared direct.
    pub(crate) fn pooler_found(&self, node: &str, address: &str) {
        let mut said = self.inner.poolers.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < POOLERS_SAID_MAX && said.insert(node.to_owned()) {
            tracing::warn!(
                node,
                address,
                "a pooler is before this node: each read is checked inside its transaction; \
                 declare `reach = \"pooled\"`"
            );
        }
    }

    pub(crate) fn rpc(&self) -> RoutingServiceClient<Channel> {
        self.inner.rpc.clone()
    }

    /// Waits for one unary call.
    pub(crate) async fn unary<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, ClientError> {
        let after = self.inner.options.call_grace;
        match tokio::time::timeout(after, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(ServiceError::of_status(&status).into()),
            Err(_) => Err(ClientError::DeadlineExceeded { after }),
        }
    }
}

fn endpoint(options: &ClientOptions) -> Result<Endpoint, ClientError> {
    let wrong =
        |problem: String| ClientError::Endpoint { endpoint: options.endpoint.clone(), problem };
    if !options.endpoint.starts_with("http://") {
        return Err(wrong("it must begin with http://, such as http://127.0.0.1:7400".to_owned()));
    }
    let endpoint =
        Endpoint::from_shared(options.endpoint.clone()).map_err(|error| wrong(causes(&error)))?;
    Ok(endpoint
        .connect_timeout(options.attempt_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES))
}

/// An error with what caused it, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
