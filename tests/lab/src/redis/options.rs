//! What a server is told when it first starts.
//!
//! Later changes are the server's own: it writes them into its file itself.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::programs::Kind;
use super::tls::Tls;
use crate::ports::Port;

/// Who a process is to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A server by itself, or in a group.
    Alone,
    /// A node of a Cluster that gives up on another after this time.
    Node(Duration),
    /// A Sentinel, which watches the server at this address.
    Sentinel(SocketAddr),
}

/// What a server is, and with which settings it starts.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(super) kind: Kind,
    pub(super) part: Part,
    pub(super) password: Option<String>,
    pub(super) tls: bool,
    settings: Vec<(String, String)>,
}

impl Options {
    /// A primary that trusts everybody on loopback and keeps nothing on disk.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, part: Part::Alone, password: None, tls: false, settings: Vec::new() }
    }

    /// Sets a parameter, as the file of the server writes it.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replicates from another server.
    pub fn replica_of(self, primary: SocketAddr) -> Self {
        self.setting("replicaof", &format!("{} {}", primary.ip(), primary.port()))
    }

    /// Refuses writes while fewer replicas than this answered in the last `max_lag` seconds.
    pub fn min_replicas(self, replicas: usize, max_lag: u32) -> Self {
        self.setting("min-replicas-to-write", &replicas.to_string())
            .setting("min-replicas-max-lag", &max_lag.to_string())
    }

    /// Writes every change to an append-only file before it is acknowledged.
    pub fn append_only(self) -> Self {
        self.setting("appendonly", "yes").setting("appendfsync", "always")
    }

    /// Writes a snapshot when it is stopped in peace.
    pub fn save(self) -> Self {
        self.setting("save", "3600 1")
    }

    /// Holds at most so many bytes, and evicts by this policy.
    pub fn max_memory(self, bytes: u64, policy: &str) -> Self {
        self.setting("maxmemory", &bytes.to_string()).setting("maxmemory-policy", policy)
    }

    /// Demands this password of everybody, replicas included.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a user of the access list: its rules without the name, as `>secret ~tg:* +get`.
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.setting("user", &format!("{name} on {rules}"))
    }

    /// Speaks TLS alone, to replicas too; only Redis can.
    pub const fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    pub(super) fn part(mut self, part: Part) -> Self {
        self.part = part;
        self
    }

    pub(super) const fn is_sentinel(&self) -> bool {
        matches!(self.part, Part::Sentinel(_))
    }

    /// What a Sentinel tells the servers it watches, if they ask for it.
    pub(super) fn sentinel_secret(mut self, password: Option<String>) -> Self {
        self.password = password;
        self
    }

    /// The file that a process starts with.
    pub(super) fn file(&self, folder: &Path, port: &Port, bus: Option<&Port>) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            "protected-mode no".to_owned(),
            "daemonize no".to_owned(),
            format!("dir {}", folder.display()),
        ];
        let number = port.number();
        lines.extend(match self.tls {
            false => vec![format!("port {number}")],
            true => Tls::settings(folder, number),
        });
        match &self.part {
            Part::Alone => lines.extend(self.data_settings()),
            Part::Node(timeout) => {
                lines.extend(self.data_settings());
                lines.push("cluster-enabled yes".to_owned());
                lines.push(format!("cluster-node-timeout {}", timeout.as_millis()));
                lines.extend(bus.map(|port| format!("cluster-port {}", port.number())));
            }
            Part::Sentinel(primary) => lines.extend(self.sentinel_settings(*primary)),
        }
        lines.extend(self.settings.iter().map(|(name, value)| format!("{name} {value}")));
        lines.join("\n") + "\n"
    }

    fn data_settings(&self) -> Vec<String> {
        let words = [
            "save \"\"",
            // A replica attaches at once; by default the primary waits five seconds for others.
            "repl-diskless-sync-delay 0",
            // A stop does not wait for replicas that a test has cut off.
            "shutdown-timeout 0",
            "enable-debug-command yes",
        ];
        let mut lines = words.map(str::to_owned).to_vec();
        if let Some(word) = &self.password {
            lines.push(format!("requirepass {word}"));
            lines.push(format!("masterauth {word}"));
        }
        lines
    }

    fn sentinel_settings(&self, primary: SocketAddr) -> Vec<String> {
        let set = format!("sentinel monitor {PRIMARY_NAME} {} {} 2", primary.ip(), primary.port());
        let mut lines = vec![set];
        for (name, value) in
            [("down-after-milliseconds", 500), ("failover-timeout", 2000), ("parallel-syncs", 1)]
        {
            lines.push(format!("sentinel {name} {PRIMARY_NAME} {value}"));
        }
        if let Some(word) = &self.password {
            lines.push(format!("sentinel auth-pass {PRIMARY_NAME} {word}"));
        }
        lines
    }
}

/// The name that Sentinels and those who ask them give the watched primary.
pub(super) const PRIMARY_NAME: &str = "tidegate";
