//! Write-then-read rounds through the Rust client, on standbys that lag and crash.
//!
//! Every read is judged by the row it found: what a node called fresh lacks is a violation. The
//! figures show that the rounds could have failed. Judges no figure by itself: a test or a proof
//! does, with [`Sums::vacuous`] to help.

mod play;
mod schedule;
mod sums;
mod visitor;

use std::fmt;

use anyhow::Result;

use crate::install::Major;

pub use schedule::Fault;
pub use sums::Sums;

/// How visitors reach the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Each server at its own address.
    Direct,
    /// Each server through a pgbouncer of its own, in transaction mode, writes too.
    Pooled,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Pooled => "pooled",
        })
    }
}

/// What visitors bring to their reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carries {
    /// What they were given: a token, or who they are.
    Session,
    /// Nothing: the wrong way.
    Nothing,
}

/// One run: what it is played on, and how long.
#[derive(Clone, Debug)]
#[must_use]
pub struct RoundsOptions {
    major: Major,
    rounds: u64,
    reach: Reach,
    off: Option<String>,
    carries: Carries,
    seed: u64,
    until_violated: bool,
    progress: Option<fn(u64)>,
}

impl RoundsOptions {
    /// At least so many rounds on a leader and two standbys of this version, with every safety
    /// rule; the schedule is drawn from the seed.
    pub const fn new(major: Major, rounds: u64, seed: u64) -> Self {
        let (reach, carries) = (Reach::Direct, Carries::Session);
        let (off, until_violated, progress) = (None, false, None);
        Self { major, rounds, reach, off, carries, seed, until_violated, progress }
    }

    /// Reaches the servers so. Default: directly.
    pub const fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Does without one safety rule, in the service and in the client, and ends at the first
    /// violation. Only builds that may switch rules off can.
    pub fn without(mut self, guard: &str) -> Self {
        self.off = Some(guard.to_owned());
        self.until_violated = true;
        self
    }

    /// Lets visitors bring nothing to their reads, and ends at the first violation.
    pub const fn without_sessions(mut self) -> Self {
        self.carries = Carries::Nothing;
        self.until_violated = true;
        self
    }

    /// Is told now and then how many rounds are over.
    pub const fn progress(mut self, told: fn(u64)) -> Self {
        self.progress = Some(told);
        self
    }
}

/// Plays the schedule of a seed, to its end or until the first violation if so asked.
///
/// # Errors
/// If the lab fails: a server does not do what it is told. Violations are part of the sums.
pub async fn run(options: RoundsOptions) -> Result<Sums> {
    let mut play = play::Play::prepare(&options).await?;
    play.play(&options).await?;
    Ok(play.sums())
}
