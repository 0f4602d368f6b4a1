//! Starts the set of `deploy/compose.yaml` from packages on this machine.
//!
//! Reads arguments only: what is started is in `tidegate_lab::up`.

use std::process::ExitCode;

use clap::Parser;
use tidegate_lab::up::run;

/// Starts what deploy/compose.yaml describes, without a container engine: a PostgreSQL leader, two
/// standbys, Redis with a replica, and two Tidegates that share it.
///
/// Prints what to try, runs until Ctrl-C, and leaves nothing behind. What is missing is installed
/// first, once.
#[derive(Parser, Debug)]
#[command(
    name = "up",
    max_term_width = 100,
    after_help = "\
Examples:
  make up            start it, say what to try, run until Ctrl-C
  make up CHECK=1    start it, try it through each instance, stop; claims go to target/up.json

Exit codes: 0 ended as asked and every claim holds, 1 not so, 2 wrong arguments, 130 a check was
interrupted."
)]
struct Arguments {
    /// Try everything through each instance, then stop, with the verdict as exit code.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let Arguments { check } = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(check)),
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
