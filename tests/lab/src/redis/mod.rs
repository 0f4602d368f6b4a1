//! Real Redis and Valkey servers, alone, in pairs, with Sentinels, as a Cluster; and their faults.
//!
//! - `programs`: the two servers, installed once per machine; Redis from Debian, Valkey from PyPI
//! - `options`: what a server is told; `tls`: its certificate
//! - `server`: one process, its life and its settings; `ask`: what it says of itself
//! - `faults`: what befalls one server: eviction, expiry, an old snapshot, a promotion
//! - `group`: a primary with replicas, each behind a link that can be cut
//! - `sentinels`: three Sentinels over a primary and two replicas
//! - `cluster`: six processes that share the slots; `slots`: one of them on the move
//!
//! Promotes nobody by itself, except where Sentinel or Cluster does. Knows nothing of tokens.

mod ask;
mod cluster;
mod faults;
mod group;
mod options;
mod programs;
mod sentinels;
mod server;
mod slots;
mod tls;

pub use ask::Info;
pub use cluster::Cluster;
pub use faults::Snapshot;
pub use group::Group;
pub use options::Options;
pub use programs::{Kind, install};
pub use sentinels::Sentinels;
pub use server::Server;
pub use slots::Migration;
