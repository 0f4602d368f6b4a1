//! What befalls the standbys, drawn from a seed before the run begins.
//!
//! Knows no time: faults begin and end with rounds, so a slow machine sees the same schedule.

use std::time::Duration;

use fastrand::Rng;

/// What befalls a standby.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
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
    pub const ALL: [Self; 5] =
        [Self::Delay, Self::Hold, Self::CrashBehind, Self::Restart, Self::KillBackend];

    /// Those that have rounds of their own in each span.
    const WINDOWS: [Self; 4] = [Self::Hold, Self::CrashBehind, Self::Restart, Self::KillBackend];

    /// Its name in figures.
    #[must_use]
    pub const fn kind(self) -> &'static str {
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
pub(super) struct Span {
    /// The standby that replays late, and how late.
    pub(super) delay: Option<(usize, Duration)>,
    /// What comes after that.
    pub(super) fault: Fault,
    /// To which standby.
    pub(super) victim: usize,
    /// A hold takes both.
    pub(super) both: bool,
}

/// The parts of a run, every kind of fault among them.
pub(super) fn spans(seed: u64, count: usize) -> Vec<Span> {
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
