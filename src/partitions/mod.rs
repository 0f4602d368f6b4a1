//! One task per partition: runs the core, performs its effects, publishes snapshots.
//!
//! - [`handle`]: what requests hold of a partition
//! - [`task`]: the loop that owns the core's `Partition`
//! - [`feed`]: what happens, for whoever watches; `notable`: what the core finds so, logged
//! - `foreign`: other instances seen beside this one
//! - `node_seen`: what an operator counts of a node's polls
//! - `sharing`: facts exchanged with other instances; `quota`: its share of the fallback cap
//! - [`registry`]: the partitions of this instance by name, id and system id
//!
//! It judges nothing itself and knows no driver and no wire format.

pub mod feed;
mod foreign;
pub mod handle;
mod node_seen;
mod notable;
mod quota;
pub mod registry;
mod sharing;
pub mod task;

pub use feed::{Announcement, Happened, Happening};
pub use handle::{NodeInfo, PartitionHandle, PartitionInfo};
pub use registry::Partitions;
pub use task::{NodePort, PartitionTask};
