//! Two instances on one real Redis: what is recorded through one is known to the other, whatever
//! happens to either or to the Redis.
//!
//! Every answer is held against a row read on the node it names. The store by itself is
//! `tests/store_redis`.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "store_instances/down.rs"]
mod down;
#[path = "store_instances/facts.rs"]
mod facts;
#[path = "store_instances/quota.rs"]
mod quota;
#[path = "store_instances/shared.rs"]
mod shared;
#[path = "store_instances/stage.rs"]
mod stage;
