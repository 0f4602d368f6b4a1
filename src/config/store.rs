//! Where sessions and facts are remembered. `section.rs` has `[store]` as it is written.
//!
//! Opens no file and asks no server: what a server itself must be is checked by `store` at the
//! start.

mod section;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::Password;
use super::values::HostPort;

pub(super) use section::StoreSection;

/// Servers one store may name: a large cluster's seeds.
pub const STORE_URLS: usize = 32;

/// Where sessions and facts are remembered.
#[derive(Clone, Debug)]
pub struct Store {
    /// What keeps the records of subjects.
    pub kind: StoreKind,
    /// The file with the secret subjects are hashed under. Never rotated: changing it loses every
    /// record. None: a secret is made at the start, which a memory store does not notice.
    pub secret_file: Option<PathBuf>,
    /// The folder the facts of each partition are kept in. It must survive a restart.
    pub state_dir: PathBuf,
}

/// What keeps the records of subjects.
#[derive(Clone, Debug)]
pub enum StoreKind {
    /// This process alone. A start forgets every subject, and is told as a loss.
    Memory,
    /// Redis or Valkey, shared by any number of instances.
    Redis(Box<Redis>),
}

/// A Redis or Valkey, and what may be believed of it.
///
/// Invariant: `urls` are 1 to [`STORE_URLS`], different, and have `tls` all or none.
#[derive(Clone, Debug)]
pub struct Redis {
    /// Its servers, its sentinels, or some servers of the cluster, as `topology` says.
    pub urls: Vec<RedisUrl>,
    /// How its primary is found.
    pub topology: Topology,
    /// Whom Tidegate logs in as; none: the default user.
    pub username: Option<String>,
    /// Where that user's password is.
    pub password: Password,
    /// How its certificates are checked; none: connections are not encrypted.
    pub tls: Option<StoreTls>,
    /// What keeps a primary that was deposed from being believed; none: as the server shows it.
    pub redundancy: Option<Redundancy>,
    /// How long nothing is believed after a loss; none: as the redundancy needs.
    pub fence: Option<Duration>,
    /// The servers' `min-replicas-max-lag`, where they may not be asked for it.
    pub max_lag: Option<Duration>,
    /// Time one operation may take.
    pub timeout: Duration,
    /// Replicas that a record is waited for on; 0: none.
    pub wait_replicas: u32,
    /// How long they are waited for.
    pub wait: Duration,
}

/// How the primary of a store is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    /// It is whichever of the servers named says so.
    Single,
    /// Sentinels name it.
    Sentinel {
        /// What they call it.
        master: String,
    },
    /// Each key has one in a Redis Cluster.
    Cluster,
}

/// How certificates of a store are checked, and what it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreTls {
    /// The certificates that sign the servers', in PEM.
    pub ca_file: PathBuf,
    /// What Tidegate shows of itself: the certificate and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What keeps a primary that was deposed from being believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum Redundancy {
    /// It has no replica: nothing can take its place.
    Single,
    /// A primary without its replicas takes no write (`min-replicas-to-write`), and without a write
    /// taken lately no answer of it is believed.
    Fenced,
    /// Nothing: a record may be behind for as long as a deposed primary answers, and reads say so.
    Async,
}

impl TryFrom<String> for Redundancy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "single" => Ok(Self::Single),
            "fenced" => Ok(Self::Fenced),
            "async" => Ok(Self::Async),
            _ => Err(format!("`{text}` is no redundancy; use `single`, `fenced` or `async`")),
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "single",
            Self::Fenced => "fenced",
            Self::Async => "async",
        })
    }
}

/// Where one server of a store listens: `redis://host:port`, or `rediss://` with TLS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct RedisUrl {
    address: HostPort,
    tls: bool,
}

impl RedisUrl {
    /// Its host and port.
    pub const fn host_port(&self) -> &HostPort {
        &self.address
    }

    /// True if connections are encrypted.
    pub const fn has_tls(&self) -> bool {
        self.tls
    }
}

impl TryFrom<String> for RedisUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.contains('@') {
            // Not repeated: it may hold a password.
            return Err(
                "a user or password does not belong into a URL; write `redis://host:6379`, \
                 and set `username` and `password_file`"
                    .to_owned(),
            );
        }
        let (tls, rest) = match (text.strip_prefix("redis://"), text.strip_prefix("rediss://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => (false, ""),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some((_, path)) = rest.split_once('/') {
            return Err(format!(
                "`{text}` names the database `{path}`; leave it out: keys carry the name of the \
                 cluster, and database 0 is the only one a Redis Cluster has"
            ));
        }
        let wrong = |_| {
            format!(
                "`{text}` is no URL of a store; write `redis://host:6379`, or \
                 `rediss://host:6379` with TLS"
            )
        };
        Ok(Self { address: HostPort::try_from(rest.to_owned()).map_err(wrong)?, tls })
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "rediss" } else { "redis" }, self.address)
    }
}
