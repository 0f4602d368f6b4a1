//! A million answers with a bound, used to their last moment by clocks that are not right.

use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

use tidegate_core::guards::Guards;
use tidegate_sim::leases::{Found, READS, rules_without, worlds};

use super::{at_least, say};
use crate::claims::Claims;

const ANSWERS: u64 = 1_000_000;
/// Worlds that are lived again without the rule.
const WORLDS_UNSAFE: u64 = 300;

/// Asks in all worlds, then in some without the rule, which must break there.
pub(super) fn prove(claims: &mut Claims, threads: usize) {
    say(format_args!("leases: {ANSWERS} answers with a bound, by clocks that drift"));
    // The first polls of a world are asked nothing.
    let last = ANSWERS.div_ceil(READS - READS / 50);
    let found = all(last, threads, Guards::on());
    say(format_args!("leases: {found}"));
    at_least(claims, "leases: answers with a bound", ANSWERS, found.asked, found.asked);
    let broken = "leases: bounds broken for the leader in view";
    claims.count(broken, found.broken, 0, found.yes);
    let beyond = "leases: excesses past an unseen promotion, longer than until it was seen";
    claims.count(beyond, found.beyond, 0, found.unseen);
    let percent = "leases: percent answered with the bound";
    at_least(claims, percent, 60, found.yes_percent(), found.asked);
    at_least(claims, "leases: reads past an unseen promotion", 100, found.unseen, found.yes);
    claims.figure("leases: longest excess past an unseen promotion, ms", found.excess / 1_000_000);
    claims.figure("leases: longest until a promotion was seen, ms", found.detection / 1_000_000);
    let Some(off) = rules_without("lease") else { return };
    let unsafely = all(WORLDS_UNSAFE, threads, off);
    say(format_args!("leases: without `lease`: {unsafely}"));
    at_least(claims, "leases: bounds broken without `lease`", 1, unsafely.broken, unsafely.yes);
}

fn all(last: u64, threads: usize, guards: Guards) -> Found {
    let share = last.div_ceil(threads as u64);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads as u64)
            .map(|part| (part * share + 1, ((part + 1) * share).min(last)))
            .map(|(first, last)| scope.spawn(move || worlds(first..=last, guards)))
            .collect();
        let joined = parts.into_iter().map(ScopedJoinHandle::join);
        joined
            .map(|part| part.unwrap_or_else(|panic| resume_unwind(panic)))
            .fold(Found::default(), Found::add)
    })
}
