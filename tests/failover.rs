//! Failovers, crashes and splits of real PostgreSQL servers, versions 15 and 18.
//!
//! In each, a rule that looks right, or the product without one of its rules, is seen to be wrong
//! on the same servers on which the product is right. What a server shows itself decides. Traps
//! that need no failover are `tests/traps.rs`.

#![cfg(feature = "unsafe-guards")]
#![allow(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "failover/desk.rs"]
mod desk;
#[path = "failover/stage.rs"]
mod stage;
#[path = "failover/timelines.rs"]
mod timelines;
