//! Chapters 1 and 2: a standby that lags is not asked, and a wait ends where the row arrived.

use std::time::Duration;

use anyhow::{Result, bail};

use super::at_least;
use super::narrator::{bytes, chapter, say, span};
use super::stage::{Stage, Tally};
use super::visitor::{Reading, Whose};
use crate::claims::Claims;
use crate::postgres::Server;

const READS: u64 = 200;
const STRANGERS: u64 = 40;
const ROUNDS: u64 = 4;
const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(10);

/// Chapter 1: 200 reads, none to the standby that lacks the row.
pub(super) async fn lag(stage: &Stage, claims: &mut Claims) -> Result<()> {
    chapter("1. A standby that lags is not asked");
    let (leader, r1, form) = (stage.cluster.leader(), stage.cluster.standby(0), 17);
    r1.pause_replay().await?;
    stage.others_write(leader, 3_200).await?;
    let mut ana = stage.visitor(Whose::Carried).await?;
    ana.save(leader, form, "holiday from 4 May").await?;
    let behind = bytes(stage.bytes_behind(leader, r1).await?);
    let token = ana.token().await?.len();
    say(&format!(
        "r1 holds still while others write. Ana saves a form, row {form}, on the leader l. Now r1 \
         is {behind} behind, and her browser keeps a token of {token} characters."
    ));
    let mut tally = Tally::default();
    for _ in 0..READS {
        let seen = ana.read(form, Reading::Usual).await?;
        tally.count(stage, &seen, form).await?;
    }
    say(&format!("{READS} reads by Ana: {}", tally.words(stage)));
    let mut others = Tally::default();
    for _ in 0..STRANGERS {
        let mut stranger = stage.visitor(Whose::Nobody).await?;
        let seen = stranger.read(form, Reading::Usual).await?;
        others.count(stage, &seen, form).await?;
    }
    say(&format!("{STRANGERS} reads without a session: {}", others.words(stage)));
    let truth = if stage.shows("r1", form).await? { "is there" } else { "is still not there" };
    say(&format!("Truth check on r1: row {form} {truth}."));
    claims.count("lag: reads that named the lagging standby", tally.of("r1"), 0, tally.reads());
    claims.count("lag: reads that missed the row", tally.missing(), 0, tally.reads());
    at_least(claims, "without a session: reads that missed it", 1, others.missing(), STRANGERS);
    Ok(())
}

/// Chapter 2: both standbys hold still, one goes on, and the wait ends on that one.
pub(super) async fn wait(stage: &Stage, claims: &mut Claims) -> Result<()> {
    chapter("2. A wait ends where the row arrived");
    let (r1, r2) = (stage.cluster.standby(0), stage.cluster.standby(1));
    let leader = stage.cluster.leader();
    say("Four times Ana saves a row while r1 and r2 hold still, and waits for it.");
    let mut ana = stage.visitor(Whose::Carried).await?;
    let mut right = 0;
    for round in 0..ROUNDS {
        let form = 100 + i64::try_from(round)?;
        stage.level().await?;
        r1.pause_replay().await?;
        r2.pause_replay().await?;
        ana.save(leader, form, "two days more").await?;
        let in_vain = ana.wait(SHORT).await?.server.is_none();
        let (going, held) = if round % 2 == 0 { (r2, r1) } else { (r1, r2) };
        let (waited, resumed) = tokio::join!(ana.wait(LONG), going.resume_replay());
        resumed?;
        let waited = waited?;
        let Some(server) = waited.server else { bail!("a wait of {LONG:?} ended on no server") };
        let truth = stage.shows(&server, form).await? && !stage.shows(held.name(), form).await?;
        right += u64::from(in_vain && server == going.name() && truth);
        tell_wait(form, going, &server, waited.took, truth);
    }
    stage.level().await?;
    at_least(claims, "wait: ended on the standby that caught up", ROUNDS, right, ROUNDS);
    Ok(())
}

fn tell_wait(form: i64, going: &Server, server: &str, took: Duration, truth: bool) {
    let (name, took) = (going.name(), span(took));
    let truth = if truth { "the row is there, and only there" } else { "that is wrong" };
    say(&format!(
        "Row {form}: a wait of {} ends in vain. {name} goes on; the next wait ends on {server}, \
         after {took}. Truth check: {truth}.",
        span(SHORT)
    ));
}
