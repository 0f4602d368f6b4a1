//! Two thousand write-then-read rounds through the Rust client, on standbys that lag and crash.
//!
//! Every read is judged by the row it found: what a node called fresh lacks is a violation. The
//! figures show that the rounds could have failed, and the same rounds without a safety rule, or
//! without a session, do. `TIDEGATE_SEED` repeats a run's schedule.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "rounds/run.rs"]
mod run;
#[path = "rounds/schedule.rs"]
mod schedule;
#[path = "rounds/visitor.rs"]
mod visitor;

use tidegate_lab::install::Major;

use run::{Run, Sums};
use schedule::{Fault, seed};
use visitor::Carries;

/// Rounds on each of two majors, side by side.
const ROUNDS: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn two_thousand_rounds_miss_no_row_on_a_node_called_fresh() {
    let seed = seed();
    println!("rounds: TIDEGATE_SEED={seed}");
    let run = |major| async move {
        let mut run = Run::prepare(major, None, Carries::Session).await;
        run.play(seed, false).await;
        run.sums()
    };
    let (on_15, on_18) = tokio::join!(run(Major::V15), run(Major::V18));
    let both = on_15.clone() + on_18.clone();
    println!("{}", Sums::table(&[("15", &on_15), ("18", &on_18), ("both", &both)]));
    for (major, sums) in [("15", &on_15), ("18", &on_18)] {
        assert_eq!(sums.violations, Vec::<String>::new(), "PostgreSQL {major}, seed {seed}");
        let figures = &sums.figures;
        assert_eq!(figures.writes, ROUNDS, "PostgreSQL {major}");
        assert!(
            figures.calm_replica_reads * 2 >= figures.reads,
            "PostgreSQL {major}: too few calm reads on replicas prove anything: {figures:?}"
        );
        assert!(
            figures.rounds_lacking * 5 >= ROUNDS,
            "PostgreSQL {major}: standbys lacked the row in too few rounds: {figures:?}"
        );
        for fault in Fault::ALL {
            let fired = figures.faults.get(fault.kind()).copied().unwrap_or(0);
            assert!(fired > 0, "PostgreSQL {major}: no {} fired: {figures:?}", fault.kind());
        }
        assert!(sums.unanswered * 20 <= figures.reads, "PostgreSQL {major}: {sums:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn the_same_rounds_without_the_incarnation_guard_miss_rows() {
    let seed = seed();
    let mut run = Run::prepare(Major::V15, Some("incarnation"), Carries::Session).await;
    run.play(seed, true).await;
    let sums = run.sums();
    println!("without `incarnation`, seed {seed}: {:?}", sums.violations.first());
    assert!(!sums.violations.is_empty(), "seed {seed}: nothing was missed: {sums:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn the_same_rounds_without_a_session_miss_rows() {
    let seed = seed();
    let mut run = Run::prepare(Major::V15, None, Carries::Nothing).await;
    run.play(seed, true).await;
    let sums = run.sums();
    println!("without a session, seed {seed}: {:?}", sums.violations.first());
    assert!(!sums.violations.is_empty(), "seed {seed}: nothing was missed: {sums:?}");
}
