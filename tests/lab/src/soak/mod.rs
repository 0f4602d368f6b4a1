//! The soak: what befalls real servers, in random order, for as long as is asked.
//!
//! - `failover`: crashes, promotions, rejoins and gaps under a hundred sessions
//! - `patroni::soak`: a real Patroni switches over and replaces what was killed
//! - `store`: a shared Redis fails over, forgets, stands still, under two instances
//!
//! Each suite claims by itself; this only runs them and writes the pages. A new suite is a value of
//! [`Suite`] with its two lines below.

pub mod failover;
pub mod store;

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::claims::{Claim, Claims};
use crate::patroni;

/// A suite of the soak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// Failovers of all kinds.
    Failover,
    /// Those of a real Patroni.
    Patroni,
    /// What befalls a shared store.
    Store,
}

impl Suite {
    /// Every suite, in the order in which all of them are played.
    pub const ALL: [Self; 3] = [Self::Failover, Self::Patroni, Self::Store];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failover => "failover",
            Self::Patroni => "patroni",
            Self::Store => "store",
        }
    }

    async fn play(self, options: Options, claims: &mut Claims) -> Result<()> {
        match self {
            Self::Failover => failover::soak(options, claims).await,
            Self::Patroni => patroni::soak::soak(options, claims).await,
            Self::Store => store::soak(options, claims).await,
        }
    }
}

/// The suites of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suites(Vec<Suite>);

impl FromStr for Suites {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(Suite::ALL.to_vec()));
        }
        let suite = Suite::ALL.into_iter().find(|suite| suite.name() == text);
        suite.map(|suite| Self(vec![suite])).ok_or_else(|| {
            let names = Suite::ALL.map(Suite::name).join(", ");
            format!("there is no suite `{text}`; there are: {names}, and `all` of them")
        })
    }
}

/// How long a suite is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// As long as its claims need.
    Usual,
    /// So many rounds; of the suite of the store, of each fault.
    Rounds(u64),
    /// No round begins after so long.
    Time(Duration),
}

impl Length {
    /// Says whether another round begins.
    pub(crate) fn goes_on(self, usual: u64, played: u64, began_at: Instant) -> bool {
        match self {
            Self::Usual => played < usual,
            Self::Rounds(rounds) => played < rounds,
            Self::Time(time) => played == 0 || began_at.elapsed() < time,
        }
    }
}

/// How the suites are played.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long.
    pub length: Length,
    /// From which the schedule is drawn.
    pub seed: u64,
    /// Ordinary failovers alone, of the suite that has others.
    pub ordinary: bool,
}

/// Plays the suites one after the other, and says in the exit code whether all claims hold.
pub fn run(suites: &Suites, options: Options) -> ExitCode {
    let mut whole = Claims::new("soak");
    match played(suites, options, &mut whole) {
        Ok(()) if whole.hold() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            say(format_args!("the soak could not go on: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn played(suites: &Suites, options: Options, whole: &mut Claims) -> Result<()> {
    remove_page("soak")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for suite in &suites.0 {
        let claims = runtime.block_on(play(*suite, options))?;
        for Claim { name, measured, op, bar, n, .. } in claims.all() {
            whole.claim(name, *measured, *op, *bar, *n);
        }
    }
    whole.write().map(drop)
}

/// Plays one suite, shows its claims and writes them to a page of its own.
async fn play(suite: Suite, options: Options) -> Result<Claims> {
    let name = suite.name();
    let page = format!("soak-{name}");
    remove_page(&page)?;
    say(format_args!("{name}: seed {}", options.seed));
    let (mut claims, began_at) = (Claims::new(&page), Instant::now());
    if let Err(error) = suite.play(options, &mut claims).await {
        say(format_args!("{name} could not go on: {error:#}"));
        claims.count(&format!("{name}: runs that could not go on"), 1, 0, 1);
    }
    claims.figure("seconds", began_at.elapsed().as_secs_f64());
    claims.figure("seed", options.seed.to_string());
    say(format_args!("\n{}", claims.table()));
    say(format_args!("written to {}", claims.write()?.display()));
    Ok(claims)
}

/// An old page must not be taken for this run's.
fn remove_page(name: &str) -> Result<()> {
    let page = Path::new("target").join(format!("{name}.json"));
    if page.exists() {
        fs::remove_file(&page).with_context(|| format!("cannot remove {}", page.display()))?;
    }
    Ok(())
}

/// Tells one thing; a reader that closed the pipe changes nothing of what holds.
pub(crate) fn say(what: impl Display) {
    drop(writeln!(std::io::stdout().lock(), "{what}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_is_unknown_is_told_which_there_are() {
        let told = "fialover".parse::<Suites>();
        assert!(told.is_err_and(|told| told.contains("fialover") && told.contains("failover")));
        assert_eq!("failover".parse(), Ok(Suites(vec![Suite::Failover])));
        assert_eq!("all".parse(), Ok(Suites(Suite::ALL.to_vec())));
    }
}
