//! The lab: real servers, proxies, a checker and a claims writer for Tidegate's tests.
//!
//! Start with [`postgres::Cluster::start`]; put a [`proxy::Proxy`] wherever the network should
//! fail; let a [`history::Checker`] watch what every session was promised; publish figures with
//! [`claims::Claims`].
//!
//! The lab does not decide anything about freshness and imports nothing from the core: what it
//! says about a server was read on that server, so it can be held against Tidegate's answers.

pub mod bench;
pub mod claims;
pub mod crash_loop;
pub mod demo;
pub mod failover;
pub mod flip;
pub mod history;
pub mod install;
mod machine;
pub mod metrics;
pub mod patroni;
pub mod pgbouncer;
pub mod ports;
pub mod postgres;
pub mod prove;
pub mod proxy;
pub mod redis;
pub mod rounds;
pub mod service;
pub mod soak;
pub mod stall;
pub mod store_spike;
pub mod up;
pub mod wait;
