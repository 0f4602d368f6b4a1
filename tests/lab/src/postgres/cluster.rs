//! A leader with its standbys, started together and ended together.
//!
//! Watches nothing and promotes nobody: what happens to the servers is the test's doing, so
//! [`Cluster::leader`] stays the first leader even after a promotion.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};

use super::Lsn;
use super::conf::{self, Settings, Tls};
use super::guard::Guard;
use super::server::{Inner, Server, State};
use super::template::Template;
use crate::install::{Binaries, Major};
use crate::machine;
use crate::ports::Port;

/// What a cluster consists of.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterOptions {
    major: Major,
    standbys: usize,
    cascade: bool,
    settings: Settings,
    password: Option<String>,
    tls: bool,
}

impl ClusterOptions {
    /// A leader alone, trusting everybody on loopback, with `synchronous_commit` on.
    pub fn new(major: Major) -> Self {
        let (password, settings) = (None, conf::base());
        Self { major, standbys: 0, cascade: false, settings, password, tls: false }
    }

    /// Adds this many standbys, named r1, r2, ...; each streams from the leader.
    pub fn standbys(mut self, standbys: usize) -> Self {
        self.standbys = standbys;
        self
    }

    /// Makes every further standby stream from the one before it.
    pub fn cascade(mut self) -> Self {
        self.cascade = true;
        self
    }

    /// Sets a parameter on all servers.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Commits are acknowledged before they are safe, and for ten seconds, unless forced.
    pub fn async_commits(self) -> Self {
        self.setting("synchronous_commit", "off").setting("wal_writer_delay", "10s")
    }

    /// Waits for the disk, which the lab otherwise never does.
    pub fn durable(self) -> Self {
        self.setting("fsync", "on")
    }

    /// Demands this password of everybody who comes over TCP (SCRAM).
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Demands TLS of everybody who comes over TCP; only PostgreSQL 15 can.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }
}

/// Running servers; dropping it ends them all and removes their folder.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    options: ClusterOptions,
    binaries: Binaries,
    root: PathBuf,
    tls: Option<Tls>,
    _template: Template,
}

impl Cluster {
    /// Starts the servers side by side; returns when every standby streams.
    ///
    /// # Errors
    /// When PostgreSQL cannot be installed or a server does not come up.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        let mut cluster = machine::blocking(move || Self::prepare(options)).await?;
        let standbys = cluster.options.standbys;
        for number in 0..=standbys {
            let name = if number == 0 { "l".to_owned() } else { format!("r{number}") };
            let upstream = match number {
                0 => None,
                _ if cluster.options.cascade => cluster.servers.get(number - 1).cloned(),
                _ => cluster.servers.first().cloned(),
            };
            cluster.add(&name, upstream.as_ref())?;
        }
        let cluster = machine::blocking(move || cluster.fill()).await?;
        let starts = cluster.servers.iter().map(Server::start);
        futures::future::try_join_all(starts).await?;
        if let Some(password) = &cluster.options.password {
            let password = conf::quote(password);
            cluster.leader().sql(&format!("alter role postgres password {password}")).await?;
        }
        let standbys = cluster.standbys().iter().map(Server::await_streaming);
        futures::future::try_join_all(standbys).await?;
        let lsn = cluster.leader().insert_lsn().await?;
        let caught_up = cluster.standbys().iter().map(|server| server.wait_until_replayed(lsn));
        futures::future::try_join_all(caught_up).await?;
        Ok(cluster)
    }

    /// Takes binaries, a template and an empty folder. Blocks.
    fn prepare(options: ClusterOptions) -> Result<Self> {
        if options.tls && options.major != Major::V15 {
            bail!("TLS is tested on PostgreSQL 15: the others come without it");
        }
        let binaries = Binaries::find(options.major)?;
        let template = Template::take(&binaries)?;
        let runs = machine::lab_dir()?.join("run");
        machine::open_dir(&runs)?;
        // The guards, which run as this user, remove folders from it.
        machine::give_to_server_user(&runs)?;
        remove_leftovers(&runs);
        let prefix = format!("{}-", std::process::id());
        let root = tempfile::Builder::new().prefix(&prefix).tempdir_in(&runs)?.keep();
        let tls = fill_root(&root, options.tls).inspect_err(|_| drop(fs::remove_dir_all(&root)))?;
        Ok(Self { servers: Vec::new(), options, binaries, root, tls, _template: template })
    }

    fn fill(self) -> Result<Self> {
        std::thread::scope(|scope| {
            let copies: Vec<_> = self
                .servers
                .iter()
                .map(|server| scope.spawn(|| self._template.copy_to(&server.data_dir())))
                .collect();
            copies.into_iter().try_for_each(|copy| {
                copy.join().unwrap_or_else(|_| bail!("copying a template panicked"))
            })
        })?;
        Ok(self)
    }

    fn add(&mut self, name: &str, upstream: Option<&Server>) -> Result<Server> {
        let mut settings = self.options.settings.clone();
        settings.extend(self.tls.iter().flat_map(Tls::settings));
        let state = State {
            settings,
            standby: upstream.is_some(),
            upstream: upstream.map(Server::address),
            ..State::default()
        };
        let server = Server(Arc::new(Inner {
            name: name.to_owned(),
            binaries: self.binaries.clone(),
            port: Port::reserve()?,
            root: self.root.clone(),
            password: self.options.password.clone(),
            scram: self.options.password.is_some(),
            tls: self.options.tls,
            state: Mutex::new(state),
        }));
        self.servers.push(server.clone());
        Ok(server)
    }

    /// The server that was the leader at the start.
    #[must_use]
    pub fn leader(&self) -> &Server {
        &self.servers[0]
    }

    /// A standby by its number, from 0: `standby(0)` is r1.
    ///
    /// # Panics
    /// When there is no such standby.
    #[must_use]
    pub fn standby(&self, number: usize) -> &Server {
        &self.standbys()[number]
    }

    /// All standbys, in order.
    #[must_use]
    pub fn standbys(&self) -> &[Server] {
        &self.servers[1..]
    }

    /// All servers, the first leader first.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// A server by its name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name() == name)
    }

    /// Adds a standby, cloned from a running server.
    ///
    /// # Errors
    /// When the name is taken or the clone fails.
    pub async fn add_standby(&mut self, name: &str, upstream: &Server) -> Result<Server> {
        if self.server(name).is_some() {
            bail!("there is a server {name} already");
        }
        let server = self.add(name, Some(upstream))?;
        server.clone_from(upstream).await?;
        Ok(server)
    }

    /// The running standbys that have not replayed a position.
    ///
    /// # Errors
    /// When a running standby cannot be asked.
    pub async fn lacking(&self, lsn: Lsn) -> Result<Vec<&Server>> {
        let mut lacking = Vec::new();
        for server in self.standbys().iter().filter(|server| server.is_running()) {
            if server.replay_lsn().await? < lsn {
                lacking.push(server);
            }
        }
        Ok(lacking)
    }

    /// Waits until all running standbys have replayed what the leader has written.
    ///
    /// # Errors
    /// When one does not within the usual limit.
    pub async fn catch_up(&self) -> Result<()> {
        let lsn = self.leader().insert_lsn().await?;
        let running = self.standbys().iter().filter(|server| server.is_running());
        let waits = running.map(|server| server.wait_until_replayed(lsn));
        futures::future::try_join_all(waits).await.map(drop)
    }

    /// The authority that signed the servers' certificate, with TLS.
    #[must_use]
    pub fn certificate_authority(&self) -> Option<PathBuf> {
        self.tls.as_ref().map(Tls::authority)
    }

    /// The folder of everything this cluster writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.root
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.servers.iter().for_each(|server| machine::say(&server.log_tail()));
        }
        // All are told before any is waited for.
        let guards: Vec<Guard> = self.servers.iter().filter_map(Server::begin_end).collect();
        drop(guards);
        if let Err(error) = remove_folder(&self.root) {
            machine::say(&format!("{error:#}"));
        }
    }
}

fn fill_root(root: &Path, tls: bool) -> Result<Option<Tls>> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    machine::give_to_server_user(root)?;
    tls.then(|| Tls::make(&root.join("tls"))).transpose()
}

/// The guards remove it too, so a part may vanish while it is walked.
fn remove_folder(root: &Path) -> Result<()> {
    for _ in 0..10 {
        match fs::remove_dir_all(root) {
            Err(_) if root.exists() => {}
            _ => return Ok(()),
        }
    }
    fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))
}

/// Removes folders of test processes that were killed while all their servers were stopped.
fn remove_leftovers(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().and_then(|pid| pid.parse().ok());
        if owner.is_some_and(|pid| !machine::is_alive(pid)) {
            // A guard may be at it as well.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}
