//! One task per partition: runs the core, performs its effects, publishes snapshots.
//!
//! - [`handle`]: what requests hold of a partition
//! - [`task`]: the loop that owns the core's `Partition`
//! - `noticed`: what an operator counts of a node's polls
//! - [`registry`]: the partitions of this instance by name, id and system id
//!
//! It judges nothing itself and knows no driver and no wire format.

pub mod handle;
mod noticed;
pub mod registry;
pub mod task;

pub use handle::{NodeInfo, PartitionHandle, PartitionInfo};
pub use registry::Partitions;
pub use task::{NodePort, PartitionTask};
