//! `Dial` and `Link`: how the primaries of a store are found and connected to.
//!
//! A link carries any number of calls at once. It follows MOVED, ASK and TRYAGAIN of a Redis
//! Cluster and asks primaries only; it notices neither delays nor that it is dead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, Slot, SlotAddr};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError, TlsCertificates, TlsMode, Value,
};
use thiserror::Error;

use super::info::ServerInfo;
use super::settings::{FileError, RedisSettings};
use crate::config::Topology;

/// Time a connection may take, its greeting included: as long as a host that is gone says nothing.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// Redirections and waits of one call in a cluster, and the longest wait in milliseconds: together
/// shorter than a call may take, so that a slot on the move is told from a server that is gone.
const REDIRECTIONS: u32 = 5;
const LONGEST_WAIT_MILLIS: u64 = 10;
/// Calls that may wait for the socket of one connection.
const CALLS_QUEUED: usize = 1_024;

/// Why there is no link.
#[derive(Debug, Error)]
pub(super) enum DialError {
    /// A file that is needed for it cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A server refused, or was not reached.
    #[error("{0}")]
    Server(#[from] RedisError),
    /// No server that was reached is a primary.
    #[error("no primary among {0}: all are replicas")]
    NoPrimary(String),
}

/// How the primaries of a store are found.
#[derive(Debug)]
pub(super) struct Dial {
    settings: RedisSettings,
    /// Where the search for a primary begins: one that failed is asked last.
    turn: AtomicUsize,
}

/// Connections to the primaries of a store.
#[derive(Clone)]
pub(super) enum Link {
    /// To one server.
    One(MultiplexedConnection),
    /// To every server of a cluster.
    Cluster(ClusterConnection),
}

impl Link {
    /// Sends commands to the primary of a slot, one behind the other; returns its answers, among
    /// them errors as values.
    pub(super) async fn ask(
        &self,
        slot: Slot,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, RedisError> {
        let count = commands.len();
        match self {
            Self::One(connection) => {
                connection.clone().send_packed_commands(commands, 0, count).await
            }
            Self::Cluster(connection) => {
                let route = Route::with_slot(slot, SlotAddr::Master);
                let route = SingleNodeRoutingInfo::SpecificNode(route);
                connection.clone().route_pipeline(commands.clone(), 0, count, route).await
            }
        }
    }
}

impl Dial {
    /// Finds the servers of `settings`.
    pub(super) const fn new(settings: RedisSettings) -> Self {
        Self { settings, turn: AtomicUsize::new(0) }
    }

    /// Whether another server may be found by dialling anew.
    pub(super) fn finds_others(&self) -> bool {
        match self.settings.topology {
            // Behind one address, too: the name or the virtual address of a primary moves with it,
            // and a connection to the old one stays open.
            Topology::Single | Topology::Sentinel { .. } => true,
            // A cluster's link finds them by itself.
            Topology::Cluster => false,
        }
    }

    /// Connects to the primaries.
    ///
    /// # Errors
    /// [`DialError`] if there are none, or not in time.
    pub(super) async fn link(&self) -> Result<Link, DialError> {
        let certificates = self.certificates()?;
        let login = self.login()?;
        match &self.settings.topology {
            Topology::Single => self.single(&login, certificates.as_ref()).await,
            Topology::Sentinel { master } => {
                self.sentinel(master, &login, certificates.as_ref()).await
            }
            Topology::Cluster => self.cluster(&login, certificates).await,
        }
    }

    async fn single(
        &self,
        login: &RedisConnectionInfo,
        certificates: Option<&TlsCertificates>,
    ) -> Result<Link, DialError> {
        let addresses = self.addresses();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut failed = None;
        for place in 0..addresses.len() {
            let Some(address) = addresses.get((turn + place) % addresses.len()) else { break };
            let client = client(server(address, login)?, certificates)?;
            match primary(&client).await {
                Ok(Some(connection)) => return Ok(Link::One(connection)),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.map_or_else(|| DialError::NoPrimary(self.settings.shown()), DialError::Server))
    }

    async fn sentinel(
        &self,
        master: &str,
        login: &RedisConnectionInfo,
        certificates: Option<&TlsCertificates>,
    ) -> Result<Link, DialError> {
        let kind = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(self.addresses(), master, kind)?
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_sentinel_tcp_settings(tcp());
        if let Some(username) = login.username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(certificates) = certificates {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        let mut sentinels = builder.build()?;
        let client = match tokio::time::timeout(CONNECT_LIMIT, sentinels.async_get_client()).await {
            Ok(client) => client?,
            Err(_) => return Err(DialError::Server(too_late("no sentinel named the primary"))),
        };
        let connection = primary(&client).await?;
        connection.map(Link::One).ok_or_else(|| DialError::NoPrimary(self.settings.shown()))
    }

    async fn cluster(
        &self,
        login: &RedisConnectionInfo,
        certificates: Option<TlsCertificates>,
    ) -> Result<Link, DialError> {
        let seeds: Result<Vec<ConnectionInfo>, RedisError> =
            self.addresses().iter().map(|address| server(address, login)).collect();
        let mut builder = ClusterClientBuilder::new(seeds?)
            .retries(REDIRECTIONS)
            .min_retry_wait(2)
            .max_retry_wait(LONGEST_WAIT_MILLIS)
            .connection_timeout(CONNECT_LIMIT)
            .response_timeout(self.settings.timeout.max(CONNECT_LIMIT / 4))
            .tcp_settings(tcp());
        if let Some(certificates) = certificates {
            builder = builder.certs(certificates);
        }
        let client = builder.build()?;
        let limit = CONNECT_LIMIT * 2;
        match tokio::time::timeout(limit, client.get_async_connection()).await {
            Ok(connection) => Ok(Link::Cluster(connection?)),
            Err(_) => Err(DialError::Server(too_late("no server showed the cluster's slots"))),
        }
    }

    fn addresses(&self) -> Vec<ConnectionAddr> {
        let address = |url: &crate::config::RedisUrl| {
            let (host, port) = (url.host_port().host().to_owned(), url.host_port().port());
            if url.has_tls() {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        };
        self.settings.urls.iter().map(address).collect()
    }

    fn login(&self) -> Result<RedisConnectionInfo, FileError> {
        // The name of the library is for people; setting it takes a right that is not needed.
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(username) = &self.settings.username {
            login = login.set_username(username);
        }
        if let Some(password) = self.settings.secret()? {
            login = login.set_password(password);
        }
        Ok(login)
    }

    fn certificates(&self) -> Result<Option<TlsCertificates>, FileError> {
        let read = self.settings.certificates()?;
        Ok(read.map(|read| TlsCertificates {
            client_tls: read
                .identity
                .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
            root_cert: Some(read.authorities),
        }))
    }
}

fn server(
    address: &ConnectionAddr,
    login: &RedisConnectionInfo,
) -> Result<ConnectionInfo, RedisError> {
    let info = address.clone().into_connection_info()?;
    Ok(info.set_tcp_settings(tcp()).set_redis_settings(login.clone()))
}

fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn client(
    server: ConnectionInfo,
    certificates: Option<&TlsCertificates>,
) -> Result<Client, RedisError> {
    match certificates {
        Some(certificates) => Client::build_with_tls(server, certificates.clone()),
        None => Client::open(server),
    }
}

/// A connection to a server, if it says that it is a primary.
async fn primary(client: &Client) -> Result<Option<MultiplexedConnection>, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_LIMIT))
        // Each call has a time of its own.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(CALLS_QUEUED);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut asks = redis::cmd("INFO");
    let asked = asks.arg("replication").query_async::<Value>(&mut connection);
    match tokio::time::timeout(CONNECT_LIMIT, asked).await {
        Ok(value) => {
            let is_primary = ServerInfo::read(&value?).is_some_and(|info| info.is_primary);
            Ok(is_primary.then_some(connection))
        }
        Err(_) => Err(too_late("it does not answer")),
    }
}

fn too_late(text: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
}
