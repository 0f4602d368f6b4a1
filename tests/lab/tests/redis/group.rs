//! A primary and its replicas: promotions, splits, slow and silent lines, one address of two.
//!
//! What a deposed primary still does is measured in full by the spike; here it is only seen.

use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_lab::flip::Flip;
use tidegate_lab::redis::{Group, Kind, Options};
use tidegate_lab::wait::{LIMIT, until};

use super::{get, on_both, refusal, set};

on_both! {
    a_split_has_two_primaries => split_redis_has_two_primaries, split_valkey_has_two_primaries;
    an_undone_promotion_keeps_the_id => undone_redis_promotion_keeps_the_id,
        undone_valkey_promotion_keeps_the_id;
    a_failover_loses_what_the_replica_lacks => redis_failover_loses_writes,
        valkey_failover_loses_writes;
    a_deposed_primary_refuses_writes_and_reads_for_ever => deposed_redis_refuses_writes_alone,
        deposed_valkey_refuses_writes_alone;
    a_slow_replica_is_late => slow_redis_replica_is_late, slow_valkey_replica_is_late;
    one_address_leads_to_both => one_address_of_two_redis, one_address_of_two_valkeys;
}

async fn a_split_has_two_primaries(kind: Kind) -> Result<()> {
    let group = Group::start(Options::new(kind), 1).await?;
    let (old, new) = (group.primary(), group.replica(0));
    set(old, "k", "both").await?;
    group.await_caught_up().await?;
    let id = old.replid().await?;
    assert_eq!(new.replid().await?, id, "a replica shares the history");
    group.split(0).await?;
    assert!(old.info().await?.is_primary() && new.info().await?.is_primary());
    assert_eq!(old.replid().await?, id);
    let promoted = new.replid().await?;
    assert_ne!(promoted, id);
    set(old, "k", "old").await?;
    set(new, "k", "new").await?;
    assert_eq!(get(old, "k").await?.as_deref(), Some("old"));
    group.heal(0).await?;
    assert_eq!(get(old, "k").await?.as_deref(), Some("new"), "the write of the old one is lost");
    assert_eq!(old.replid().await?, promoted);
    assert_eq!(refusal(old, &["SET", "k", "v"]).await?, "READONLY");
    // It starts again in the role it had.
    old.kill().await?;
    old.start_again().await?;
    old.await_attached().await
}

async fn an_undone_promotion_keeps_the_id(kind: Kind) -> Result<()> {
    let group = Group::start(Options::new(kind).min_replicas(1, 1), 1).await?;
    let (old, new) = (group.primary(), group.replica(0));
    let id = old.replid().await?;
    group.split(0).await?;
    new.set("min-replicas-to-write", "0").await?;
    set(new, "k", "stored").await?;
    // All that whoever stayed with the old primary can see.
    let refused = until("the old primary refuses writes", LIMIT, || async {
        Ok(set(old, "other", "v").await.is_err())
    });
    refused.await?;
    group.undo(0).await?;
    assert_eq!((get(old, "k").await?, get(new, "k").await?), (None, None), "what B stored is lost");
    assert_eq!(old.replid().await?, id, "and the old primary has the id it had");
    set(old, "k", "v").await
}

async fn a_failover_loses_what_the_replica_lacks(kind: Kind) -> Result<()> {
    let group = Group::start(Options::new(kind).min_replicas(1, 10), 1).await?;
    set(group.primary(), "k", "first").await?;
    group.await_caught_up().await?;
    group.cut(0).await?;
    set(group.primary(), "k", "second").await?;
    group.fail_over(0).await?;
    assert_eq!(get(group.replica(0), "k").await?.as_deref(), Some("first"));
    assert!(group.primary().pid().is_none());
    Ok(())
}

async fn a_deposed_primary_refuses_writes_and_reads_for_ever(kind: Kind) -> Result<()> {
    let group = Group::start(Options::new(kind).min_replicas(1, 3), 1).await?;
    let (old, new) = (group.primary(), group.replica(0));
    set(old, "k", "before").await?;
    group.await_caught_up().await?;
    group.cut(0).await?;
    set(old, "k", "lost").await?;
    new.promote().await?;
    let refused = until("the old primary refuses writes", LIMIT, || async {
        Ok(set(old, "k", "refused").await.is_err())
    });
    refused.await?;
    assert_eq!(refusal(old, &["SET", "k", "v"]).await?, "NOREPLICAS");
    assert_eq!(refusal(old, &["DEL", "nothing"]).await?, "NOREPLICAS");
    let read = get(old, "k").await?;
    assert!(read.is_some_and(|read| read != "before"), "it serves what nobody else has");
    assert_eq!(get(new, "k").await?.as_deref(), Some("before"));
    Ok(())
}

async fn a_slow_replica_is_late(kind: Kind) -> Result<()> {
    let group = Group::start(Options::new(kind), 1).await?;
    group.slow(0, Duration::from_millis(300)).await?;
    let written_at = Instant::now();
    set(group.primary(), "k", "v").await?;
    let late = until("the replica has the write", LIMIT, || async {
        Ok(get(group.replica(0), "k").await?.is_some())
    });
    late.await?;
    assert!(written_at.elapsed() >= Duration::from_millis(300));
    group.mend(0).await?;
    group.await_caught_up().await
}

async fn one_address_leads_to_both(kind: Kind) -> Result<()> {
    let group = Group::start(Options::new(kind), 1).await?;
    let (old, new) = (group.primary(), group.replica(0));
    let flip = Flip::to(old.address()).await?;
    let url = old.url_at(flip.address());
    let mut stays = old.connect_to(&url).await?;
    group.split(0).await?;
    set(old, "who", "old").await?;
    set(new, "who", "new").await?;
    flip.move_newcomers_to(new.address());
    let mut comes = new.connect_to(&url).await?;
    let who = redis::cmd("GET").arg("who").to_owned();
    assert_eq!(who.query_async::<String>(&mut comes).await?, "new");
    assert_eq!(who.query_async::<String>(&mut stays).await?, "old", "nobody moved it");
    flip.move_to(new.address());
    assert!(who.query_async::<String>(&mut stays).await.is_err(), "now it is cut off");
    let mut again = new.connect_to(&url).await?;
    assert_eq!(who.query_async::<String>(&mut again).await?, "new");
    Ok(())
}
