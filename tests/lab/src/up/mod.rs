//! `make up`: what `deploy/compose.yaml` describes, started from packages on this machine.
//!
//! - `folder`: where all of it lies: the files of `deploy/`, and secrets made by its script
//! - `databases`: a PostgreSQL leader and two standbys
//! - `redis`: a Redis with a replica
//! - `set`: everything together, with two instances of Tidegate
//! - `guide`: what to try: commands to paste
//! - `check`: the same commands, run and judged
//!
//! The scripts, settings and passwords are those of the containers; only addresses and paths are
//! this machine's. It shows one set and measures nothing: that is the demo's and the bench's.

mod check;
mod databases;
mod folder;
mod guide;
mod redis;
mod set;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use self::guide::Guide;
use self::set::Set;
use crate::claims::Claims;
use crate::demo::interrupted;
use crate::demo::narrator::{chapter, line, say};

/// The exit code of a check that was interrupted.
const INTERRUPTED: u8 = 130;

/// Starts everything and, with `check`, tries it; else says what to try and stays until it is told
/// to end. The exit code says whether all came up and every claim holds.
pub async fn run(check: bool) -> ExitCode {
    let mut claims = Claims::new("up");
    let outcome = tokio::select! {
        outcome = go(check, &mut claims) => outcome,
        () = interrupted() => {
            say("ending everything");
            return if check { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS };
        }
    };
    if let Err(error) = outcome {
        line(&format!("\nIt could not go on: {error:#}"));
        claims.count("steps that failed", 1, 0, 1);
    }
    line("");
    claims.finish()
}

async fn go(check: bool, claims: &mut Claims) -> Result<()> {
    let page = Path::new("target/up.json");
    if page.exists() {
        // An old page must not be taken for this run's.
        std::fs::remove_file(page).with_context(|| format!("cannot remove {}", page.display()))?;
    }
    line("The set of deploy/compose.yaml, from packages on this machine:");
    let set = Set::start().await?;
    introduce(&set)?;
    say("Redis is new, so nothing is believed of it at first; that ends after some seconds.");
    check::await_belief(&set).await?;
    if check {
        chapter("Tried through each instance");
        return check::check(&set, claims).await;
    }
    tell(&Guide::new(&set))?;
    std::future::pending().await
}

fn introduce(set: &Set) -> Result<()> {
    for server in &set.databases.servers {
        say(&format!("PostgreSQL {} on port {}", server.name, server.port.number()));
    }
    say(&format!("Redis at {}", set.redis.urls().join(", its replica at ")));
    for instance in &set.instances {
        let (data, admin) = (instance.process.endpoint(), instance.process.admin_endpoint());
        say(&format!("Tidegate {} asked at {data}, looked at on {admin}", instance.name));
    }
    Ok(())
}

/// Everything there is to try.
fn tell(guide: &Guide<'_>) -> Result<()> {
    let show = |(words, command): (String, String)| {
        line(&format!("\n# {words}\n{command}"));
    };
    chapter("To try it, paste this into another shell in this folder");
    line(&format!("\n{}", guide.preamble()?));
    guide.story()?.into_iter().for_each(show);
    chapter("What operators look at");
    guide.operators()?.into_iter().for_each(show);
    let pid = std::process::id();
    line(&format!("\nTo end all of it, and leave nothing: Ctrl-C, or kill -INT {pid}"));
    Ok(())
}
