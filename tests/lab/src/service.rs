//! Tidegate itself, in this process, in front of a cluster.
//!
//! The real service on real listeners: only the safety rules can be switched off, in builds that
//! may. It installs the database objects as an operator would.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tidegate::config::Config;
use tidegate::server::{self, Running};
use tidegate::sources::postgres::schema;
use tidegate_core::guards::Guards;

use crate::postgres::{Cluster, Server};

/// The database every lab cluster has.
pub const DATABASE: &str = "postgres";
/// The partition of a lab service.
pub const PARTITION: &str = "main";

/// What a service is in front of, and under which rules.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServiceOptions {
    system: u64,
    instance: Option<String>,
    nodes: Vec<(String, SocketAddr, SocketAddr)>,
    reaches: Vec<(String, &'static str)>,
    limits: Vec<(String, String)>,
    partition: Vec<(String, String)>,
    guards: Guards,
    token_key: Option<PathBuf>,
    listen: Option<(SocketAddr, SocketAddr)>,
    store: String,
}

impl ServiceOptions {
    /// In front of all servers of a cluster, with the objects installed on its leader.
    ///
    /// # Errors
    /// If the leader does not answer.
    pub async fn of(cluster: &Cluster) -> Result<Self> {
        install(cluster.leader()).await?;
        let system = system_id(cluster.leader()).await?;
        let nodes = cluster.servers().iter();
        Ok(Self::at(system, nodes.map(|server| (server.name().to_owned(), server.address()))))
    }

    /// In front of these nodes of one system, which have the objects already.
    pub fn at(system: u64, nodes: impl IntoIterator<Item = (String, SocketAddr)>) -> Self {
        let nodes = nodes.into_iter().map(|(name, address)| (name, address, address)).collect();
        let (reaches, limits, partition) = (Vec::new(), Vec::new(), Vec::new());
        let (guards, token_key, listen) = (Guards::on(), None, None);
        let store = "kind = \"memory\"".to_owned();
        let instance = None;
        Self {
            system,
            instance,
            nodes,
            reaches,
            limits,
            partition,
            guards,
            token_key,
            listen,
            store,
        }
    }

    /// Under a name of its own among the instances of the cluster.
    pub fn instance(mut self, name: &str) -> Self {
        self.instance = Some(name.to_owned());
        self
    }

    /// Under these safety rules.
    pub fn guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// Sets one of `[limits]`, in place of what was set before; strings come with their quotes.
    pub fn limit(mut self, name: &str, value: &str) -> Self {
        self.limits.retain(|(known, _)| known != name);
        self.limits.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets one setting of the partition; strings come with their quotes.
    pub fn partition(mut self, name: &str, value: &str) -> Self {
        self.partition.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Seals tokens with the key in this file, so that a test can open them.
    pub fn token_key(mut self, file: &Path) -> Self {
        self.token_key = Some(file.to_owned());
        self
    }

    /// Polls a node at another address, as through a proxy.
    pub fn poll_through(mut self, node: &str, address: SocketAddr) -> Self {
        for (name, poll, _) in &mut self.nodes {
            if name == node {
                *poll = address;
            }
        }
        self
    }

    /// Tells clients to reach a node at another address, as through a pooler, and how: `direct`,
    /// `pooled` or `shared`.
    pub fn reach_through(mut self, node: &str, address: SocketAddr, reach: &'static str) -> Self {
        for (name, _, advertise) in &mut self.nodes {
            if name == node {
                *advertise = address;
            }
        }
        self.reaches.push((node.to_owned(), reach));
        self
    }

    /// Adds a node under a name of its own.
    pub fn node(mut self, name: &str, poll: SocketAddr, advertise: SocketAddr) -> Self {
        self.nodes.push((name.to_owned(), poll, advertise));
        self
    }

    /// Leaves a node out.
    pub fn without(mut self, node: &str) -> Self {
        self.nodes.retain(|(name, ..)| name != node);
        self
    }

    /// Listens here instead of on free ports.
    pub fn listen(mut self, data: SocketAddr, admin: SocketAddr) -> Self {
        self.listen = Some((data, admin));
        self
    }

    /// Keeps its records as these lines of `[store]` say, in place of its own memory.
    pub fn store(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.store);
        self
    }

    /// The configuration, keeping its state in `state`.
    ///
    /// # Errors
    /// If `state` has no usable name.
    pub fn toml(&self, state: &Path) -> Result<String> {
        let state = state.to_str().context("the state folder has no usable name")?;
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let (data, admin) = self.listen.unwrap_or((free, free));
        let mut text = format!(
            "[cluster]\nname = \"lab\"\n\n[listen]\ndata = \"{data}\"\nadmin = \"{admin}\"\n\
             reflection = true\n\n[store]\n{}\nstate_dir = \"{state}\"\n\n\
             [partition.{PARTITION}]\nid = 1\nsystem_id = {}\ndatabase = \"{DATABASE}\"\n",
            self.store, self.system
        );
        if let Some(instance) = &self.instance {
            text = text.replacen("\n\n", &format!("\ninstance = \"{instance}\"\n\n"), 1);
        }
        for (name, value) in &self.partition {
            writeln!(text, "{name} = {value}")?;
        }
        for (name, poll, advertise) in &self.nodes {
            writeln!(
                text,
                "\n[[partition.{PARTITION}.node]]\nname = \"{name}\"\npoll = \"{poll}\"\n\
                 advertise = [\"{advertise}\"]"
            )?;
            if let Some((_, reach)) = self.reaches.iter().find(|(node, _)| node == name) {
                writeln!(text, "reach = \"{reach}\"")?;
            }
        }
        if let Some(file) = &self.token_key {
            writeln!(text, "\n[token]\nkeys = [\"{}\"]", file.display())?;
        }
        writeln!(text, "\n[limits]")?;
        for (name, value) in &self.limits {
            writeln!(text, "{name} = {value}")?;
        }
        Ok(text)
    }
}

/// A running service.
#[derive(Debug)]
pub struct Service {
    running: Option<Running>,
    data: SocketAddr,
    admin: SocketAddr,
    state: TempDir,
    options: ServiceOptions,
}

impl Service {
    /// Starts a service and waits until it admits calls and knows who leads.
    ///
    /// # Errors
    /// If it does not start, or does not see its nodes in time.
    pub async fn start(options: ServiceOptions) -> Result<Self> {
        let service = Self::launch(options).await?;
        service.await_leader().await?;
        Ok(service)
    }

    /// Starts a service and waits for nothing.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn launch(options: ServiceOptions) -> Result<Self> {
        let state = tempfile::tempdir()?;
        let running = run(&options, &state).await?;
        let (data, admin) = (running.data, running.admin);
        Ok(Self { running: Some(running), data, admin, state, options })
    }

    /// Ends the service and starts it again, with the state it kept; on other ports.
    ///
    /// # Errors
    /// If it does not end or start.
    pub async fn restart(&mut self) -> Result<()> {
        self.restart_unawaited().await?;
        self.await_leader().await
    }

    /// As [`Service::restart`], but waits for nothing once it listens.
    ///
    /// # Errors
    /// If it does not end or start.
    pub async fn restart_unawaited(&mut self) -> Result<()> {
        self.halt().await?;
        let running = run(&self.options, &self.state).await?;
        (self.data, self.admin) = (running.data, running.admin);
        self.running = Some(running);
        Ok(())
    }

    /// Ends the service; what it kept stays for [`Service::restart`].
    ///
    /// # Errors
    /// If it had failed.
    pub async fn halt(&mut self) -> Result<()> {
        match self.running.take() {
            Some(running) => running.shutdown().await,
            None => Ok(()),
        }
    }

    /// Where `RoutingService` answers, for clients.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.data)
    }

    /// Where `AdminService` answers, for clients.
    pub fn admin_endpoint(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Where `RoutingService` listens.
    pub const fn data_address(&self) -> SocketAddr {
        self.data
    }

    /// Where the admin listener listens.
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// What the service knows of its partition.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn partition(&self) -> Result<tidegate_proto::v1::Partition> {
        use tidegate_proto::v1::ListPartitionsRequest;
        use tidegate_proto::v1::admin_service_client::AdminServiceClient;
        let mut admin = AdminServiceClient::connect(self.admin_endpoint()).await?;
        let request = ListPartitionsRequest { partition: PARTITION.to_owned() };
        let answer = admin.list_partitions(request).await?.into_inner();
        answer.partitions.into_iter().next().context("the service has no partition")
    }

    /// Waits until it admits calls.
    ///
    /// # Errors
    /// If that takes longer than a lab may wait.
    pub async fn await_ready(&self) -> Result<()> {
        let ready = || crate::metrics::is_ready(self.admin);
        crate::wait::until("the service to admit calls", crate::wait::LIMIT, ready).await?;
        Ok(())
    }

    /// Waits until it admits calls, a leader is known whose lineage row stands, and all standbys
    /// show it.
    ///
    /// # Errors
    /// If that takes longer than a lab may wait.
    pub async fn await_leader(&self) -> Result<()> {
        self.await_ready().await?;
        crate::wait::until("the service to see all nodes", crate::wait::LIMIT, || async {
            let Ok(partition) = self.partition().await else { return Ok(false) };
            let shown = |node: &tidegate_proto::v1::NodeState| {
                node.session_eligible || !node.poll_error.is_empty()
            };
            Ok(!partition.leader_node.is_empty() && partition.nodes.iter().all(shown))
        })
        .await?;
        Ok(())
    }

    /// Ends the service.
    ///
    /// # Errors
    /// If it had failed.
    pub async fn stop(mut self) -> Result<()> {
        self.halt().await
    }
}

async fn run(options: &ServiceOptions, state: &TempDir) -> Result<Running> {
    let text = options.toml(state.path())?;
    let config = Config::parse("lab.toml", &text, std::iter::empty())?;
    server::start(config, options.guards).await
}

/// Installs the database objects, as `tidegate sql | psql` does.
///
/// # Errors
/// If the server refuses them.
pub async fn install(leader: &Server) -> Result<()> {
    leader.sql(schema::HOME).await.context("the database objects cannot be installed")?;
    Ok(())
}

/// The system id of a server.
///
/// # Errors
/// If it does not answer.
pub async fn system_id(server: &Server) -> Result<u64> {
    let text: String =
        server.value("select system_identifier::text from pg_control_system()").await?;
    Ok(text.parse()?)
}
