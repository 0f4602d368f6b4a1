//! Recipes in which one standby is promoted and everybody may look.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use super::trio::{Commit, Trio};
use crate::postgres::{Server, Stop};
use crate::wait::{LIMIT, until};

/// How long a promoted leader may wait for its lineage row before the recipe goes on.
pub(super) const ROW_WITHIN: Duration = Duration::from_secs(5);

/// How the old leader comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rejoin {
    /// By `pg_rewind`.
    Rewind,
    /// By a new clone.
    Clone,
    /// Not before the repair.
    Later,
}

/// Writes rows that no standby receives; returns the standbys, the one that has more log first.
///
/// That one can be promoted and followed by the other.
pub(super) async fn lose_rows(trio: &mut Trio, random: &mut Rng) -> Result<(Server, Server)> {
    let (leader, one, other) = trio.roles(random)?;
    one.cut_reception().await?;
    other.cut_reception().await?;
    trio.did(format!("{} and {} receive nothing more", one.name(), other.name()));
    for _ in 0..random.u32(1..4) {
        trio.write(&leader, Commit::Flushed).await?;
    }
    trio.all_seen().await?;
    ahead_first(one, other).await
}

/// Of two standbys, the one that received more log first.
pub(super) async fn ahead_first(one: Server, other: Server) -> Result<(Server, Server)> {
    const RECEIVED: &str = "select coalesce(pg_last_wal_receive_lsn(), '0/0')";
    let here: crate::postgres::Lsn = one.value(RECEIVED).await?;
    let there: crate::postgres::Lsn = other.value(RECEIVED).await?;
    Ok(if here >= there { (one, other) } else { (other, one) })
}

/// A standby is promoted: it is written to, its row stands where it is accepted.
pub(super) async fn promoted(trio: &mut Trio, server: &Server) -> Result<()> {
    trio.promote(server).await?;
    trio.write(server, Commit::Flushed).await?;
    trio.seen(server).await?;
    let accepted = trio.accepted(server, ROW_WITHIN).await?;
    let word = if accepted { "has its row" } else { "has no row" };
    trio.did(format!("{} {word}", server.name()));
    trio.write(server, Commit::Flushed).await?;
    trio.ask_all().await
}

/// The leader is killed; rows are lost or not.
pub(super) async fn killed(trio: &mut Trio, random: &mut Rng, rejoin: Rejoin) -> Result<()> {
    let old = trio.leader().clone();
    let (new, other) = if random.u32(0..3) > 0 {
        lose_rows(trio, random).await?
    } else {
        let (_, one, other) = trio.roles(random)?;
        (one, other)
    };
    trio.kill(&old, random).await?;
    let (new, other) = ahead_first(new, other).await?;
    trio.breaks(&old);
    promoted(trio, &new).await?;
    trio.follow(&other, &new).await?;
    let how = match rejoin {
        Rejoin::Rewind => {
            old.rewind_from(&new).await?;
            "rewound"
        }
        Rejoin::Clone => {
            old.clone_from(&new).await?;
            "cloned again"
        }
        Rejoin::Later => return Ok(()),
    };
    trio.broken.remove(old.name());
    trio.did(format!("{} is {how}", old.name()));
    Ok(())
}

/// A planned switchover: nothing is lost, and the old leader follows without a rewind.
pub(super) async fn switchover(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (old, new, other) = trio.roles(random)?;
    trio.write(&old, Commit::Flushed).await?;
    trio.seen(&old).await?;
    old.stop(Stop::Fast).await?;
    trio.did(format!("{} is stopped", old.name()));
    trio.breaks(&old);
    promoted(trio, &new).await?;
    trio.follow(&other, &new).await?;
    old.repoint(&new).await?;
    old.start().await?;
    if trio.follow(&old, &new).await? {
        trio.broken.remove(old.name());
    }
    Ok(())
}

/// A switchover, and an operator who resets the new leader's statistics.
pub(super) async fn reset(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    switchover(trio, random).await?;
    let leader = trio.leader().clone();
    trio.write(&leader, Commit::Flushed).await?;
    trio.seen(&leader).await?;
    leader.reset_statistics().await?;
    trio.did(format!("statistics of {} are reset", leader.name()));
    trio.write(&leader, Commit::Flushed).await?;
    trio.seen(&leader).await
}

/// A standby received rows and did not replay them when its leader died.
pub(super) async fn paused(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let (old, new, other) = trio.roles(random)?;
    new.pause_replay().await?;
    let written = trio.write(&old, Commit::Flushed).await?;
    let received =
        format!("select pg_last_wal_receive_lsn() >= '0/0'::pg_lsn + {}::numeric", written.upto);
    let what = format!("{} has received a row", new.name());
    until(&what, LIMIT, || async { new.value(&received).await }).await?;
    trio.all_seen().await?;
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    promoted(trio, &new).await?;
    trio.follow(&other, &new).await?;
    Ok(())
}

/// A standby is promoted while the old leader lives and is written to.
pub(super) async fn beside_living(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let old = trio.leader().clone();
    let (new, other) = lose_rows(trio, random).await?;
    promoted(trio, &new).await?;
    trio.breaks(&old);
    trio.write(&old, Commit::Flushed).await?;
    trio.all_seen().await?;
    trio.ask_all().await?;
    trio.follow(&other, &new).await?;
    let how = if random.bool() { Stop::Fast } else { Stop::Immediate };
    old.stop(how).await?;
    trio.did(format!("{} is stopped ({how:?})", old.name()));
    Ok(())
}

/// The old leader comes back as if nothing had happened.
pub(super) async fn old_returns(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    killed_with_loss(trio, random).await?;
    let (new, others) = (trio.leader().clone(), trio.others());
    let Some(old) = others.into_iter().find(|server| !server.is_running()) else {
        anyhow::bail!("the old leader runs already");
    };
    old.start().await?;
    trio.did(format!("{} is started", old.name()));
    trio.write(&old, Commit::Flushed).await?;
    trio.write(&new, Commit::Flushed).await?;
    trio.all_seen().await?;
    trio.ask_all().await?;
    if random.bool() {
        trio.kill(&old, random).await?;
    }
    Ok(())
}

/// The old leader follows the new one although its log has diverged.
pub(super) async fn naive_rejoin(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    killed_with_loss(trio, random).await?;
    let (new, others) = (trio.leader().clone(), trio.others());
    let Some(old) = others.into_iter().find(|server| !server.is_running()) else {
        anyhow::bail!("the old leader runs already");
    };
    old.repoint(&new).await?;
    old.start().await?;
    trio.did(format!("{} is started as a standby, not rewound", old.name()));
    trio.write(&new, Commit::Flushed).await?;
    trio.all_seen().await?;
    trio.ask_all().await
}

/// The leader is killed with rows that nobody received; it stays down.
async fn killed_with_loss(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let old = trio.leader().clone();
    let (new, other) = lose_rows(trio, random).await?;
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    promoted(trio, &new).await?;
    trio.follow(&other, &new).await?;
    Ok(())
}

/// The leader crashes again and again while cut off, is written to each time, then stays dead.
pub(super) async fn crash_loop(trio: &mut Trio, random: &mut Rng) -> Result<()> {
    let old = trio.leader().clone();
    let (new, other) = lose_rows(trio, random).await?;
    for _ in 0..random.u32(2..4) {
        match random.u32(0..3) {
            0 => old.kill_backend().await?,
            1 => old.restart(Stop::Immediate).await?,
            _ => old.restart(Stop::Kill).await?,
        }
        trio.did(format!("{} has crashed and is back", old.name()));
        if random.bool() {
            trio.seen(&old).await?;
        }
        trio.write(&old, Commit::Flushed).await?;
        trio.ask_all().await?;
    }
    trio.kill(&old, random).await?;
    trio.breaks(&old);
    promoted(trio, &new).await?;
    trio.follow(&other, &new).await?;
    Ok(())
}
