//! A real Patroni starts, switches over as ordered, and leaves nothing behind.

use anyhow::{Context, Result};
use tidegate_lab::patroni::Patroni;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patroni_switches_over_and_leaves_nothing_behind() -> Result<()> {
    let patroni = Patroni::start().await?;
    let old = patroni.leader().await?;
    let new = patroni.nodes().iter().find(|node| node.name() != old.name());
    let new = new.context("another node")?;
    patroni.switchover(old, new).await?;
    assert_eq!(patroni.leader().await?.name(), new.name(), "as ordered");
    patroni.await_settled().await?;
    let row = new.connect().await?.query_one("select pg_is_in_recovery()", &[]).await?;
    assert!(!row.try_get::<_, bool>(0)?, "the new leader writes");
    let servers = patroni.nodes().iter().map(|node| node.postmaster().context("it runs"));
    let servers = servers.collect::<Result<Vec<u32>>>()?;
    drop(patroni);
    for pid in servers {
        let path = format!("/proc/{pid}/cmdline");
        let program = std::fs::read_to_string(path).unwrap_or_default();
        assert!(!program.contains("postgres"), "{pid} still runs {program}");
    }
    Ok(())
}
