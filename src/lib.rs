//! Tidegate makes read replicas safe to read from.
//!
//! A gRPC service that tracks how far every replica has applied its leader's log, keeps for every
//! user session how far it has written and read, and answers which replica may serve it. It never
//! opens a connection for user queries and never sees a row of theirs.
//!
//! This page is the code map; `ARCHITECTURE.md` draws the two walks through it.
//!
//! - [`config`], [`clock`], [`seal`], [`telemetry`]: limits, time, token keys, what is reported
//! - [`ports`]: what the shell asks of the outside, as traits
//! - [`sources`], [`store`]: databases that show positions, and where tokens and facts are kept
//! - [`partitions`]: one task per partition, which runs the core and performs its effects
//! - [`sessions`]: who is asking
//! - [`reads`]: walks a plan, learns what was read
//! - [`api`], [`admin`], [`layers`]: the border
//! - [`server`], [`cli`]: the only places that wire

pub mod admin;
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod layers;
pub mod partitions;
pub mod ports;
pub mod reads;
pub mod seal;
pub mod server;
pub mod sessions;
pub mod sources;
pub mod store;
pub mod telemetry;
