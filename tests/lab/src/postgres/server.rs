//! One PostgreSQL server: its life, its settings and connections to it.
//!
//! The handle is cheap to clone and outlives nothing: the cluster ends the process. What the
//! server does wrong on demand stands in `lag` and `crash`, where it stands in `position`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Client, Config, NoTls, Row};

use super::conf::{self, Settings};
use super::guard::{Guard, Stop};
use crate::install::Binaries;
use crate::machine;
use crate::ports::Port;
use crate::wait::{LIMIT, until};

/// A handle to one server of a cluster; clones mean the same server.
#[derive(Clone, Debug)]
pub struct Server(pub(super) Arc<Inner>);

/// What all handles of one server share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) name: String,
    pub(super) binaries: Binaries,
    pub(super) port: Port,
    /// The cluster's folder, which holds the sockets too.
    pub(super) root: PathBuf,
    pub(super) password: Option<String>,
    pub(super) scram: bool,
    pub(super) tls: bool,
    pub(super) state: Mutex<State>,
}

/// What changes while a server lives.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) standby: bool,
    /// Where it receives from, remembered while reception is cut.
    pub(super) upstream: Option<SocketAddr>,
    pub(super) guard: Option<Guard>,
    /// No more starts: the cluster is being dropped.
    pub(super) ended: bool,
    pub(super) admin: Option<Arc<Client>>,
}

impl Server {
    /// The name, which the server itself knows as `cluster_name`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
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

    /// The data folder.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.0.root.join(&self.0.name)
    }

    /// The folder of the Unix socket, over which everybody is trusted.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.0.root
    }

    /// The file that the server logs to.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.0.root.join(format!("{}.log", self.0.name))
    }

    /// A connection URL over TCP for the superuser and the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        let secret = self.0.password.as_ref().map_or_else(String::new, |word| format!(":{word}"));
        self.url_for(&format!("postgres{secret}"), "postgres")
    }

    /// A connection URL over TCP for a user, with `:` and a password where one is needed.
    #[must_use]
    pub fn url_for(&self, user: &str, database: &str) -> String {
        format!("postgresql://{user}@{}/{database}", self.address())
    }

    /// The process id of the server, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state().guard.as_ref().map(Guard::pid)
    }

    /// Tells whether the server process lives.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.pid().is_some_and(machine::is_alive)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the server and returns when it accepts connections.
    ///
    /// # Errors
    /// When it does not come up; the message carries the end of its log.
    pub async fn start(&self) -> Result<()> {
        self.launch().await?;
        self.await_ready().await
    }

    /// Starts the server without waiting until it accepts connections.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub async fn launch(&self) -> Result<()> {
        let server = self.clone();
        machine::blocking(move || server.launch_blocking()).await
    }

    fn launch_blocking(&self) -> Result<()> {
        let mut state = self.state();
        if state.ended {
            bail!("the cluster of {} has been dropped", self.name());
        }
        if state.guard.as_ref().is_some_and(|guard| machine::is_alive(guard.pid())) {
            bail!("{} is running already", self.name());
        }
        // Waits for the end of a guard whose server died by itself.
        if let Some(guard) = state.guard.take() {
            guard.stop(Stop::Immediate)?;
        }
        let data = self.data_dir();
        conf::write(&data, &self.all_settings(&state))?;
        conf::write_access(&data, self.0.scram, self.0.tls)?;
        let signal_file = data.join("standby.signal");
        if state.standby {
            conf::place(&signal_file, "")?;
        } else if signal_file.exists() {
            fs::remove_file(&signal_file)?;
        }
        let (program, log) = (self.0.binaries.postgres(), self.log_file());
        let args = [Path::new("-D"), &data];
        state.guard = Some(Guard::start(&self.0.root, &log, "QUIT", &program, &args)?);
        Ok(())
    }

    fn all_settings(&self, state: &State) -> Settings {
        let mut all = state.settings.clone();
        let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
        set("port", self.port().to_string());
        set("unix_socket_directories", self.0.root.display().to_string());
        set("cluster_name", self.name().to_owned());
        let upstream = state.upstream.filter(|_| state.standby).map_or_else(String::new, |from| {
            format!(
                "host={} port={} user=postgres application_name={}",
                from.ip(),
                from.port(),
                self.name()
            )
        });
        set("primary_conninfo", upstream);
        // A test may override even these, a cut reception among them.
        all.extend(state.settings.clone());
        all
    }

    /// Waits until a launched server accepts connections.
    ///
    /// # Errors
    /// When the process ends, or is not ready within [`LIMIT`].
    pub async fn await_ready(&self) -> Result<()> {
        let what = format!("{} is ready", self.name());
        let waited = until(&what, LIMIT, || async {
            let Some(pid) = self.pid().filter(|pid| machine::is_alive(*pid)) else {
                bail!("{} ended while it started", self.name());
            };
            let file = fs::read_to_string(self.data_dir().join("postmaster.pid"));
            let file = file.unwrap_or_default();
            let mut lines = file.lines();
            // A file left by a killed server names another process.
            let ours = lines.next() == Some(&pid.to_string());
            Ok(ours && lines.nth(6).map(str::trim) == Some("ready"))
        });
        waited.await.map(drop).with_context(|| self.log_tail())
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log_file()).unwrap_or_default();
        format!("the log of {} ends with:\n{}", self.name(), machine::tail(&text, 15))
    }

    /// Stops the server; a stopped one stays stopped.
    ///
    /// # Errors
    /// When it does not end; it is killed after 30 seconds.
    pub async fn stop(&self, how: Stop) -> Result<()> {
        let (guard, admin) = {
            let mut state = self.state();
            (state.guard.take(), state.admin.take())
        };
        drop(admin);
        let Some(guard) = guard else { return Ok(()) };
        machine::blocking(move || guard.stop(how)).await
    }

    /// Stops and starts the server; returns when it accepts connections again.
    ///
    /// # Errors
    /// Those of [`Server::stop`] and [`Server::start`].
    pub async fn restart(&self, how: Stop) -> Result<()> {
        self.stop(how).await?;
        self.start().await
    }

    /// Opens a connection over the Unix socket; it ends when the client is dropped.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn connect(&self, user: &str, database: &str) -> Result<Client> {
        let mut config = Config::new();
        config.host_path(self.socket_dir()).port(self.port()).user(user).dbname(database);
        config.application_name("lab").connect_timeout(Duration::from_secs(10));
        let (client, connection) =
            config.connect(NoTls).await.with_context(|| format!("cannot reach {}", self.name()))?;
        // Ends by itself with the client; its errors reach whoever uses the client.
        drop(tokio::spawn(connection));
        Ok(client)
    }

    /// The lab's own connection, opened again when the server has closed it.
    async fn admin(&self) -> Result<Arc<Client>> {
        let known = self.state().admin.clone().filter(|client| !client.is_closed());
        if let Some(client) = known {
            return Ok(client);
        }
        let client = Arc::new(self.connect("postgres", "postgres").await?);
        self.state().admin = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Runs statements as superuser; several, separated by `;`, are one transaction.
    ///
    /// # Errors
    /// When the server is unreachable or refuses one.
    pub async fn sql(&self, statements: &str) -> Result<()> {
        let outcome = self.admin().await?.batch_execute(statements).await;
        outcome.with_context(|| format!("{}: {statements}", self.name()))
    }

    /// Asks for one row as superuser; asks again once if the connection had died meanwhile.
    ///
    /// # Errors
    /// When the server is unreachable or the answer is not one row.
    pub async fn row(&self, query: &str) -> Result<Row> {
        let client = self.admin().await?;
        let outcome = match client.query_one(query, &[]).await {
            Err(_) if client.is_closed() => self.admin().await?.query_one(query, &[]).await,
            outcome => outcome,
        };
        outcome.with_context(|| format!("{}: {query}", self.name()))
    }

    /// Asks for one value as superuser.
    ///
    /// # Errors
    /// Those of [`Server::row`], or a value of another type.
    pub async fn value<T: FromSqlOwned>(&self, query: &str) -> Result<T> {
        let row = self.row(query).await?;
        row.try_get(0).with_context(|| format!("{}: {query}", self.name()))
    }

    /// Changes a setting, now if the server runs and for all later starts.
    ///
    /// Settings that need a restart take effect at the next start.
    ///
    /// # Errors
    /// When the running server does not read its configuration again.
    pub async fn set(&self, name: &str, value: &str) -> Result<()> {
        self.state().settings.insert(name.to_owned(), value.to_owned());
        self.reload().await?;
        self.await_checkpointer(name).await
    }

    /// Takes back a setting of the test.
    ///
    /// # Errors
    /// Those of [`Server::set`].
    pub async fn unset(&self, name: &str) -> Result<()> {
        {
            let mut state = self.state();
            let usual = conf::base().remove(name);
            match usual {
                Some(value) => state.settings.insert(name.to_owned(), value),
                None => state.settings.remove(name),
            };
        }
        self.reload().await?;
        self.await_checkpointer(name).await
    }

    /// Whether commits wait for anybody is what the checkpointer says, so it must have read that
    /// too. It has when a new session, begun after all were told to read, gets what it asks of it.
    async fn await_checkpointer(&self, changed: &str) -> Result<()> {
        if changed == "synchronous_standby_names" && self.is_running() {
            let session = self.connect("postgres", "postgres").await?;
            session.batch_execute("checkpoint").await?;
        }
        Ok(())
    }

    pub(super) async fn reload(&self) -> Result<()> {
        if !self.is_running() {
            // The next start writes the file.
            return Ok(());
        }
        const LOADED: &str = "select pg_conf_load_time()::text";
        let before: String = self.value(LOADED).await?;
        {
            let mut state = self.state();
            conf::write(&self.data_dir(), &self.all_settings(&state))?;
            if let Some(guard) = &mut state.guard {
                guard.reload();
            }
        }
        let what = format!("{} has read its settings", self.name());
        until(&what, LIMIT, || async { Ok(self.value::<String>(LOADED).await? != before) })
            .await
            .map(drop)
    }

    /// Begins the end, for good.
    pub(super) fn begin_end(&self) -> Option<Guard> {
        let mut state = self.state();
        state.ended = true;
        state.admin = None;
        let mut guard = state.guard.take()?;
        guard.begin_end();
        Some(guard)
    }
}
