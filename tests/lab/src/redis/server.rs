//! One process: its life, its settings, connections to it.
//!
//! Handles are cheap to clone; the last one that is dropped ends the process and removes its
//! folder, and so does the death of the test. What the server says stands in `ask`, what is done
//! to it in `faults`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use super::options::{Options, Part};
use super::programs::{self, Kind};
use super::tls::{self, Tls};
use crate::machine;
use crate::ports::Port;
use crate::postgres::guard::{Guard, Stop};
use crate::wait::{LIMIT, until};

/// The longest that the lab waits for one answer; a frozen server gives none.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(2);

/// A handle to one server; clones mean the same server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    options: Options,
    program: PathBuf,
    port: Port,
    /// Where the nodes of a Cluster talk to each other.
    bus: Option<Port>,
    folder: PathBuf,
    guard: Mutex<Option<Guard>>,
}

impl Server {
    /// Starts a server by itself; returns when it answers.
    ///
    /// # Errors
    /// When it cannot be installed or does not come up; the message carries the end of its log.
    pub async fn start(options: Options) -> Result<Self> {
        Self::named("server", options).await
    }

    pub(super) async fn named(name: &str, options: Options) -> Result<Self> {
        let name = name.to_owned();
        let server = machine::blocking(move || Self::prepare(name, options)).await?;
        server.start_again().await?;
        Ok(server)
    }

    /// Takes a program, a port and an empty folder. Blocks.
    fn prepare(name: String, options: Options) -> Result<Self> {
        if options.tls && options.kind == Kind::Valkey {
            bail!("TLS is tested on Redis: the Valkey of the lab comes without it");
        }
        let program = programs::server(options.kind)?;
        let port = Port::reserve()?;
        let bus = matches!(options.part, Part::Node(_)).then(Port::reserve).transpose()?;
        let runs = machine::lab_dir()?.join("run");
        machine::open_dir(&runs)?;
        // The guards, which run as this user, remove folders from it.
        machine::give_to_server_user(&runs)?;
        let prefix = format!("{}-redis-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(&runs)?.keep();
        // From here on a failure removes the folder.
        let inner = Inner { name, options, program, port, bus, folder, guard: Mutex::default() };
        machine::give_to_server_user(&inner.folder)?;
        if inner.options.tls {
            Tls::make(&inner.folder)?;
        }
        let text = inner.options.file(&inner.folder, &inner.port, inner.bus.as_ref());
        fs::write(inner.file(), text)?;
        machine::give_to_server_user(&inner.file())?;
        Ok(Self(Arc::new(inner)))
    }

    /// What it is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Which program it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.options.kind
    }

    /// The TCP port on loopback; it stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port.number()
    }

    /// The TCP address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.port.address()
    }

    /// The port on which nodes of a Cluster talk to each other.
    pub(super) fn bus(&self) -> Option<u16> {
        self.0.bus.as_ref().map(Port::number)
    }

    /// Its folder, which holds snapshots, logs and certificates.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The certificate that clients must trust, with TLS.
    #[must_use]
    pub fn certificate_authority(&self) -> Option<PathBuf> {
        self.0.options.tls.then(|| tls::authority(&self.0.folder))
    }

    /// A URL for the user who may do everything.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same URL with the address of something that leads to this server.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr) -> String {
        let options = &self.0.options;
        // A Sentinel keeps the password for those it watches and asks nobody for it.
        let own = options.password.as_ref().filter(|_| !options.is_sentinel());
        let secret = own.map_or_else(String::new, |word| format!(":{word}@"));
        self.url_with(&secret, address)
    }

    /// A URL for one user of the access list.
    #[must_use]
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"), self.address())
    }

    fn url_with(&self, who: &str, address: SocketAddr) -> String {
        let scheme = if self.0.options.tls { "rediss" } else { "redis" };
        format!("{scheme}://{who}{address}/")
    }

    /// Opens a connection of its own as the user who may do everything.
    ///
    /// # Errors
    /// When the server refuses it or does not answer.
    pub async fn connect(&self) -> Result<MultiplexedConnection> {
        self.connect_to(&self.url()).await
    }

    /// Opens a connection to a URL that this server made.
    ///
    /// # Errors
    /// When the server refuses it or does not answer.
    pub async fn connect_to(&self, url: &str) -> Result<MultiplexedConnection> {
        self.open(url, Some(ANSWER_LIMIT)).await
    }

    /// Opens a connection that waits for its answers however long the server is frozen.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn connect_patiently(&self) -> Result<MultiplexedConnection> {
        self.open(&self.url(), None).await
    }

    async fn open(&self, url: &str, limit: Option<Duration>) -> Result<MultiplexedConnection> {
        let client = match self.0.options.tls {
            true => Client::build_with_tls(url, tls::trusted(&self.0.folder)?)?,
            false => Client::open(url)?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_LIMIT))
            .set_response_timeout(limit);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.with_context(|| format!("cannot reach {}", self.name()))
    }

    /// The process id, while the process runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.guard().as_ref().map(Guard::pid).filter(|pid| machine::is_alive(*pid))
    }

    fn guard(&self) -> MutexGuard<'_, Option<Guard>> {
        self.0.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a server that was stopped or killed, in the role it had; returns when it answers.
    ///
    /// # Errors
    /// When it runs already or does not come up; the message carries the end of its log.
    pub async fn start_again(&self) -> Result<()> {
        let server = self.clone();
        machine::blocking(move || server.launch()).await?;
        let what = format!("{} answers", self.name());
        let answers = until(&what, LIMIT, || async {
            if self.pid().is_none() {
                bail!("{} ended while it started", self.name());
            }
            Ok(self.ask::<String>(&["PING"]).await.is_ok())
        });
        answers.await.map(drop).with_context(|| self.log_tail())
    }

    fn launch(&self) -> Result<()> {
        if self.pid().is_some() {
            bail!("{} is running already", self.name());
        }
        let inner = &*self.0;
        let mut guard = self.guard();
        // Waits for the end of a guard whose server died by itself.
        if let Some(guard) = guard.take() {
            guard.stop(Stop::Kill)?;
        }
        let file = inner.file();
        let mut args: Vec<&Path> = vec![&file];
        if inner.options.is_sentinel() {
            args.push(Path::new("--sentinel"));
        }
        let log = inner.folder.join("log");
        *guard = Some(Guard::start(&inner.folder, &log, "KILL", &inner.program, &args)?);
        Ok(())
    }

    /// Stops the server in peace: it writes a snapshot if it keeps any.
    ///
    /// # Errors
    /// When it does not end within the usual limit.
    pub async fn stop(&self) -> Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        // Once: a second signal would end it without its snapshot.
        machine::signal(pid, "TERM")?;
        let what = format!("{} has ended", self.name());
        until(&what, LIMIT, || async { Ok(!machine::is_alive(pid)) }).await?;
        self.kill().await
    }

    /// Kills the server, which can neither save nor say anything; returns when it is gone.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(&self) -> Result<()> {
        let Some(guard) = self.guard().take() else { return Ok(()) };
        machine::blocking(move || guard.stop(Stop::Kill)).await
    }

    /// Stops the process in its tracks (SIGSTOP): connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn freeze(&self) -> Result<()> {
        self.signal("STOP").await
    }

    /// Lets a frozen process go on.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn thaw(&self) -> Result<()> {
        self.signal("CONT").await
    }

    async fn signal(&self, name: &'static str) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name()))?;
        machine::blocking(move || machine::signal(pid, name)).await
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.0.folder.join("log")).unwrap_or_default();
        format!("the log of {} ends with:\n{}", self.name(), machine::tail(&text, 15))
    }
}

impl Inner {
    /// The file that it starts with, and keeps up to date itself.
    fn file(&self) -> PathBuf {
        self.folder.join("server.conf")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let guard = self.guard.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Its guard removes the folder too, so a part may vanish while it is walked.
        drop(guard);
        let started_at = Instant::now();
        while self.folder.exists() && fs::remove_dir_all(&self.folder).is_err() {
            if started_at.elapsed() > ANSWER_LIMIT {
                machine::say(&format!("cannot remove {}", self.folder.display()));
                return;
            }
            std::thread::sleep(END_PAUSE);
        }
    }
}
