//! Sentinels and Cluster: who is promoted, who answers for a slot, and with what words.
//!
//! The addresses in MOVED and ASK are compared, not only the words.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{AsyncCommands, ConnectionAddr, RedisError};
use tidegate_lab::redis::{Cluster, Kind, Options, Sentinels};

use super::{get, on_both, refusal, set};

on_both! {
    sentinels_promote_another => redis_sentinels_promote_another,
        valkey_sentinels_promote_another;
    a_cluster_survives_a_killed_primary => redis_cluster_survives_a_kill,
        valkey_cluster_survives_a_kill;
    a_cluster_sends_askers_on => redis_cluster_sends_askers_on, valkey_cluster_sends_askers_on;
}

async fn sentinels_promote_another(kind: Kind) -> Result<()> {
    let all = Sentinels::start(Options::new(kind).password("open")).await?;
    let old = all.primary().await?;
    set(old, "k", "v").await?;
    for server in all.servers().iter().filter(|server| server.address() != old.address()) {
        server.await_caught_up(old).await?;
    }
    let id = old.replid().await?;
    old.kill().await?;
    let took = all.await_failover(old).await?;
    let new = all.primary().await?;
    assert_ne!(new.address(), old.address());
    assert_ne!(new.replid().await?, id);
    assert_eq!(get(new, "k").await?.as_deref(), Some("v"), "promoted after {took:?}");
    let at = |address: SocketAddr| ConnectionAddr::Tcp(address.ip().to_string(), address.port());
    let sentinels = all.addresses().into_iter().map(at);
    let builder = SentinelClientBuilder::new(sentinels, all.name(), SentinelServerType::Master)?;
    let mut client = builder.set_client_to_redis_password("open").build()?;
    let mut connection = client.get_async_connection().await?;
    assert_eq!(connection.get::<_, String>("k").await?, "v", "a client finds the new primary");
    old.start_again().await?;
    // It comes back as a primary; the Sentinels put it under the new one, or promote it again
    // when the new one stalls meanwhile, as it does here.
    new.freeze().await?;
    all.await_failover(new).await?;
    new.thaw().await?;
    all.await_following().await
}

async fn a_cluster_survives_a_killed_primary(kind: Kind) -> Result<()> {
    let cluster = Cluster::start(Options::new(kind)).await?;
    let client = ClusterClient::new(cluster.urls())?;
    let mut connection = client.get_async_connection().await?;
    for number in 0..30 {
        connection.set::<_, _, ()>(format!("k{number}"), number).await?;
    }
    let primary = &cluster.nodes()[1];
    let replica = cluster.replica(primary).await?;
    replica.await_caught_up(primary).await?;
    let id = primary.replid().await?;
    primary.kill().await?;
    let took = cluster.await_failover(replica).await?;
    assert_ne!(replica.replid().await?, id, "promoted after {took:?}");
    for number in 0..30 {
        let value: i64 = connection.get(format!("k{number}")).await?;
        assert_eq!(value, number, "the cluster lost k{number}");
    }
    primary.start_again().await?;
    cluster.await_settled(3).await?;
    assert!(primary.info().await?.is_attached(), "the old primary follows");
    cluster.switch_over(primary).await?;
    assert!(primary.info().await?.is_primary() && replica.info().await?.is_attached());
    Ok(())
}

/// The whole text of a refusal on one connection.
async fn words(connection: &mut MultiplexedConnection, asked: &[&str]) -> Result<String> {
    let error = redis::Cmd::new().arg(asked).query_async::<redis::Value>(connection).await.err();
    let error = error.context("it is refused")?;
    Ok(format!("{} {}", error.code().unwrap_or_default(), detail(&error)))
}

fn detail(error: &RedisError) -> &str {
    error.detail().unwrap_or_default()
}

async fn a_cluster_sends_askers_on(kind: Kind) -> Result<()> {
    let cluster = Cluster::start(Options::new(kind)).await?;
    let (here, gone) = ("{tag}here", "{tag}gone");
    let slot = cluster.slot(here).await?;
    let owner = cluster.owner(slot).await?;
    let target = cluster.nodes()[..3].iter().find(|node| node.address() != owner.address());
    let target = target.context("another primary")?;
    for key in [here, gone] {
        set(owner, key, "v").await?;
    }
    let moved = format!("MOVED {slot} {}", owner.address());
    let ask = format!("ASK {slot} {}", target.address());
    for elsewhere in [target, cluster.replica(owner).await?] {
        let mut connection = elsewhere.connect().await?;
        assert_eq!(words(&mut connection, &["GET", here]).await?, moved, "{}", elsewhere.name());
    }
    let migration = cluster.migrate(slot, target).await?;
    migration.carry(gone).await?;
    let mut source = migration.from().connect().await?;
    assert_eq!(words(&mut source, &["GET", gone]).await?, ask);
    assert_eq!(get(owner, here).await?.as_deref(), Some("v"), "what has not left is served");
    assert_eq!(refusal(owner, &["MGET", here, gone]).await?, "TRYAGAIN");
    let mut asking = migration.to().connect().await?;
    assert_eq!(words(&mut asking, &["GET", gone]).await?, moved, "nobody asked");
    redis::cmd("ASKING").query_async::<()>(&mut asking).await?;
    assert_eq!(asking.get::<_, String>(gone).await?, "v");
    let client = ClusterClient::new(cluster.urls())?;
    let mut connection = client.get_async_connection().await?;
    assert_eq!(connection.get::<_, String>(gone).await?, "v", "a client follows ASK");
    assert_eq!(connection.get::<_, Option<String>>("{tag}none").await?, None);
    migration.finish().await?;
    let moved = format!("MOVED {slot} {}", target.address());
    assert_eq!(words(&mut source, &["GET", here]).await?, moved);
    assert_eq!(get(target, here).await?.as_deref(), Some("v"));
    Ok(())
}
