//! The suite of the store: what befalls a shared Redis, under sessions that are known by their name
//! alone and use two instances.
//!
//! - `fault`: what befalls it; `expiry`: the one that needs instances of its own
//! - `schedule`: which fault comes when, from a seed
//! - `play`: one round: sessions live, a fault happens, all that was promised is looked for
//! - `outage`: the store is gone for a while
//! - `stage`: servers and instances; `chain`: the servers of the store
//! - `place`: what sessions share
//! - `person`: one session; `memory`: what it must find
//! - `tally`, `sums`: counts, and the claims that come of them
//!
//! PostgreSQL itself stays well: whatever a session misses, the store has lost. The oracle is rows
//! on the named servers; it shares no rule with the service. Rounds mostly wait for fences, so
//! several worlds are played side by side.

mod chain;
mod expiry;
mod fault;
mod memory;
mod outage;
mod person;
mod place;
mod play;
mod schedule;
mod stage;
mod sums;
mod tally;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tidegate_core::guards::Guards;

use self::play::{Play, Round};
use self::schedule::{Plan, Schedule};
use super::{Length, Options, say};
use crate::claims::{Claims, Op};
use crate::stall::Stall;

pub use fault::Kind;
pub use outage::{Outage, outage};
pub use sums::Sums;
pub use tally::Tally;

/// Rounds of each fault that the claims need.
const ROUNDS_USUAL: u64 = 4;
/// Worlds that are played side by side.
const WORLDS: usize = 3;
/// Safety rules without which the faults they are for must break a promise.
pub const OFF: [(&str, &[Kind]); 5] = [
    ("generation", &[Kind::Killed]),
    ("fence", &[Kind::Split]),
    ("believed_lookup", &[Kind::LeftBehind]),
    ("barrier", &[Kind::LateInstance]),
    ("gate", &[Kind::Expired]),
];
/// Rounds within which they must.
pub const ROUNDS_OFF: u64 = 20;
/// How long the store is gone at once.
const OUTAGE: Duration = Duration::from_secs(60);
/// Broken promises that are told in full.
const TOLD_MAX: usize = 20;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Which faults.
    pub kinds: &'a [Kind],
    /// How often each of them.
    pub length: Length,
    /// From which the schedule is drawn.
    pub seed: u64,
    /// A safety rule that is switched off: then it ends with the first broken promise.
    pub off: Option<&'a str>,
    /// Worlds side by side.
    pub worlds: usize,
}

/// Plays the suite and claims what came of it.
///
/// # Errors
/// When the lab cannot begin.
pub(super) async fn soak(options: Options, claims: &mut Claims) -> Result<()> {
    let Options { length, seed, .. } = options;
    let run = Run { kinds: &Kind::ALL, length, seed, off: None, worlds: WORLDS };
    let sums = rounds(run).await?;
    for words in sums.broken().into_iter().take(TOLD_MAX) {
        say(format_args!("broken: {words}"));
    }
    sums.claim_promises(claims);
    sums.claim_power(claims);
    sums.claim_pace(claims);
    sums.figures(claims);
    for (guard, kinds) in OFF {
        say(format_args!("without `{guard}`, until it breaks a promise"));
        let length = Length::Rounds(ROUNDS_OFF);
        let sums = rounds(Run { kinds, length, seed, off: Some(guard), worlds: 1 }).await?;
        let reads = sums.tally.judged + sums.tally.carried;
        let name = format!("the same without `{guard}`: reads that missed rows");
        #[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
        claims.claim(&name, sums.stale.len() as f64, Op::AtLeast, 1.0, reads);
    }
    say(format_args!("the store is gone for {} s", OUTAGE.as_secs()));
    outage(OUTAGE, seed).await?.claim(claims);
    Ok(())
}

/// Plays rounds, several worlds side by side.
///
/// # Errors
/// When the lab cannot begin. Rounds that break off are part of the sums.
pub async fn rounds(run: Run<'_>) -> Result<Sums> {
    let guards = run.off.map_or_else(|| Ok(Guards::on()), without)?;
    let desk = Desk {
        stall: Stall::watch()?,
        began_at: Instant::now(),
        schedule: Mutex::new(Schedule::of(run.kinds, run.seed)),
        sums: Mutex::default(),
        run,
    };
    try_join_all((0..run.worlds).map(|world| Box::pin(desk.world(world, guards)))).await?;
    let mut sums = desk.sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    sums.stall = desk.stall.largest();
    Ok(sums)
}

/// What the worlds of a run share.
struct Desk<'a> {
    run: Run<'a>,
    schedule: Mutex<Schedule>,
    sums: Mutex<Sums>,
    stall: Stall,
    began_at: Instant,
}

impl Desk<'_> {
    /// Plays rounds in one world until there are no more.
    async fn world(&self, world: usize, guards: Guards) -> Result<()> {
        let mut open: Option<Play> = None;
        while let Some(plan) = self.next() {
            let play = match &mut open {
                Some(play) => play,
                None => {
                    let opening = Play::open(world, guards, self.run.seed);
                    open.insert(Box::pin(opening).await?)
                }
            };
            match Box::pin(play.round(&plan)).await {
                Ok(round) => {
                    progress(world, &plan, &round);
                    self.sums().add(plan.kind, round);
                }
                Err(error) => {
                    // This world may be in any state.
                    open = None;
                    say(format_args!("{:>3} broke off: {error:#}", plan.number));
                    self.sums().broken_off.push(format!("{error:#}"));
                }
            }
        }
        match open {
            Some(play) => play.close().await,
            None => Ok(()),
        }
    }

    fn next(&self) -> Option<Plan> {
        let is_enough = self.run.off.is_some() && !self.sums().stale.is_empty();
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = self.run.length.goes_on(ROUNDS_USUAL, schedule.turns(), self.began_at);
        if is_enough || !goes_on { None } else { schedule.next() }
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line for each round, and the first promise that was broken in it.
fn progress(world: usize, plan: &Plan, round: &Round) {
    let Round { tally, stale, unannounced, took, fenced, .. } = round;
    let fenced = fenced.iter().max().copied().unwrap_or_default();
    say(format_args!(
        "{:>3} world {world} {:<25} {:>5.1} s  {:>4} records lost, {:>3} writes, {:>4} reads \
         judged, believed after {:>5.2} s, {} broken",
        plan.number,
        plan.kind.name(),
        took.as_secs_f64(),
        round.lost,
        tally.writes,
        tally.judged + tally.carried,
        fenced.as_secs_f64(),
        stale.len() + unannounced.len(),
    ));
    if let Some(first) = unannounced.first().or_else(|| stale.first()) {
        say(format_args!("    {first}"));
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
