//! Nothing is left behind: not after a panic, not after SIGKILL of the test process.
//!
//! The tests run this very program again as a child and let it die.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_lab::install::Major;
use tidegate_lab::pgbouncer::{Pgbouncer, PgbouncerOptions};
use tidegate_lab::postgres::{Cluster, ClusterOptions, Stop};

const LIMIT: Duration = Duration::from_secs(30);

/// What a child process does after its cluster has started.
const FATE: &str = "TIDEGATE_LAB_TEST_FATE";

#[tokio::test]
#[ignore = "the child that the other tests start"]
async fn child() -> Result<()> {
    let fate = std::env::var(FATE)?;
    let cluster = Cluster::start(ClusterOptions::new(Major::V15).standbys(2)).await?;
    cluster.standby(1).stop(Stop::Fast).await?;
    let _pooler = Pgbouncer::start(PgbouncerOptions::new(), cluster.leader()).await?;
    let pids: Vec<String> =
        cluster.servers().iter().filter_map(|server| Some(server.pid()?.to_string())).collect();
    let (folder, pids) = (cluster.folder().display(), pids.join(" "));
    writeln!(std::io::stdout(), "\nfolder {folder} pids {pids}")?;
    assert_ne!(fate, "panic", "as its parent wished");
    std::future::pending().await
}

struct Dying {
    child: Child,
    folder: PathBuf,
    pids: Vec<u32>,
}

fn start_child(fate: &str) -> Result<Dying> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env(FATE, fate);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let out = BufReader::new(child.stdout.take().context("a pipe")?);
    for line in out.lines() {
        let line = line?;
        let Some((folder, pids)) =
            line.strip_prefix("folder ").and_then(|line| line.split_once(" pids "))
        else {
            continue;
        };
        let pids = pids.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        return Ok(Dying { child, folder: folder.into(), pids });
    }
    anyhow::bail!("the child said nothing")
}

fn runs(pid: u32, folder: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains(&folder.display().to_string())
}

/// Every process that names the folder in its command line.
fn left(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| runs(*pid, folder)).collect()
}

fn await_nothing_left(dying: &Dying) {
    let started_at = Instant::now();
    while !left(&dying.folder).is_empty() || dying.folder.exists() {
        assert!(started_at.elapsed() < LIMIT, "left: {:?}", left(&dying.folder));
        std::thread::yield_now();
    }
    assert!(!dying.pids.iter().any(|pid| runs(*pid, &dying.folder)));
}

#[test]
fn a_killed_test_leaves_no_server_and_no_folder() -> Result<()> {
    let mut dying = start_child("killed")?;
    assert!(dying.pids.len() == 2 && dying.pids.iter().all(|pid| runs(*pid, &dying.folder)));
    dying.child.kill()?;
    dying.child.wait()?;
    await_nothing_left(&dying);
    Ok(())
}

#[test]
fn a_panicking_test_leaves_no_server_and_no_folder() -> Result<()> {
    let mut dying = start_child("panic")?;
    assert!(!dying.child.wait()?.success());
    // The drop ended everything before the process ended.
    assert_eq!(left(&dying.folder), Vec::<u32>::new());
    assert!(!dying.folder.exists());
    Ok(())
}

#[tokio::test]
async fn a_dropped_cluster_is_gone_when_the_drop_returns() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::new(Major::V18).standbys(1)).await?;
    let folder = cluster.folder().to_owned();
    let server = cluster.leader().clone();
    assert!(!left(&folder).is_empty());
    drop(cluster);
    assert_eq!(left(&folder), Vec::<u32>::new());
    assert!(!folder.exists() && server.start().await.is_err());
    Ok(())
}
