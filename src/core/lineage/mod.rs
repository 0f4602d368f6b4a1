//! Which epochs followed which, where each ended, and the one relation that judges a mark.
//!
//! The only room that compares positions of two epochs. It does not know who leads, what a node
//! shows, or what time it is.

mod ends;
mod epoch;
mod fork;
mod history;
mod incarnation;
mod relation;
mod timeline_history;

pub use ends::End;
pub use epoch::{Epoch, EpochError};
pub use fork::Fork;
pub use history::{History, LineageRow, RowConflict};
pub use incarnation::{Incarnation, IncarnationError, Life, SystemId};
pub(crate) use incarnation::{decimal, signed};
pub use relation::{Kept, Relation};
pub use timeline_history::{TimelineHistory, TimelineHistoryError};
