//! Chapter 6: no standby is fresh and everybody reads. The leader bears what it was configured to
//! bear; whoever is answered by a stale standby is told how stale.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::at_least;
use super::narrator::{bytes, chapter, lag, say, span};
use super::stage::{CAP, Stage};
use super::visitor::{Reading, Seen, Visitor, Whose};
use crate::claims::{Claims, Op};

const PEOPLE: i64 = 12;
const FIRST_FORM: i64 = 500;
const LASTS: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(1);

/// Chapter 6: a storm of reads while both standbys hold still.
pub(super) async fn storm(stage: &Stage, claims: &mut Claims) -> Result<()> {
    chapter("6. The leader is not overrun, and a stale answer says so");
    let leader = stage.cluster.leader();
    for standby in stage.cluster.standbys() {
        standby.pause_replay().await?;
    }
    stage.others_write(leader, 2_100).await?;
    let mut people = Vec::new();
    for form in FIRST_FORM..FIRST_FORM + PEOPLE {
        let mut visitor = stage.visitor(Whose::Carried).await?;
        visitor.save(leader, form, "sick today").await?;
        people.push((visitor, form));
    }
    let begun = Instant::now();
    let storms = people.iter_mut().map(|(visitor, form)| read_on(visitor, *form, begun + LASTS));
    let reads = futures::future::try_join_all(storms).await?.concat();
    let lasted = begun.elapsed();
    say(&format!(
        "r1 and r2 hold still. {PEOPLE} people save a form each and read it again and again, for \
         {}: {} reads. The leader may take {CAP} a second.",
        span(lasted),
        reads.len()
    ));
    judge_cap(&reads, lasted, claims);
    judge_labels(stage, &reads, claims).await?;
    stage.level().await?;
    let (mut visitor, form) = people.into_iter().next().context("nobody came")?;
    let calm = visitor.read(form, Reading::Patient).await?;
    let label = if calm.stale.is_some() { "a label" } else { "no label" };
    say(&format!("Both go on. The next read is sent to {}, with {label}.", calm.server));
    Ok(())
}

async fn read_on(visitor: &mut Visitor, form: i64, until: Instant) -> Result<Vec<Seen>> {
    let mut reads = Vec::new();
    while Instant::now() < until {
        reads.push(visitor.read(form, Reading::Hurried).await?);
    }
    Ok(reads)
}

/// Counts what the leader was asked to bear.
#[expect(clippy::cast_precision_loss, reason = "the demo counts to thousands")]
fn judge_cap(reads: &[Seen], lasted: Duration, claims: &mut Claims) {
    let led: Vec<&Seen> = reads.iter().filter(|seen| seen.leads).collect();
    let busiest = busiest(&led);
    let steady = led.len() as f64 / lasted.as_secs_f64();
    say(&format!("{} went to the leader, {busiest} in the busiest second.", led.len()));
    let cap = f64::from(CAP);
    let used = (busiest as f64).max(steady) / cap;
    let n = led.len() as u64;
    claims.claim("cap: leader reads a second, of the configured rate", used, Op::AtMost, 1.1, n);
    let offered = reads.len() as f64 / lasted.as_secs_f64() / cap;
    claims.claim("cap: reads offered, of the configured rate", offered, Op::AtLeast, 1.2, n);
}

/// The most reads that were certainly both asked and answered within one second.
fn busiest(led: &[&Seen]) -> usize {
    let within = |first: &&Seen| {
        let end = first.asked_at + WINDOW;
        led.iter().filter(|seen| seen.asked_at >= first.asked_at && seen.answered_at <= end).count()
    };
    led.iter().map(within).max().unwrap_or(0)
}

/// Holds the labels against the rows.
async fn judge_labels(stage: &Stage, reads: &[Seen], claims: &mut Claims) -> Result<()> {
    let missed: Vec<&Seen> = reads.iter().filter(|seen| !seen.found).collect();
    let labelled =
        missed.iter().filter(|seen| seen.stale.as_ref().is_some_and(|lag| lag.bytes > 0));
    let (labelled, n) = (labelled.count() as u64, missed.len() as u64);
    say(&format!(
        "{n} went to a standby that did not have the row, {labelled} of these with a label."
    ));
    if let Some((seen, label)) = missed.last().and_then(|seen| Some((seen, seen.stale.as_ref()?))) {
        let standby = stage.server(&seen.server)?;
        let truth = bytes(stage.bytes_behind(stage.cluster.leader(), standby).await?);
        let (server, label) = (&seen.server, lag(label));
        say(&format!(
            "The last label: {server} is {label} behind. Truth check on {server}: {truth}."
        ));
    }
    at_least(claims, "label: stale answers that carried their lag", n.max(1), labelled, n);
    claims.count(
        "label: answers that missed the row and carried none",
        n - labelled,
        0,
        reads.len() as u64,
    );
    Ok(())
}
