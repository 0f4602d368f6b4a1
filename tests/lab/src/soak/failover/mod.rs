//! The suite of failovers: every kind of them, in random order, under a hundred sessions.
//!
//! - `schedule`: what befalls the servers, from a seed
//! - `play`: one round: sessions live, a failover happens, all is repaired and judged
//! - `place`: servers, service, what sessions share
//! - `person`: one session: writes, reads, waits, jobs
//! - `memory`: what it must find and was told
//! - `marks`: what its token says
//! - `truth`: which rows there really are, who writes
//! - `judge`: one against the other
//! - `tally`, `sums`: counts, and the claims that come of them
//!
//! The oracle is rows on servers; it shares no rule with the service. What a failover is stands in
//! `crate::failover`.

mod judge;
mod marks;
mod memory;
mod person;
mod place;
mod play;
mod schedule;
mod sums;
mod tally;
mod truth;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use tidegate_core::guards::Guards;

use self::play::{Play, Round};
use self::schedule::{Plan, Schedule};
use super::{Length, Options, say};
use crate::claims::{Claims, Op};
use crate::install::Major;
use crate::stall::Stall;

pub use judge::{Cause, Verdict};
pub use sums::Sums;
pub use tally::Tally;

/// Rounds that the claims need.
const ROUNDS_USUAL: u64 = 50;
/// Safety rules without which the same schedule must break a promise.
pub const OFF: [&str; 1] = ["leader_first"];
/// Rounds within which it must.
pub const ROUNDS_OFF: u64 = 5;
/// Broken promises that are told in full.
const TOLD_MAX: usize = 20;

/// Plays the suite and claims what came of it.
///
/// # Errors
/// When the lab cannot begin.
pub(super) async fn soak(options: Options, claims: &mut Claims) -> Result<()> {
    let Options { length, seed, ordinary } = options;
    if ordinary {
        let sums = play(Schedule::ordinary(seed), length, seed, None).await?;
        sums.claim_promises(claims);
        sums.figures(claims);
        return Ok(());
    }
    let sums = rounds(length, seed, None).await?;
    for words in sums.verdict.broken().into_iter().take(TOLD_MAX) {
        say(format_args!("broken: {words}"));
    }
    sums.claim_promises(claims);
    sums.claim_power(claims);
    sums.claim_pace(claims);
    sums.figures(claims);
    for guard in OFF {
        say(format_args!("the same schedule without `{guard}`, until it breaks a promise"));
        let sums = rounds(Length::Rounds(ROUNDS_OFF), seed, Some(guard)).await?;
        let (broken, reads) = (sums.violations(), sums.tally.reads);
        let name = format!("the same schedule without `{guard}`: promises broken");
        #[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
        claims.claim(&name, broken as f64, Op::AtLeast, 1.0, reads);
    }
    Ok(())
}

/// Plays the rounds of a seed; without one safety rule it ends with the first that breaks one.
///
/// # Errors
/// When the lab cannot begin. Rounds that break off are part of the sums.
pub async fn rounds(length: Length, seed: u64, off: Option<&str>) -> Result<Sums> {
    play(Schedule::new(seed), length, seed, off).await
}

async fn play(schedule: Schedule, length: Length, seed: u64, off: Option<&str>) -> Result<Sums> {
    let guards = off.map_or_else(|| Ok(Guards::on()), without)?;
    let (began_at, stall) = (Instant::now(), Arc::new(Stall::watch()?));
    let (mut sums, mut plays) = (Sums::default(), BTreeMap::new());
    for plan in schedule {
        let played = sums.rounds + sums.broken_off.len() as u64;
        let is_enough = off.is_some() && sums.violations() > 0;
        if is_enough || !length.goes_on(ROUNDS_USUAL, played, began_at) {
            break;
        }
        match round(&mut plays, &plan, guards, seed, &stall).await {
            Ok(round) => {
                progress(&plan, &round);
                sums.add(&plan, round);
            }
            Err(error) => {
                // These servers may be in any state.
                plays.remove(&plan.major);
                say(format_args!("{:>3} broke off: {error:#}", plan.number));
                sums.broken_off.push(format!("{error:#}"));
            }
        }
    }
    sums.stall = stall.largest();
    Ok(sums)
}

async fn round(
    plays: &mut BTreeMap<Major, Play>,
    plan: &Plan,
    guards: Guards,
    seed: u64,
    stall: &Arc<Stall>,
) -> Result<Round> {
    let play = match plays.entry(plan.major) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(place) => {
            let opening = Play::open(plan.major, guards, seed, Arc::clone(stall));
            place.insert(Box::pin(opening).await?)
        }
    };
    Box::pin(play.round(plan)).await
}

/// One line for each round, and what was done in it where a promise was broken.
fn progress(plan: &Plan, round: &Round) {
    let Round { verdict, tally, took, .. } = round;
    let (broken, seconds) = (verdict.broken().len(), took.as_secs_f64());
    say(format_args!(
        "{:>3} pg{} {:<30} {seconds:>5.1} s  {:>4} writes {:>3} lost by {:>2}, {:>3} notices \
         ({:>2} without cause), {:>4} reads, {broken} broken",
        plan.number,
        plan.major,
        plan.kind.name(),
        tally.writes,
        verdict.lost,
        verdict.losers,
        verdict.notices(),
        verdict.without_cause(),
        tally.reads,
    ));
    if broken > 0 {
        say(format_args!("    {}", round.steps.join("; ")));
        say(format_args!("    {}", verdict.broken()[0]));
    }
}

#[cfg(feature = "unsafe-guards")]
fn without(guard: &str) -> Result<Guards> {
    Guards::without(guard).with_context(|| format!("there is no guard `{guard}`"))
}

#[cfg(not(feature = "unsafe-guards"))]
fn without(guard: &str) -> Result<Guards> {
    None.with_context(|| format!("this build cannot switch `{guard}` off: `unsafe-guards` can"))
}
