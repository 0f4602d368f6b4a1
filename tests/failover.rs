//! Failovers, crashes and splits of real PostgreSQL servers, versions 15 and 18.
//!
//! In each, a rule that looks right, or the product without one of its rules, is seen to be wrong
//! on the same servers on which the product is right. What a server shows itself decides. Traps
//! that need no failover are `tests/traps.rs`.

#![cfg(feature = "unsafe-guards")]
#![allow(clippy::expect_used, reason = "a lab that fails is a failed test")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

#[path = "failover/crash_loop.rs"]
mod crash_loop;
#[path = "failover/crashes.rs"]
mod crashes;
#[path = "failover/desk.rs"]
mod desk;
#[path = "failover/detection.rs"]
mod detection;
#[path = "failover/experiments.rs"]
mod experiments;
#[path = "failover/experiments_sight.rs"]
mod experiments_sight;
#[path = "failover/experiments_signs.rs"]
mod experiments_signs;
#[path = "failover/experiments_storage.rs"]
mod experiments_storage;
#[path = "failover/leader_reads.rs"]
mod leader_reads;
#[path = "failover/lost_write.rs"]
mod lost_write;
#[path = "failover/ordinary.rs"]
mod ordinary;
#[path = "failover/placement.rs"]
mod placement;
#[path = "failover/placement_twins.rs"]
mod placement_twins;
#[path = "failover/queue.rs"]
mod queue;
#[path = "failover/s10_lost_write.rs"]
mod s10_lost_write;
#[path = "failover/s11_old_leader.rs"]
mod s11_old_leader;
#[path = "failover/s12_lost_position.rs"]
mod s12_lost_position;
#[path = "failover/s15_restored_replica.rs"]
mod s15_restored_replica;
#[path = "failover/soak.rs"]
mod soak;
#[path = "failover/stage.rs"]
mod stage;
#[path = "failover/sync_gap.rs"]
mod sync_gap;
#[path = "failover/timelines.rs"]
mod timelines;
#[path = "failover/twins.rs"]
mod twins;
#[path = "failover/unseen.rs"]
mod unseen;
#[path = "failover/waits.rs"]
mod waits;
