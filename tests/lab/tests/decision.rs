//! What the decision benchmark measures, held in every test run: it allocates nothing.
//!
//! One test alone: the allocator counts for the whole process.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate_lab::bench::decision::Decision;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_sessions_read_is_decided_without_an_allocation() {
    let decision = Decision::new().expect("a read that is served");
    let region = Region::new(ALLOCATOR);
    let served = decision.round(1_000);
    let changed = region.change();
    assert_eq!(served, 1_000, "every read is served by a replica");
    assert_eq!((changed.allocations, changed.reallocations), (0, 0), "{changed:?}");
}
