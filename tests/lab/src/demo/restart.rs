//! Chapter 5: a standby crashes and comes back behind what it had shown. Readers go on meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::at_least;
use super::narrator::{bytes, chapter, say};
use super::stage::{Stage, Tally};
use super::visitor::{Reading, Visitor, Whose};
use crate::claims::Claims;

/// Reads that must be made after the crash, at least.
const READS: u64 = 200;
/// Reads that show what r1 would have answered.
const CARELESS: u64 = 40;
/// Reads within which an even spread over two standbys names each of them.
const TRIES: u64 = 2_000;
/// Commits younger than this stay hidden from the standby that came back.
const HIDE: Duration = Duration::from_secs(3600);

/// Chapter 5: r1 had the row, lost it in a crash, and is not asked until it has it again.
pub(super) async fn restart(stage: &Stage, claims: &mut Claims) -> Result<()> {
    chapter("5. A standby that came back behind is not asked too early");
    let (leader, r1, form) = (stage.cluster.leader(), stage.cluster.standby(0), 400);
    r1.anchor(leader).await?;
    let mut ana = stage.visitor(Whose::Carried).await?;
    ana.save(leader, form, "three nights").await?;
    stage.others_write(leader, 900).await?;
    stage.cluster.catch_up().await?;
    let before = until_asked(stage, &mut ana, "r1", form).await?;
    say(&format!("Ana saves row {form}. {} reads: {}", before.reads(), before.words(stage)));
    let crashed = AtomicBool::new(false);
    let crash = async {
        let behind = r1.crash_behind(HIDE).await;
        crashed.store(true, Ordering::Relaxed);
        behind
    };
    let (behind, through) = tokio::join!(crash, read_through(stage, &mut ana, form, &crashed));
    let (behind, through) = (behind?, through?);
    let lacks = !stage.shows("r1", form).await?;
    let truth = if lacks { "is still not there" } else { "is there" };
    say(&format!(
        "r1 crashes and comes back {} behind what it had shown. Ana goes on reading.",
        bytes(behind.bytes())
    ));
    let (during, after) = (&through.during, &through.after);
    say(&format!("{} reads while it is down: {}", during.reads(), during.words(stage)));
    say(&format!("{} reads since it is back: {}", after.reads(), after.words(stage)));
    let mut careless = Tally::default();
    for _ in 0..CARELESS {
        let mut other = stage.visitor(Whose::Nobody).await?;
        careless.count(stage, &other.read(form, Reading::Careless).await?, form).await?;
    }
    say(&format!("{CARELESS} reads that demand nothing: {}", careless.words(stage)));
    say(&format!("Truth check on r1: row {form} {truth}."));
    let missing = during.missing() + after.missing();
    let n = if lacks { through.after.reads() } else { 0 };
    let early = through.after.of("r1");
    claims.count("restart: reads that named it before it had the row", early, 0, n);
    claims.count("restart: reads that missed the row", missing, 0, n);
    let name = "demanding nothing: reads that missed it";
    at_least(claims, name, 1, careless.missing(), careless.reads());
    r1.apply_delay(Duration::ZERO).await?;
    r1.catch_up_with(leader).await?;
    let again = until_asked(stage, &mut ana, "r1", form).await?;
    let asked = again.reads();
    say(&format!("r1 catches up and is asked again. {asked} reads: {}", again.words(stage)));
    let name = "restart: reads that named it once it had the row";
    at_least(claims, name, 1, again.of("r1"), again.reads());
    Ok(())
}

/// Reads until one was sent to a server.
async fn until_asked(stage: &Stage, ana: &mut Visitor, server: &str, form: i64) -> Result<Tally> {
    let mut tally = Tally::default();
    while tally.of(server) == 0 {
        if tally.reads() == TRIES {
            bail!("{TRIES} reads and none was sent to {server}, which has the row");
        }
        let seen = ana.read(form, Reading::Usual).await?;
        tally.count(stage, &seen, form).await?;
    }
    Ok(tally)
}

/// What was read around a crash.
#[derive(Debug, Default)]
struct Through {
    during: Tally,
    /// Reads that ended with an error because their server was down.
    failed: u64,
    after: Tally,
}

/// Reads until the crash is over, and 200 times more.
async fn read_through(
    stage: &Stage,
    ana: &mut Visitor,
    form: i64,
    crashed: &AtomicBool,
) -> Result<Through> {
    let mut through = Through::default();
    while through.after.reads() < READS {
        let is_over = crashed.load(Ordering::Relaxed);
        match ana.read(form, Reading::Usual).await {
            Ok(seen) if is_over => through.after.count(stage, &seen, form).await?,
            // The server may be down by now: the row that the visitor read there is the truth.
            Ok(seen) => through.during.note(&seen),
            Err(error) => {
                through.failed += 1;
                if through.failed == TRIES {
                    return Err(error).context("reads fail for ever");
                }
            }
        }
    }
    Ok(through)
}
