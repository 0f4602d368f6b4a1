//! The program `failovers`: plays rounds on both versions while pollers watch, then judges.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;

use super::judge::{Judgement, Way, judge};
use super::kind::Kind;
use super::play::play;
use super::table::tables;
use super::trio::Trio;
use super::truth::Played;
use super::watch::Watch;
use crate::claims::{Claims, Op};
use crate::install::Major;

/// Where the logs of a run stand.
const FOLDER: &str = "target/failovers";

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Rounds on each version.
    pub rounds: usize,
    /// Draws the order of the kinds and all that varies in them.
    pub seed: u64,
    /// The time between two polls of a server.
    pub interval: Duration,
}

/// Plays, judges, prints; says in the exit code whether the evidence fits the truth.
pub async fn run(options: Options) -> ExitCode {
    let mut claims = Claims::new("failovers");
    say(format_args!(
        "{} rounds on PostgreSQL 15 and 18 each, polled every {} ms; again with --seed {}",
        options.rounds,
        options.interval.as_millis(),
        options.seed
    ));
    let begun = Instant::now();
    let runs = tokio::join!(one(Major::V15, options), one(Major::V18, options));
    for (major, run) in [(Major::V15, runs.0), (Major::V18, runs.1)] {
        match run {
            Ok(found) => tell(major, &found, options.interval, &mut claims),
            Err(error) => {
                say(format_args!("PostgreSQL {major}: the run could not go on: {error:#}"));
                claims.count("runs that could not go on", 1, 0, 1);
            }
        }
    }
    claims.figure("seed", options.seed);
    claims.figure("seconds", begun.elapsed().as_secs_f64());
    say("");
    claims.finish()
}

/// All rounds on one version.
async fn one(major: Major, options: Options) -> Result<Judgement> {
    fs::create_dir_all(FOLDER)?;
    let mut trio = Trio::start(major).await?;
    let polls = Path::new(FOLDER).join(format!("pg{major}-polls.log"));
    let watch = Watch::start(&mut trio, options.interval, &polls).await?;
    // Both versions see the same kinds in the same order.
    let mut random = Rng::with_seed(options.seed);
    let mut played = Vec::new();
    for (number, kind) in (1..).zip(order(options.rounds, &mut random)) {
        let begun = Instant::now();
        let done = play(kind, &mut trio, &mut random).await;
        let done = done.with_context(|| format!("round {number}, {}", kind.name()))?;
        trio.repair().await.with_context(|| format!("after round {number}, {}", kind.name()))?;
        let (lost, seconds) = (done.lost().len(), begun.elapsed().as_secs_f64());
        let name = kind.name();
        say(format_args!("{major} {number:>3}  {name:<29} {lost} rows lost  {seconds:.1} s"));
        played.push((kind, done));
    }
    let polls = watch.end().await?;
    write_truth(major, &played)?;
    Ok(judge(&polls, &played))
}

/// Every kind as often as every other, give or take one, in an order of chance.
fn order(rounds: usize, random: &mut Rng) -> Vec<Kind> {
    let mut order = Vec::with_capacity(rounds + Kind::ALL.len());
    while order.len() < rounds {
        let mut all = Kind::ALL;
        random.shuffle(&mut all);
        order.extend(all);
    }
    order.truncate(rounds);
    order
}

fn write_truth(major: Major, played: &[(Kind, Played)]) -> Result<()> {
    let mut text = Vec::new();
    for (_, played) in played {
        serde_json::to_writer(&mut text, played)?;
        text.push(b'\n');
    }
    let file = Path::new(FOLDER).join(format!("pg{major}-truth.log"));
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn tell(major: Major, found: &Judgement, interval: Duration, claims: &mut Claims) {
    let rounds: u64 = found.played.values().sum();
    say(format_args!("\nPostgreSQL {major}: {rounds} rounds, {} polls answered", found.polls));
    say(tables(found, interval));
    if let Some(most) = found.torn.iter().max() {
        say(format_args!(
            "torn records: {}, recovery ended at most {most} bytes below the flush seen",
            found.torn.len()
        ));
    }
    for line in &found.not_promised {
        say(format_args!("not promised: {line}"));
    }
    for line in &found.contradictions {
        say(format_args!("CONTRADICTION: {line}"));
    }
    let name = |what: &str| format!("{what} (PostgreSQL {major})");
    let (wrong, sights) = (found.contradictions.len() as u64, found.sights.len() as u64);
    claims.count(&name("answers of the evidence that are not true"), wrong, 0, sights);
    let rows = found.rows.values();
    let lost: u64 = rows.map(|rows| rows.lost + rows.possibly_lost).sum();
    // Without losses, and rules that fail at them, silence would prove nothing.
    let bar = u32::from(rounds >= Kind::ALL.len() as u64);
    at_least(claims, &name("acknowledged rows really lost"), bar, lost, rounds);
    for way in Way::WRONG {
        let of = found.wrong_ways.iter().filter(|((wrong, _), _)| *wrong == way);
        let wrongs = of.map(|(_, count)| count).sum();
        at_least(claims, &name(&format!("wrong by \"{}\"", way.name())), bar, wrongs, rounds);
    }
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
fn at_least(claims: &mut Claims, name: &str, bar: u32, count: u64, n: u64) {
    claims.claim(name, count as f64, Op::AtLeast, f64::from(bar), n);
}

/// Tells one thing; a reader that closed the pipe changes nothing of what is true.
fn say(what: impl Display) {
    drop(writeln!(std::io::stdout().lock(), "{what}"));
}
