//! A slot of a Redis Cluster on the move: what has not arrived is not absent.

use anyhow::{Context, Result};
use tidegate::ports::TokenStore;
use tidegate_lab::redis::{Cluster, Kind, Options};
use tidegate_lab::wait::{LIMIT, until};

use crate::stage::{self, position, saw};
use tidegate::config::Redundancy;
use tidegate::ports::SubjectKey;

const SUBJECTS: u8 = 20;

/// Subjects of one bucket, the tenth: the first two bytes decide.
fn subject(number: u8) -> SubjectKey {
    let mut bytes = [number; 16];
    [bytes[0], bytes[1]] = [0, 10];
    SubjectKey::new(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_record_in_a_slot_on_the_move_is_found_or_not_answered_and_never_absent() -> Result<()> {
    let cluster = Cluster::start(Options::new(Kind::Redis)).await?;
    let settings = stage::with(Redundancy::Async, stage::cluster(&cluster));
    let settings = tidegate::store::RedisSettings {
        fence: Some(std::time::Duration::ZERO),
        timeout: std::time::Duration::from_millis(300),
        ..settings
    };
    let store = stage::open(settings).await?;
    for number in 0..SUBJECTS {
        store.update(subject(number), &saw(u64::from(number) + 1)).await?;
    }
    let slot = cluster.slot("tidegate:{10}:any").await?;
    let from = cluster.owner(slot).await?;
    let others = cluster.nodes().iter().take(3);
    let to = others.clone().find(|node| node.address() != from.address());
    let migration = cluster.migrate(slot, to.context("another primary")?).await?;
    let keys: Vec<String> =
        migration.from().ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]).await?;
    let (mut found, mut unanswered) = (0, 0);
    for key in &keys {
        migration.carry(key).await?;
        for number in 0..SUBJECTS {
            match store.lookup(subject(number)).await {
                Ok(looked) => {
                    let expected = Some(u64::from(number) + 1);
                    assert_eq!(position(&looked), expected, "{number} after {key} was moved");
                    found += 1;
                }
                Err(_) => unanswered += 1,
            }
        }
    }
    migration.finish().await?;
    let answers = || async { Ok(store.lookup(subject(0)).await.is_ok()) };
    until("the bucket is answered for", LIMIT, answers).await?;
    for number in 0..SUBJECTS {
        let looked = store.lookup(subject(number)).await?;
        assert_eq!(position(&looked), Some(u64::from(number) + 1), "after the move");
        store.update(subject(number), &saw(u64::from(number) + 100)).await?;
    }
    stage::say(&format!(
        "cluster: {} keys moved one by one: {found} lookups answered, {unanswered} not",
        keys.len()
    ));
    assert!(found > 0 && unanswered > 0, "both happen while a slot is on the move");
    Ok(())
}
