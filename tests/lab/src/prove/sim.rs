//! Simulated worlds: no promise is broken, the same seed lives the same life, every rule matters.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use tidegate_core::guards::Guards;
use tidegate_sim::mutation::{self, Caught, Tries};
use tidegate_sim::options::{Profile, Scale};
use tidegate_sim::schedule::Fault;
use tidegate_sim::seeds::{Summary, run_seeds};

use super::{Options, at_least, say};
use crate::claims::Claims;

/// Worlds that are lived in a second process too.
const TWICE: u64 = 200;
/// How long each missing rule is looked for, and how long it is survived.
const TRIES: Tries = Tries { seeds_max: 4_000, catches: 3, survived_max: u64::MAX };
/// Worlds of each profile besides: some faults need a world of their own and happen there once.
const OF_EACH_PROFILE: u64 = 200;
/// Worlds between two lines of progress.
const PROGRESS: u64 = 250;

/// Lives all worlds, and some of them again in another process.
pub(super) fn prove(options: &Options, claims: &mut Claims, threads: usize) -> Result<()> {
    let Options { from, seeds, .. } = *options;
    say(format_args!("simulator: {seeds} worlds from seed {from} on {threads} threads"));
    let progress = |done: u64| {
        if done.is_multiple_of(PROGRESS) {
            say(format_args!("simulator: {done} of {seeds}"));
        }
    };
    let mut summary = run_seeds(from..=from + seeds - 1, None, Scale::Prove, threads, &progress);
    let of_each = from..=from + OF_EACH_PROFILE.min(seeds) - 1;
    for profile in Profile::ALL {
        let name = profile.name();
        say(format_args!("simulator: {} worlds of profile {name}", of_each.clone().count()));
        let more = run_seeds(of_each.clone(), Some(profile), Scale::Test, threads, &|_| {});
        summary.add(more);
    }
    say(format_args!("{summary}"));
    claim(claims, &summary);
    let worlds = TWICE.min(seeds);
    let (here, there) = (hash(from, worlds), hash_of_another_process(from, worlds)?);
    let differ = u64::from(here != there);
    claims.count("seeds that live differently in a second process", differ, 0, worlds);
    claims.figure("trace hash", here);
    Ok(())
}

fn claim(claims: &mut Claims, summary: &Summary) {
    let (seeds, figures) = (summary.seeds, &summary.figures);
    claims.count("seeds that broke a promise", summary.violations.len() as u64, 0, seeds);
    at_least(claims, "actions of the shortest world", 100, summary.actions_least as u64, seeds);
    at_least(claims, "session operations", 1_000_000, figures.operations, seeds);
    let calm = (summary.calm_replica_percent(), figures.calm_reads);
    at_least(claims, "percent of calm reads a replica answered unflagged", 50, calm.0, calm.1);
    let lacking = (summary.lacking_percent(), figures.rounds);
    at_least(claims, "percent of rounds in which a standby lacked it", 20, lacking.0, lacking.1);
    let fired = |fault: &Fault| figures.faults.get(fault.name()).copied().unwrap_or(0);
    let least = Fault::ALL.iter().map(fired).min().unwrap_or(0);
    at_least(claims, "times the rarest fault fired", 100, least, Fault::ALL.len() as u64);
    let unended = figures.waits_parked - figures.waits_ended - figures.waits_left;
    claims.count("waits that never ended", unended, 0, figures.waits_parked);
    for (kind, count) in &figures.faults {
        claims.figure(&format!("fault: {kind}"), *count);
    }
    for (why, count) in &figures.excused {
        claims.figure(&format!("not promised: {why}"), *count);
    }
}

/// The trace hash of these worlds.
pub(super) fn hash(from: u64, worlds: u64) -> String {
    let summary = run_seeds(from..=from + worlds - 1, None, Scale::Test, 1, &|_| {});
    format!("{:016x}", summary.hash)
}

fn hash_of_another_process(from: u64, worlds: u64) -> Result<String> {
    let program = std::env::current_exe().context("this program has no path")?;
    let output = Command::new(program)
        .args(["--from", &from.to_string(), "--trace-hash", &worlds.to_string()])
        .output()
        .context("a second process cannot start")?;
    ensure!(output.status.success(), "the second process failed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Switches every rule off in turn, then lives without each setting that is checked at a start.
pub(super) fn mutations(claims: &mut Claims, threads: usize) {
    let rules = Guards::ALL.len() as u64;
    say(format_args!("mutations: {rules} safety rules, each switched off; a minute or two"));
    claim_caught(claims, "mutations", &mutation::run_all(TRIES, threads));
    say(format_args!("mutations: settings that nobody checked"));
    claim_caught(claims, "mutations of settings", &mutation::run_settings(TRIES, threads));
}

fn claim_caught(claims: &mut Claims, what: &str, all: &[Caught]) {
    all.iter().for_each(|caught| say(format_args!("  {caught}")));
    let uncaught = all.iter().filter(|caught| caught.first.is_none()).count() as u64;
    let broken = all.iter().filter(|caught| caught.broken.is_some()).count() as u64;
    let survived = all.iter().map(|caught| caught.survived).sum();
    claims.count(&format!("{what} not caught"), uncaught, 0, all.len() as u64);
    let enough = format!("{what} whose rule was not enough on ten times the seeds");
    claims.count(&enough, broken, 0, survived);
}
