//! Two thousand write-then-read rounds through the Rust client, on standbys that lag and crash.
//!
//! What a round is stands in the lab (`rounds`). Here the figures must show that the rounds could
//! have failed, and the same rounds without a safety rule, or without a session, do.
//! `TIDEGATE_SEED` repeats a run's schedule.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

use std::sync::LazyLock;

use tidegate_lab::install::Major;
use tidegate_lab::rounds::{Reach, RoundsOptions, Sums, run};

/// Rounds of each kind on each of two majors, side by side.
const ROUNDS: u64 = 520;
/// Rounds of a run that must fail: far more than it takes.
const ROUNDS_UNSAFE: u64 = 4_000;

/// The seed of this process: a new one, or the one to be repeated; every test plays the same
/// schedule.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    let asked = std::env::var("TIDEGATE_SEED").ok();
    asked.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("a number"))
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn two_thousand_rounds_miss_no_row_on_a_node_called_fresh() {
    println!("rounds: TIDEGATE_SEED={}", *SEED);
    let both = async |major| {
        let options = || RoundsOptions::new(major, ROUNDS, *SEED);
        let direct = run(options()).await.expect("it is played");
        (direct, run(options().reach(Reach::Pooled)).await.expect("it is played"))
    };
    let (on_15, on_18) = tokio::join!(both(Major::V15), both(Major::V18));
    let runs = [
        ("15 direct", &on_15.0),
        ("15 pooled", &on_15.1),
        ("18 direct", &on_18.0),
        ("18 pooled", &on_18.1),
    ];
    println!("{}", Sums::table(&runs));
    for (name, sums) in runs {
        assert_eq!(sums.violations, Vec::<String>::new(), "{name}, seed {}", *SEED);
        assert_eq!(sums.figures.writes, ROUNDS, "{name}");
        assert_eq!(sums.vacuous(), Vec::<String>::new(), "{name}: {sums:?}");
    }
}

#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn misses_rows(what: &str, options: RoundsOptions) {
    let sums = run(options).await.expect("it is played");
    println!("{what}, seed {}: {:?}", *SEED, sums.violations.first());
    assert!(!sums.violations.is_empty(), "{what}, seed {}: nothing was missed: {sums:?}", *SEED);
}

fn unsafely() -> RoundsOptions {
    RoundsOptions::new(Major::V15, ROUNDS_UNSAFE, *SEED)
}

#[cfg(feature = "unsafe-guards")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_rounds_without_the_incarnation_guard_miss_rows() {
    misses_rows("without `incarnation`", unsafely().without("incarnation")).await;
}

#[cfg(feature = "unsafe-guards")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_rounds_through_poolers_without_their_check_miss_rows() {
    let options = unsafely().reach(Reach::Pooled).without("pooled_check");
    misses_rows("through poolers, without `pooled_check`", options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_rounds_without_a_session_miss_rows() {
    misses_rows("without a session", unsafely().without_sessions()).await;
}
