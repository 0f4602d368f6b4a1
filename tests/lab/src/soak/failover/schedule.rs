//! What befalls the servers in each round, drawn from a seed before the run begins.
//!
//! Knows no time: what happens begins and ends with what sessions have done, so a slow machine sees
//! the same schedule.

use std::time::Duration;

use fastrand::Rng;

use crate::failover::Kind;
use crate::install::Major;

/// Everything that must happen for a run to mean anything.
pub(super) const EVENTS: [&str; 10] = [
    "kill",
    "stop",
    "promotion",
    "rewind",
    "naive rejoin",
    "new clone",
    "restart",
    "paused replay",
    "reset statistics",
    "polling gap",
];

/// The rounds that every run begins with, in an order of chance: all events are among them.
const FIRST: [Kind; 5] = [
    Kind::KilledRewound,
    Kind::ResetPromoted,
    Kind::NaiveRejoin,
    Kind::PromotedRestarted,
    Kind::PausedPromoted,
];

/// One round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) number: u64,
    pub(super) major: Major,
    pub(super) kind: Kind,
    /// Which standby replays late while all is well, and how late.
    pub(super) late: (usize, Duration),
    /// What else is drawn in this round.
    pub(super) seed: u64,
}

/// Draws rounds one by one: first the short list, then every kind before any kind comes again.
#[derive(Debug)]
pub(super) struct Schedule {
    rng: Rng,
    bag: Vec<Kind>,
    drawn: u64,
    is_meant: fn(Kind) -> bool,
}

impl Schedule {
    /// Ordinary failovers alone.
    pub(super) fn ordinary(seed: u64) -> Self {
        let (rng, bag) = (Rng::with_seed(seed), Vec::new());
        Self { rng, bag, drawn: 0, is_meant: Kind::is_ordinary }
    }

    pub(super) fn new(seed: u64) -> Self {
        let (mut rng, mut bag) = (Rng::with_seed(seed), FIRST.to_vec());
        rng.shuffle(&mut bag);
        Self { rng, bag, drawn: 0, is_meant: is_promised }
    }
}

impl Iterator for Schedule {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        self.drawn += 1;
        let major = if self.drawn.is_multiple_of(2) { Major::V18 } else { Major::V15 };
        if self.bag.is_empty() {
            self.bag.extend(Kind::ALL.into_iter().filter(|kind| (self.is_meant)(*kind)));
            self.rng.shuffle(&mut self.bag);
        }
        let kind = self.bag.pop()?;
        let late = (self.rng.usize(0..2), Duration::from_millis(self.rng.u64(250..700)));
        Some(Plan { number: self.drawn, major, kind, late, seed: self.rng.u64(..) })
    }
}

/// Which events a kind consists of; new clones are counted when they are made.
pub(super) const fn events(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::KilledRewound => &["kill", "promotion", "rewind"],
        Kind::KilledCloned => &["kill", "promotion", "new clone"],
        Kind::Switchover => &["stop", "promotion", "naive rejoin"],
        Kind::Repointed | Kind::OldReturns => &["kill", "promotion"],
        Kind::PausedPromoted => &["kill", "promotion", "paused replay"],
        Kind::BesideLiving => &["promotion", "stop"],
        Kind::NaiveRejoin => &["kill", "promotion", "naive rejoin"],
        Kind::CrashLoop => &["kill", "promotion", "restart"],
        Kind::ResetPromoted => &["stop", "promotion", "reset statistics"],
        Kind::AsyncLost => &["kill", "restart"],
        Kind::BackendKilled | Kind::TornRecord => &["kill"],
        Kind::CleanRestart => &["stop", "restart"],
        Kind::ResetLeader => &["reset statistics"],
        Kind::Restored => &["stop"],
        Kind::TwoCrashes | Kind::CrashThenClean => &["kill", "restart", "polling gap"],
        Kind::TwoPromotions => &["kill", "promotion", "polling gap"],
        Kind::PromotedRestarted | Kind::BeforeTheRow => {
            &["kill", "promotion", "restart", "polling gap"]
        }
        Kind::SameNumber => &["kill", "promotion", "new clone", "polling gap"],
        Kind::Twins => &["kill", "promotion"],
        Kind::TwinAttached => &["kill", "promotion", "naive rejoin", "polling gap"],
        Kind::StandbyCrash => &["kill", "restart"],
        Kind::StandbyRestart => &["restart"],
    }
}

/// Says whether nobody could poll while it happened.
pub(super) fn has_gap(kind: Kind) -> bool {
    events(kind).contains(&"polling gap")
}

/// Says whether two servers wrote at the same time, so that nobody can be sure of a loss.
pub(super) const fn has_two_writers(kind: Kind) -> bool {
    match kind {
        Kind::BesideLiving
        | Kind::OldReturns
        | Kind::SameNumber
        | Kind::Twins
        | Kind::TwinAttached => true,
        Kind::KilledRewound
        | Kind::KilledCloned
        | Kind::Switchover
        | Kind::Repointed
        | Kind::PausedPromoted
        | Kind::NaiveRejoin
        | Kind::CrashLoop
        | Kind::ResetPromoted
        | Kind::AsyncLost
        | Kind::BackendKilled
        | Kind::TornRecord
        | Kind::CleanRestart
        | Kind::ResetLeader
        | Kind::Restored
        | Kind::TwoCrashes
        | Kind::CrashThenClean
        | Kind::TwoPromotions
        | Kind::PromotedRestarted
        | Kind::BeforeTheRow
        | Kind::StandbyCrash
        | Kind::StandbyRestart => false,
    }
}

/// Says whether an operator is needed by design: nobody else can say which twin is right.
pub(super) fn needs_operator(kind: Kind) -> bool {
    kind == Kind::Twins
}

/// Says whether it is promised that nothing stale is served: not where a twin is attached to the
/// other without a rewind while nobody can poll, which leaves no trace of what it was.
fn is_promised(kind: Kind) -> bool {
    kind != Kind::TwinAttached
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_event_comes_within_the_first_rounds_of_any_run() {
        let mut events: BTreeSet<_> = FIRST.into_iter().flat_map(events).copied().collect();
        // The repair of a naive rejoin clones.
        events.insert("new clone");
        assert_eq!(events, BTreeSet::from(EVENTS));
        for seed in 0..50 {
            let mut kinds: Vec<Kind> = Schedule::new(seed).take(5).map(|plan| plan.kind).collect();
            kinds.sort_unstable();
            let mut first = FIRST.to_vec();
            first.sort_unstable();
            assert_eq!(kinds, first, "seed {seed}");
        }
    }

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        let all = Kind::ALL.into_iter().filter(|kind| is_promised(*kind)).count();
        let kinds = Schedule::new(3).skip(5).take(all).map(|plan| plan.kind);
        assert_eq!(kinds.collect::<BTreeSet<_>>().len(), all);
    }

    #[test]
    fn the_same_seed_draws_the_same_rounds() {
        let drawn = |seed| format!("{:?}", Schedule::new(seed).take(20).collect::<Vec<_>>());
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
