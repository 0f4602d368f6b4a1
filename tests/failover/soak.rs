//! Five rounds of the soak: every event, in random order, under a hundred sessions.
//!
//! What a round is and what it must show stands in the lab (`soak::failover`). Here the figures
//! must show that the rounds could have failed, and the same schedule without a safety rule does.
//! `TIDEGATE_SEED` repeats a run's schedule.

use std::sync::LazyLock;

use tidegate_lab::claims::Claims;
use tidegate_lab::soak::Length;
use tidegate_lab::soak::failover::{OFF, ROUNDS_OFF, rounds};

const ROUNDS: u64 = 5;

/// The seed of this process: a new one, or the one to be repeated.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    let asked = std::env::var("TIDEGATE_SEED").ok();
    asked.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("a number"))
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn five_failovers_under_a_hundred_sessions_tell_every_loss_and_serve_nothing_stale() {
    println!("soak: TIDEGATE_SEED={}", *SEED);
    let sums = rounds(Length::Rounds(ROUNDS), *SEED, None).await.expect("it is played");
    let mut claims = Claims::new("soak-test");
    sums.claim_promises(&mut claims);
    sums.claim_power(&mut claims);
    println!("{}", claims.table());
    assert_eq!(sums.verdict.broken(), Vec::<&str>::new(), "seed {}", *SEED);
    let failing: Vec<_> = claims.all().iter().filter(|claim| !claim.holds).collect();
    assert!(failing.is_empty(), "seed {}: {failing:?}", *SEED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_schedule_without_a_safety_rule_breaks_a_promise() {
    let off = OFF[0];
    let sums = rounds(Length::Rounds(ROUNDS_OFF), *SEED, Some(off)).await.expect("it is played");
    assert!(sums.violations() > 0, "without `{off}`, seed {}: {sums:?}", *SEED);
}
