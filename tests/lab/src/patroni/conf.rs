//! What a Patroni node and etcd are told. Patroni's file is YAML, of which JSON is a part.
//!
//! The times are Patroni's least: a dead leader is replaced when its key has expired.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::node::Ports;

/// How long a leader's key lives: after a node's death nobody leads for about so long.
const TTL_SECS: u32 = 20;

/// The configuration of one node; `bin` has the programs of PostgreSQL, `folder` is the node's own.
/// As a standby it shows commits that much later.
pub(super) fn node(
    name: &str,
    (folder, sockets, bin): (&Path, &Path, &Path),
    delay: Duration,
    ports: &Ports,
) -> Value {
    let (rest, etcd) = (ports.rest.address().to_string(), ports.etcd.to_string());
    let server = ports.server.address().to_string();
    let user = json!({"username": "postgres", "password": "postgres"});
    json!({
        "scope": "tidegate-lab",
        "name": name,
        "restapi": {"listen": rest, "connect_address": rest},
        "etcd3": {"hosts": [etcd]},
        "bootstrap": {
            "dcs": {
                "ttl": TTL_SECS,
                "loop_wait": 1,
                "retry_timeout": 5,
                "maximum_lag_on_failover": 64 * 1024 * 1024,
                "postgresql": {"use_pg_rewind": true, "use_slots": true, "parameters": {
                    "wal_log_hints": "on",
                    "max_connections": 200,
                    "max_wal_senders": 20,
                }},
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
        },
        "postgresql": {
            "listen": server,
            "connect_address": server,
            "data_dir": folder.join("data"),
            "bin_dir": bin,
            "pgpass": folder.join("pgpass"),
            "authentication": {"superuser": user, "replication": user, "rewind": user},
            "pg_hba": [
                "local all all trust",
                "host all all 127.0.0.1/32 trust",
                "host replication all 127.0.0.1/32 trust",
            ],
            "recovery_conf": {"recovery_min_apply_delay": format!("{}ms", delay.as_millis())},
            "parameters": {
                "unix_socket_directories": sockets,
                "fsync": "off",
                "shared_buffers": "64MB",
                "timezone": "UTC",
                "jit": "off",
                "wal_retrieve_retry_interval": "100ms",
            },
        },
        "watchdog": {"mode": "off"},
    })
}

/// The arguments of an etcd that is alone and listens on loopback.
pub(super) fn etcd(folder: &Path, client: &str, peer: &str) -> Vec<String> {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    vec![
        "--name=lab".to_owned(),
        format!("--data-dir={}", folder.join("data").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=lab={peer}"),
        "--log-level=warn".to_owned(),
    ]
}
