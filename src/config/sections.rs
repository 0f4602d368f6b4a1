//! The sections of a configuration file, as they are written.
//!
//! Each type is what a section may hold; an unknown key is an error. What sections demand of each
//! other is checked in `check.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::limits::Limits;
use super::policy::PolicySection;
use super::store::StoreSection;
use super::telemetry::Telemetry;
use super::values::{HostPort, HttpAddress, Name, Secret, number};

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sections {
    /// Who this is.
    pub(super) cluster: Cluster,
    /// Where it listens.
    #[serde(default)]
    pub(super) listen: Listen,
    /// How tokens are sealed.
    #[serde(default)]
    pub(super) token: Token,
    /// Where sessions are remembered.
    pub(super) store: StoreSection,
    /// The replication logs, by name.
    #[serde(default)]
    pub(super) partition: BTreeMap<Name, PartitionSection>,
    /// What requests may call by a name.
    #[serde(default)]
    pub(super) policy: BTreeMap<Name, PolicySection>,
    /// Every bound.
    #[serde(default)]
    pub(super) limits: Limits,
    /// What is told of the service.
    #[serde(default)]
    pub(super) telemetry: Telemetry,
}

/// `[cluster]`: who this is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The installation. All its instances share it; a token of another one is foreign. Never
    /// change it while tokens are out.
    pub name: Name,
    /// This process among the instances of the cluster. Unique among them.
    #[serde(default = "instance")]
    pub instance: Name,
}

fn instance() -> Name {
    Name::literal("a")
}

/// `[listen]`: where the service answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// The address of `RoutingService` and health. On loopback, until TLS is built.
    pub data: SocketAddr,
    /// The address of `AdminService` and metrics. On loopback, until TLS is built.
    pub admin: SocketAddr,
    /// Whether clients may ask the data listener for its services (gRPC reflection).
    pub reflection: bool,
    /// Refused: not built yet.
    pub(super) tls: Option<IgnoredAny>,
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            data: SocketAddr::new(loopback, 7400),
            admin: SocketAddr::new(loopback, 7401),
            reflection: false,
            tls: None,
        }
    }
}

/// `[token]`: how tokens are sealed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Token {
    /// Files with a key each: the first seals, all are accepted. None: a key is made at the start,
    /// so after a restart every session is unknown until it writes or reads again.
    pub keys: Vec<PathBuf>,
}

/// `[partition.NAME]`: one replication log, its leader and replicas.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartitionSection {
    /// Its number inside tokens. From 1, unique, and never given to another partition.
    #[serde(deserialize_with = "partition_id")]
    pub(super) id: u32,
    /// The system id of its database: a leader with another one is refused with an alarm.
    #[serde(deserialize_with = "number")]
    pub(super) system_id: u64,
    /// The system id before a planned upgrade, as the operator's word that nothing was lost in it.
    #[serde(default, deserialize_with = "some_number")]
    pub(super) upgraded_from: Option<u64>,
    /// The home database: the one with the schema `tidegate`.
    pub(super) database: String,
    /// The role that polls.
    #[serde(default = "user")]
    pub(super) user: String,
    /// The file with its password; a line end after it is not part of it.
    pub(super) password_file: Option<PathBuf>,
    /// Its password. From the environment only.
    pub(super) password: Option<Secret>,
    /// How connections are secured.
    pub(super) tls: Option<TlsSetting>,
    /// The file with the certificates that sign the servers', in PEM. Needed by `verify-full`.
    pub(super) tls_ca_file: Option<PathBuf>,
    /// Whether any session of the database commits with `synchronous_commit = off`.
    #[serde(default)]
    pub(super) async_commits: AsyncCommits,
    /// Server majors that no test ran on and that serve sessions all the same, as the operator's
    /// word that a crash is seen on them.
    #[serde(default)]
    pub(super) accepted_majors: Vec<u32>,
    /// Where the Patroni of its servers answers. Empty: nobody is asked.
    #[serde(default)]
    pub(super) patroni: Vec<HttpAddress>,
    /// Its servers.
    #[serde(default)]
    pub(super) node: Vec<Node>,
}

fn user() -> String {
    "tidegate".to_owned()
}

fn some_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    number(from).map(Some)
}

fn partition_id<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let id = number(from)?;
    u32::try_from(id).map_err(|_| {
        serde::de::Error::custom(format!("{id} is too large; use a number from 1 to 4294967295"))
    })
}

/// How connections to a database are secured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TlsSetting {
    /// Not at all.
    Off,
    /// Encrypted; certificate chain and host name are verified.
    VerifyFull,
}

/// Whether commits may be acknowledged before their log is flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AsyncCommits {
    /// They may: nothing is concluded from a flush position alone.
    #[default]
    Possible,
    /// The operator says that no session does: proofs on an idle leader come sooner.
    Never,
}

/// `[[partition.NAME.node]]`: one database server.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name, unique in its partition.
    pub name: Name,
    /// Where Tidegate reaches it: one server behind one address, no pooler and no load balancer.
    pub poll: HostPort,
    /// Where applications reach it, in order of preference. Empty: as `poll`.
    #[serde(default)]
    pub advertise: Vec<HostPort>,
    /// How applications reach it.
    #[serde(default)]
    pub reach: Reach,
    /// Where it stands: reads of the same zone prefer it.
    pub zone: Option<Name>,
}

impl Node {
    /// Where applications reach it, never empty.
    pub fn addresses(&self) -> &[HostPort] {
        if self.advertise.is_empty() { std::slice::from_ref(&self.poll) } else { &self.advertise }
    }
}

/// How applications reach a node, and so when they read its incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum Reach {
    /// One server behind one address.
    #[default]
    Direct,
    /// Behind a pooler: a connection may move to a restarted server without an error.
    Pooled,
    /// An address shared by several servers.
    Shared,
}

impl TryFrom<String> for Reach {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "direct" => Ok(Self::Direct),
            "pooled" => Ok(Self::Pooled),
            "shared" => Ok(Self::Shared),
            _ => Err(format!("`{text}` is no reach; use `direct`, `pooled` or `shared`")),
        }
    }
}
