//! Plays failovers of all kinds on real servers and shows what each looks like from outside.
//!
//! Reads arguments only: what is played is in `tidegate_lab::failover`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use tidegate_lab::failover::{Options, run};

/// A day of rounds.
const ROUNDS_MAX: u64 = 20_000;

/// Plays failovers of all kinds on real servers and shows what each looks like from outside.
///
/// On PostgreSQL 15 and 18, a leader with two standbys each. One poller per server, Tidegate's own,
/// logs all it reads to target/failovers/; a judge that shares no code with Tidegate's core then
/// holds that evidence against what is true.
#[derive(Parser, Debug)]
#[command(
    name = "failovers",
    max_term_width = 100,
    after_help = "\
Examples:
  make failovers                       52 rounds on each version, every kind twice
  make failovers ARGS='--rounds 200'   more of them
  make failovers ARGS='--seed 7'       the rounds of that seed again

Exit codes: 0 the evidence fits the truth, 1 it does not, 2 wrong arguments."
)]
struct Arguments {
    /// Rounds on each version; 26 play every kind once.
    #[arg(long, default_value_t = 52, value_parser = value_parser!(u64).range(1..=ROUNDS_MAX))]
    rounds: u64,
    /// Draws the order of the kinds and all that varies in them; printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Milliseconds between two polls of a server; the service's own idle pace is 250.
    #[arg(long, default_value_t = 250, value_parser = value_parser!(u64).range(5..=5_000))]
    interval: u64,
}

fn main() -> ExitCode {
    let Arguments { rounds, seed, interval } = Arguments::parse();
    let options = Options {
        rounds: usize::try_from(rounds).unwrap_or(usize::MAX),
        seed: seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        interval: Duration::from_millis(interval),
    };
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run(options)),
        Err(error) => {
            // The exit code says it where even this cannot be written.
            drop(std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("error: the runtime cannot start: {error}\n").as_bytes(),
            ));
            ExitCode::FAILURE
        }
    }
}
