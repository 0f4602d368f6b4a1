//! What befalls the standbys, drawn from a seed before the run begins.
//!
//! Knows no time: faults begin and end with rounds, so a slow machine sees the same schedule.

use std::sync::LazyLock;
use std::time::Duration;

use fastrand::Rng;

/// What befalls a standby.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Commits are replayed late; the only one during which reads count as calm.
    Delay,
    /// Replay is held.
    Hold,
    /// It crashes and comes back behind what it had shown.
    CrashBehind,
    /// It crashes and comes back as it can.
    Restart,
    /// One of its backends is killed: it recovers, and its start time stays.
    KillBackend,
}

impl Fault {
    /// Every kind.
    pub(crate) const ALL: [Self; 5] =
        [Self::Delay, Self::Hold, Self::CrashBehind, Self::Restart, Self::KillBackend];

    /// Those that have rounds of their own in each span.
    const WINDOWS: [Self; 4] = [Self::Hold, Self::CrashBehind, Self::Restart, Self::KillBackend];

    /// Its name in figures.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Delay => "apply delay",
            Self::Hold => "replay held",
            Self::CrashBehind => "crash, back behind",
            Self::Restart => "crash, restart",
            Self::KillBackend => "backend killed",
        }
    }
}

/// One part of a run: rounds under an ordinary delay, then rounds in a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The standby that replays late, and how late.
    pub(crate) delay: Option<(usize, Duration)>,
    /// What comes after that.
    pub(crate) fault: Fault,
    /// To which standby.
    pub(crate) victim: usize,
    /// A hold takes both.
    pub(crate) both: bool,
}

/// The parts of a run, every kind of fault among them.
pub(crate) fn spans(seed: u64, count: usize) -> Vec<Span> {
    let mut rng = Rng::with_seed(seed);
    let mut faults = Vec::with_capacity(count + Fault::WINDOWS.len());
    while faults.len() < count {
        let mut round = Fault::WINDOWS;
        rng.shuffle(&mut round);
        faults.extend(round);
    }
    faults.truncate(count);
    let span = |fault| {
        let late = (rng.usize(0..2), Duration::from_millis(rng.u64(50..600)));
        let delay = (rng.u32(0..5) > 0).then_some(late);
        Span { delay, fault, victim: rng.usize(0..2), both: rng.u32(0..3) == 0 }
    };
    faults.into_iter().map(span).collect()
}

/// The seed of this process: a new one, or the one to be repeated.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    let asked = std::env::var("TIDEGATE_SEED").ok();
    asked.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("a number"))
});

/// The seed, the same for every test of a process: all play the same schedule.
pub(crate) fn seed() -> u64 {
    *SEED
}
