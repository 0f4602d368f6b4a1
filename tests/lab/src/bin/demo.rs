//! Shows what Tidegate does on real servers and checks it; ends by itself.
//!
//! Reads arguments only: what is shown is in `tidegate_lab::demo`.

use std::process::ExitCode;

use clap::Parser;
use tidegate_lab::demo::{Options, run};

/// Shows what Tidegate does, on a real PostgreSQL leader with two standbys, and checks it.
///
/// Starts the servers and `tidegate serve`, plays seven short chapters, and checks every answer by
/// reading the row on the server that was named. Ends by itself and leaves nothing behind. The
/// claims go to target/demo.json. What is missing is installed first, once.
#[derive(Parser, Debug)]
#[command(
    name = "demo",
    max_term_width = 100,
    after_help = "\
Examples:
  make demo              all of it, about half a minute
  make demo KEEP=1       the same, then leave it running and say what to try
  make demo ARGS=--careless

Exit codes: 0 every claim holds, 1 one does not, 2 wrong arguments, 130 interrupted."
)]
struct Arguments {
    /// Leave servers and service running at the end, until Ctrl-C, and say what to try.
    #[arg(long)]
    keep: bool,
    /// Let every read demand nothing, to see the claims fail.
    #[arg(long)]
    careless: bool,
}

fn main() -> ExitCode {
    let Arguments { keep, careless } = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(Options { keep, careless })),
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
