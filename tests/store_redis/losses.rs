//! What a store has lost is announced, and nothing is believed until a barrier covers it.

use anyhow::Result;
use tidegate::ports::TokenStore;
use tidegate::store::{RedisSettings, RedisStore, StoreCount, StoreEvent};
use tidegate_core::store_guard::{Belief, LossCause};
use tidegate_lab::redis::{Group, Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};
use tokio::sync::broadcast::Receiver;

use crate::stage::{self, belief, position, saw, single, subject};

async fn next_loss(events: &mut Receiver<StoreEvent>) -> Result<LossCause> {
    let told = async {
        loop {
            if let StoreEvent::Lost(cause) = events.recv().await? {
                return anyhow::Ok(cause);
            }
        }
    };
    tokio::time::timeout(LIMIT, told).await?
}

/// Sees a loss through, up to the barrier.
async fn is_a_loss(
    store: &RedisStore,
    events: &mut Receiver<StoreEvent>,
    (cause, stands_at): (LossCause, u64),
) -> Result<()> {
    assert_eq!(next_loss(events).await?, cause);
    assert_eq!(stage::believed(store, stands_at).await?, stage::barrier(stands_at));
    let stands = async {
        while events.recv().await? != StoreEvent::Stands {}
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, stands).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flush_an_eviction_lost_scripts_and_an_old_snapshot_are_losses() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(single(&server)).await?;
    // A new store is lost from its first answer on, which may come before anybody listens.
    assert_eq!(stage::believed(&store, 100).await?, stage::barrier(100));
    let mut events = store.events();
    store.update(subject(1), &saw(90)).await?;

    server.flush().await?;
    is_a_loss(&store, &mut events, (LossCause::NoGeneration, 200)).await?;
    assert_eq!(position(&store.lookup(subject(1)).await?), None, "it is gone");

    server.evict("volatile-ttl", 1).await.ok();
    server.end_eviction().await?;
    store.update(subject(1), &saw(190)).await?;
    server.evict("allkeys-lru", 1).await?;
    let cause = next_loss(&mut events).await?;
    assert!(matches!(cause, LossCause::Evicted | LossCause::NoGeneration), "{cause:?}");
    server.end_eviction().await?;
    assert_eq!(stage::believed(&store, 300).await?, stage::barrier(300));
    while events.try_recv().is_ok() {}

    server.flush_scripts().await?;
    // A write is what meets the missing script; it is stored all the same.
    store.update(subject(2), &saw(290)).await?;
    is_a_loss(&store, &mut events, (LossCause::NoScript, 400)).await?;
    assert_eq!(position(&store.lookup(subject(2)).await?), Some(290));

    let snapshot = server.snapshot().await?;
    store.update(subject(2), &saw(390)).await?;
    server.restore(&snapshot).await?;
    is_a_loss(&store, &mut events, (LossCause::OtherServer, 500)).await?;
    assert_eq!(position(&store.lookup(subject(2)).await?), Some(290), "as of the snapshot");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_loss_that_one_instance_sees_stops_the_other_too() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let fence = Some(std::time::Duration::from_secs(3600));
    let first = stage::open(single(&server)).await?;
    stage::believed(&first, 100).await?;
    let second = stage::open(RedisSettings { fence, ..single(&server) }).await?;
    assert_eq!(stage::believed(&second, 1).await?, stage::barrier(100), "as the first one wrote");
    server.flush().await?;
    for store in [&first, &second] {
        let unknown = || async { Ok(belief(&store.lookup(subject(1)).await?) == Belief::Unknown) };
        until("the loss is seen", LIMIT, unknown).await?;
    }
    // The one whose fence ends first says what all obey.
    assert_eq!(stage::believed(&first, 200).await?, stage::barrier(200));
    assert_eq!(stage::believed(&second, 1).await?, stage::barrier(200));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_promoted_replica_that_lacks_the_last_writes_is_a_loss_at_an_instances_own_start()
-> Result<()> {
    let group = Group::start(Options::new(Kind::Redis).min_replicas(1, 1), 1).await?;
    let before = stage::open(single(group.primary())).await?;
    stage::believed(&before, 100).await?;
    group.await_caught_up().await?;
    group.cut(0).await?;
    before.update(subject(1), &saw(150)).await?;
    group.fail_over(0).await?;
    group.replica(0).set("min-replicas-to-write", "0").await?;

    let settings = stage::with(tidegate::config::Redundancy::Single, single(group.replica(0)));
    let after = stage::open(settings).await?;
    let looked = after.lookup(subject(1)).await?;
    assert_eq!((position(&looked), belief(&looked)), (None, Belief::Unknown));
    assert_eq!(after.counters().get(StoreCount::Losses), 1);
    assert_eq!(stage::believed(&after, 200).await?, stage::barrier(200));
    Ok(())
}
