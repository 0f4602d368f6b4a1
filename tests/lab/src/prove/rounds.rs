//! Rounds on real servers: two majors side by side, each directly and through poolers.

use anyhow::Result;
use futures::future::try_join_all;

use super::{Options, at_least, say};
use crate::claims::Claims;
use crate::install::Major;
use crate::rounds::{Fault, Reach, RoundsOptions, Sums, run};

/// What is run side by side and one after the other.
const MAJORS: [Major; 2] = [Major::V15, Major::V18];
const REACHES: [Reach; 2] = [Reach::Direct, Reach::Pooled];
/// Rounds of a run that must fail: far more than it takes.
const ROUNDS_UNSAFE: u64 = 2_000;

/// Plays all rounds, then the same ones without a rule until they fail.
pub(super) fn prove(options: &Options, claims: &mut Claims) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let runs = play(options).await?;
        claim(claims, &runs);
        unsafely(options, claims).await
    })
}

async fn play(options: &Options) -> Result<Vec<(String, Sums)>> {
    let each = options.rounds.div_ceil((MAJORS.len() * REACHES.len()) as u64);
    let seed = options.from;
    let mut runs = Vec::new();
    for reach in REACHES {
        say(format_args!("rounds: {each} {reach} on each of PostgreSQL 15 and 18, seed {seed}"));
        let played = MAJORS.map(|major| async move {
            let options = RoundsOptions::new(major, each, seed).reach(reach).progress(|done| {
                if done.is_multiple_of(500) {
                    say(format_args!("rounds: {done}"));
                }
            });
            run(options).await.map(|sums| (format!("{major} {reach}"), sums))
        });
        runs.extend(try_join_all(played).await?);
    }
    let table: Vec<(&str, &Sums)> = runs.iter().map(|(name, sums)| (name.as_str(), sums)).collect();
    say(Sums::table(&table));
    Ok(runs)
}

fn claim(claims: &mut Claims, runs: &[(String, Sums)]) {
    let all = runs.iter().map(|(_, sums)| sums.clone()).reduce(|all, more| all + more);
    let Some(all) = all else { return };
    for violation in all.violations.iter().take(10) {
        say(violation);
    }
    let figures = &all.figures;
    let missing = all.violations.len() as u64;
    claims.count("rounds: rows missing on a node called fresh", missing, 0, figures.writes);
    for (name, sums) in runs {
        let missing = sums.violations.len() as u64;
        claims.count(&format!("{name}: rows missing"), missing, 0, sums.figures.writes);
    }
    let percent = |part: u64, whole: u64| part * 100 / whole.max(1);
    let calm = percent(figures.calm_replica_reads, figures.reads);
    let name = "percent of reads by a replica, unflagged, no fault";
    at_least(claims, name, 50, calm, figures.reads);
    let lacking = percent(figures.rounds_lacking, figures.writes);
    let name = "percent of real rounds in which a standby lacked it";
    at_least(claims, name, 20, lacking, figures.writes);
    let least = Fault::ALL.into_iter().map(|fault| all.fired(fault)).min().unwrap_or(0);
    at_least(claims, "times the rarest real fault fired", 1, least, Fault::ALL.len() as u64);
    claims.figure("reads on real servers", figures.reads);
    claims.figure("reads refused or broken off", all.unanswered);
}

async fn unsafely(options: &Options, claims: &mut Claims) -> Result<()> {
    let unsafe_rounds = || RoundsOptions::new(Major::V15, ROUNDS_UNSAFE, options.from);
    let runs = [
        ("without `incarnation`", unsafe_rounds().without("incarnation")),
        (
            "through poolers, without `pooled_check`",
            unsafe_rounds().reach(Reach::Pooled).without("pooled_check"),
        ),
        ("without a session", unsafe_rounds().without_sessions()),
    ];
    for (name, options) in runs {
        say(format_args!("rounds: the same {name}"));
        let sums = run(options).await?;
        let missed = sums.violations.len() as u64;
        let name = format!("the same rounds {name}: rows missing");
        at_least(claims, &name, 1, missed, sums.figures.writes);
    }
    Ok(())
}
