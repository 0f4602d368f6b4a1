//! The service in trouble, on real servers: silent nodes, wrong databases, mass waits, restarts.
//!
//! Calls the API as any client would and holds every answer against a row read on the named
//! server. What a client library does with the answers is `tests/rounds.rs`.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "operations/attacked.rs"]
mod attacked;
#[path = "operations/barrier.rs"]
mod barrier;
#[path = "operations/black_hole.rs"]
mod black_hole;
#[path = "operations/budgets.rs"]
mod budgets;
#[path = "operations/foreign.rs"]
mod foreign;
#[path = "operations/global.rs"]
mod global;
#[path = "operations/known_late.rs"]
mod known_late;
#[path = "operations/leaving.rs"]
mod leaving;
#[path = "operations/mass_wake.rs"]
mod mass_wake;
#[path = "operations/pace.rs"]
mod pace;
#[path = "operations/permits.rs"]
mod permits;
#[path = "operations/polls.rs"]
mod polls;
#[path = "operations/predicted.rs"]
mod predicted;
#[path = "operations/stage.rs"]
mod stage;
#[path = "operations/topology.rs"]
mod topology;
#[path = "operations/track_record.rs"]
mod track_record;
