//! Switches one guard off and counts the seeds until the checker sees it; then lives ten times as
//! many with the guard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::guards::Guards;

use crate::check::Violation;
use crate::options::{Options, Profile, Scale};
use crate::run::live;
use crate::schedule::schedule;

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

const MISSING: [&str; 6] = [
    "a write of the session is missing",
    "what the session saw is missing",
    "a lost write was never told",
    "a lost state was never told",
    "GLOBAL",
    "BOUNDED",
];

/// What a guard is there to prevent: nothing else counts as a catch.
pub(crate) fn harms(guard: &str) -> &'static [&'static str] {
    match guard {
        "late_observation" => &["a healthy node stays out"],
        "page_header" => &["stuck after everything was healed", "a wait did not end"],
        "row_for_lost" => &["WRITE_LOST for a write that is there"],
        "who_leads" => &["the promoted node does not lead"],
        "cap" => &["the cap was exceeded"],
        "diverged" => &["a node of another line may serve"],
        // Every other guard keeps a stale answer from being called fresh.
        _ => &MISSING,
    }
}

/// The profile in which a guard matters soonest.
pub fn profile_of(guard: &str) -> Profile {
    match guard {
        "incarnation" => Profile::Restarts,
        "late_observation" => Profile::LateAnswers,
        "regression" => Profile::Reverted,
        "shared_id" => Profile::Copied,
        "page_header" => Profile::Pages,
        "insert_lsn" | "trail_sent_at" => Profile::Async,
        "place_counts" => Profile::Hidden,
        "durability" => Profile::SlowLeader,
        "row_for_lost" => Profile::LateRows,
        "leader_first" | "fork_interval" | "unknown_upward" => Profile::Failover,
        "moved_capture" | "pooled_check" => Profile::Pooled,
        "gate" => Profile::Expiry,
        "void_samples" | "who_leads" | "diverged" => Profile::Undead,
        "former_twin" => Profile::Attached,
        "two_branches" => Profile::Moved,
        "split" => Profile::Twins,
        "guarded_insert" => Profile::Reused,
        "barrier" => Profile::Forgets,
        "overflow" => Profile::Narrow,
        "cap" => Profile::Storm,
        _ => Profile::General,
    }
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

/// Tries one guard on so many seeds as it takes.
///
/// # Panics
/// If there is no guard of that name.
pub fn run(guard: &str, limits: Tries, threads: usize) -> Caught {
    let (guard, _) = Guards::ALL.iter().find(|(name, _)| *name == guard).expect("a known guard");
    let profile = profile_of(guard);
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
