//! Worlds with every guard on break no promise; with a guard off they do. And the simulator itself:
//! the same everywhere, shrinking what fails, forgetting nothing it found.

use std::process::Command;

use tidegate_sim::corpus;
use tidegate_sim::options::{Options, Profile, Scale};
use tidegate_sim::schedule::{Fault, schedule};
use tidegate_sim::seeds::run_seeds;

const THREADS: usize = 2;

/// Where nothing is lost, commits are flushed and told with what was before, and polls have no
/// gaps, few are told that something may be gone.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are what the run is for")]
fn sober_worlds_tell_few_of_what_they_did_not_lose() {
    let summary = run_seeds(1..=60, Some(Profile::Sober), Scale::Test, THREADS, &|_| {});
    assert!(summary.violations.is_empty(), "{summary}");
    let figures = &summary.figures;
    println!(
        "\nnotices in sober worlds: {:?}, of them {} needless, after {} writes and {} reads",
        figures.notices, figures.notices_needless, figures.recorded, figures.session_reads
    );
    assert!(figures.recorded >= 1_000, "{} writes", figures.recorded);
}

#[test]
fn five_hundred_worlds_break_no_promise() {
    let summary = run_seeds(1..=500, None, Scale::Test, THREADS, &|_| {});
    assert!(summary.violations.is_empty(), "{summary}");
    assert!(summary.actions_least >= 100, "a schedule of {} actions", summary.actions_least);
    let figures = &summary.figures;
    assert!(figures.operations >= 50_000, "{} operations", figures.operations);
    assert!(summary.calm_replica_percent() >= 50, "{}%", summary.calm_replica_percent());
    assert!(summary.lacking_percent() >= 20, "{}%", summary.lacking_percent());
    for fault in Fault::ALL {
        let count = figures.faults.get(fault.name()).copied().unwrap_or(0);
        assert!(count > 0, "`{}` never happened", fault.name());
    }
    for (name, count) in [
        ("bounds checked", figures.bounded),
        ("global reads checked", figures.global),
        ("waits ended fresh", figures.fresh),
        ("connections that led elsewhere", figures.turned_away),
        ("answers that came late", figures.late_answers),
        ("writes recorded", figures.recorded),
    ] {
        assert!(count >= 100, "{name}: {count}");
    }
}

#[test]
fn what_was_found_once_is_not_forgotten() {
    let kept = corpus::read(include_str!("../corpus/found.txt"));
    assert!(kept.len() > 20, "the corpus has {} worlds", kept.len());
    let wrong: Vec<String> = kept.iter().filter_map(corpus::Kept::replay).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_seed_is_the_same_world_in_two_processes() {
    let hash = |seed: u64| {
        let ran = Command::new(env!("CARGO_BIN_EXE_sim"))
            .args(["seed", &seed.to_string(), "--small"])
            .output()
            .expect("the simulator runs");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("trace hash"));
        line.expect("a seed prints its hash").to_owned()
    };
    for seed in [2, 3, 17, 40] {
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
    assert_ne!(hash(2), hash(4), "two seeds, one world");
}

#[test]
fn a_seed_says_by_itself_what_happens() {
    let options = |seed| Options::of(seed, Profile::of_seed(seed), Scale::Prove, None);
    assert_eq!(schedule(&options(7)), schedule(&options(7)));
    assert_ne!(schedule(&options(7)), schedule(&options(9)));
}

#[cfg(feature = "unsafe-guards")]
mod without_guards {
    use tidegate_core::guards::Guards;
    use tidegate_sim::mutation::Tries;
    use tidegate_sim::run::live;
    use tidegate_sim::shrink::{failure, shrink};
    use tidegate_sim::{mutation, shrink};

    use super::*;

    #[test]
    fn every_guard_that_is_switched_off_is_caught() {
        let tries = Tries { seeds_max: 150, catches: 1, survived_max: 20 };
        let all = mutation::run_all(tries, THREADS);
        assert_eq!(all.len(), Guards::ALL.len());
        let bad = all.iter().filter(|caught| !caught.is_good());
        let bad: Vec<String> = bad.map(ToString::to_string).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }

    /// Records that expire too soon for the gate; a primary that needs fewer replicas than it has.
    #[test]
    fn every_setting_that_is_checked_at_a_start_is_needed() {
        let tries = Tries { seeds_max: 150, catches: 1, survived_max: 20 };
        let all = mutation::run_settings(tries, THREADS);
        let bad = all.iter().filter(|caught| !caught.is_good());
        let bad: Vec<String> = bad.map(ToString::to_string).collect();
        assert!(!all.is_empty() && bad.is_empty(), "{bad:#?}");
    }

    #[test]
    fn a_failing_schedule_is_made_shorter_and_fails_still() {
        let found = (1..100).find_map(|seed| {
            let options = Options::of(seed, Profile::Forgets, Scale::Test, Some("barrier"));
            let broken = live(&options, &schedule(&options), false).violation?;
            Some((options, broken))
        });
        let (options, broken) = found.expect("without its barrier a store that forgot is believed");
        let whole = schedule(&options);
        let fewer = shrink(&options, &whole);
        assert!(fewer.len() * 4 < whole.len(), "{} of {} actions", fewer.len(), whole.len());
        let still = live(&options, &fewer, false).violation.map(|violation| violation.kind);
        assert_eq!(still, Some(broken.kind));
        let text = failure(&options);
        assert!(text.contains(&shrink::command(&options)), "{text}");
    }
}
