//! Records that are too large, or no records at all.

use anyhow::Result;
use tidegate::ports::TokenStore;
use tidegate::store::{StoreCount, StoreEvent};
use tidegate_core::position::Lsn;
use tidegate_core::store_guard::Belief;
use tidegate_core::token::{Change, Component, ComponentKey, Mark, PartitionId, SessionToken};
use tidegate_lab::redis::{Kind, Options, Server};

use crate::stage::{self, EPOCH, KEY, record_key, saw, single, subject};

/// More than a record may name.
const PARTITIONS: u32 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_too_many_partitions_stays_bounded_and_never_weaker() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(single(&server)).await?;
    let mut held = SessionToken::new();
    for partition in 0..PARTITIONS {
        let key = ComponentKey { partition: PartitionId::new(partition), system_tag: 7 };
        let mark = Mark::saw(Lsn::new(u64::MAX - u64::from(partition)).into());
        let raise = SessionToken::of(key, Component::of(EPOCH, mark));
        let kept = store.update(subject(1), &Change::joining(raise.clone())).await?.record;
        for (key, component) in held.components().chain(raise.components()) {
            let demanded = kept.component(key) == Some(component) || kept.overflow;
            assert!(demanded, "partition {partition}: neither kept nor unknown");
        }
        held = kept;
    }
    assert!(held.overflow);
    let bytes: Vec<u8> = server.ask(&["GET", &record_key(subject(1))]).await?;
    stage::say(&format!("redis: the largest record of one epoch has {} bytes", bytes.len()));
    assert!(bytes.len() <= 8 * 1024, "{} bytes", bytes.len());
    assert_eq!(store.lookup(subject(1)).await?.record, Some(held));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_none_is_announced_unknown_and_replaced_by_the_next_raise() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(single(&server)).await?;
    stage::believed(&store, 100).await?;
    let mut events = store.events();
    for (number, garbage) in (1..).zip(["", "no record", "\u{1}\u{2}\u{3}"]) {
        let subject = subject(number);
        server.tell(&["SET", &record_key(subject), garbage]).await?;
        let looked = store.lookup(subject).await?;
        let unknown = looked.record.expect("bytes that are none are not nothing");
        assert!(unknown.overflow, "{garbage:?}: it may depend on anything");
        assert_eq!(events.recv().await?, StoreEvent::RecordMalformed);
        let kept = store.update(subject, &saw(5)).await?.record;
        assert!(kept.overflow, "{garbage:?}: what was there is still unknown");
        let looked = store.lookup(subject).await?;
        assert_eq!(looked.record, Some(kept), "{garbage:?}: it was replaced");
        assert_ne!(stage::belief(&looked), Belief::Unknown);
        while events.try_recv().is_ok() {}
    }
    assert!(store.counters().get(StoreCount::Malformed) >= 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_lasts_its_lifetime_from_its_last_write_and_goes_with_its_last_mark() -> Result<()>
{
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let settings = single(&server);
    let lifetime = i64::try_from(settings.lifetime.as_millis())?;
    let store = stage::open(settings).await?;
    store.update(subject(1), &saw(5)).await?;
    let left: i64 = server.ask(&["PTTL", &record_key(subject(1))]).await?;
    assert!((lifetime - 60_000..=lifetime).contains(&left), "{left} ms of {lifetime} ms");
    stage::believed(&store, 100).await?;
    let generation = format!("tidegate:{{0}}:{}:g", stage::CLUSTER);
    let left: i64 = server.ask(&["PTTL", &generation]).await?;
    assert_eq!(left, -1, "the generation lasts");

    let mark = saw(5).join.component(KEY).and_then(|component| component.mark(EPOCH));
    let drop = vec![(KEY, EPOCH, mark.expect("it was recorded"))];
    store.update(subject(1), &Change { drop, ..Change::default() }).await?;
    let left: i64 = server.ask(&["EXISTS", &record_key(subject(1))]).await?;
    assert_eq!(left, 0, "an empty record takes no room");
    Ok(())
}
