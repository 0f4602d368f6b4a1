//! `Target`: whom a source polls, as whom, and how long it waits. It opens nothing.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::lineage::SystemId;
use tidegate_core::views::NodeId;

use super::look::{self, Tag};
use crate::config::{Config, HostPort, Partition, Password, Tls};

/// One server to poll.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which node of the partition it is.
    pub node: NodeId,
    /// Where this one server listens; never a pooler or balancer.
    pub address: Address,
    /// The home database, which has the lineage table.
    pub database: String,
    /// The role to log in as.
    pub user: String,
    /// Where its password comes from.
    pub password: Password,
    /// Whether the connection is encrypted, and whom it must meet.
    pub tls: Tls,
    /// The name of the Tidegate installation.
    pub cluster: String,
    /// The name of this instance of it.
    pub instance: String,
    /// What its connections are told from all others by; `None`: it does not look for others.
    pub tag: Option<Tag>,
    /// The database cluster this partition is; `None` accepts any, before `init` has pinned it.
    pub system: Option<SystemId>,
    /// Majors whose servers are polled however old they are.
    pub accepted_majors: Vec<u32>,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// The safety rules in force.
    pub guards: Guards,
}

impl Target {
    /// The targets of one partition, in the order of its nodes.
    pub fn of<'a>(
        config: &'a Config,
        partition: &'a Partition,
        tag: Option<Tag>,
        guards: Guards,
    ) -> impl Iterator<Item = Self> + 'a {
        (0..).zip(&partition.nodes).map(move |(index, node)| Self {
            node: NodeId::new(index),
            address: Address::from(&node.poll),
            database: partition.database.clone(),
            user: partition.user.clone(),
            password: partition.password.clone(),
            tls: partition.tls.clone(),
            cluster: config.cluster.name.as_str().to_owned(),
            instance: config.cluster.instance.as_str().to_owned(),
            tag,
            system: Some(partition.system_id),
            accepted_majors: partition.accepted_majors.clone(),
            timeouts: Timeouts::new(config.limits.poll_timeout).idle(config.limits.idle_poll),
            guards,
        })
    }

    /// The name the server lists its connection under: `tidegate/CLUSTER/INSTANCE`, and its tag.
    pub fn application_name(&self) -> String {
        look::name(&self.cluster, &self.instance, self.tag)
    }
}

/// How long a source waits. Each is a bound: what takes longer has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// For a connection that is ready to poll.
    pub connect: Duration,
    /// For the answer to one poll or the insert of one row.
    pub poll: Duration,
    /// Between two attempts to connect, at most.
    pub backoff_max: Duration,
}

/// The shortest limit of the pause between two attempts to connect, however often a service polls.
const BACKOFF_LEAST: Duration = Duration::from_millis(100);
/// The longest, however seldom it polls; between them it is the interval of an idle service: a
/// server that is back is seen as soon as one that was never gone.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

impl Timeouts {
    /// Connecting and polling may take `poll` each.
    pub const fn new(poll: Duration) -> Self {
        Self { connect: poll, poll, backoff_max: BACKOFF_MAX }
    }

    /// An idle service polls every `interval`.
    fn idle(mut self, interval: Duration) -> Self {
        self.backoff_max = interval.clamp(BACKOFF_LEAST, BACKOFF_MAX);
        self
    }
}

/// Where one server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp {
        /// The name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The folder of a Unix socket, and the port in the socket's name.
    Socket {
        /// An absolute path.
        folder: PathBuf,
        /// The port.
        port: u16,
    },
}

impl From<&HostPort> for Address {
    fn from(address: &HostPort) -> Self {
        Self::Tcp { host: address.host().to_owned(), port: address.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Socket { folder, port } => write!(f, "{}:{port}", folder.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_tried_as_often_as_an_idle_service_polls_within_limits() {
        let pause = |interval: u64| {
            let timeouts = Timeouts::new(Duration::from_secs(1));
            timeouts.idle(Duration::from_millis(interval)).backoff_max.as_millis()
        };
        assert_eq!([1, 250, 20_000].map(pause), [100, 250, 1_000]);
    }

    const CONFIG: &str = r#"
        [cluster]
        name = "shop"
        instance = "a"
        [token]
        keys = ["key"]
        [store]
        kind = "memory"
        secret_file = "secret"
        state_dir = "state"
        [partition.orders]
        id = 1
        system_id = "7321987654321098765"
        database = "shop"
        tls = "off"
        [[partition.orders.node]]
        name = "db1"
        poll = "127.0.0.1:5432"
        [[partition.orders.node]]
        name = "db2"
        poll = "[::1]:6432"
    "#;

    #[test]
    fn each_node_of_a_partition_becomes_one_target() {
        let config = Config::parse("test", CONFIG, []).unwrap_or_else(|error| panic!("{error}"));
        let targets: Vec<Target> =
            Target::of(&config, &config.partitions[0], None, Guards::on()).collect();
        let shown = |target: &Target| (target.node, target.address.to_string());
        assert_eq!(
            targets.iter().map(shown).collect::<Vec<_>>(),
            [
                (NodeId::new(0), "127.0.0.1:5432".to_owned()),
                (NodeId::new(1), "[::1]:6432".to_owned()),
            ]
        );
        assert_eq!(targets[1].application_name(), "tidegate/shop/a");
        assert_eq!(targets[1].system, Some(SystemId::new(7_321_987_654_321_098_765)));
        assert_eq!(targets[1].database, "shop");
    }
}
