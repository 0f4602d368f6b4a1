//! Measures what a decision of Tidegate costs, and judges it by the bars of this version.
//!
//! Reads arguments only: what is measured is in `tidegate_lab::bench`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use tidegate_lab::bench::{Options, PAIRS_LEAST, SECONDS_LEAST, echo, run};

/// The same as `tidegate` has: an echo server under another allocator would be no measure.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what a decision costs: against an echo server, over `Route`, and in the core alone.
///
/// Starts a PostgreSQL leader with two standbys and the real `tidegate serve` before them. Sides
/// that are compared take turns. Ends by itself, after about three minutes, and leaves nothing
/// behind. The claims go to target/bench.json. What is missing is installed first, once.
#[derive(Parser, Debug)]
#[command(
    name = "bench",
    max_term_width = 100,
    after_help = "\
Examples:
  make bench                         what the claims need: 10 pairs of 2 s a side
  make bench PAIRS=20 SECONDS=4      steadier figures
  make bench PAIRS=2 SECONDS=0.5     a quick look; its claims count no pair

A quiet machine gives the best figures; ratios bear a busy one better than rates do.

Exit codes: 0 every claim holds, 1 one does not, 2 wrong arguments."
)]
struct Arguments {
    /// Pairs of each row; claims need 10.
    #[arg(long, default_value_t = PAIRS_LEAST, value_parser = value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Seconds each side of a pair is measured; claims need 2.
    #[arg(long, default_value_t = SECONDS_LEAST, value_parser = seconds)]
    seconds: f64,
    /// Sessions in the store of the service.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(seconds),
        Ok(_) | Err(_) => Err("between 0.1 and 600".to_owned()),
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(echo::WORD) {
        return echo::serve(&words.next().unwrap_or_default());
    }
    let Arguments { pairs, seconds, sessions } = Arguments::parse();
    let options = Options { pairs, span: Duration::from_secs_f64(seconds), sessions };
    // One thread for the callers: the server needs the other core of a small machine.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    match runtime {
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
