//! Recipes that leave two histories under one timeline number.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use super::promotions::{ROW_WITHIN, lose_rows, promoted};
use super::trio::{Commit, Trio};
use crate::postgres::Stop;

/// How long to watch whether a former twin streams; PostgreSQL refuses most of them.
const ATTACHED_WITHIN: Duration = Duration::from_secs(4);

/// A promoted standby dies and is made again, of the old leader, under the same number.
pub(super) async fn same_number(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let old = trio.leader().clone();
    let (new, other) = lose_rows(trio, random).await?;
    promoted(trio, &new).await?;
    trio.look_away().await?;
    trio.kill(&new, random).await?;
    // The old leader is led to again, for a while.
    trio.write(&old, Commit::Flushed).await?;
    trio.noise(&old, random.u32(1..60)).await?;
    new.clone_from(&old).await?;
    trio.did(format!("{} is cloned again from {}", new.name(), old.name()));
    new.catch_up_with(&old).await?;
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    // It followed nobody; the repair makes it anew.
    trio.breaks(&other);
    trio.promote(&new).await?;
    trio.write(&new, Commit::Flushed).await?;
    trio.ask_all().await?;
    trio.look().await?;
    trio.seen(&new).await
}

/// Both standbys are promoted, one after the other; each is written to.
pub(super) async fn twins(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (old, one, other) = trio.roles(random)?;
    if random.bool() {
        lose_rows(trio, random).await?;
    }
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    if random.bool() {
        promoted(trio, &one).await?;
    } else {
        trio.promote(&one).await?;
    }
    trio.promote(&other).await?;
    let (winner, loser) = if random.bool() { (one, other) } else { (other, one) };
    for twin in [&winner, &loser] {
        trio.write(twin, Commit::Flushed).await?;
        trio.seen(twin).await?;
    }
    trio.ask_all().await?;
    trio.leads(&winner);
    trio.breaks(&loser);
    if random.bool() {
        trio.kill(&loser, random).await?;
    }
    Ok(())
}

/// Twins whose logs look alike: one is attached to the other as if it were its standby.
pub(super) async fn twin_attached(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (old, one, other) = trio.roles(random)?;
    old.stop(Stop::Fast).await?;
    trio.did(format!("{} is stopped", old.name()));
    trio.breaks(&old);
    trio.look_away().await?;
    for twin in [&one, &other] {
        trio.promote(twin).await?;
        // The same records in the same order, so that both logs have boundaries at the same places.
        twin.sql("checkpoint").await?;
        trio.write(twin, Commit::Flushed).await?;
    }
    trio.ask_all().await?;
    one.stop(Stop::Immediate).await?;
    trio.breaks(&one);
    trio.noise(&other, 20).await?;
    trio.write(&other, Commit::Flushed).await?;
    one.repoint(&other).await?;
    one.start().await?;
    let streams = tokio::time::timeout(ATTACHED_WITHIN, one.await_streaming()).await;
    let streams = matches!(streams, Ok(Ok(())));
    let word = if streams { "streams" } else { "does not stream" };
    trio.did(format!("{} is attached to {}, not rewound, and {word}", one.name(), other.name()));
    trio.look().await?;
    trio.seen(&other).await?;
    trio.accepted(&other, ROW_WITHIN).await?;
    trio.write(&other, Commit::Flushed).await?;
    // One that streams may stand still for all that: what it receives does not continue its log.
    let caught_up = tokio::time::timeout(ATTACHED_WITHIN, one.catch_up_with(&other)).await;
    let word = if matches!(caught_up, Ok(Ok(_))) { "replays" } else { "does not replay" };
    trio.did(format!("{} {word} the log of {}", one.name(), other.name()));
    trio.all_seen().await?;
    trio.ask_all().await
}
