//! The pure core of Tidegate: what is known of a replicated log, and what follows for one read.
//!
//! Values in, values out. There is no I/O here, no `async`, no clock, no randomness, no hash-map
//! order, no cryptography and no generated type: time comes in as `now`, chance as `pick`, and
//! answers go out as plain values which a shell performs. The rooms may only import downwards:
//!
//! ```text
//! guards <- position <- lineage <- token <- evidence <- views <- leader <- trail
//!        <- snapshot <- routing, wait, store_guard <- partition
//! ```

pub mod evidence;
pub mod few;
pub mod guards;
pub mod instant;
pub mod leader;
pub mod lineage;
pub mod partition;
pub mod position;
pub mod routing;
pub mod snapshot;
pub mod store_guard;
pub mod token;
pub mod trail;
pub mod views;
pub mod wait;
