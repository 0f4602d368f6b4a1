//! Switches one guard off and counts the seeds until the checker sees it; then lives ten times as
//! many with the guard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::guards::Guards;

use crate::check::{Breach, Violation};
use crate::options::{Options, Profile, Scale};
use crate::run::live;
use crate::schedule::schedule;
use crate::store::{LIFETIME, MIN_REPLICAS};

/// What became of one guard.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The guard.
    pub guard: &'static str,
    /// Where it was tried.
    pub profile: Profile,
    /// Seeds until each catch.
    pub tries: Vec<u64>,
    /// The first seed that caught it, and what it broke there; `None`: it was never caught.
    pub first: Option<(u64, Violation)>,
    /// Seeds lived with the guard.
    pub survived: u64,
    /// What broke among those.
    pub broken: Option<(u64, Violation)>,
}

impl Caught {
    /// Says whether the guard was seen to matter, and to be enough.
    pub const fn is_good(&self) -> bool {
        self.first.is_some() && self.broken.is_none()
    }
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<17} {:<12}", self.guard, self.profile.name())?;
        match &self.first {
            None => write!(f, "NOT CAUGHT")?,
            Some((seed, violation)) => {
                let tries: Vec<String> = self.tries.iter().map(u64::to_string).collect();
                write!(f, "caught after {} (seed {seed}: {})", tries.join(", "), violation.kind)?;
            }
        }
        write!(f, ", {} survived with it", self.survived)?;
        match &self.broken {
            None => Ok(()),
            Some((seed, violation)) => write!(f, ", BROKEN by seed {seed}: {}", violation.kind),
        }
    }
}

/// Where a guard is tried, and what it is there to prevent: nothing else counts as a catch.
struct Trial {
    guard: &'static str,
    /// Where it matters soonest.
    profile: Profile,
    harms: &'static [Breach],
}

/// What a guard prevents that keeps a stale answer from being called fresh.
const STALE: &[Breach] = &[
    Breach::WriteMissing,
    Breach::SeenMissing,
    Breach::LostWriteUntold,
    Breach::LostStateUntold,
    Breach::Global,
    Breach::Bounded,
];

const fn trial(guard: &'static str, profile: Profile, harms: &'static [Breach]) -> Trial {
    Trial { guard, profile, harms }
}

const TRIALS: [Trial; 37] = [
    trial("barrier", Profile::Forgets, STALE),
    trial("believed_lookup", Profile::StoreSplit, STALE),
    trial("cap", Profile::Storm, &[Breach::CapExceeded]),
    trial("diverged", Profile::Undead, &[Breach::StrayServes]),
    trial("durability", Profile::SlowLeader, STALE),
    trial("fence", Profile::StoreSplit, STALE),
    trial("foreign_instance", Profile::Foreign, STALE),
    trial("fork_interval", Profile::Failover, STALE),
    trial("former_twin", Profile::Attached, STALE),
    trial("gate", Profile::Expiry, STALE),
    trial("generation", Profile::Evicting, STALE),
    trial("guarded_insert", Profile::Reused, STALE),
    trial("incarnation", Profile::Restarts, STALE),
    trial("insert_lsn", Profile::Async, STALE),
    trial("late_observation", Profile::LateAnswers, &[Breach::HealthyOut]),
    trial("lease", Profile::Drift, &[Breach::Bounded]),
    trial("leader_first", Profile::Failover, STALE),
    trial("leader_check", Profile::Swapped, STALE),
    trial("moved_capture", Profile::Pooled, STALE),
    trial("overflow", Profile::Narrow, STALE),
    trial("page_header", Profile::Pages, &[Breach::Stuck, Breach::WaitNotEnded]),
    trial("place_counts", Profile::Hidden, STALE),
    trial("pooled_check", Profile::Pooled, STALE),
    trial("regression", Profile::Reverted, STALE),
    trial("restored", Profile::Restored, STALE),
    trial("row_for_lost", Profile::LateRows, &[Breach::LostWriteIsThere]),
    trial("sample_after", Profile::General, STALE),
    trial("shared_id", Profile::Copied, STALE),
    trial("snapshot_order", Profile::General, STALE),
    trial("split", Profile::Twins, STALE),
    trial("torn_record", Profile::Crashes, &[Breach::SurvivorTold]),
    trial("trail_sent_at", Profile::Async, STALE),
    trial("two_branches", Profile::Moved, STALE),
    trial("unknown_upward", Profile::Failover, STALE),
    trial("void_samples", Profile::Undead, STALE),
    trial("who_leads", Profile::Undead, &[Breach::PromotedIdle]),
    trial("yielded", Profile::Operators, &[Breach::Stuck]),
];

/// Settings that are checked at a start and no rule of the core: worlds without them must break.
const SETTINGS: [Trial; 2] =
    [trial(LIFETIME, Profile::Expiring, STALE), trial(MIN_REPLICAS, Profile::StoreSplit, STALE)];

fn trial_of(guard: &str) -> &'static Trial {
    let own = TRIALS.iter().chain(&SETTINGS).find(|trial| trial.guard == guard);
    own.unwrap_or_else(|| panic!("`{guard}` has no line in TRIALS of tests/sim/src/mutation.rs"))
}

/// The breaches that count where this guard is switched off.
pub(crate) fn harms(guard: &str) -> &'static [Breach] {
    trial_of(guard).harms
}

fn violation(seed: u64, profile: Profile, without: Option<&'static str>) -> Option<Violation> {
    let options = Options::of(seed, profile, Scale::Test, without);
    live(&options, &schedule(&options), false).violation
}

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tries {
    /// Seeds a guard is tried on before it counts as one that nothing needs.
    pub seeds_max: u64,
    /// Catches whose mean is taken.
    pub catches: u64,
    /// Seeds lived with the guard afterwards: ten times the mean, and at most this many.
    pub survived_max: u64,
}

/// Tries every guard, in the order of their list, on so many threads.
pub fn run_all(tries: Tries, threads: usize) -> Vec<Caught> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((guard, _)) = Guards::ALL.get(index) else { return };
                    let caught = run(guard, tries, 1);
                    all.lock().expect("no thread panics").insert(index, caught);
                }
            });
        }
    });
    all.into_inner().expect("no thread panics").into_values().collect()
}

/// Tries every setting that is checked at a start, as if nobody had.
pub fn run_settings(tries: Tries, threads: usize) -> Vec<Caught> {
    SETTINGS.iter().map(|trial| run(trial.guard, tries, threads)).collect()
}

/// The name of a guard, or of a setting that is checked at a start.
pub fn named(name: &str) -> Option<&'static str> {
    let all = TRIALS.iter().chain(&SETTINGS).map(|trial| trial.guard);
    all.into_iter().find(|guard| *guard == name)
}

/// Tries one guard, or one setting, on so many seeds as it takes.
///
/// # Panics
/// If there is none of that name.
pub fn run(guard: &str, limits: Tries, threads: usize) -> Caught {
    let Trial { guard, profile, .. } = *trial_of(guard);
    let (mut tries, mut first, mut last) = (Vec::new(), None, 0);
    for seed in 1..=limits.seeds_max {
        let Some(broken) = violation(seed, profile, Some(guard)) else { continue };
        if violation(seed, profile, None).is_some() {
            // Not for want of the guard.
            continue;
        }
        tries.push(seed - last);
        last = seed;
        first.get_or_insert((seed, broken));
        if tries.len() as u64 == limits.catches {
            break;
        }
    }
    let mean = last.div_ceil((tries.len() as u64).max(1));
    let survived = if first.is_some() { (mean * 10).min(limits.survived_max) } else { 0 };
    let broken =
        crate::seeds::run_seeds(1..=survived, Some(profile), Scale::Test, threads, &|_| {});
    let broken = broken.violations.into_iter().next().map(|((seed, _), broken)| (seed, broken));
    Caught { guard, profile, tries, first, survived, broken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guard_has_one_trial_and_no_trial_is_of_anything_else() {
        let mut named: Vec<&str> = TRIALS.iter().map(|trial| trial.guard).collect();
        let mut guards: Vec<&str> = Guards::ALL.iter().map(|(name, _)| *name).collect();
        named.sort_unstable();
        guards.sort_unstable();
        assert_eq!(named, guards);
    }
}
