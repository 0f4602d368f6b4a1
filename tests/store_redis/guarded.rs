//! Each guard of a shared store on real servers: what is believed when it is off.
//!
//! Every test does the same twice, and shows the stale belief where the guard is off.

use anyhow::Result;
use tidegate::config::Redundancy;
use tidegate::ports::{Stored, TokenStore};
use tidegate::store::RedisSettings;
use tidegate_core::guards::Guards;
use tidegate_core::store_guard::Belief;
use tidegate_lab::redis::{Group, Kind, Options};
use tidegate_lab::wait::{LIMIT, until};

use crate::stage::{self, belief, position, saw, single, subject};

/// Positions in the order in which things happen.
const RECORDED_FIRST: u64 = 150;
const SAMPLED_EARLY: u64 = 160;
const RECORDED_LATE: u64 = 170;
const LEADER_AT_LAST: u64 = 200;

fn fenced() -> Options {
    Options::new(Kind::Redis).min_replicas(1, 1)
}

/// A store on a replica that was just promoted, as an instance opens it that knows of nothing else.
fn promoted(group: &Group) -> RedisSettings {
    stage::with(Redundancy::Fenced, single(group.replica(0)))
}

/// Replicas of a group follow through links; the promoted one has none of its own.
async fn takes_writes_alone(group: &Group) -> Result<()> {
    group.replica(0).set("min-replicas-to-write", "0").await
}

/// A replica that lacks the last record is promoted; an instance starts on it.
async fn record_is_lost(guards: Guards) -> Result<(Option<u64>, Belief)> {
    let group = Group::start(fenced(), 1).await?;
    let before = stage::open(single(group.primary())).await?;
    stage::believed(&before, 100).await?;
    group.await_caught_up().await?;
    group.cut(0).await?;
    let kept = before.update(subject(1), &saw(RECORDED_FIRST)).await?;
    assert_eq!(kept.stored, Stored::PrimaryOnly, "it was acknowledged");
    group.fail_over(0).await?;
    takes_writes_alone(&group).await?;
    let settings = stage::with(Redundancy::Single, single(group.replica(0)));
    let after = stage::open_with(settings, guards).await?;
    let looked = after.lookup(subject(1)).await?;
    Ok((position(&looked), belief(&looked)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_generation_a_promoted_replica_is_believed_to_have_lost_nothing() -> Result<()>
{
    assert_eq!(record_is_lost(Guards::on()).await?, (None, Belief::Unknown));
    let (found, believed) = record_is_lost(stage::without("generation")?).await?;
    assert_eq!((found, believed), (None, stage::barrier(100)), "a record of 150 is forgotten");
    Ok(())
}

/// A replica is promoted while the old primary lives on; a subject records through the new one.
async fn deposed_primary_is_asked(guards: Guards) -> Result<(Option<u64>, Belief)> {
    let group = Group::start(fenced(), 1).await?;
    let old = stage::open_with(single(group.primary()), guards).await?;
    stage::believed(&old, 100).await?;
    old.update(subject(1), &saw(RECORDED_FIRST)).await?;
    group.split(0).await?;
    let mut events = old.events();
    let refuses = async {
        while events.recv().await? != tidegate::store::StoreEvent::Refuses {}
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, refuses).await??;
    takes_writes_alone(&group).await?;
    let settings = stage::with(Redundancy::Single, single(group.replica(0)));
    let new = stage::open(settings).await?;
    stage::believed(&new, SAMPLED_EARLY).await?;
    new.update(subject(1), &saw(RECORDED_LATE)).await?;
    // However long the old one is asked: it answers for ever.
    let window = std::time::Duration::from_secs(1);
    let since = stage::now();
    until("its last write is too old", LIMIT, || async { Ok(stage::now().since(since) > window) })
        .await?;
    let looked = old.lookup(subject(1)).await?;
    Ok((position(&looked), belief(&looked)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_believed_lookup_a_deposed_primary_is_believed_for_ever() -> Result<()> {
    let (found, believed) = deposed_primary_is_asked(Guards::on()).await?;
    assert_eq!((found, believed), (Some(RECORDED_FIRST), Belief::Unknown));
    let guards = stage::without("believed_lookup")?;
    let (found, believed) = deposed_primary_is_asked(guards).await?;
    assert_eq!((found, believed), (Some(RECORDED_FIRST), stage::barrier(100)), "170 was recorded");
    Ok(())
}

/// A subject records on the old primary after the new one was found; returns what the new one says
/// of it as soon as it is believed.
async fn split_brain_records(guards: Guards) -> Result<(Option<u64>, Belief)> {
    let group = Group::start(fenced(), 1).await?;
    let old = stage::open(single(group.primary())).await?;
    stage::believed(&old, 100).await?;
    group.await_caught_up().await?;
    group.split(0).await?;
    takes_writes_alone(&group).await?;
    let fence = Some(std::time::Duration::from_secs(4));
    let settings = RedisSettings { fence, ..stage::with(Redundancy::Single, promoted(&group)) };
    let new = stage::open_with(settings, guards).await?;
    // The leader stands here while the new primary is found; the subject writes right after.
    new.sampled(stage::KEY, stage::sample(SAMPLED_EARLY));
    let found = || async {
        new.sampled(stage::KEY, stage::sample(SAMPLED_EARLY));
        new.lookup(subject(1)).await?;
        Ok(!guards.fence() && belief(&new.lookup(subject(1)).await?) != Belief::Unknown
            || guards.fence())
    };
    until("the new primary is found", LIMIT, found).await?;
    let kept = old.update(subject(1), &saw(RECORDED_LATE)).await?;
    assert_eq!(kept.stored, Stored::PrimaryOnly, "the old primary acknowledges");
    let believed = stage::believed(&new, LEADER_AT_LAST).await?;
    let looked = new.lookup(subject(1)).await?;
    Ok((position(&looked), believed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_fence_the_barrier_misses_what_a_deposed_primary_still_took() -> Result<()> {
    let (found, believed) = split_brain_records(Guards::on()).await?;
    assert_eq!((found, believed), (None, stage::barrier(LEADER_AT_LAST)), "170 is covered");
    let (found, believed) = split_brain_records(stage::without("fence")?).await?;
    assert_eq!((found, believed), (None, stage::barrier(SAMPLED_EARLY)), "170 was recorded");
    Ok(())
}
