//! `make bench`: what a decision costs, as ratios of things measured in the same minute.
//!
//! - `echo`: the same transport with nothing decided between
//! - `load`: calls as fast as they go; `usage`: what they cost a process
//! - `decision`: one decision in the core, and its allocations
//! - `wake`: many waits released at once
//! - `stage`: servers, service and sessions
//! - `store`: sessions whose records lie in Redis
//! - `spread`: what repeated measurements say together
//!
//! Sides that are compared take turns on one machine, so that whatever else it does befalls both.
//! `docs/performance.md` says what each row means.

pub mod decision;
pub mod echo;
mod load;
mod rows;
pub mod spread;
mod stage;
mod store;
mod usage;
mod wake;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::rows::Rows;
use self::stage::Stage;
use crate::claims::Claims;

/// Pairs that a claim needs at least.
pub const PAIRS_LEAST: u32 = 10;
/// Seconds that each side of a pair needs at least.
pub const SECONDS_LEAST: f64 = 2.0;
/// Waits of one `Route` stream that are released at once.
const ON_ROUTE: u32 = 10_000;
/// Connections of default clients with unary waits, and the waits of each.
const ON_CONNECTIONS: (u32, u32) = (4, 1_000);

/// How the benchmark is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Pairs of each row.
    pub pairs: u32,
    /// How long each side of a pair is measured.
    pub span: Duration,
    /// Sessions in the service's store.
    pub sessions: u32,
}

/// Measures everything, and says in the exit code whether all claims hold.
pub async fn run(options: Options) -> ExitCode {
    let mut claims = Claims::new("bench");
    let begun = Instant::now();
    if let Err(error) = measure(options, &mut claims).await {
        line(&format!("the benchmark could not go on: {error:#}"));
        claims.count("rows that could not be measured", 1, 0, 1);
    }
    claims.figure("seconds", begun.elapsed().as_secs_f64());
    line("");
    claims.finish()
}

async fn measure(options: Options, claims: &mut Claims) -> Result<()> {
    remove_old_claims()?;
    line("the core: one session's read with a carried token, five replicas");
    rows::core(claims)?;
    line(&format!("servers, service and {} sessions", options.sessions));
    let mut stage = Stage::build(options.sessions).await?;
    let measured = rest(options, &mut stage, claims).await;
    measured.with_context(|| stage.service.log_tail())
}

async fn rest(options: Options, stage: &mut Stage, claims: &mut Claims) -> Result<()> {
    let long_enough = options.span.as_secs_f64() >= SECONDS_LEAST;
    if !long_enough || options.pairs < PAIRS_LEAST {
        line(&format!(
            "a quick look: claims need {PAIRS_LEAST} pairs, of {SECONDS_LEAST} s a side at least"
        ));
    }
    let rows = Rows::measure(options, stage).await?;
    rows.claim(claims, long_enough);
    line(&format!("{ON_ROUTE} waits of one stream, released at once"));
    let woken = wake::on_route(stage, ON_ROUTE).await?;
    rows::woken(claims, "of one Route stream", u64::from(ON_ROUTE), woken);
    let (connections, each) = ON_CONNECTIONS;
    line(&format!("{} unary waits of {connections} clients, likewise", connections * each));
    let woken = wake::unary(stage, connections, each).await?;
    rows::woken(claims, "of unary calls", u64::from(connections * each), woken);
    store::measure(options, stage, claims).await
}

/// An old page must not be taken for this run's.
fn remove_old_claims() -> Result<()> {
    let page = Path::new("target/bench.json");
    if page.exists() {
        std::fs::remove_file(page).with_context(|| format!("cannot remove {}", page.display()))?;
    }
    Ok(())
}

/// Tells whoever watches how far it is.
fn line(text: &str) {
    // Whoever stopped reading does not change what is measured.
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}
