//! Who leads: what a writable node's epoch grew from, and which of several counts.
//!
//! Driven by observations and the operator's word alone; captures prove nothing here. What is not
//! recognised is unknown, and an unknown fork covers nothing.

mod facts;
mod leadership;
mod placement;
mod words;

pub use facts::{EpochFacts, Facts};
pub use leadership::{Contender, Leadership};
pub use placement::{Origin, Placed};
pub use words::{Verdict, Words};
