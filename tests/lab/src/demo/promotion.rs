//! Chapter 7: the leader dies and a standby that had everything is promoted. What was written
//! survives, is served, and nobody is told of a loss.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::at_least;
use super::narrator::{chapter, say, span};
use super::stage::{Stage, Tally};
use super::visitor::{Reading, Whose};
use crate::claims::Claims;
use crate::postgres::Stop;
use crate::wait::{LIMIT, until};

const READS: u64 = 50;
/// Longer than the leader lives after the write, and the reads without a leader take.
const DELAY: Duration = Duration::from_secs(3);

/// Chapter 7: a plain failover.
pub(super) async fn promotion(stage: &Stage, claims: &mut Claims) -> Result<()> {
    chapter("7. A write that survives a failover is still served");
    let (l, r1, r2) = (stage.cluster.leader(), stage.cluster.standby(0), stage.cluster.standby(1));
    let form = 600;
    let mut ana = stage.visitor(Whose::Carried).await?;
    r2.apply_delay(DELAY).await?;
    ana.save(l, form, "back on Monday").await?;
    r1.catch_up_with(l).await?;
    ana.read(form, Reading::Patient).await?;
    let before = stage.service.partition().await?.epoch;
    l.stop(Stop::Immediate).await?;
    let mut leaderless = Tally::default();
    for _ in 0..READS {
        leaderless.count(stage, &ana.read(form, Reading::Patient).await?, form).await?;
    }
    say(&format!(
        "r2 applies everything late. Ana saves row {form}; r1 has it; then the leader dies."
    ));
    say(&format!("{READS} reads while nobody leads: {}", leaderless.words(stage)));
    r2.apply_delay(Duration::ZERO).await?;
    let begun = Instant::now();
    r1.promote().await?;
    r2.repoint(r1).await?;
    until("tidegate knows the new leader", LIMIT, || async {
        let partition = stage.service.partition().await?;
        Ok(partition.leader_node == "r1" && partition.epoch != before)
    })
    .await?;
    let known = begun.elapsed();
    let (mut tally, mut notices) = (Tally::default(), 0);
    for _ in 0..READS {
        let seen = ana.read(form, Reading::Patient).await?;
        notices += seen.notices;
        tally.count(stage, &seen, form).await?;
    }
    let after = stage.service.partition().await?.epoch;
    say(&format!("r1 is promoted, and tidegate knows it {} later.", span(known)));
    say(&format!("{READS} reads: {}", tally.words(stage)));
    say(&format!("The epoch was {before} and is {after}."));
    let missing = leaderless.missing() + tally.missing();
    let reads = leaderless.reads() + tally.reads();
    claims.count("promotion: reads that missed the surviving write", missing, 0, reads);
    claims.count("promotion: losses told though nothing was lost", notices, 0, tally.reads());
    at_least(claims, "promotion: epochs that followed", 1, u64::from(after != before), 1);
    ana.save(r1, form + 1, "on the new leader").await?;
    let seen = ana.read(form + 1, Reading::Patient).await?;
    let found = seen.found && stage.shows(&seen.server, form + 1).await?;
    say(&format!("Ana saves row {} on r1 and reads it on {}.", form + 1, seen.server));
    claims.count("promotion: reads that missed a write on the new leader", u64::from(!found), 0, 1);
    Ok(())
}
