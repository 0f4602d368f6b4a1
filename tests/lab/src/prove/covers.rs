//! A million verdicts of the core, compared with the records themselves.

use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

use tidegate_core::guards::Guards;
use tidegate_sim::covers::{Found, STEPS, worlds};

use super::{at_least, say};
use crate::claims::{Claims, Op};

const VERDICTS: u64 = 1_000_000;

/// Asks in all worlds, and claims that no verdict was false and not too few were made.
#[expect(clippy::cast_precision_loss, reason = "a share of a million")]
pub(super) fn prove(claims: &mut Claims, threads: usize) {
    say(format_args!("covers: {VERDICTS} verdicts against the records"));
    let last = VERDICTS.div_ceil(STEPS as u64);
    let share = last.div_ceil(threads as u64);
    let found = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads as u64)
            .map(|part| (part * share + 1, ((part + 1) * share).min(last)))
            .map(|(first, last)| scope.spawn(move || worlds(first..=last, Guards::on())))
            .collect();
        let joined = parts.into_iter().map(ScopedJoinHandle::join);
        joined
            .map(|part| part.unwrap_or_else(|panic| resume_unwind(panic)))
            .fold(Found::default(), Found::add)
    });
    say(format_args!("covers: {found}"));
    at_least(claims, "covers: verdicts compared", VERDICTS, found.cases, found.cases);
    claims.count("covers: verdicts that disagree", found.disagreements, 0, found.cases);
    for (name, [said, so]) in
        [("alive", found.alive), ("lost", found.lost), ("covered", found.covered)]
    {
        let share = said as f64 / so.max(1) as f64;
        let claim = format!("covers: share of what is {name} and said");
        claims.claim(&claim, share, Op::Above, 0.1, so);
    }
}
