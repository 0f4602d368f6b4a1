//! Answers with a bound, used to the end by clocks that are not right; `make prove` asks a million.

use tidegate_core::guards::Guards;
use tidegate_sim::leases::{READS, worlds};

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what the run is for")]
fn no_answer_outlasts_its_bound_and_most_are_given() {
    let found = worlds(1..=40, Guards::on());
    println!("\nleases: {found}");
    assert!(found.asked >= 39 * READS);
    assert_eq!(found.broken, 0, "{found}");
    assert!(found.unseen > 0 && found.beyond == 0, "{found}");
    assert!(found.yes_percent() >= 60, "{found}");
}

/// The clocks are off by less than a thousandth: it takes the rule, and many stopped standbys.
#[cfg(feature = "unsafe-guards")]
#[test]
fn without_the_lease_guard_clocks_that_drift_break_the_bound() {
    let found = worlds(1..=40, Guards::without("lease").expect("a rule of that name"));
    assert!(found.broken > 0, "{found}");
    let guarded = worlds(1..=40, Guards::on());
    assert!(found.void > guarded.void, "{found}; with it {guarded}");
}
