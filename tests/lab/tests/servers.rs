//! The lab's own servers: each recipe is seen to do what scenario tests rely on.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Lsn, Server, Stop};
use tidegate_lab::wait::{LIMIT, until};

const HOUR: Duration = Duration::from_secs(3600);

/// Runs a check on both versions that every scenario runs on, side by side.
async fn on_both<F>(check: impl Fn(Major) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let [old, new] = Major::TESTED;
    futures::future::try_join(check(old), check(new)).await.map(drop)
}

async fn with_table(major: Major, standbys: usize) -> Result<Cluster> {
    let cluster = Cluster::start(ClusterOptions::new(major).standbys(standbys)).await?;
    cluster.leader().sql("create table t (id int primary key)").await?;
    cluster.catch_up().await?;
    Ok(cluster)
}

async fn insert(server: &Server, id: i32) -> Result<Lsn> {
    server.sql(&format!("insert into t values ({id})")).await?;
    server.insert_lsn().await
}

async fn has(server: &Server, id: i32) -> Result<bool> {
    server.value(&format!("select exists (select from t where id = {id})")).await
}

#[tokio::test]
async fn a_leader_and_two_standbys_share_a_row() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 2).await?;
        let version: i32 =
            cluster.leader().value("select current_setting('server_version_num')::int").await?;
        assert_eq!(version / 10_000, i32::try_from(major.number())?);
        let lsn = insert(cluster.leader(), 1).await?;
        for standby in cluster.standbys() {
            standby.wait_until_replayed(lsn).await?;
            assert!(has(standby, 1).await? && standby.is_in_recovery().await?);
        }
        assert!(cluster.lacking(lsn).await?.is_empty());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_clusters_at_once_have_different_system_identifiers() -> Result<()> {
    const ID: &str = "select system_identifier from pg_control_system()";
    let options = ClusterOptions::new(Major::V15);
    let one = Cluster::start(options.clone()).await?;
    let other = Cluster::start(options).await?;
    assert_ne!(one.leader().value::<i64>(ID).await?, other.leader().value::<i64>(ID).await?);
    Ok(())
}

#[tokio::test]
async fn a_cascade_streams_from_standby_to_standby() -> Result<()> {
    let options = ClusterOptions::new(Major::V15).standbys(2).cascade();
    let cluster = Cluster::start(options).await?;
    for (server, follower) in [(cluster.leader(), "r1"), (cluster.standby(0), "r2")] {
        let name: String = server.value("select application_name from pg_stat_replication").await?;
        assert_eq!(name, follower);
    }
    Ok(())
}

#[tokio::test]
async fn a_paused_standby_lacks_the_row_until_it_is_resumed() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 2).await?;
        let [held, live] = [cluster.standby(0), cluster.standby(1)];
        held.pause_replay().await?;
        let lsn = insert(cluster.leader(), 1).await?;
        live.wait_until_replayed(lsn).await?;
        assert!(has(live, 1).await? && !has(held, 1).await?);
        let lacking = cluster.lacking(lsn).await?;
        assert_eq!(lacking.iter().map(|server| server.name()).collect::<Vec<_>>(), ["r1"]);
        held.resume_replay().await?;
        held.wait_until_replayed(lsn).await?;
        assert!(has(held, 1).await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_apply_delay_holds_position_and_row_back_together() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 1).await?;
        let standby = cluster.standby(0);
        standby.apply_delay(Duration::from_millis(400)).await?;
        let committed_at = Instant::now();
        let lsn = insert(cluster.leader(), 1).await?;
        assert!(standby.replay_lsn().await? < lsn && !has(standby, 1).await?);
        standby.wait_until_replayed(lsn).await?;
        assert!(committed_at.elapsed() >= Duration::from_millis(390));
        assert!(has(standby, 1).await?);
        standby.apply_delay(Duration::ZERO).await?;
        let lsn = insert(cluster.leader(), 2).await?;
        assert!(standby.wait_until_replayed(lsn).await? < Duration::from_millis(390));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_promoted_standby_that_was_cut_off_has_lost_the_write() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 2).await?;
        let [leader, next, other] = [cluster.leader(), cluster.standby(0), cluster.standby(1)];
        let survives = insert(leader, 1).await?;
        cluster.catch_up().await?;
        next.cut_reception().await?;
        let lost = insert(leader, 2).await?;
        other.wait_until_replayed(lost).await?;
        leader.stop(Stop::Immediate).await?;
        assert!(!leader.is_running());
        let fork = next.promote().await?;
        assert!(survives <= fork && fork < lost, "{survives} <= {fork} < {lost}");
        assert_eq!(next.timeline().await?, 2);
        assert!(has(next, 1).await? && !has(next, 2).await?);
        // The old leader comes back unchanged, then as a rewound standby.
        leader.start().await?;
        assert!(!leader.is_in_recovery().await? && leader.timeline().await? == 1);
        leader.rewind_from(next).await?;
        leader.catch_up_with(next).await?;
        assert!(leader.is_in_recovery().await? && !has(leader, 2).await?);
        // The standby that holds the lost row is cloned anew.
        other.clone_from(next).await?;
        assert!(has(other, 1).await? && !has(other, 2).await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_crashed_standby_comes_back_behind_every_time() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 1).await?;
        let [leader, standby] = [cluster.leader(), cluster.standby(0)];
        for id in 1..=5 {
            insert(leader, id).await?;
            standby.catch_up_with(leader).await?;
            standby.anchor(leader).await?;
            let lsn = insert(leader, -id).await?;
            standby.wait_until_replayed(lsn).await?;
            assert!(has(standby, -id).await?);
            let behind = standby.crash_behind(HOUR).await?;
            assert!(behind.reported >= lsn && behind.opened_at < lsn, "{behind:?}");
            assert!(has(standby, id).await? && !has(standby, -id).await?);
            standby.apply_delay(Duration::ZERO).await?;
            standby.wait_until_replayed(lsn).await?;
            assert!(has(standby, -id).await?);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_killed_backend_crashes_the_server_but_keeps_its_start_time() -> Result<()> {
    const START: &str = "select pg_postmaster_start_time()::text";
    on_both(|major| async move {
        let cluster = with_table(major, 1).await?;
        for server in cluster.servers() {
            let before: String = server.value(START).await?;
            server.kill_backend().await?;
            assert_eq!(server.value::<String>(START).await?, before);
        }
        let lsn = insert(cluster.leader(), 1).await?;
        cluster.standby(0).wait_until_replayed(lsn).await?;
        cluster.leader().reset_statistics().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_killed_server_starts_again() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 1).await?;
        let lsn = insert(cluster.leader(), 1).await?;
        for how in [Stop::Kill, Stop::Fast, Stop::Immediate] {
            for server in cluster.servers() {
                server.restart(how).await?;
            }
        }
        cluster.standby(0).wait_until_replayed(lsn).await?;
        assert!(has(cluster.leader(), 1).await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn cut_reception_lets_nothing_in_until_it_is_restored() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 1).await?;
        let standby = cluster.standby(0);
        standby.cut_reception().await?;
        let lsn = insert(cluster.leader(), 1).await?;
        assert!(standby.replay_lsn().await? < lsn);
        standby.restart(Stop::Fast).await?;
        assert!(!has(standby, 1).await?, "a cut outlives a restart");
        standby.restore_reception().await?;
        standby.wait_until_replayed(lsn).await?;
        assert!(has(standby, 1).await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_old_copy_brings_a_standby_back_to_where_it_was() -> Result<()> {
    on_both(|major| async move {
        let cluster = with_table(major, 1).await?;
        let standby = cluster.standby(0);
        let copy = standby.copy_data_dir().await?;
        standby.await_streaming().await?;
        let lsn = insert(cluster.leader(), 1).await?;
        standby.wait_until_replayed(lsn).await?;
        standby.cut_reception().await?;
        standby.restore_data_dir(&copy).await?;
        standby.start().await?;
        let replayed = standby.replay_lsn().await?;
        assert!(replayed < lsn && Some(replayed) >= copy.replayed, "{replayed} < {lsn}");
        standby.restore_reception().await?;
        standby.wait_until_replayed(lsn).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_clone_joins_while_the_leader_writes() -> Result<()> {
    on_both(|major| async move {
        let mut cluster = with_table(major, 1).await?;
        let leader = cluster.leader().clone();
        let lsn = insert(&leader, 1).await?;
        let third = cluster.add_standby("r2", &leader).await?;
        third.wait_until_replayed(lsn).await?;
        assert!(has(&third, 1).await?);
        third.repoint(cluster.standby(0)).await?;
        let lsn = insert(&leader, 2).await?;
        third.wait_until_replayed(lsn).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_async_commit_is_lost_in_a_crash_on_the_same_timeline() -> Result<()> {
    on_both(|major| async move {
        let options = ClusterOptions::new(major).async_commits();
        let cluster = Cluster::start(options).await?;
        let leader = cluster.leader();
        leader.sql("create table t (id int primary key)").await?;
        leader.sql("checkpoint").await?;
        insert(leader, 1).await?;
        leader.restart(Stop::Immediate).await?;
        assert!(!has(leader, 1).await? && leader.timeline().await? == 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn commits_wait_for_a_standby_once_that_is_set() -> Result<()> {
    const CHECKPOINTER: &str =
        "select pid from pg_stat_activity where backend_type = 'checkpointer'";
    let cluster = with_table(Major::V15, 0).await?;
    let leader = cluster.leader();
    let pid: i32 = leader.value(CHECKPOINTER).await?;
    let signal = |name: &str| Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(signal("-STOP")?.success());
    let (server, name) = (leader.clone(), "synchronous_standby_names");
    let mut setting = tokio::spawn(async move { server.set(name, "nobody").await });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut setting).await;
    assert!(signal("-CONT")?.success());
    assert!(early.is_err(), "it is set while commits wait for nobody yet");
    setting.await??;
    let session = leader.connect("postgres", "postgres").await?;
    let write = async move { session.batch_execute("insert into t values (1)").await };
    let writing = tokio::spawn(write);
    let waits = "select exists (select from pg_stat_activity where wait_event = 'SyncRep')";
    until("the commit waits", LIMIT, || async { leader.value(waits).await }).await?;
    leader.unset(name).await?;
    writing.await??;
    assert!(has(leader, 1).await?);
    Ok(())
}

#[tokio::test]
async fn a_password_is_demanded_over_tcp() -> Result<()> {
    on_both(|major| async move {
        let options = ClusterOptions::new(major).password("it's");
        let cluster = Cluster::start(options).await?;
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(cluster.leader().port()).user("postgres");
        let refused = config.password("wrong").connect(tokio_postgres::NoTls).await;
        assert!(refused.is_err());
        assert!(config.password("it's").connect(tokio_postgres::NoTls).await.is_ok());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn tls_is_demanded_over_tcp() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::new(Major::V15).tls()).await?;
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(cluster.leader().port()).user("postgres");
    assert!(config.connect(tokio_postgres::NoTls).await.is_err());
    let authority = cluster.certificate_authority().context("TLS has an authority")?;
    let answer = Command::new("openssl")
        .args(["s_client", "-starttls", "postgres", "-verify_return_error", "-CAfile"])
        .arg(authority)
        .args(["-verify_ip", "127.0.0.1", "-connect"])
        .arg(cluster.leader().address().to_string())
        .stdin(std::process::Stdio::null())
        .output()?;
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    Ok(())
}

#[tokio::test]
async fn the_version_before_the_oldest_supported_one_runs_too() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::new(Major::V14).standbys(1)).await?;
    let version: String = cluster.leader().value("show server_version").await?;
    assert!(version.starts_with("14."), "{version}");
    Ok(())
}
