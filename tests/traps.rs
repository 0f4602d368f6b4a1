//! The traps of a real PostgreSQL: each is walked into first, then shown to be closed.
//!
//! Every test is named `trap_...` and shows the wrong way's wrong answer on the same servers on
//! which the right way is right. What a session may promise at all is `tests/scenarios.rs`.

#![allow(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "traps/capture.rs"]
mod capture;
#[path = "traps/capture_async.rs"]
mod capture_async;
#[path = "traps/capture_pages.rs"]
mod capture_pages;
#[path = "traps/capture_wire.rs"]
mod capture_wire;
#[path = "traps/crash_table.rs"]
mod crash_table;
#[path = "traps/lineage.rs"]
mod lineage;
#[path = "traps/lineage_disk.rs"]
mod lineage_disk;
#[path = "traps/lineage_refused.rs"]
mod lineage_refused;
#[path = "traps/pooled.rs"]
mod pooled;
#[path = "traps/pooled_capture.rs"]
mod pooled_capture;
#[path = "traps/reading.rs"]
mod reading;
#[path = "traps/reading_held.rs"]
mod reading_held;
#[path = "traps/reading_raise.rs"]
mod reading_raise;
#[path = "traps/servers.rs"]
mod servers;
#[path = "traps/servers_bench.rs"]
mod servers_bench;
#[path = "traps/servers_late.rs"]
mod servers_late;
#[path = "traps/servers_names.rs"]
mod servers_names;
#[path = "traps/stage.rs"]
mod stage;
