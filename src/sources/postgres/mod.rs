//! One PostgreSQL server, polled on a connection of its own.
//!
//! - [`source`]: when to poll, and what to do when it fails
//! - [`target`]: whom to poll, as whom, how long to wait
//! - `connect`: address, password, TLS and session settings of a connection
//! - `connection`: one connection with its prepared poll
//! - `history_file`: where a promoted server's log left earlier timelines, by its own file
//! - `look`: who else is connected to the server
//! - `lineage`: lineage rows as the table holds them
//! - `statements`: the SQL that runs all the time
//! - [`schema`]: the SQL that an operator runs once
//! - `failure`: what the driver's errors mean
//! - `backoff`: the pause before the next connection
//!
//! A poll hands the evidence string to the core as it came; nothing here reads a position. It must
//! reach its server directly: through a pooler or a balancer two polls may meet two servers.

mod backoff;
mod connect;
mod connection;
mod failure;
mod history_file;
mod lineage;
mod look;
pub mod schema;
pub mod source;
mod statements;
pub mod target;

pub use look::Tag;
pub use source::PostgresSource;
pub use target::{Address, Target, Timeouts};
