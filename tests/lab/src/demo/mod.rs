//! The demo: what Tidegate promises, shown on real servers to somebody who never saw it.
//!
//! - `stage`: servers, service, and the truth about a row
//! - `process`: the real `tidegate serve` as a child process
//! - `visitor`: people, devices and jobs, each with a Tidegate client of its own
//! - `freshness`: chapters 1 and 2, a lagging standby and a wait
//! - `carried`: chapters 3 and 4, another device and a job
//! - `restart`: chapter 5, a standby that comes back behind
//! - `storm`: chapter 6, the cap on leader reads and labelled answers
//! - `promotion`: chapter 7, a failover that loses nothing
//! - `keep`: what to try while everything is left running
//! - `narrator`: how it is told
//!
//! Sessions go through the public client alone. Whether a read was right is decided by a row read
//! on the server that the answer named, never by the answer.

mod carried;
mod freshness;
mod keep;
pub(crate) mod narrator;
pub(crate) mod process;
mod promotion;
mod restart;
mod stage;
mod storm;
mod visitor;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use self::narrator::{line, say};
use self::stage::Stage;
use crate::claims::{Claims, Op};

/// The exit code of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// How the demo is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Leaves servers and service running at the end, until it is interrupted.
    pub keep: bool,
    /// Lets every read forget its session and demand nothing, to see claims fail.
    pub careless: bool,
}

/// Shows everything, checks it, and says in the exit code whether all claims hold.
pub async fn run(options: Options) -> ExitCode {
    let mut claims = Claims::new("demo");
    let begun = Instant::now();
    let shown = tokio::select! {
        shown = show(options, &mut claims) => shown,
        () = interrupted() => {
            say("stopped early; servers and service are ended");
            return ExitCode::from(INTERRUPTED);
        }
    };
    let stage = match shown {
        Ok(stage) => Some(stage),
        Err(error) => {
            line(&format!("\nThe demo could not go on: {error:#}"));
            claims.count("chapters that could not be shown", 1, 0, 1);
            None
        }
    };
    claims.figure("seconds", begun.elapsed().as_secs_f64());
    line("");
    let code = claims.finish();
    if let Some(stage) = stage.filter(|_| options.keep) {
        tokio::select! {
            kept = keep::keep(&stage) => if let Err(error) = kept { say(&format!("{error:#}")) },
            () = interrupted() => {}
        }
        say("ending servers and service");
    }
    code
}

/// All chapters, one after the other.
async fn show(options: Options, claims: &mut Claims) -> Result<Stage> {
    remove_old_claims()?;
    line(
        "Tidegate names the servers that may answer a session's reads. Each of these reads is made",
    );
    line("on the server that was named, and checked there once more by a connection of the test.");
    if options.careless {
        line("The wrong way: every read demands nothing, so claims must fail.");
    }
    let stage = Stage::build(options.careless).await?;
    introduce(&stage);
    match chapters(&stage, claims).await {
        Ok(()) => Ok(stage),
        Err(error) => Err(error.context(stage.service.state().await)),
    }
}

async fn chapters(stage: &Stage, claims: &mut Claims) -> Result<()> {
    freshness::lag(stage, claims).await?;
    freshness::wait(stage, claims).await?;
    carried::device(stage, claims).await?;
    carried::job(stage, claims).await?;
    restart::restart(stage, claims).await?;
    storm::storm(stage, claims).await?;
    promotion::promotion(stage, claims).await
}

fn introduce(stage: &Stage) {
    line("");
    let address = |name: &str| stage.server(name).map_or(0, |server| server.port());
    say(&format!(
        "PostgreSQL 15: leader l on port {}, standbys r1 on {} and r2 on {}",
        address("l"),
        address("r1"),
        address("r2")
    ));
    say(&format!(
        "tidegate serve: process {}, asked at {}",
        stage.service.pid(),
        stage.service.endpoint()
    ));
}

/// An old page must not be taken for this run's.
fn remove_old_claims() -> Result<()> {
    let page = Path::new("target/demo.json");
    if page.exists() {
        std::fs::remove_file(page).with_context(|| format!("cannot remove {}", page.display()))?;
    }
    Ok(())
}

/// Claims that something happened so often: a run in which it did not shows nothing.
#[expect(clippy::cast_precision_loss, reason = "the demo counts to thousands")]
fn at_least(claims: &mut Claims, name: &str, bar: u64, count: u64, n: u64) {
    claims.claim(name, count as f64, Op::AtLeast, bar as f64, n);
}

/// Ends when the person, or whoever runs this, has had enough.
pub(crate) async fn interrupted() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let any = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures::future::select_all(any).await;
}
