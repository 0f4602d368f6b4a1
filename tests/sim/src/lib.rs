//! A seeded world around the pure core, with an oracle that knows what was written.
//! Broken worlds end the run by a panic: this crate is a test.
//!
//! - [`covers`]: single verdicts of the core against explicit sets of records
//! - [`leases`]: answers with a bound, used to the end by clocks that are not right
//! - `heap`, `sim`: what happens next, and the tasks it resumes
//! - [`options`], `profile`, [`schedule`]: what a seed makes of a world
//! - `world`: servers and logs; no rule of Tidegate
//! - `instance`, `store`, `session`: the shell's side, as `src/` does it, and the applications
//! - `faults`, `scenes`, `failovers`, `operators`: what breaks, and what people do about it
//! - [`check`]: promises against truth
//! - [`run`]: one world from its schedule to its end
//! - [`corpus`]: seeds that found something
//! - [`seeds`], [`mutation`], [`shrink`]: many worlds, guards switched off, schedules made shorter

#![expect(clippy::expect_used, reason = "a broken world must end the run")]

pub mod check;
pub mod corpus;
pub mod covers;
mod failovers;
mod faults;
mod heap;
mod instance;
pub mod leases;
pub mod mutation;
mod operators;
pub mod options;
mod profile;
mod random;
pub mod run;
mod scenes;
pub mod schedule;
pub mod seeds;
mod session;
pub mod shrink;
mod sim;
pub mod store;
mod trace;
mod world;
