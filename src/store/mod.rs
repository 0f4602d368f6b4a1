//! Where sessions and facts are kept: records of subjects in memory, facts of partitions in files.
//!
//! It keeps bytes under keys and applies changes as the core says. What a record that is not there
//! means, and who is raised, is for `sessions` and the core to say.

mod any;
mod fact_document;
mod facts;
mod memory;
mod quota_document;
mod redis;
mod shared_facts;

pub use any::AnyStore;
pub use facts::FactFiles;
pub use memory::{Lives, MemoryBeliefs, MemoryStore};
pub use redis::{
    CheckError, Checked, RedisSettings, RedisStore, SharedStore, StoreCount, StoreCounters,
    StoreEvent, survey,
};
