//! What was last seen of each node, and how much of that is proven.
//!
//! A view never overstates: what cannot be proven covers nothing. This room does not decide who
//! leads.

mod apply_rate;
mod node_set;
mod node_view;
mod observation;

pub use apply_rate::ApplyRate;
pub use node_set::NodeSet;
pub use node_view::{Coverage, NodeView, Place, Quarantine, Taken, ViewRole};
pub use observation::{NodeId, Observation};
