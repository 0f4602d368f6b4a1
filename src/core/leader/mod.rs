//! Who leads: what a writable node's epoch grew from, and which of several counts.
//!
//! Driven by observations alone; captures prove nothing here. So far a first leader, a clean
//! restart and a promotion are told apart; everything else is recognised as unknown, and an unknown
//! fork covers nothing.

mod facts;
mod leadership;
mod placement;

pub use facts::{EpochFacts, Facts};
pub use leadership::{Contender, Leadership};
pub use placement::Origin;
