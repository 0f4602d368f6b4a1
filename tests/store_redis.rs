//! The store in Redis on real servers: races, round trips, outages, losses, a slot on the move.
//!
//! What holds for every store is `tests/store_conformance.rs`; what a service makes of a store's
//! answers is told elsewhere.

#[path = "store_redis/attacked.rs"]
mod attacked;
#[path = "store_redis/bounds.rs"]
mod bounds;
#[path = "store_redis/down.rs"]
mod down;
#[cfg(feature = "unsafe-guards")]
#[path = "store_redis/grown.rs"]
mod grown;
#[cfg(feature = "unsafe-guards")]
#[path = "store_redis/guarded.rs"]
mod guarded;
#[path = "store_redis/losses.rs"]
mod losses;
#[path = "store_redis/mixed.rs"]
mod mixed;
#[path = "store_redis/moved.rs"]
mod moved;
#[path = "store_redis/recorders.rs"]
mod recorders;
#[path = "store_redis/refused.rs"]
mod refused;
#[path = "store_redis/stage.rs"]
mod stage;
