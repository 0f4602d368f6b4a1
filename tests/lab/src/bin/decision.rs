//! Measures one decision in the core, under an allocator that counts; prints JSON for `bench`.
//!
//! A process of its own: counting would slow down every other measurement.

use std::alloc::System;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tidegate_lab::bench::decision::Decision;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Measures one decision in the core; `make bench` runs it and says what the figures mean.
#[derive(Parser, Debug)]
#[command(name = "decision", max_term_width = 100)]
struct Arguments {
    /// How often it is measured.
    #[arg(long, default_value_t = 20)]
    samples: usize,
    /// How long each time, in milliseconds.
    #[arg(long, default_value_t = 100)]
    millis: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit code says it where even this cannot be written.
            drop(writeln!(std::io::stderr(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let span = Duration::from_millis(arguments.millis);
    let allocations = || {
        let stats = ALLOCATOR.stats();
        (stats.allocations + stats.reallocations) as u64
    };
    let measured = Decision::new()?.measure(arguments.samples, span, allocations)?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&measured)?)?;
    Ok(())
}
