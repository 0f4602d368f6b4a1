//! The configuration files of a lab server, written whole before each start or reload.
//!
//! Decides no value that a test could want to know: all of them can be set from outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::machine;

/// The settings file, included last by `postgresql.conf`.
pub(super) const FILE: &str = "lab.conf";

/// Settings of every lab server, below the test's own.
const BASE: [(&str, &str); 19] = [
    ("listen_addresses", "127.0.0.1"),
    ("timezone", "UTC"),
    ("fsync", "off"),
    ("shared_buffers", "64MB"),
    ("max_connections", "200"),
    ("max_wal_senders", "20"),
    ("wal_level", "replica"),
    // A cut standby must find everything it missed.
    ("wal_keep_size", "4GB"),
    ("max_wal_size", "4GB"),
    // pg_rewind asks for it where checksums are off.
    ("wal_log_hints", "on"),
    // Checkpoints, restartpoints and written-out pages decide how far back a crashed standby
    // opens: they happen when a test asks for them.
    ("checkpoint_timeout", "1d"),
    ("bgwriter_lru_maxpages", "0"),
    // A broken replication connection is tried again soon.
    ("wal_retrieve_retry_interval", "100ms"),
    ("hot_standby", "on"),
    ("jit", "off"),
    ("log_line_prefix", "%m [%p] %a "),
    ("log_checkpoints", "off"),
    ("max_prepared_transactions", "10"),
    ("track_commit_timestamp", "off"),
];

/// Settings in the order of precedence, lowest first.
pub(super) type Settings = BTreeMap<String, String>;

/// The settings that every server has.
pub(super) fn base() -> Settings {
    BASE.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Writes the settings file.
pub(super) fn write(data: &Path, settings: &Settings) -> Result<()> {
    let lines = settings.iter().map(|(name, value)| format!("{name} = {}\n", quote(value)));
    place(&data.join(FILE), &lines.collect::<String>())
}

/// Quotes a value for a configuration file.
pub(super) fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// Writes a file for the server user all at once, so that no reload sees half of it.
pub(super) fn place(path: &Path, text: &str) -> Result<()> {
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, text)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    machine::give_to_server_user(&fresh)?;
    Ok(fs::rename(&fresh, path)?)
}

/// Writes who may connect how: the lab by socket, others as the test demands.
pub(super) fn write_access(data: &Path, scram: bool, tls: bool) -> Result<()> {
    let method = if scram { "scram-sha-256" } else { "trust" };
    let kind = if tls { "hostssl" } else { "host" };
    let text = format!(
        "local all all trust\n\
         local replication all trust\n\
         host replication all 127.0.0.1/32 trust\n\
         {kind} all all 127.0.0.1/32 {method}\n"
    );
    place(&data.join("pg_hba.conf"), &text)
}

/// The certificates of one cluster.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    folder: PathBuf,
}

impl Tls {
    /// Makes an authority and a server certificate for `localhost` and 127.0.0.1.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        fs::create_dir(folder)?;
        machine::give_to_server_user(folder)?;
        fs::write(folder.join("san"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
        let steps = [
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
             -subj /CN=tidegate-lab-ca -keyout ca.key -out ca.crt",
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
             -subj /CN=localhost -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
             -extfile san -out server.crt",
        ];
        for step in steps {
            let mut openssl: Command = machine::as_server_user(Path::new("openssl"))?;
            machine::run(openssl.current_dir(folder).args(step.split_whitespace()))?;
        }
        fs::set_permissions(folder.join("server.key"), fs::Permissions::from_mode(0o600))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The certificate of the authority, which clients must trust.
    pub(super) fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The settings that switch TLS on.
    pub(super) fn settings(&self) -> [(String, String); 3] {
        let path = |name: &str| self.folder.join(name).display().to_string();
        [
            ("ssl".to_owned(), "on".to_owned()),
            ("ssl_cert_file".to_owned(), path("server.crt")),
            ("ssl_key_file".to_owned(), path("server.key")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_value_stays_inside_it() {
        assert_eq!(quote(r"a'b\c"), r"'a''b\\c'");
    }
}
