//! The Redis of `deploy/compose.yaml` as two processes: a primary and its replica, both with the
//! deployed settings and passwords. Nothing here promotes anybody.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::folder::Folder;
use crate::machine;
use crate::ports::Port;
use crate::postgres::guard::Guard;
use crate::wait::{LIMIT, until};

/// The names of the two, the primary first.
const NAMES: [&str; 2] = ["redis", "redis-replica"];

/// A primary with a replica; dropping it ends both.
#[derive(Debug)]
pub(super) struct Pair {
    servers: Vec<(Port, Guard)>,
}

impl Pair {
    /// Starts both; returns when the replica has everything.
    ///
    /// # Errors
    /// When Redis cannot be installed, or one does not come up.
    pub(super) async fn start(folder: &Folder) -> Result<Self> {
        machine::blocking(crate::redis::install).await?;
        let mut pair = Self { servers: Vec::new() };
        for name in NAMES {
            pair.launch(folder, name)?;
        }
        let linked = until("the replica of Redis follows", LIMIT, || async {
            let said = pair.said(folder, &["info", "replication"]).unwrap_or_default();
            Ok(said.contains("connected_slaves:1") && said.contains("state=online"))
        });
        let log = |name: &str| {
            let text = std::fs::read_to_string(folder.at(&format!("{name}.log")));
            format!("the log of {name}:\n{}", machine::tail(&text.unwrap_or_default(), 10))
        };
        linked.await.with_context(|| NAMES.map(log).join("\n"))?;
        Ok(pair)
    }

    /// Where they are, as the configuration names them.
    pub(super) fn urls(&self) -> Vec<String> {
        let ports = self.servers.iter().map(|(port, _)| port.number());
        ports.map(|port| format!("redis://127.0.0.1:{port}")).collect()
    }

    /// The port of the primary.
    pub(super) fn port(&self) -> u16 {
        self.servers.first().map_or(0, |(port, _)| port.number())
    }

    fn said(&self, folder: &Folder, words: &[&str]) -> Result<String> {
        let mut ask = Command::new("redis-cli");
        ask.env("REDISCLI_AUTH", folder.secret("redis_password")?);
        machine::run(ask.args(["-p", &self.port().to_string()]).args(words))
    }

    fn launch(&mut self, folder: &Folder, name: &str) -> Result<()> {
        let (port, data) = (Port::reserve()?, folder.make(name)?);
        let deployed = include_str!("../../../../deploy/redis/redis.conf");
        let settings = deployed
            .replace("/run/secrets/", &format!("{}/secrets/", folder.text()))
            .replace("dir /data", &format!("dir {}", data.display()));
        let file = format!("{name}.conf");
        folder.write(&file, &settings, 0o644)?;
        let mut args = vec![folder.at(&file).into_os_string()];
        let own = format!("--port {} --bind 127.0.0.1", port.number());
        args.extend(own.split(' ').map(OsString::from));
        if let Some((primary, _)) = self.servers.first() {
            let primary = primary.number().to_string();
            args.extend(["--replicaof", "127.0.0.1", &primary].map(OsString::from));
        }
        let args: Vec<&Path> = args.iter().map(Path::new).collect();
        let log = folder.at(&format!("{name}.log"));
        // As `redis::install` leaves it, without a service of its own.
        let program = machine::lab_dir()?.join("redis/redis-server");
        // Asked to end, it would save, and stay because the folder is gone already.
        let guard = Guard::start(folder.root(), &log, "KILL", &program, &args)?;
        self.servers.push((port, guard));
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // Both are told before either is waited for.
        self.servers.iter_mut().for_each(|(_, guard)| guard.begin_end());
    }
}
