//! Every fault of a shared store once, under sessions that use two instances; and the store gone
//! for a while under the same load.
//!
//! What a round is and what it must show stands in the lab (`soak::store`). Here the figures must
//! show that the rounds could have failed, and without a safety rule they do. `TIDEGATE_SEED`
//! repeats a run's schedule.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]
#![expect(clippy::print_stdout, reason = "the figures of the run")]

use std::sync::LazyLock;
use std::time::Duration;

use tidegate_lab::claims::Claims;
use tidegate_lab::soak::Length;
use tidegate_lab::soak::store::{Kind, OFF, ROUNDS_OFF, Run, outage, rounds};

/// The seed of this process: a new one, or the one to be repeated.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    let asked = std::env::var("TIDEGATE_SEED").ok();
    asked.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("a number"))
});
const WORLDS: usize = 3;
const GONE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_the_store_is_announced_and_nothing_stale_is_served() {
    println!("store: TIDEGATE_SEED={}", *SEED);
    let length = Length::Rounds(1);
    let run = Run { kinds: &Kind::ALL, length, seed: *SEED, off: None, worlds: WORLDS };
    let sums = rounds(run).await.expect("it is played");
    let mut claims = Claims::new("soak-test");
    sums.claim_promises(&mut claims);
    sums.claim_power(&mut claims);
    sums.figures(&mut claims);
    println!("{}", claims.table());
    assert_eq!(sums.broken(), Vec::<&str>::new(), "seed {}", *SEED);
    let failing: Vec<_> = claims.all().iter().filter(|claim| !claim.holds).collect();
    assert!(failing.is_empty(), "seed {}: {failing:?}, {:?}", *SEED, sums.broken_off);
}

async fn breaks_without(off: &str) {
    let kinds = OFF.iter().find(|(guard, _)| *guard == off).expect("a guard of the store").1;
    let length = Length::Rounds(ROUNDS_OFF);
    let run = Run { kinds, length, seed: *SEED, off: Some(off), worlds: 1 };
    let sums = rounds(run).await.expect("it is played");
    let stale = &sums.stale;
    assert!(!stale.is_empty(), "without `{off}`, seed {}: {:?}", *SEED, sums.broken_off);
    println!("without `{off}`: {} reads, {}", sums.tally.judged, stale[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gate_guard_records_that_expired_are_missed() {
    breaks_without("gate").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_gone_for_a_while_fails_no_carried_token_and_loses_nothing() {
    let mut claims = Claims::new("soak-test");
    let outage = outage(GONE, *SEED).await.expect("it is played");
    outage.claim(&mut claims);
    println!("{}", claims.table());
    let failing: Vec<_> = claims.all().iter().filter(|claim| !claim.holds).collect();
    assert!(failing.is_empty(), "seed {}: {failing:?}, {:?}", *SEED, outage.stale);
}
