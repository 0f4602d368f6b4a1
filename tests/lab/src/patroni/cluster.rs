//! All of a Patroni cluster, started and ended together, and what is asked of it as a whole.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;

use super::conf;
use super::install::Programs;
use super::node::Node;
use super::rest::{self, Member};
use crate::install::{Binaries, Major};
use crate::machine;
use crate::ports::Port;
use crate::postgres::guard::Guard;
use crate::wait::{LIMIT, until};

/// The nodes of a cluster, and how late each shows commits as a standby: none is always fresh, so
/// that a read gone to the wrong one would be seen.
const NODES: [(&str, Duration); 3] = [
    ("p1", Duration::from_millis(20)),
    ("p2", Duration::from_millis(60)),
    ("p3", Duration::from_millis(150)),
];

/// What Patroni may take until it has replaced a leader that died, rejoined one, or started all.
const SETTLED_LIMIT: Duration = Duration::from_secs(90);

/// Three running nodes; dropping it ends them all and removes their folder.
#[derive(Debug)]
pub struct Patroni {
    nodes: Vec<Node>,
    root: PathBuf,
    etcd: Option<Guard>,
    etcd_ports: [Port; 2],
}

impl Patroni {
    /// Starts etcd and the nodes; returns when one leads and the others stream from it.
    ///
    /// # Errors
    /// When something cannot be installed or does not come up.
    pub async fn start() -> Result<Self> {
        let cluster = machine::blocking(Self::launch).await?;
        cluster.await_etcd().await?;
        for node in &cluster.nodes {
            node.start()?;
        }
        cluster.await_settled().await?;
        Ok(cluster)
    }

    fn launch() -> Result<Self> {
        let (binaries, programs) = (Binaries::find(Major::V15)?, Programs::find()?);
        let runs = machine::lab_dir()?.join("run");
        machine::open_dir(&runs)?;
        // The guards, which run as this user, remove folders from it.
        machine::give_to_server_user(&runs)?;
        let prefix = format!("{}-patroni-", std::process::id());
        let root = tempfile::Builder::new().prefix(&prefix).tempdir_in(&runs)?.keep();
        let ports = [Port::reserve()?, Port::reserve()?];
        let filled = fill(&root, &ports, &binaries, &programs);
        let (etcd, nodes) = filled.inspect_err(|_| drop(fs::remove_dir_all(&root)))?;
        Ok(Self { nodes, root, etcd: Some(etcd), etcd_ports: ports })
    }

    /// Its nodes, in the order of their names; which one leads is Patroni's decision.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by its name.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, name: &str) -> Result<&Node> {
        let node = self.nodes.iter().find(|node| node.name() == name);
        node.with_context(|| format!("there is no node {name}"))
    }

    /// What the first Patroni that answers says of all members.
    async fn members(&self) -> Result<Vec<Member>> {
        let mut last = None;
        for node in &self.nodes {
            match rest::members(node.rest()).await {
                Ok(members) => return Ok(members),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("a cluster has nodes")?)
    }

    /// The node that leads, as Patroni says.
    ///
    /// # Errors
    /// When nobody leads, or no Patroni answers.
    pub async fn leader(&self) -> Result<&Node> {
        let members = self.members().await?;
        let leader = members.iter().find(|member| member.leads).context("somebody leads")?;
        self.node(&leader.name)
    }

    /// Waits until one leads, and all others stream on its timeline.
    ///
    /// # Errors
    /// When that takes too long; the message carries the ends of the logs.
    pub async fn await_settled(&self) -> Result<Duration> {
        let settled = until("all members of Patroni are well", SETTLED_LIMIT, || async {
            let members = self.members().await.unwrap_or_default();
            let leader = members.iter().find(|member| member.leads);
            let timeline = leader.and_then(|leader| leader.timeline);
            let fits = |member: &Member| member.is_well && member.timeline == timeline;
            Ok(members.len() == NODES.len() && timeline.is_some() && members.iter().all(fits))
        });
        settled.await.with_context(|| self.log_tails())
    }

    /// Switches over from one node to another, as an operator does; returns when it is over.
    ///
    /// # Errors
    /// When Patroni refuses it or it fails.
    pub async fn switchover(&self, from: &Node, to: &Node) -> Result<()> {
        let said = rest::switchover(from.rest(), from.name(), to.name()).await?;
        if !said.contains(to.name()) {
            bail!("a switchover to {} ended with: {said}", to.name());
        }
        Ok(())
    }

    async fn await_etcd(&self) -> Result<()> {
        let address = self.etcd_ports[0].address();
        let up = until("etcd answers", LIMIT, || async {
            Ok(TcpStream::connect(address).await.is_ok())
        });
        up.await.map(drop)
    }

    fn log_tails(&self) -> String {
        self.nodes.iter().map(Node::log_tail).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        if std::thread::panicking() {
            machine::say(&self.log_tails());
        }
        // All are told before any is waited for; etcd ends after those who ask it.
        let guards: Vec<Guard> = self.nodes.iter().filter_map(Node::begin_end).collect();
        drop(guards);
        self.nodes.iter().for_each(Node::end_orphan);
        drop(self.etcd.take());
        if let Err(error) = fs::remove_dir_all(&self.root) {
            machine::say(&format!("cannot remove {}: {error}", self.root.display()));
        }
    }
}

fn fill(
    root: &Path,
    [client, peer]: &[Port; 2],
    binaries: &Binaries,
    programs: &Programs,
) -> Result<(Guard, Vec<Node>)> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    machine::give_to_server_user(root)?;
    let etcd: SocketAddr = client.address();
    let nodes = NODES.iter().map(|node| Node::prepare(*node, root, etcd, binaries, programs));
    let nodes = nodes.collect::<Result<Vec<Node>>>()?;
    let folder = root.join("etcd");
    fs::create_dir(&folder)?;
    machine::give_to_server_user(&folder)?;
    let args = conf::etcd(&folder, &etcd.to_string(), &peer.address().to_string());
    let args: Vec<&Path> = args.iter().map(Path::new).collect();
    let guard = Guard::start(&folder, &root.join("etcd.log"), "TERM", &programs.etcd, &args)?;
    Ok((guard, nodes))
}
