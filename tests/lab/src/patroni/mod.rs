//! A real Patroni: three nodes with PostgreSQL 15, and the etcd they agree through.
//!
//! - `install`: Patroni from PyPI, etcd from Debian, once per machine
//! - `cluster`: all of it, started and ended together; switchover, waits for who leads
//! - `node`: one Patroni with its server: kills, a new start
//! - `conf`: what a node and etcd are told
//! - `rest`: Patroni's own answers over HTTP
//! - `soak`: switchovers and kills under load, with Tidegate in front
//!
//! Who is promoted when is Patroni's decision alone: the lab kills and asks.

mod cluster;
mod conf;
mod install;
mod node;
mod rest;
pub(crate) mod soak;

pub use cluster::Patroni;
pub use node::Node;

/// Makes sure of Patroni and etcd, installing them where they are missing. Blocks.
///
/// # Errors
/// When they are missing and cannot be installed.
pub fn install() -> anyhow::Result<()> {
    install::Programs::find().map(drop)
}
