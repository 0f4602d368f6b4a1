//! Plays what befalls real servers, in random order and for as long as is asked; ends by itself.
//!
//! Reads arguments only: what is played is in `tidegate_lab::soak`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use tidegate_lab::soak::{Length, Options, Suites, run};

/// A day of rounds, and a day.
const ROUNDS_MAX: u64 = 20_000;
const MINUTES_MAX: u64 = 24 * 60;

/// Plays what befalls servers, in random order, under a hundred sessions, and checks every promise.
///
/// What was really lost is read on the servers themselves and held against what Tidegate said.
/// Every claim goes to target/soak-SUITE.json, those of all suites of the run to target/soak.json.
#[derive(Parser, Debug)]
#[command(
    name = "soak",
    max_term_width = 100,
    after_help = "\
Examples:
  make soak SUITE=failover ROUNDS=50     about eight minutes on two cores
  make soak SUITE=failover MINUTES=60    as many rounds as fit
  make soak ARGS='--seed 42'             the schedule of an earlier run
  make soak SUITE=failover ARGS=--ordinary   50 failovers that need no operator
  make soak SUITE=store ROUNDS=20        each fault of the store 20 times

Exit codes: 0 every claim holds, 1 one does not, 2 wrong arguments."
)]
struct Arguments {
    /// What is played: a suite, or `all` of them.
    #[arg(long, default_value = "all")]
    suite: Suites,
    /// Rounds of each suite; of the store, of each fault. Default: what its claims need.
    #[arg(long, conflicts_with = "minutes")]
    #[arg(value_parser = value_parser!(u64).range(1..=ROUNDS_MAX))]
    rounds: Option<u64>,
    /// Minutes of each suite; a round that has begun is played to its end.
    #[arg(long, value_parser = value_parser!(u64).range(1..=MINUTES_MAX))]
    minutes: Option<u64>,
    /// Repeats a schedule. Default: a new one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Plays only failovers that no operator is needed for: one crash or stop, one promotion, a
    /// rejoin by rewind or clone.
    #[arg(long)]
    ordinary: bool,
}

fn main() -> ExitCode {
    let Arguments { suite, rounds, minutes, seed, ordinary } = Arguments::parse();
    let length = match (rounds, minutes) {
        (Some(rounds), _) => Length::Rounds(rounds),
        (None, Some(minutes)) => Length::Time(Duration::from_secs(minutes * 60)),
        (None, None) => Length::Usual,
    };
    run(&suite, Options { length, seed: seed.unwrap_or_else(|| fastrand::u64(..)), ordinary })
}
