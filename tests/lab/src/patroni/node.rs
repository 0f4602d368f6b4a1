//! One Patroni with its server: kills, and a new start.
//!
//! Patroni starts, stops and repairs its server by itself; the lab only kills.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio_postgres::{Client, Config, NoTls};

use super::conf;
use super::install::Programs;
use crate::install::Binaries;
use crate::machine;
use crate::ports::Port;
use crate::postgres::guard::{Guard, Stop};

/// What a killed process may take to be gone.
const GONE_LIMIT: Duration = Duration::from_secs(20);
const GONE_PAUSE: Duration = Duration::from_millis(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The ports of one node, and etcd's.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) server: Port,
    pub(super) rest: Port,
    pub(super) etcd: SocketAddr,
}

/// One node of the cluster.
#[derive(Debug)]
pub struct Node {
    name: String,
    folder: PathBuf,
    log: PathBuf,
    ports: Ports,
    programs: Programs,
    guard: Mutex<Option<Guard>>,
}

impl Node {
    /// A node that does not run yet, below `root`. As a standby it shows commits that much later.
    pub(super) fn prepare(
        (name, delay): (&str, Duration),
        root: &Path,
        etcd: SocketAddr,
        binaries: &Binaries,
        programs: &Programs,
    ) -> Result<Self> {
        let ports = Ports { server: Port::reserve()?, rest: Port::reserve()?, etcd };
        let folder = root.join(name);
        fs::create_dir(&folder)?;
        machine::give_to_server_user(&folder)?;
        let postgres = binaries.postgres();
        let bin = postgres.parent().context("programs have a folder")?;
        let settings = conf::node(name, (&folder, root, bin), delay, &ports);
        let file = folder.join("patroni.yml");
        fs::write(&file, serde_json::to_string_pretty(&settings)?)?;
        machine::give_to_server_user(&file)?;
        let log = root.join(format!("{name}.log"));
        let (name, programs) = (name.to_owned(), programs.clone());
        Ok(Self { name, folder, log, ports, programs, guard: Mutex::new(None) })
    }

    /// Its name in Patroni, and in Tidegate.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.ports.server.address()
    }

    /// Where its Patroni answers.
    #[must_use]
    pub fn rest(&self) -> SocketAddr {
        self.ports.rest.address()
    }

    /// Where its Patroni answers, as operators write it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.rest())
    }

    fn guard(&self) -> MutexGuard<'_, Option<Guard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts its Patroni, which starts the server. Blocks for a moment.
    ///
    /// # Errors
    /// When it runs already, or the process cannot be started.
    pub fn start(&self) -> Result<()> {
        let mut guard = self.guard();
        if guard.as_ref().is_some_and(|guard| machine::is_alive(guard.pid())) {
            bail!("{} is running already", self.name);
        }
        let (program, mut args) = self.programs.patroni();
        args.push(self.folder.join("patroni.yml"));
        let args: Vec<&Path> = args.iter().map(PathBuf::as_path).collect();
        *guard = Some(Guard::start(&self.folder, &self.log, "TERM", &program, &args)?);
        Ok(())
    }

    /// The process id of its server, while that runs.
    #[must_use]
    pub fn postmaster(&self) -> Option<u32> {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).ok()?;
        let pid = file.lines().next()?.trim().parse().ok()?;
        machine::is_alive(pid).then_some(pid)
    }

    /// Kills Patroni and the server, as when the machine dies; returns when both are gone.
    ///
    /// # Errors
    /// When nothing was there to kill.
    pub async fn kill(&self) -> Result<()> {
        let guard = self.guard().take().context("its Patroni runs")?;
        let postmaster = self.postmaster().context("its server runs")?;
        let children = machine::children(postmaster);
        machine::signal(guard.pid(), "KILL")?;
        machine::signal(postmaster, "KILL")?;
        machine::blocking(move || {
            guard.stop(Stop::Kill)?;
            await_gone(postmaster, &children)
        })
        .await
    }

    /// Kills the server alone; returns when it is gone. Patroni starts it again.
    ///
    /// # Errors
    /// When it did not run.
    pub async fn kill_postmaster(&self) -> Result<()> {
        let postmaster = self.postmaster().context("its server runs")?;
        let children = machine::children(postmaster);
        machine::signal(postmaster, "KILL")?;
        machine::blocking(move || await_gone(postmaster, &children)).await
    }

    /// Opens a connection to its server as superuser; it ends when the client is dropped.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn connect(&self) -> Result<Client> {
        let mut config = Config::new();
        let address = self.address();
        config.host(address.ip().to_string()).port(address.port());
        config.user("postgres").dbname("postgres").connect_timeout(CONNECT_TIMEOUT);
        let connected = config.connect(NoTls).await;
        let (client, connection) =
            connected.with_context(|| format!("cannot reach {}", self.name))?;
        // Ends by itself with the client; its errors reach whoever uses the client.
        drop(tokio::spawn(connection));
        Ok(client)
    }

    /// The last lines of what its Patroni and its server logged.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        format!("the log of {} ends with:\n{}", self.name, machine::tail(&text, 25))
    }

    /// Begins the end, for good.
    pub(super) fn begin_end(&self) -> Option<Guard> {
        let mut guard = self.guard().take()?;
        guard.begin_end();
        Some(guard)
    }

    /// Ends what a Patroni that was killed has left running.
    pub(super) fn end_orphan(&self) {
        if let Some(pid) = self.postmaster() {
            // It may end by itself meanwhile.
            drop(machine::signal(pid, "QUIT"));
            if let Err(error) = await_gone(pid, &[]) {
                machine::say(&format!("{}: {error:#}", self.name));
            }
        }
    }
}

/// Waits until a killed process and its children are gone.
fn await_gone(pid: u32, children: &[u32]) -> Result<()> {
    let started_at = Instant::now();
    while machine::is_alive(pid) || children.iter().any(|child| machine::is_alive(*child)) {
        if started_at.elapsed() > GONE_LIMIT {
            bail!("the killed server {pid} or its children still run");
        }
        std::thread::sleep(GONE_PAUSE);
    }
    Ok(())
}
