//! The PostgreSQL servers of `deploy/compose.yaml` as processes: a leader, and standbys that the
//! deployed script copies from it. Who may do what is said by the deployed files; nothing here
//! promotes or repairs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::folder::Folder;
use crate::install::{Binaries, Major};
use crate::machine;
use crate::ports::Port;
use crate::postgres::guard::Guard;
use crate::wait::{LIMIT, until};

/// The database of the application.
pub(super) const DATABASE: &str = "shop";
/// The table that the guide writes to.
pub(super) const TABLE: &str = "notes";
/// The names of the servers, as the deployed configuration has them; the leader is the first.
pub(super) const NAMES: [&str; 3] = ["leader", "standby-1", "standby-2"];

/// One running server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) port: Port,
    guard: Guard,
}

/// The running servers, the leader first; dropping them ends them.
#[derive(Debug)]
pub(super) struct Databases {
    pub(super) servers: Vec<Server>,
    binaries: Binaries,
}

impl Databases {
    /// Starts a leader, sets it up as an operator does, and starts standbys of it.
    ///
    /// # Errors
    /// When PostgreSQL cannot be installed, or a step fails; the message carries what was said.
    pub(super) async fn start(folder: &Folder) -> Result<Self> {
        let binaries = machine::blocking(|| Binaries::find(Major::V15)).await?;
        let mut databases = Self { servers: Vec::new(), binaries };
        let [leader, standbys @ ..] = NAMES;
        databases.launch_leader(folder, leader).await?;
        databases.await_ready(folder, leader).await?;
        databases.sql(folder, leader, "postgres", &format!("create database {DATABASE}")).await?;
        databases.set_up(folder).await?;
        for name in standbys {
            databases.launch_standby(folder, name)?;
        }
        for name in standbys {
            databases.await_ready(folder, name).await?;
        }
        let table = format!("create table {TABLE} (who text not null, words text not null)");
        databases.sql(folder, leader, DATABASE, &table).await?;
        let rows = format!("select count(*) from {TABLE}");
        for name in standbys {
            until(&format!("{name} has the table"), LIMIT, || async {
                Ok(databases.sql(folder, name, DATABASE, &rows).await.is_ok())
            })
            .await?;
        }
        Ok(databases)
    }

    /// The port of a server.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(super) fn port(&self, name: &str) -> Result<u16> {
        let server = self.servers.iter().find(|server| server.name == name);
        Ok(server.with_context(|| format!("there is no server {name}"))?.port.number())
    }

    /// Where psql and its like are.
    pub(super) fn bin(&self) -> Result<PathBuf> {
        let psql = self.binaries.tool("psql")?;
        Ok(psql.parent().context("psql lies in no folder")?.to_owned())
    }

    /// Runs a statement over TCP, with the password that was made.
    ///
    /// # Errors
    /// When the server refuses it; the message has its words.
    pub(super) async fn sql(
        &self,
        folder: &Folder,
        server: &str,
        database: &str,
        statement: &str,
    ) -> Result<String> {
        let mut psql = Command::new(self.binaries.tool("psql")?);
        self.clean(&mut psql)?.env("PGPASSFILE", folder.at("pgpass"));
        psql.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        psql.args(["-p", &self.port(server)?.to_string(), "-d", database, "-c", statement]);
        let said = machine::blocking(move || machine::run(&mut psql)).await?;
        Ok(said.trim_end().to_owned())
    }

    /// Lets a command see the tools of PostgreSQL and no variable of this shell.
    fn clean<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        let path = format!("{}:/usr/bin:/bin", self.bin()?.display());
        Ok(command.env_clear().env("PATH", path).env("LC_ALL", "C"))
    }

    /// As the entry point of the image does at the first start.
    async fn launch_leader(&mut self, folder: &Folder, name: &'static str) -> Result<()> {
        let (data, port) = (folder.at(name), Port::reserve()?);
        let mut initdb = machine::as_server_user(&self.binaries.tool("initdb")?)?;
        initdb.args(["--no-sync", "--data-checksums", "--username=postgres", "-D"]).arg(&data);
        initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--pwfile"]);
        initdb.arg(folder.secret_file("postgres_password"));
        machine::blocking(move || machine::run(&mut initdb)).await?;
        let mut args = vec![OsString::from("-D"), data.into()];
        args.extend(settings(folder, port.number()));
        self.launch(folder, name, port, &self.binaries.postgres(), args)
    }

    /// As the service `standby-...` does at each start.
    fn launch_standby(&mut self, folder: &Folder, name: &'static str) -> Result<()> {
        let port = Port::reserve()?;
        let variables = [
            format!("PATH={}:/usr/bin:/bin", self.bin()?.display()),
            format!("PGDATA={}", folder.at(name).display()),
            format!("SECRETS={}/secrets", folder.text()),
            format!("PASSWORDS={}/{name}.pgpass", folder.text()),
            "LEADER=127.0.0.1".to_owned(),
            format!("LEADER_PORT={}", self.port(NAMES[0])?),
            format!("NAME={name}"),
            "/bin/sh".to_owned(),
        ];
        let mut args: Vec<OsString> = variables.map(OsString::from).to_vec();
        args.push(folder.at("standby.sh").into());
        args.extend(settings(folder, port.number()));
        self.launch(folder, name, port, Path::new("/usr/bin/env"), args)
    }

    fn launch(
        &mut self,
        folder: &Folder,
        name: &'static str,
        port: Port,
        program: &Path,
        args: Vec<OsString>,
    ) -> Result<()> {
        let args: Vec<&Path> = args.iter().map(Path::new).collect();
        let log = folder.at(&format!("{name}.log"));
        let guard = Guard::start(folder.root(), &log, "QUIT", program, &args)?;
        self.servers.push(Server { name, port, guard });
        Ok(())
    }

    async fn await_ready(&self, folder: &Folder, name: &str) -> Result<()> {
        let (port, program) = (self.port(name)?.to_string(), self.binaries.tool("pg_isready")?);
        let what = format!("{name} accepts connections");
        let ready = until(&what, LIMIT, || async {
            let mut ask = Command::new(&program);
            Ok(machine::run(ask.args(["-q", "-h", "127.0.0.1", "-p", &port])).is_ok())
        });
        let log = || {
            let log = std::fs::read_to_string(folder.at(&format!("{name}.log")));
            format!("its log ends with:\n{}", machine::tail(&log.unwrap_or_default(), 15))
        };
        ready.await.map(drop).with_context(log)
    }

    /// As the service `setup` does.
    async fn set_up(&self, folder: &Folder) -> Result<()> {
        let mut script = Command::new("/bin/sh");
        self.clean(&mut script)?.arg(folder.at("setup.sh"));
        script.env("PGHOST", "127.0.0.1").env("PGPORT", self.port(NAMES[0])?.to_string());
        script.env("PGUSER", "postgres").env("PGDATABASE", DATABASE);
        script.env("SECRETS", folder.at("secrets")).env("SCHEMA", folder.at("schema.sql"));
        script.env("TEMPLATE", folder.at("tidegate.template.toml"));
        script.env("CONFIG", folder.at("tidegate.toml"));
        let outcome = machine::blocking(move || machine::run(&mut script)).await;
        outcome.map(drop).context("setup.sh failed")
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        // All are told before any is waited for.
        self.servers.iter_mut().for_each(|server| server.guard.begin_end());
    }
}

/// The deployed settings, and what differs where servers share one machine.
fn settings(folder: &Folder, port: u16) -> Vec<OsString> {
    let own = [
        format!("config_file={}/postgresql.conf", folder.text()),
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        format!("unix_socket_directories={}", folder.text()),
    ];
    own.into_iter().flat_map(|setting| [OsString::from("-c"), setting.into()]).collect()
}
