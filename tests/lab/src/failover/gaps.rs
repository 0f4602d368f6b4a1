//! Recipes in which several things happen while nobody can look.

use anyhow::Result;
use fastrand::Rng;

use super::crashes::lose_unflushed;
use super::promotions::{ahead_first, lose_rows, promoted};
use super::trio::{Commit, Trio};
use crate::postgres::Stop;

/// The first crash loses a row, the second one ends past where that row was.
pub(super) async fn two_crashes(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let leader = trio.leader().clone();
    trio.look_away().await?;
    lose_unflushed(trio, &leader).await?;
    leader.start().await?;
    trio.did(format!("{} is started", leader.name()));
    trio.write(&leader, Commit::Flushed).await?;
    trio.noise(&leader, 20).await?;
    trio.ask_all().await?;
    trio.kill(&leader, random).await?;
    leader.start().await?;
    trio.did(format!("{} is started", leader.name()));
    trio.write(&leader, Commit::Flushed).await?;
    // The standbys are seen first: they have the new lives' log and not yet their lineage row.
    for standby in trio.others() {
        standby.await_streaming().await?;
        standby.catch_up_with(&leader).await?;
        trio.look_at(&standby).await?;
        trio.seen(&standby).await?;
    }
    trio.ask_all().await?;
    trio.look().await?;
    trio.seen(&leader).await
}

/// A crash loses a row; a clean restart then hides where recovery had ended.
pub(super) async fn crash_then_clean(trio: &mut Trio) -> Result<()> {
    let leader = trio.leader().clone();
    trio.look_away().await?;
    lose_unflushed(trio, &leader).await?;
    leader.start().await?;
    trio.did(format!("{} is started", leader.name()));
    trio.write(&leader, Commit::Flushed).await?;
    trio.ask_all().await?;
    leader.restart(Stop::Fast).await?;
    trio.did(format!("{} is restarted cleanly", leader.name()));
    trio.write(&leader, Commit::Flushed).await?;
    trio.ask_all().await?;
    trio.look().await?;
    trio.seen(&leader).await
}

/// A standby holds log of a life whose lineage row it never got, and is promoted.
pub(super) async fn before_the_row(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (old, one, other) = trio.roles(random)?;
    trio.look_away().await?;
    lose_unflushed(trio, &old).await?;
    old.start().await?;
    trio.did(format!("{} is started", old.name()));
    trio.write(&old, Commit::Flushed).await?;
    trio.noise(&old, random.u32(1..40)).await?;
    for standby in [&one, &other] {
        standby.await_streaming().await?;
        standby.catch_up_with(&old).await?;
        standby.cut_reception().await?;
    }
    trio.did(format!("{} and {} receive nothing more", one.name(), other.name()));
    trio.look().await?;
    trio.all_seen().await?;
    trio.write(&old, Commit::Flushed).await?;
    trio.ask_all().await?;
    let (new, other) = ahead_first(one, other).await?;
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    promoted(trio, &new).await?;
    trio.follow(&other, &new).await?;
    Ok(())
}

/// A promotion nobody sees; the other standby follows it, replays its log past the rows that were
/// lost, and is promoted.
pub(super) async fn two_promotions(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let old = trio.leader().clone();
    let (first, second) = lose_rows(trio, random).await?;
    trio.look_away().await?;
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    trio.promote(&first).await?;
    trio.noise(&first, 40).await?;
    trio.write(&first, Commit::Flushed).await?;
    trio.ask_all().await?;
    if !trio.follow(&second, &first).await? {
        return Ok(());
    }
    second.catch_up_with(&first).await?;
    trio.kill(&first, random).await?;
    trio.promote(&second).await?;
    trio.breaks(&first);
    trio.write(&second, Commit::Flushed).await?;
    trio.ask_all().await?;
    trio.look().await?;
    trio.seen(&second).await
}

/// A promoted standby is restarted before anybody saw it: where it was promoted cannot be asked.
pub(super) async fn promoted_restarted(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let old = trio.leader().clone();
    let (new, other) = lose_rows(trio, random).await?;
    trio.look_away().await?;
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    trio.promote(&new).await?;
    trio.noise(&new, 40).await?;
    trio.write(&new, Commit::Flushed).await?;
    trio.ask_all().await?;
    let how = if random.bool() { Stop::Fast } else { Stop::Immediate };
    new.restart(how).await?;
    trio.did(format!("{} is restarted ({how:?})", new.name()));
    trio.write(&new, Commit::Flushed).await?;
    trio.ask_all().await?;
    trio.look().await?;
    trio.seen(&new).await?;
    trio.follow(&other, &new).await?;
    Ok(())
}
