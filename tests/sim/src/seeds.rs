//! Many seeds on several threads, and what they showed together.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::check::{Figures, Violation};
use crate::options::{Options, Profile, Scale};
use crate::run::live;
use crate::schedule::schedule;
use crate::shrink;

/// Failures that are shrunken and kept in words.
const SHRUNKEN_MAX: usize = 3;

/// What many seeds showed.
#[derive(Clone, Default, Debug)]
pub struct Summary {
    /// Seeds lived.
    pub seeds: u64,
    /// Actions of all schedules.
    pub actions: u64,
    /// The fewest actions of one.
    pub actions_least: usize,
    /// All counts.
    pub figures: Figures,
    /// What broke, by seed and profile.
    pub violations: BTreeMap<(u64, Profile), Violation>,
    /// The first of them, shrunken, in words.
    pub failures: Vec<String>,
    /// All traces, as one number.
    pub hash: u64,
}

impl Summary {
    /// Adds what other worlds showed.
    pub fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.actions += other.actions;
        self.actions_least = match self.actions_least {
            0 => other.actions_least,
            own => own.min(other.actions_least),
        };
        self.figures.add(&other.figures);
        self.violations.extend(other.violations);
        self.failures.extend(other.failures);
        self.failures.truncate(SHRUNKEN_MAX);
        self.hash = (self.hash ^ other.hash).rotate_left(17);
    }

    /// Of the session reads while nothing was broken, how many a replica answered unflagged: in
    /// hundredths.
    pub fn calm_replica_percent(&self) -> u64 {
        self.figures.calm_replica * 100 / self.figures.calm_reads.max(1)
    }

    /// Of the reads with something to miss, in how many a standby truly lacked some: in hundredths.
    pub fn lacking_percent(&self) -> u64 {
        self.figures.lacking * 100 / self.figures.rounds.max(1)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        writeln!(
            f,
            "{} seeds, {} actions, {} operations, {} violations, trace hash {:016x}",
            self.seeds,
            self.actions,
            figures.operations,
            self.violations.len(),
            self.hash
        )?;
        writeln!(
            f,
            "replica unflagged while calm {}%, a standby truly lacked something {}%",
            self.calm_replica_percent(),
            self.lacking_percent()
        )?;
        writeln!(f, "{figures:#?}")?;
        for ((seed, profile), violation) in &self.violations {
            writeln!(f, "seed {seed} {}: {} {}", profile.name(), violation.kind, violation.text)?;
        }
        self.failures.iter().try_for_each(|failure| writeln!(f, "\n{failure}"))
    }
}

/// Lives these seeds, each in `profile` or in the one it lives in, on so many threads.
///
/// `progress` is told how many are done.
pub fn run_seeds(
    seeds: RangeInclusive<u64>,
    profile: Option<Profile>,
    scale: Scale,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Summary {
    let next = AtomicU64::new(*seeds.start());
    let done = AtomicU64::new(0);
    let together = Mutex::new((Summary::default(), BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > *seeds.end() {
                        return;
                    }
                    let profile = profile.unwrap_or_else(|| Profile::of_seed(seed));
                    let options = Options::of(seed, profile, scale, None);
                    let actions = schedule(&options);
                    let lived = live(&options, &actions, false);
                    let mut together = together.lock().expect("no thread panics");
                    let (summary, hashes) = &mut *together;
                    summary.seeds += 1;
                    summary.actions += actions.len() as u64;
                    if summary.actions_least == 0 || actions.len() < summary.actions_least {
                        summary.actions_least = actions.len();
                    }
                    summary.figures.add(&lived.figures);
                    hashes.insert(seed, lived.hash);
                    if let Some(violation) = lived.violation {
                        summary.violations.insert((seed, profile), violation);
                    }
                    drop(together);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let (mut summary, hashes) = together.into_inner().expect("no thread panics");
    for hash in hashes.values() {
        summary.hash = (summary.hash ^ hash).wrapping_mul(0x0100_0000_01B3).rotate_left(17);
    }
    for (seed, profile) in summary.violations.keys().take(SHRUNKEN_MAX) {
        summary.failures.push(shrink::failure(&Options::of(*seed, *profile, scale, None)));
    }
    summary
}
