//! Primaries that do without one of their replicas, because one was added or a setting is another:
//! that one may be promoted while the primary goes on, so nothing of it is believed.
//!
//! Every test does the same twice, and shows the stale belief where the guard is off.

use std::time::Duration;

use anyhow::{Context, Result};
use tidegate::config::Redundancy;
use tidegate::ports::{Stored, SubjectKey, TokenStore};
use tidegate::store::{RedisStore, StoreEvent};
use tidegate_core::guards::Guards;
use tidegate_core::store_guard::{Belief, LossCause};
use tidegate_lab::redis::{Cluster, Group, Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};
use tokio::sync::broadcast::Receiver;

use crate::stage::{self, belief, position, saw, single, subject};

/// Positions in the order in which things happen.
const RECORDED_FIRST: u64 = 150;
const SAMPLED_EARLY: u64 = 160;
const RECORDED_LATE: u64 = 170;
const LEADER_AT_LAST: u64 = 200;
/// Longer than a fence and a belief in its server take here together.
const SETTLED: Duration = Duration::from_secs(9);
/// Longer than a replica must be attached to count for good.
const ATTACHED: Duration = Duration::from_secs(3);

fn fenced() -> Options {
    Options::new(Kind::Redis).min_replicas(1, 1)
}

async fn told(events: &mut Receiver<StoreEvent>, wanted: StoreEvent) -> Result<()> {
    let told = async {
        while events.recv().await? != wanted {}
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, told).await?
}

async fn shows_replicas(primary: &Server, count: i64) -> Result<()> {
    until("as many replicas are shown", LIMIT, || async {
        Ok(primary.info().await?.number("connected_slaves")? == count)
    })
    .await
    .map(drop)
}

/// Looks a subject up all the time, beside a leader that gives samples; what was said at last.
async fn looked_for(store: &RedisStore, who: SubjectKey, how_long: Duration) -> Result<Belief> {
    let since = stage::now();
    let mut last = Belief::Unknown;
    while stage::now().since(since) < how_long {
        store.sampled(stage::KEY, stage::sample(LEADER_AT_LAST));
        last = store.lookup(who).await.map_or(Belief::Unknown, |looked| belief(&looked));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(last)
}

/// A replica is attached to a store that was opened as one without, then it is promoted; what
/// lookups say before and after that.
async fn attached_to_a_single_store(guards: Guards) -> Result<[Belief; 2]> {
    let primary = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open_with(single(&primary), guards).await?;
    stage::believed(&store, 100).await?;
    let replica = Server::start(Options::new(Kind::Redis).replica_of(primary.address())).await?;
    shows_replicas(&primary, 1).await?;
    // The first replica gives its primary a new name, a loss by itself: a barrier comes meanwhile.
    let before = looked_for(&store, subject(1), ATTACHED).await?;
    replica.promote().await?;
    shows_replicas(&primary, 0).await?;
    Ok([before, looked_for(&store, subject(1), ATTACHED).await?])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_of_a_single_store_may_be_promoted_so_nothing_is_believed() -> Result<()> {
    let believed = attached_to_a_single_store(Guards::on()).await?;
    assert_eq!(believed, [Belief::Unknown; 2], "with it and without it");
    let unguarded = attached_to_a_single_store(stage::without("believed_lookup")?).await?;
    let barrier = stage::barrier(LEADER_AT_LAST);
    assert_eq!(unguarded, [barrier; 2], "a deposed primary would be believed");
    Ok(())
}

/// What an instance on the old primary believes, once a replica of two was promoted in peace and a
/// subject recorded there; the primary needs one of them, and keeps the other.
async fn one_of_two_is_promoted(guards: Guards) -> Result<(Option<u64>, Belief, Stored)> {
    let group = Group::start(fenced(), 1).await?;
    let primary = group.primary();
    let old = stage::open_with(single(primary), guards).await?;
    stage::believed(&old, 100).await?;
    let kept = old.update(subject(1), &saw(RECORDED_FIRST)).await?;
    assert_eq!(kept.stored, Stored::PrimaryOnly);
    let mut events = old.events();
    let added = Server::start(fenced().replica_of(primary.address())).await?;
    added.await_caught_up(primary).await?;
    shows_replicas(primary, 2).await?;
    if guards.believed_lookup() {
        told(&mut events, StoreEvent::Unfit).await?;
    }
    looked_for(&old, subject(1), ATTACHED).await?;
    group.replica(0).promote().await?;
    shows_replicas(primary, 1).await?;
    group.replica(0).set("min-replicas-to-write", "0").await?;
    let settings = stage::with(Redundancy::Single, single(group.replica(0)));
    let new = stage::open(settings).await?;
    stage::believed(&new, SAMPLED_EARLY).await?;
    new.update(subject(1), &saw(RECORDED_LATE)).await?;
    let believed = looked_for(&old, subject(1), SETTLED).await?;
    let found = position(&old.lookup(subject(1)).await?);
    let stored = old.update(subject(2), &saw(RECORDED_LATE)).await?.stored;
    if guards.believed_lookup() {
        is_made_good(&group, &old).await?;
    }
    Ok((found, believed, stored))
}

/// The operator ends it: the replica follows again, and the primary needs both.
async fn is_made_good(group: &Group, old: &RedisStore) -> Result<()> {
    let mut events = old.events();
    group.undo(0).await?;
    group.primary().set("min-replicas-to-write", "2").await?;
    told(&mut events, StoreEvent::Lost(LossCause::Undone)).await?;
    // What the other one was told meanwhile is gone: the barrier covers it.
    let demanded = stage::believed(old, LEADER_AT_LAST).await?;
    assert_eq!(demanded, stage::barrier(LEADER_AT_LAST));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_added_to_a_fenced_store_that_does_without_it_ends_all_belief() -> Result<()> {
    let guarded = one_of_two_is_promoted(Guards::on()).await?;
    assert_eq!(guarded, (Some(RECORDED_FIRST), Belief::Unknown, Stored::Memory));
    let off = one_of_two_is_promoted(stage::without("believed_lookup")?).await?;
    let stale = (Some(RECORDED_FIRST), stage::barrier(100), Stored::PrimaryOnly);
    assert_eq!(off, stale, "170 was recorded");
    Ok(())
}

/// Of the tenth bucket: the first two bytes decide.
fn tenth() -> SubjectKey {
    let mut bytes = [1; 16];
    [bytes[0], bytes[1]] = [0, 10];
    SubjectKey::new(bytes)
}

/// What a bucket of a cluster is worth, once a node serves it that was promoted and needs no
/// replica to take a write, though it has one.
async fn promoted_with_settings_of_its_own(guards: Guards) -> Result<Belief> {
    let cluster = Cluster::start(fenced()).await?;
    let settings = stage::with(Redundancy::Fenced, stage::cluster(&cluster));
    let store = stage::open_with(settings, guards).await?;
    let slot = cluster.slot("tidegate:{10}:any").await?;
    let replica = cluster.replica(cluster.owner(slot).await?).await?;
    let believes = || async { Ok(looked_for(&store, tenth(), ATTACHED).await? != Belief::Unknown) };
    until("the bucket is believed", LIMIT, believes).await?;
    replica.set("min-replicas-to-write", "0").await?;
    let mut events = store.events();
    cluster.switch_over(replica).await?;
    if guards.believed_lookup() {
        told(&mut events, StoreEvent::Unfit).await?;
    }
    let believed = looked_for(&store, tenth(), SETTLED).await?;
    replica.set("min-replicas-to-write", "1").await.context("it is put right")?;
    until("the bucket is believed again", LIMIT, believes).await?;
    Ok(believed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_promoted_node_that_needs_no_replica_is_not_believed_before_it_does() -> Result<()> {
    assert_eq!(promoted_with_settings_of_its_own(Guards::on()).await?, Belief::Unknown);
    let off = promoted_with_settings_of_its_own(stage::without("believed_lookup")?).await?;
    assert_eq!(off, stage::barrier(LEADER_AT_LAST), "a deposed primary would be believed");
    Ok(())
}
