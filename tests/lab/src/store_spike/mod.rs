//! What Redis and Valkey do to a token store, measured: the figures behind
//! `docs/redis-measured.md`.
//!
//! - `split`: two instances as plain clients, one left on a deposed primary; what a barrier misses
//! - `ids`: what the id of a history does on each event, and what a script can read
//! - `cost`: what a lookup costs the server in each shape
//!
//! Knows nothing of Tidegate's own store: it shows what that store must survive.

mod cost;
mod ids;
mod split;

pub use cost::{Cost, Shape, costs};
pub use ids::{Event, Sight, ids, sights};
pub use split::{Check, Fault, Outcome, Split};
