//! Reads that wait until something has reached what they demand.
//!
//! A wait is parked on scalars; whether it is really satisfied is judged again by whoever is told
//! that a scalar was reached. Nothing here judges marks, reads a clock, wakes a task or counts a
//! wait as served.

mod queue;
#[cfg(test)]
mod tests;

pub use queue::{QueueFull, WaitId, WaitQueue};
