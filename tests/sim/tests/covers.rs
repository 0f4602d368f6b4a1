//! A million verdicts of the core against explicit sets of records.

#![cfg_attr(
    feature = "unsafe-guards",
    expect(clippy::expect_used, reason = "a rule without a name is a failed test")
)]

use tidegate_core::guards::Guards;
use tidegate_sim::covers::{STEPS, worlds};

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what the run is for")]
fn a_million_verdicts_agree_with_the_records() {
    let found = worlds(1..=1_000_000_u64.div_ceil(STEPS as u64), Guards::on());
    println!("\ncovers: {found}");
    assert!(found.cases >= 1_000_000);
    assert_eq!(found.disagreements, 0, "{found}");
    for [said, so] in [found.alive, found.lost, found.covered] {
        assert!(said * 10 > so && so * 10 > found.cases, "it says too little: {found}");
    }
}

/// Each rule whose absence these worlds show.
#[cfg(feature = "unsafe-guards")]
mod without {
    use super::*;

    fn shows(rule: &str) {
        let guards = Guards::without(rule).expect("a rule of that name");
        let found = worlds(1..=4_000, guards);
        assert!(found.disagreements > 0, "{rule} prevents nothing here: {found}");
    }

    #[test]
    fn durability_a_position_of_another_life_is_taken_for_the_mark() {
        shows("durability");
    }

    #[test]
    fn fork_interval_the_unclear_part_of_an_epoch_is_taken_for_alive() {
        shows("fork_interval");
    }

    #[test]
    fn leader_first_a_node_covers_what_its_leader_lost() {
        shows("leader_first");
    }

    #[test]
    fn diverged_a_node_of_another_branch_covers_the_common_part() {
        shows("diverged");
    }

    #[test]
    fn place_counts_a_new_timeline_is_taken_for_the_old_one() {
        shows("place_counts");
    }

    #[test]
    fn incarnation_a_restarted_standby_is_taken_for_what_it_was() {
        shows("incarnation");
    }
}
