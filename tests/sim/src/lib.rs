//! A seeded world around the pure core, with an oracle that knows what was written.
//! Broken worlds end the run by a panic: this crate is a test.
//!
//! - [`covers`]: single verdicts of the core against explicit sets of records.

#![expect(clippy::expect_used, reason = "a broken world must end the run")]

pub mod covers;
mod random;
