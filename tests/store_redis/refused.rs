//! Servers that refuse writes for a while, or for what they hold: full ones, and ones that lack a
//! right or cannot save. None of that ends a belief for longer than it lasts, and none stays an
//! alarm once it has passed. What a deposed primary refuses is in `attacked`.

use std::time::Duration;

use anyhow::Result;
use tidegate::clock::Clock;
use tidegate::ports::{Stored, TokenStore};
use tidegate::store::{RedisStore, StoreCount, StoreEvent};
use tidegate_core::lineage::SystemId;
use tidegate_core::store_guard::Belief;
use tidegate_core::token::{ComponentKey, PartitionId};
use tidegate_lab::redis::{Group, Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};
use tokio::sync::broadcast::Receiver;

use crate::stage::{self, saw, single, subject};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_complaint_ends_with_its_cause_also_where_nobody_records() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis).setting("save", "3600 1")).await?;
    let store = stage::open(single(&server)).await?;
    stage::believed(&store, 100).await?;
    let mut events = store.events();

    server.tell(&["ACL", "SETUSER", "default", "-del"]).await?;
    told(&mut events, StoreEvent::Refuses).await?;
    server.tell(&["ACL", "SETUSER", "default", "+del"]).await?;
    told(&mut events, StoreEvent::Takes).await?;

    // No snapshot can take the place of a folder that is not empty.
    let snapshot = server.folder().join(server.setting("dbfilename").await?);
    std::fs::create_dir_all(snapshot.join("in_the_way"))?;
    server.tell(&["BGSAVE"]).await?;
    told(&mut events, StoreEvent::Refuses).await?;
    std::fs::remove_dir_all(&snapshot)?;
    server.tell(&["BGSAVE"]).await?;
    told(&mut events, StoreEvent::Takes).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_heartbeat_that_is_taken_ends_no_complaint_of_records_that_wait() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(single(&server)).await?;
    stage::believed(&store, 100).await?;
    for (who, refuses, ends) in [
        (2, ["ACL", "SETUSER", "default", "-evalsha"], ["ACL", "SETUSER", "default", "+evalsha"]),
        (3, ["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
    ] {
        let mut events = store.events();
        server.tell(&refuses).await?;
        assert_eq!(store.update(subject(who), &saw(150)).await?.stored, Stored::Memory);
        told(&mut events, StoreEvent::Refuses).await?;
        // More than one heartbeat.
        let since = stage::now();
        until("heartbeats were taken", LIMIT, || async {
            Ok(stage::now().since(since) > Duration::from_secs(3))
        })
        .await?;
        let more: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert_eq!(more, [], "{refuses:?}: it waits still");
        assert_eq!(store.counters().get(StoreCount::Pending), 1);
        server.tell(&ends).await?;
        told(&mut events, StoreEvent::Takes).await?;
        until("what waited is written", LIMIT, || async {
            Ok(store.counters().get(StoreCount::Pending) == 0)
        })
        .await?;
    }
    Ok(())
}
