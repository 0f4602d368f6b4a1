//! `sim`: lives seeds, shows what broke, and replays it.

#![expect(clippy::print_stdout, reason = "it is a command")]

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};
use tidegate_core::guards::Guards;
use tidegate_sim::mutation::Tries;
use tidegate_sim::options::{Options, Profile, Scale};
use tidegate_sim::run::live;
use tidegate_sim::schedule::schedule;
use tidegate_sim::{mutation, seeds, shrink};

/// A seeded world around the pure core: sessions, servers that fail, and an oracle.
///
/// Every run prints the seed that repeats it. Guards are switched off by name only where the crate
/// was built with `--features unsafe-guards`. The exit code is 1 where a promise was broken.
#[derive(Parser, Debug)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Live one seed; where it breaks a promise, shrink its schedule.
    Seed {
        /// The seed.
        seed: u64,
        /// The profile; by default the one the seed lives in.
        #[arg(long)]
        profile: Option<String>,
        /// Switch this guard off.
        #[arg(long)]
        without: Option<String>,
        /// Print everything that happens.
        #[arg(long)]
        trace: bool,
        /// As few operations as the tests have.
        #[arg(long)]
        small: bool,
    },
    /// Live many seeds.
    Seeds {
        /// From this one.
        from: u64,
        /// To this one, inclusive.
        to: u64,
        /// All in this profile.
        #[arg(long)]
        profile: Option<String>,
        /// Threads.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// As few operations as the tests have.
        #[arg(long)]
        small: bool,
    },
    /// Switch every guard off in turn, or one.
    Mutations {
        /// Only this one.
        guard: Option<String>,
        /// Seeds tried for each.
        #[arg(long, default_value_t = 400)]
        tries: u64,
        /// Catches whose mean is taken.
        #[arg(long, default_value_t = 3)]
        catches: u64,
        /// Threads.
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
}

fn profile_of(name: Option<&str>) -> Result<Option<Profile>> {
    let all: Vec<String> = Profile::ALL.iter().map(|profile| profile.name()).collect();
    let unknown = |name: &str| anyhow!("no profile `{name}`: there are {}", all.join(", "));
    name.map(|name| Profile::named(name).ok_or_else(|| unknown(name))).transpose()
}

fn guard_of(name: Option<&str>) -> Result<Option<&'static str>> {
    let all: Vec<&'static str> = Guards::ALL.iter().map(|(name, _)| *name).collect();
    let find = mutation::named;
    let unknown = |name: &str| anyhow!("no guard `{name}`: there are {}", all.join(", "));
    name.map(|name| find(name).ok_or_else(|| unknown(name))).transpose()
}

const fn scale_of(small: bool) -> Scale {
    if small { Scale::Test } else { Scale::Prove }
}

fn seed(
    seed: u64,
    profile: Option<Profile>,
    without: Option<&str>,
    trace: bool,
    scale: Scale,
) -> Result<bool> {
    let without = guard_of(without)?;
    let profile = profile.unwrap_or_else(|| Profile::of_seed(seed));
    let options = Options::of(seed, profile, scale, without);
    let lived = live(&options, &schedule(&options), trace);
    for line in &lived.trace {
        println!("{line}");
    }
    println!("{:#?}", lived.figures);
    println!("trace hash {:016x}", lived.hash);
    match &lived.violation {
        None => println!("seed {seed} in {}: no promise was broken", profile.name()),
        Some(_) => println!("{}", shrink::failure(&options)),
    }
    Ok(lived.violation.is_none())
}

fn main() -> Result<ExitCode> {
    Ok(if run(Command::parse().what)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Does what is asked; says whether every promise was kept.
fn run(what: What) -> Result<bool> {
    match what {
        What::Seed { seed: number, profile, without, trace, small } => {
            let profile = profile_of(profile.as_deref())?;
            seed(number, profile, without.as_deref(), trace, scale_of(small))
        }
        What::Seeds { from, to, profile, threads, small } => {
            let profile = profile_of(profile.as_deref())?;
            let summary = seeds::run_seeds(from..=to, profile, scale_of(small), threads, &|done| {
                if done.is_multiple_of(200) {
                    println!("{done} seeds");
                }
            });
            println!("{summary}");
            Ok(summary.violations.is_empty())
        }
        What::Mutations { guard, tries, catches, threads } => {
            let tries = Tries { seeds_max: tries, catches, survived_max: u64::MAX };
            let caught = match guard_of(guard.as_deref())? {
                Some(guard) => vec![mutation::run(guard, tries, threads)],
                None => mutation::run_all(tries, threads),
            };
            for one in &caught {
                println!("{one}");
            }
            Ok(caught.iter().all(mutation::Caught::is_good))
        }
    }
}
