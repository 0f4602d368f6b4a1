//! The proof: everything that tries to break a promise, in numbers too large for every test run.
//!
//! - `sim`: seeded worlds around the core, the same in two processes, and guards switched off
//! - `covers`: verdicts of the core against the records themselves
//! - `leases`: answers with a bound, used to the end by clocks that are not right
//! - `bounded`: reads with a bound while the leader of real servers is idle or stalls
//! - `rounds`: writes and reads on real servers, direct and through poolers
//!
//! A claim that nothing broke stands beside figures that show it could have. What is tried lives
//! in `tidegate-sim` and in [`crate::rounds`]; this only runs it and makes claims of it.

mod bounded;
mod covers;
mod leases;
mod rounds;
mod sim;

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::claims::{Claims, Op};

/// A part of the proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Simulated worlds.
    Sim,
    /// Safety rules switched off.
    Mutations,
    /// Verdicts against records.
    Covers,
    /// Answers with a bound, by clocks that drift.
    Leases,
    /// Reads with a bound on real servers.
    Bounded,
    /// Rounds on real servers.
    Rounds,
}

impl Part {
    /// All of it, in the order in which it is run.
    pub const ALL: [Self; 6] =
        [Self::Covers, Self::Leases, Self::Sim, Self::Mutations, Self::Bounded, Self::Rounds];
}

/// How much is tried.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first seed of the worlds, and the seed of the rounds.
    pub from: u64,
    /// Simulated worlds.
    pub seeds: u64,
    /// Rounds on real servers.
    pub rounds: u64,
    /// How long the leader of real servers is idle.
    pub idle_seconds: u64,
    /// What is run.
    pub parts: Vec<Part>,
}

/// Tries everything, and says in the exit code whether all claims hold.
pub fn run(options: &Options) -> ExitCode {
    let mut claims = Claims::new("prove");
    let begun = Instant::now();
    if let Err(error) = prove(options, &mut claims) {
        say(format_args!("the proof could not go on: {error:#}"));
        claims.count("parts that could not be run", 1, 0, 1);
    }
    claims.figure("seconds", begun.elapsed().as_secs_f64());
    say("");
    claims.finish()
}

fn prove(options: &Options, claims: &mut Claims) -> Result<()> {
    remove_old_claims()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for part in Part::ALL.into_iter().filter(|part| options.parts.contains(part)) {
        let begun = Instant::now();
        match part {
            Part::Covers => covers::prove(claims, threads),
            Part::Leases => leases::prove(claims, threads),
            Part::Sim => sim::prove(options, claims, threads)?,
            Part::Mutations => sim::mutations(claims, threads),
            Part::Bounded => bounded::prove(options, claims)?,
            Part::Rounds => rounds::prove(options, claims)?,
        }
        let seconds = begun.elapsed().as_secs_f64();
        claims.figure(&format!("seconds of {part:?}").to_lowercase(), seconds);
    }
    Ok(())
}

/// Prints the trace hash of these worlds, for a process that compares it with its own.
pub fn trace_hash(from: u64, worlds: u64) -> ExitCode {
    say(sim::hash(from, worlds));
    ExitCode::SUCCESS
}

/// Tells one thing; a reader that closed the pipe changes nothing of what holds.
fn say(what: impl Display) {
    drop(writeln!(std::io::stdout().lock(), "{what}"));
}

/// Claims that something was seen so often: without it, silence would prove nothing.
#[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
fn at_least(claims: &mut Claims, name: &str, bar: u64, count: u64, n: u64) {
    claims.claim(name, count as f64, Op::AtLeast, bar as f64, n);
}

/// An old page must not be taken for this run's.
fn remove_old_claims() -> Result<()> {
    let page = Path::new("target/prove.json");
    if page.exists() {
        std::fs::remove_file(page).with_context(|| format!("cannot remove {}", page.display()))?;
    }
    Ok(())
}
