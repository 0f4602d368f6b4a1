//! Real PostgreSQL servers: a leader with standbys that fail on demand.
//!
//! - `cluster`: how many servers, how they follow each other
//! - `server`: one server: life, connections, settings
//! - `position`: where a server stands, waiting until it stands further
//! - `lag`: holding replay, delaying it, cutting and moving reception
//! - `crash`: crashes, promotion, copies, clones
//! - `guard`: a shell per server process, which ends it when the test dies
//! - `template`: a prepared data folder per version, because initdb is slow
//! - `conf`: the configuration files
//!
//! Nothing here knows Tidegate. Connections of the lab itself use the Unix socket, so a proxy, a
//! password or TLS never stands between a test and the truth.

mod cluster;
mod conf;
mod crash;
pub(crate) mod guard;
mod lag;
mod position;
mod server;
mod template;

pub use cluster::{Cluster, ClusterOptions};
pub use crash::{Behind, DataCopy};
pub use guard::Stop;
pub(crate) use position::without_header;
pub use server::Server;
pub use tokio_postgres::types::PgLsn as Lsn;
