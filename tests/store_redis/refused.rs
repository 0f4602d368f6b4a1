//! Servers that refuse writes for a while, or for what they hold: full ones, and ones that lack a
//! right or cannot save. None of that ends a belief for longer than it lasts, and none stays an
//! alarm once it has passed. What a deposed primary refuses is in `attacked`.

use std::time::Duration;

use anyhow::Result;
use tidegate::clock::Clock;
use tidegate::ports::TokenStore;
use tidegate::store::{RedisStore, StoreEvent};
use tidegate_core::lineage::SystemId;
use tidegate_core::store_guard::Belief;
use tidegate_core::token::{ComponentKey, PartitionId};
use tidegate_lab::redis::{Group, Kind, Options};
use tidegate_lab::wait::{LIMIT, until};
use tokio::sync::broadcast::Receiver;

use crate::stage::{self, single, subject};

/// A partition whose leader gives no sample for a while.
const OTHER: ComponentKey = ComponentKey::new(PartitionId::new(2), SystemId::new(7));

async fn told(events: &mut Receiver<StoreEvent>, wanted: StoreEvent) -> Result<()> {
    let told = async {
        while events.recv().await? != wanted {}
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, told).await?
}

/// What a lookup is worth in the partition whose leader was away.
async fn other(store: &RedisStore) -> Result<Belief> {
    let worth = store.lookup(subject(1)).await?.worth;
    Ok(worth.belief(OTHER, stage::now(), &stage::on()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_store_that_owes_a_generation_is_still_believed() -> Result<()> {
    let group = Group::start(Options::new(Kind::Redis).min_replicas(1, 1), 1).await?;
    let keys = [stage::KEY, OTHER];
    let store = RedisStore::open(single(group.primary()), &keys, stage::on(), Clock::new()).await?;
    stage::believed(&store, 100).await?;
    assert_eq!(other(&store).await?, Belief::Unknown, "its leader gave no sample");
    group.primary().set("maxmemory", "1").await?;
    let mut events = store.events();
    store.sampled(OTHER, stage::sample(100));
    told(&mut events, StoreEvent::Refuses).await?;
    // Longer than a server is believed whose writes are not heard of.
    let since = stage::now();
    until("what was believed is too old", LIMIT, || async {
        Ok(stage::now().since(since) > Duration::from_secs(2))
    })
    .await?;
    assert_eq!(stage::believed(&store, 200).await?, stage::barrier(100));
    assert_eq!(other(&store).await?, Belief::Unknown, "there is no room for its barrier");
    group.primary().set("maxmemory", "0").await?;
    until("the generation is written", LIMIT, || async {
        Ok(other(&store).await? == stage::barrier(100))
    })
    .await
    .map(drop)
}
