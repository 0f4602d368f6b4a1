//! Tries for minutes to break what Tidegate promises; ends by itself.
//!
//! Reads arguments only: what is tried is in `tidegate_lab::prove`.

use std::process::ExitCode;

use clap::{Parser, ValueEnum, value_parser};
use tidegate_lab::prove::{Options, Part, run, trace_hash};

/// A week of worlds, and a day of rounds.
const SEEDS_MAX: u64 = 10_000_000;
const ROUNDS_MAX: u64 = 1_000_000;
/// An hour.
const IDLE_MAX: u64 = 3_600;

/// Tries for minutes to break what Tidegate promises, in simulated worlds and on real servers.
///
/// Lives thousands of seeded worlds around the pure core, switches every safety rule off in turn
/// and waits for the checker to notice, compares a million verdicts with the records themselves,
/// asks for a million answers with a bound by clocks that drift,
/// and writes and reads ten thousand rows through the Rust client on PostgreSQL 15 and 18 while
/// standbys lag, crash and restart. Every claim goes to target/prove.json.
#[derive(Parser, Debug)]
#[command(
    name = "prove",
    max_term_width = 100,
    after_help = "\
Examples:
  make prove                     all of it, about ten minutes on two cores
  make prove FROM=700000         other worlds than last time
  make prove ARGS='--part sim'   one part; its claims alone

A violation prints its schedule, shortened, and the command that lives it again.

Exit codes: 0 every claim holds, 1 one does not, 2 wrong arguments."
)]
struct Arguments {
    /// The first seed of the simulated worlds, and the seed of the rounds.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Simulated worlds; the claim wants at least 2000.
    #[arg(long, default_value_t = 2_000, value_parser = value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: u64,
    /// Real write-then-read rounds; the claim wants at least 10000.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(4..=ROUNDS_MAX))]
    rounds: u64,
    /// Seconds for which the leader of real servers is idle.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..=IDLE_MAX))]
    idle: u64,
    /// Only this part; may be given several times.
    #[arg(long, value_enum)]
    part: Vec<Asked>,
    /// Prints the trace hash of so many worlds and ends: what a second process is asked for.
    #[arg(long, hide = true)]
    trace_hash: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Asked {
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

impl From<Asked> for Part {
    fn from(asked: Asked) -> Self {
        match asked {
            Asked::Sim => Self::Sim,
            Asked::Mutations => Self::Mutations,
            Asked::Covers => Self::Covers,
            Asked::Leases => Self::Leases,
            Asked::Bounded => Self::Bounded,
            Asked::Rounds => Self::Rounds,
        }
    }
}

fn main() -> ExitCode {
    let Arguments { from, seeds, rounds, idle, part, trace_hash: hashed } = Arguments::parse();
    if let Some(worlds) = hashed {
        return trace_hash(from, worlds);
    }
    let parts = if part.is_empty() {
        Part::ALL.to_vec()
    } else {
        part.into_iter().map(Part::from).collect()
    };
    run(&Options { from, seeds, rounds, idle_seconds: idle, parts })
}
