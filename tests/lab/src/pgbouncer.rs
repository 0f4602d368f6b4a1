//! A real pgbouncer before one server, which can be sent to another server while it runs.
//!
//! Lives in a folder inside its cluster's and is watched like a server: it ends when dropped and
//! when the test dies. Whoever comes in is let in, as the superuser.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::install;
use crate::machine;
use crate::ports::Port;
use crate::postgres::Server;
use crate::postgres::guard::Guard;
use crate::wait::{LIMIT, until};

/// For how long a client connection keeps one server connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolMode {
    /// As long as the client stays.
    Session,
    /// One transaction.
    Transaction,
    /// One statement: transactions are refused.
    Statement,
}

impl PoolMode {
    const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        }
    }
}

/// How a pooler behaves.
#[derive(Clone, Debug)]
#[must_use]
pub struct PgbouncerOptions {
    mode: PoolMode,
    server_connections: u32,
}

impl PgbouncerOptions {
    /// Transaction mode, over at most 10 server connections.
    pub const fn new() -> Self {
        Self { mode: PoolMode::Transaction, server_connections: 10 }
    }

    /// Pools in this mode.
    pub const fn mode(mut self, mode: PoolMode) -> Self {
        self.mode = mode;
        self
    }

    /// Opens at most so many connections to the server.
    pub const fn server_connections(mut self, connections: u32) -> Self {
        self.server_connections = connections;
        self
    }
}

impl Default for PgbouncerOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A running pooler; dropping it ends it and removes its folder. Drop it before its cluster.
#[derive(Debug)]
pub struct Pgbouncer {
    options: PgbouncerOptions,
    port: Port,
    folder: PathBuf,
    guard: Mutex<Guard>,
}

impl Pgbouncer {
    /// Starts a pooler before a server; returns when it answers.
    ///
    /// # Errors
    /// When it cannot be installed or does not come up; the message carries the end of its log.
    pub async fn start(options: PgbouncerOptions, server: &Server) -> Result<Self> {
        let (target, cluster) = (server.address(), server.socket_dir().to_owned());
        let pooler = machine::blocking(move || Self::launch(options, target, &cluster)).await?;
        let answers = until("pgbouncer answers", LIMIT, || async {
            Ok(pooler.connect("pgbouncer").await.is_ok())
        });
        answers.await.with_context(|| pooler.log_tail())?;
        Ok(pooler)
    }

    fn launch(options: PgbouncerOptions, target: SocketAddr, cluster: &Path) -> Result<Self> {
        let program = install::pgbouncer()?;
        let port = Port::reserve()?;
        let folder = cluster.join(format!("pgbouncer-{}", port.number()));
        fs::create_dir(&folder)?;
        machine::give_to_server_user(&folder)?;
        let file = folder.join("pgbouncer.ini");
        write(&file, &settings(&options, &port, target))?;
        let guard = Guard::start(&folder, &folder.join("log"), "TERM", &program, &[&file])?;
        Ok(Self { options, port, folder, guard: Mutex::new(guard) })
    }

    /// Where clients connect to instead of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The process id of the pooler.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).pid()
    }

    /// Opens a client connection through the pooler; it ends when the client is dropped.
    ///
    /// # Errors
    /// When the pooler refuses it.
    pub async fn connect(&self, database: &str) -> Result<Client> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port.number()).user("postgres").dbname(database);
        config.connect_timeout(Duration::from_secs(10));
        let (client, connection) =
            config.connect(NoTls).await.context("cannot connect through pgbouncer")?;
        // Ends by itself with the client; its errors reach whoever uses the client.
        drop(tokio::spawn(connection));
        Ok(client)
    }

    /// Sends every later transaction to another server, as after a failover; client connections
    /// stay. Returns when new transactions go there.
    ///
    /// # Errors
    /// When the other server does not answer through the pooler.
    pub async fn point_to(&self, server: &Server) -> Result<()> {
        let text = settings(&self.options, &self.port, server.address());
        write(&self.folder.join("pgbouncer.ini"), &text)?;
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).reload();
        let port = server.port().to_string();
        let what = format!("pgbouncer leads to {}", server.name());
        until(&what, LIMIT, || async { Ok(self.server_port().await? == port) })
            .await
            .map(drop)
            .with_context(|| self.log_tail())
    }

    /// How many client connections wait for a server connection now.
    ///
    /// # Errors
    /// When the pooler does not answer.
    pub async fn waiting(&self) -> Result<u64> {
        let messages = self.connect("pgbouncer").await?.simple_query("show pools").await?;
        let waiting = messages.iter().filter_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get("cl_waiting")?.parse::<u64>().ok()
        });
        Ok(waiting.sum())
    }

    /// The port of the server that a new transaction meets.
    async fn server_port(&self) -> Result<String> {
        let client = self.connect("postgres").await?;
        let messages = client.simple_query("show port").await?;
        let port = messages.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0).map(str::to_owned)
        });
        port.context("a server tells its port")
    }

    /// The last lines of the pooler's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        format!("the log of pgbouncer ends with:\n{}", machine::tail(&text, 15))
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            machine::say(&self.log_tail());
        }
        // Its guard removes the folder, which is below the cluster's, when it is not told a word.
        self.guard.get_mut().unwrap_or_else(PoisonError::into_inner).begin_end();
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text)?;
    machine::give_to_server_user(file)
}

fn settings(options: &PgbouncerOptions, port: &Port, target: SocketAddr) -> String {
    format!(
        "[databases]\n\
         * = host={} port={} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         admin_users = postgres\n\
         pool_mode = {}\n\
         default_pool_size = {}\n\
         max_client_conn = 400\n\
         # One server connection after the other, so that a client rarely gets the same twice.\n\
         server_round_robin = 1\n\
         # A server that is down is asked again soon; by default fifteen seconds later.\n\
         server_login_retry = 0.05\n\
         log_connections = 0\n\
         log_disconnections = 0\n",
        target.ip(),
        target.port(),
        port.number(),
        options.mode.name(),
        options.server_connections,
    )
}
