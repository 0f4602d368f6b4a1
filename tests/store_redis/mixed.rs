//! Servers of one store, or instances of one, whose settings differ: they stand side by side, and
//! neither ends what the other believes.

use std::time::Duration;

use anyhow::Result;
use tidegate::config::Redundancy;
use tidegate::ports::{SubjectKey, TokenStore};
use tidegate::store::{RedisSettings, StoreEvent};
use tidegate_core::store_guard::Belief;
use tidegate_lab::redis::{Cluster, Group, Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};

use crate::stage::{self, belief, single, subject};

/// A subject of a bucket: the first two bytes decide.
fn subject_of(bucket: u8) -> SubjectKey {
    let mut bytes = [1; 16];
    [bytes[0], bytes[1]] = [0, bucket];
    SubjectKey::new(bytes)
}

/// A bucket of each primary.
async fn buckets(cluster: &Cluster) -> Result<Vec<(&Server, u8)>> {
    let mut found: Vec<(&Server, u8)> = Vec::new();
    for bucket in 0..64 {
        let slot = cluster.slot(&format!("tidegate:{{{bucket}}}:any")).await?;
        let owner = cluster.owner(slot).await?;
        if found.iter().all(|(server, _)| server.port() != owner.port()) {
            found.push((owner, bucket));
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_of_a_cluster_may_wait_for_their_replicas_for_different_times() -> Result<()> {
    let cluster = Cluster::start(Options::new(Kind::Redis).min_replicas(1, 1)).await?;
    let found = buckets(&cluster).await?;
    assert_eq!(found.len(), 3, "each has some");
    for (server, _) in found.iter().skip(1) {
        server.set("min-replicas-max-lag", "2").await?;
    }
    let store = stage::open(stage::cluster(&cluster)).await?;
    let checked = store.checked();
    assert_eq!((checked.fence.as_secs(), checked.redundancy), (6, Redundancy::Fenced));
    assert_eq!(checked.believed_for, Some(Duration::from_secs(1)), "the strictest");
    for (server, bucket) in &found {
        let believed = || async {
            store.sampled(stage::KEY, stage::sample(100));
            let looked = store.lookup(subject_of(*bucket)).await;
            Ok(looked.is_ok_and(|looked| belief(&looked) != Belief::Unknown))
        };
        until(&format!("bucket {bucket} on {server:?} is believed"), LIMIT, believed).await?;
    }
    // Longer than any of the start: the fence does not cover that.
    let mut events = store.events();
    found[0].0.set("min-replicas-max-lag", "3").await?;
    let unfit = async {
        while events.recv().await? != StoreEvent::Unfit {}
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, unfit).await?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instances_with_and_without_a_fence_leave_each_other_what_stands() -> Result<()> {
    let group = Group::start(Options::new(Kind::Redis).min_replicas(1, 1), 1).await?;
    let fenced = stage::open(single(group.primary())).await?;
    stage::believed(&fenced, 100).await?;
    let fence = Some(Duration::from_secs(4));
    let settings = RedisSettings { fence, ..single(group.primary()) };
    let mut events = fenced.events();
    let unfenced = stage::open(stage::with(Redundancy::Async, settings)).await?;
    // What one wrote vouches for the store to the other, without a loss.
    let said = unfenced.lookup(subject(1)).await?;
    assert_eq!(belief(&said), stage::barrier(100));
    let since = stage::now();
    until("both have asked for a while", LIMIT, || async {
        for store in [&fenced, &unfenced] {
            store.sampled(stage::KEY, stage::sample(200));
            store.lookup(subject(1)).await?;
        }
        Ok(stage::now().since(since) > Duration::from_secs(6))
    })
    .await?;
    let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert!(!told.iter().any(|event| matches!(event, StoreEvent::Lost(_))), "{told:?}");
    assert_eq!(stage::believed(&unfenced, 200).await?, stage::barrier(100));
    assert_eq!(stage::believed(&fenced, 200).await?, stage::barrier(100));
    Ok(())
}
