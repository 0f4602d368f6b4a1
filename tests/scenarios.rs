//! Acceptance scenarios S01 to S06, S08, S09, S13 and S14 on real servers: a leader, its standbys,
//! the real service, and for some of them two instances with a real Redis.
//!
//! In each, the row read on the named server decides, not the answer; and the same read without
//! what the scenario is about is seen to go wrong. Nothing here tests a part by itself.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]
#![expect(clippy::print_stdout, reason = "each scenario shows its figures")]

#[path = "scenarios/aged.rs"]
mod aged;
#[path = "scenarios/bench.rs"]
mod bench;
#[path = "scenarios/pair.rs"]
mod pair;
#[path = "scenarios/s01_read_your_writes.rs"]
mod s01_read_your_writes;
#[path = "scenarios/s02_monotonic_reads.rs"]
mod s02_monotonic_reads;
#[path = "scenarios/s03_wait_within_budget.rs"]
mod s03_wait_within_budget;
#[path = "scenarios/s04_budget_exhausted.rs"]
mod s04_budget_exhausted;
#[path = "scenarios/s05_cross_device.rs"]
mod s05_cross_device;
#[path = "scenarios/s06_queue_message.rs"]
mod s06_queue_message;
#[path = "scenarios/s08_idle_leader.rs"]
mod s08_idle_leader;
#[path = "scenarios/s09_ladder.rs"]
mod s09_ladder;
#[path = "scenarios/s13_redis_killed.rs"]
mod s13_redis_killed;
#[path = "scenarios/s14_two_instances.rs"]
mod s14_two_instances;
#[path = "scenarios/session.rs"]
mod session;

/// Makes one test per PostgreSQL version that every scenario runs on.
macro_rules! on_both_versions {
    ($($scenario:ident => $pg15:ident, $pg18:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg15() {
            $scenario(tidegate_lab::install::Major::V15).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg18() {
            $scenario(tidegate_lab::install::Major::V18).await;
        }
    )*};
}
pub(crate) use on_both_versions;
