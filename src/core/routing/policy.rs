//! `Policy`: how fresh one read must be, and what may be done to get there.

use std::time::Duration;

/// How fresh a read must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Any replica.
    Eventual,
    /// Everything the session wrote or saw.
    Session,
    /// No older than the policy's bound.
    Bounded,
    /// Everything acknowledged before the call.
    Global,
    /// A verified leader read.
    Leader,
}

/// What is done with a read that no replica satisfies and the leader may not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AboveCap {
    /// Wait once more, this long.
    Wait(Duration),
    /// Answer with a replica that lacks something, and say so.
    Stale,
    /// Refuse, with the time after which to try again.
    Refuse,
}

/// How fresh one read must be, and what may be done to get there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// How fresh.
    pub level: Level,
    /// The largest staleness, for `Bounded`, and beside `Session`.
    pub bound: Option<Duration>,
    /// How long the read may wait for a replica.
    pub wait_budget: Duration,
    /// Says whether the leader may take the read, if the cap permits.
    pub may_fall_back: bool,
    /// What follows then, in order.
    pub above_cap: Vec<AboveCap>,
    /// The caller's zone.
    pub zone: Option<String>,
}

impl Policy {
    /// Says whether the session's own guarantees are asked for.
    pub const fn asks_session(&self) -> bool {
        matches!(self.level, Level::Session)
    }
}
