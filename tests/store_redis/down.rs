//! A store that stops, hangs or refuses: lookups end at once, and what is recorded is not lost.

use std::time::Duration;

use anyhow::Result;
use tidegate::ports::{StoreError, Stored, TokenStore};
use tidegate::store::{RedisSettings, RedisStore, StoreCount, StoreEvent};
use tidegate_core::store_guard::{Belief, LossCause};
use tidegate_lab::redis::{Group, Kind, Options, Server};
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};
use tokio::sync::broadcast::Receiver;

use crate::stage::{self, belief, position, record_key, saw, single, subject};

const SUBJECTS: u64 = 200;
/// As an operator sets it.
const TIMEOUT: Duration = Duration::from_millis(100);

fn brisk(server: &Server) -> RedisSettings {
    RedisSettings { timeout: TIMEOUT, ..single(server) }
}

async fn told(events: &mut Receiver<StoreEvent>, wanted: StoreEvent) -> Result<()> {
    let told = async {
        while events.recv().await? != wanted {}
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, told).await?
}

async fn all_written(store: &RedisStore) -> Result<()> {
    let written = || async { Ok(store.counters().get(StoreCount::Pending) == 0) };
    until("what waits is written", LIMIT, written).await.map(drop)
}

/// Records while the store is down; nobody waits for it.
async fn record_meanwhile(store: &RedisStore) -> Result<()> {
    for number in 0..SUBJECTS {
        let kept = store.update(subject(number), &saw(number + 500)).await?;
        assert_eq!(kept.stored, Stored::Memory);
        assert_eq!(kept.worth.belief(stage::KEY, stage::now(), &stage::on()), Belief::Unknown);
    }
    assert_eq!(store.counters().get(StoreCount::Pending), SUBJECTS);
    Ok(())
}

async fn is_all_there(server: &Server, store: &RedisStore) -> Result<()> {
    for number in 0..SUBJECTS {
        let there: i64 = server.ask(&["EXISTS", &record_key(subject(number))]).await?;
        assert_eq!(there, 1, "subject {number}");
        let looked = store.lookup(subject(number)).await?;
        assert_eq!(position(&looked), Some(number + 500), "subject {number}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_frozen_store_fails_lookups_at_once_and_gets_what_was_recorded_when_it_goes_on()
-> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(brisk(&server)).await?;
    stage::believed(&store, 100).await?;
    let mut events = store.events();
    let stall = Stall::watch()?;
    server.freeze().await?;
    let started_at = stage::now();
    let looked = store.lookup(subject(1)).await;
    assert!(matches!(looked, Err(StoreError::Unreachable(_))), "{looked:?}");
    let first = stage::now().since(started_at);
    assert!(first <= stall.allow(TIMEOUT * 2), "the first lookup took {first:?}");
    told(&mut events, StoreEvent::Unreachable).await?;

    let started_at = stage::now();
    for number in 0..SUBJECTS {
        assert!(store.lookup(subject(number)).await.is_err());
    }
    let next = stage::now().since(started_at);
    assert!(next <= stall.allow(TIMEOUT), "{SUBJECTS} lookups of a dead store took {next:?}");
    record_meanwhile(&store).await?;
    stage::say(&format!("redis: frozen: first lookup failed in {first:?}, {SUBJECTS} in {next:?}"));

    server.thaw().await?;
    told(&mut events, StoreEvent::Reachable).await?;
    all_written(&store).await?;
    is_all_there(&server, &store).await?;
    assert_ne!(stage::believed(&store, 100).await?, Belief::Unknown);
    assert!(store.counters().get(StoreCount::UnreachableMillis) > 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_was_killed_and_comes_back_empty_is_a_loss_and_gets_what_was_recorded()
-> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(brisk(&server)).await?;
    store.update(subject(SUBJECTS), &saw(7)).await?;
    stage::believed(&store, 100).await?;
    let mut events = store.events();
    server.kill().await?;
    until("the store is down", LIMIT, || async { Ok(store.lookup(subject(1)).await.is_err()) })
        .await?;
    record_meanwhile(&store).await?;
    server.start_again().await?;
    told(&mut events, StoreEvent::Lost(LossCause::NoGeneration)).await?;
    all_written(&store).await?;
    is_all_there(&server, &store).await?;
    // What it held before is gone; whoever names that subject demands where the leader stands now.
    let demanded = stage::believed(&store, 900).await?;
    assert_eq!(demanded, stage::barrier(900));
    let looked = store.lookup(subject(SUBJECTS)).await?;
    assert_eq!((position(&looked), belief(&looked)), (None, demanded));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_primary_without_its_replica_refuses_and_gets_what_was_recorded_when_it_is_back()
-> Result<()> {
    let group = Group::start(Options::new(Kind::Redis).min_replicas(1, 1), 1).await?;
    let store = stage::open(single(group.primary())).await?;
    stage::believed(&store, 100).await?;
    let mut events = store.events();
    group.cut(0).await?;
    // A replica may be late for a moment before: from here on the primary itself refuses.
    let nothing = ["DEL", "nothing"];
    let refuses = || async { Ok(group.primary().tell(&nothing).await.is_err()) };
    until("the primary refuses", LIMIT, refuses).await?;
    told(&mut events, StoreEvent::Refuses).await?;
    record_meanwhile(&store).await?;
    let unknown = || async {
        let looked = store.lookup(subject(1)).await?;
        assert_eq!(position(&looked), Some(501), "what waits is in the answer");
        Ok(belief(&looked) == Belief::Unknown)
    };
    until("a primary that takes no writes is not believed", LIMIT, unknown).await?;
    group.mend(0).await?;
    told(&mut events, StoreEvent::Takes).await?;
    all_written(&store).await?;
    is_all_there(group.primary(), &store).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_may_wait_is_refused_and_what_waits_stays() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let settings = RedisSettings { pending_records: 2, ..brisk(&server) };
    let store = stage::open(settings).await?;
    stage::believed(&store, 100).await?;
    server.freeze().await?;
    for number in [1, 2] {
        assert_eq!(store.update(subject(number), &saw(5)).await?.stored, Stored::Memory);
    }
    let refused = store.update(subject(3), &saw(5)).await;
    assert!(
        matches!(&refused, Err(StoreError::Unreachable(why)) if why.contains("pending_records"))
    );
    assert_eq!(store.update(subject(1), &saw(9)).await?.stored, Stored::Memory);
    server.thaw().await?;
    all_written(&store).await?;
    assert_eq!(position(&store.lookup(subject(1)).await?), Some(9));
    assert_eq!(position(&store.lookup(subject(3)).await?), None);
    Ok(())
}
