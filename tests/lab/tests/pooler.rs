//! The lab's pgbouncer: its modes, moving it to another server, and its end.

use anyhow::Result;
use tidegate_lab::install::Major;
use tidegate_lab::pgbouncer::{Pgbouncer, PgbouncerOptions, PoolMode};
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tokio_postgres::{Client, SimpleQueryMessage};

async fn answer(client: &Client, query: &str) -> Result<String> {
    let messages = client.simple_query(query).await?;
    let text = messages.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0).map(str::to_owned)
    });
    Ok(text.unwrap_or_default())
}

#[tokio::test]
async fn each_mode_keeps_a_server_connection_as_long_as_it_says() -> Result<()> {
    const PID: &str = "select pg_backend_pid()";
    let cluster = Cluster::start(ClusterOptions::new(Major::V15)).await?;
    let start = |mode| {
        let options = PgbouncerOptions::new().mode(mode).server_connections(2);
        Pgbouncer::start(options, cluster.leader())
    };
    let by_session = start(PoolMode::Session).await?;
    let (one, other) =
        (by_session.connect("postgres").await?, by_session.connect("postgres").await?);
    assert_ne!(answer(&one, PID).await?, answer(&other, PID).await?);

    let by_transaction = start(PoolMode::Transaction).await?;
    let one = by_transaction.connect("postgres").await?;
    let other = by_transaction.connect("postgres").await?;
    other.batch_execute("begin").await?;
    let taken = answer(&other, PID).await?;
    one.batch_execute("begin").await?;
    assert_ne!(answer(&one, PID).await?, taken);
    one.batch_execute("commit").await?;
    other.batch_execute("commit").await?;

    let by_statement = start(PoolMode::Statement).await?;
    let one = by_statement.connect("postgres").await?;
    assert!(!answer(&one, PID).await?.is_empty());
    assert!(one.batch_execute("begin").await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_client_connection_moves_to_another_server_without_an_error() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::new(Major::V18).standbys(1)).await?;
    let pooler = Pgbouncer::start(PgbouncerOptions::new(), cluster.leader()).await?;
    let client = pooler.connect("postgres").await?;
    assert_eq!(answer(&client, "select pg_is_in_recovery()").await?, "f");
    pooler.point_to(cluster.standby(0)).await?;
    assert_eq!(answer(&client, "select pg_is_in_recovery()").await?, "t");
    Ok(())
}

#[tokio::test]
async fn a_dropped_pooler_is_gone_and_its_cluster_is_not() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::new(Major::V15)).await?;
    let pooler = Pgbouncer::start(PgbouncerOptions::new(), cluster.leader()).await?;
    let process = std::path::PathBuf::from(format!("/proc/{}", pooler.pid()));
    assert!(process.exists());
    drop(pooler);
    assert!(!process.exists());
    let entries = std::fs::read_dir(cluster.folder())?.flatten();
    assert!(!entries.map(|e| e.file_name()).any(|name| name.display().to_string().contains("pgb")));
    assert!(!cluster.leader().is_in_recovery().await?);
    Ok(())
}
