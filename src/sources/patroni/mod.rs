//! What Patroni says over HTTP, for partitions whose configuration names it.
//!
//! - [`watch`]: when it is asked, and what its answers are compared with
//! - `answer`: `GET /cluster` and `GET /history` as values
//! - `fetch`: one bounded question over HTTP
//!
//! All of it is a hint: a new leader or timeline hurries the next polls, a history that contradicts
//! a placed fork is an alarm. Who leads and where a fork lies is read from the databases alone.

mod answer;
mod fetch;
pub mod watch;

pub use watch::PatroniWatch;
