//! Recipes that touch a standby alone.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use super::trio::{Commit, Trio};
use crate::postgres::Stop;

/// Longer than any recipe: what is hidden for so long is hidden until the recipe says otherwise.
const HIDDEN: Duration = Duration::from_secs(3600);

/// A standby crashes and opens behind what it had shown.
pub(super) async fn crash(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (leader, standby, _) = trio.roles(random)?;
    standby.anchor(&leader).await?;
    trio.noise(&leader, 100).await?;
    trio.write(&leader, Commit::Flushed).await?;
    standby.catch_up_with(&leader).await?;
    trio.seen(&standby).await?;
    let behind = standby.crash_behind(HIDDEN).await?;
    trio.did(format!("{} is back, {} bytes behind", standby.name(), behind.bytes()));
    trio.seen(&standby).await?;
    trio.ask_all().await?;
    standby.apply_delay(Duration::ZERO).await?;
    standby.await_streaming().await?;
    standby.catch_up_with(&leader).await?;
    trio.seen(&standby).await
}

/// A standby is stopped cleanly and started.
pub(super) async fn restart(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (leader, standby, _) = trio.roles(random)?;
    trio.write(&leader, Commit::Flushed).await?;
    standby.catch_up_with(&leader).await?;
    trio.seen(&standby).await?;
    standby.restart(Stop::Fast).await?;
    trio.did(format!("{} is restarted cleanly", standby.name()));
    standby.await_streaming().await?;
    standby.catch_up_with(&leader).await?;
    trio.seen(&standby).await
}
