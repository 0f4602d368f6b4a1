//! One server: its life, its settings, and what befalls it alone.
//!
//! The child process of the last test is this very program.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_lab::redis::{Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};

use super::{get, on_both, refusal, set};

on_both! {
    a_dropped_server_is_gone => dropped_redis_is_gone, dropped_valkey_is_gone;
    a_restart_begins_a_new_history => restarted_redis_has_a_new_id, restarted_valkey_has_a_new_id;
    an_append_only_file_keeps_the_keys => append_only_redis_keeps_keys,
        append_only_valkey_keeps_keys;
    a_frozen_server_goes_on => frozen_redis_goes_on, frozen_valkey_goes_on;
    users_may_do_what_the_list_says => redis_keeps_its_access_list, valkey_keeps_its_access_list;
    memory_runs_short => redis_evicts, valkey_evicts;
    keys_and_scripts_go => redis_loses_keys_and_scripts, valkey_loses_keys_and_scripts;
    an_old_snapshot_comes_back => redis_goes_back_to_a_snapshot, valkey_goes_back_to_a_snapshot;
}

async fn a_dropped_server_is_gone(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind)).await?;
    let (folder, pid) = (server.folder().to_owned(), server.pid().context("it runs")?);
    let second = server.clone();
    drop(server);
    set(&second, "k", "v").await?;
    drop(second);
    assert!(!folder.exists(), "{} is left", folder.display());
    assert!(!runs(pid), "the process is left");
    Ok(())
}

/// Whether a process lives; one that has ended and is not collected yet has no command line.
fn runs(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty())
}

/// The process that started it.
fn parent(pid: u32) -> Result<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    Ok(line.context("a parent")?.trim().parse()?)
}

async fn a_restart_begins_a_new_history(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind)).await?;
    let (port, first) = (server.port(), server.replid().await?);
    set(&server, "k", "v").await?;
    server.set("repl-timeout", "77").await?;
    server.kill().await?;
    assert!(server.pid().is_none());
    server.start_again().await?;
    assert_eq!((server.port(), get(&server, "k").await?), (port, None));
    assert_eq!(server.setting("repl-timeout").await?, "77", "a setting outlives a restart");
    let second = server.replid().await?;
    assert_ne!(first, second);
    server.stop().await?;
    server.start_again().await?;
    assert_ne!(server.replid().await?, second);
    Ok(())
}

async fn an_append_only_file_keeps_the_keys(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind).append_only()).await?;
    let before = server.replid().await?;
    set(&server, "k", "v").await?;
    server.kill().await?;
    server.start_again().await?;
    assert_eq!(get(&server, "k").await?.as_deref(), Some("v"));
    assert_ne!(server.replid().await?, before, "nothing is lost and the id is new all the same");

    let saving = Server::start(Options::new(kind).save()).await?;
    set(&saving, "k", "v").await?;
    saving.stop().await?;
    saving.start_again().await?;
    assert_eq!(get(&saving, "k").await?.as_deref(), Some("v"));
    Ok(())
}

async fn a_frozen_server_goes_on(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind)).await?;
    let mut connection = server.connect().await?;
    server.freeze().await?;
    let command = redis::cmd("PING");
    let ping = command.query_async::<String>(&mut connection);
    let mut ping = std::pin::pin!(ping);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut ping).await.is_err());
    server.thaw().await?;
    assert_eq!(ping.await?, "PONG", "what was asked meanwhile is answered");
    server.freeze().await?;
    // The drop ends a frozen server as well, at once.
    Ok(())
}

async fn users_may_do_what_the_list_says(kind: Kind) -> Result<()> {
    let options = Options::new(kind).password("open").user("reader", ">secret ~tg:* +get +info");
    let server = Server::start(options).await?;
    set(&server, "tg:1", "v").await?;
    let stranger = format!("redis://{}/", server.address());
    let mut stranger = server.connect_to(&stranger).await?;
    let refused = redis::cmd("GET").arg("tg:1").query_async::<String>(&mut stranger).await;
    assert_eq!(refused.err().context("refused")?.code(), Some("NOAUTH"));
    assert!(server.connect_to(&server.url_for("reader", "wrong")).await.is_err());
    let mut reader = server.connect_to(&server.url_for("reader", "secret")).await?;
    let value: String = redis::cmd("GET").arg("tg:1").query_async(&mut reader).await?;
    assert_eq!(value, "v");
    for words in [["GET", "other"], ["DEL", "tg:1"]] {
        let command = redis::cmd(words[0]).arg(words[1]).to_owned();
        let refused = command.query_async::<redis::Value>(&mut reader).await;
        assert_eq!(refused.err().context("refused")?.code(), Some("NOPERM"), "{words:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_with_tls_speaks_nothing_else() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis).tls()).await?;
    set(&server, "k", "v").await?;
    assert!(server.url().starts_with("rediss://"));
    assert!(server.certificate_authority().context("an authority")?.exists());
    let plain = redis::Client::open(format!("redis://{}/", server.address()))?;
    assert!(plain.get_multiplexed_async_connection().await.is_err());
    let distrusting = redis::Client::open(server.url())?;
    assert!(distrusting.get_multiplexed_async_connection().await.is_err());
    let refused = Server::start(Options::new(Kind::Valkey).tls()).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("without it")));
    Ok(())
}

async fn memory_runs_short(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind)).await?;
    for number in 0..200 {
        let key = format!("tg:{number}");
        server.tell(&["SET", &key, "value", "PX", "600000"]).await?;
    }
    let (id, evicted) = (server.replid().await?, server.evicted().await?);
    server.evict("volatile-ttl", 200).await?;
    assert_eq!((evicted, server.evicted().await?), (0, 200));
    assert_eq!(server.keys("tg:*").await?, Vec::<String>::new(), "all that expires is gone");
    server.end_eviction().await?;
    assert_eq!(server.keys("*").await?, Vec::<String>::new());
    server.evict("allkeys-lru", 50).await?;
    assert!(server.evicted().await? >= 250);
    assert_eq!(server.replid().await?, id, "an eviction is no new history");
    server.end_eviction().await?;
    set(&server, "k", "v").await?;
    // Nothing to evict: the server refuses instead, and loses nothing.
    let refused = server.evict("noeviction", 1).await.err().context("nothing is evicted")?;
    assert!(format!("{refused:#}").contains("used memory"), "{refused:#}");
    assert_eq!(get(&server, "k").await?.as_deref(), Some("v"));
    Ok(())
}

async fn keys_and_scripts_go(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind)).await?;
    let id = server.replid().await?;
    set(&server, "tg:1", "v").await?;
    server.tell(&["SET", "tg:2", "v", "PX", "600000"]).await?;
    assert_eq!(server.expire("tg:*", Duration::from_millis(1)).await?, 2);
    let gone = until("both have expired", LIMIT, || async {
        Ok(get(&server, "tg:1").await?.or(get(&server, "tg:2").await?).is_none())
    });
    gone.await?;
    let sha: String = server.ask(&["SCRIPT", "LOAD", "return 7"]).await?;
    assert_eq!(server.ask::<i64>(&["EVALSHA", &sha, "0"]).await?, 7);
    server.flush_scripts().await?;
    assert_eq!(refusal(&server, &["EVALSHA", &sha, "0"]).await?, "NOSCRIPT");
    set(&server, "k", "v").await?;
    server.flush().await?;
    assert_eq!(get(&server, "k").await?, None);
    assert_eq!(server.replid().await?, id, "neither is a new history");
    Ok(())
}

async fn an_old_snapshot_comes_back(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind)).await?;
    set(&server, "k", "old").await?;
    let (snapshot, id) = (server.snapshot().await?, server.replid().await?);
    set(&server, "k", "new").await?;
    set(&server, "later", "v").await?;
    server.restore(&snapshot).await?;
    assert_eq!(get(&server, "k").await?.as_deref(), Some("old"));
    assert_eq!(get(&server, "later").await?, None);
    assert_ne!(server.replid().await?, id);
    Ok(())
}

/// Tells the child process to stay until it is killed.
const CHILD: &str = "TIDEGATE_LAB_REDIS_CHILD";

#[tokio::test]
#[ignore = "the child that the next test starts"]
async fn child() -> Result<()> {
    std::env::var(CHILD)?;
    let running = Server::start(Options::new(Kind::Redis)).await?;
    let frozen = Server::start(Options::new(Kind::Valkey)).await?;
    frozen.freeze().await?;
    for server in [&running, &frozen] {
        let (folder, pid) = (server.folder().display(), server.pid().context("it runs")?);
        writeln!(std::io::stdout(), "\nserver {pid} {folder}")?;
    }
    std::future::pending().await
}

#[tokio::test]
async fn a_killed_test_leaves_no_server_and_no_folder() -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "server::child", "--ignored", "--nocapture"]).env(CHILD, "1");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    let servers = lines.map_while(Result::ok).filter_map(|line| {
        let (pid, folder) = line.strip_prefix("server ")?.split_once(' ')?;
        Some((pid.parse::<u32>().ok()?, PathBuf::from(folder)))
    });
    let servers: Vec<(u32, PathBuf)> = servers.take(2).collect();
    assert!(
        servers.len() == 2 && servers.iter().all(|(pid, folder)| runs(*pid) && folder.exists())
    );
    // What the kernel does to the group of a frozen server whose test has died, but in time to
    // be seen: it sends the guards HUP.
    for (pid, _) in &servers {
        let guard = parent(*pid)?;
        assert_ne!(guard, child.id(), "a guard stands between");
        let sent = Command::new("kill").args(["-HUP", &guard.to_string()]).status()?;
        assert!(sent.success());
    }
    child.kill()?;
    child.wait()?;
    let gone = until("nothing is left", LIMIT, || async {
        Ok(servers.iter().all(|(pid, folder)| !runs(*pid) && !folder.exists()))
    });
    gone.await.map(drop)
}
