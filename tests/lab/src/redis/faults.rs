//! What befalls one server: eviction, expiry, an old snapshot, lost keys and scripts, a promotion.
//!
//! Each does what it says or fails; none waits for clients to notice. Faults of the process itself
//! (killed, frozen) stand in `server`, those of the line in `group`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult};

use super::server::Server;
use crate::machine;

/// Keys that only take room.
const FILLER: &str = "tidegate-lab-filler";
const FILLER_BYTES: usize = 1000;
const FILLER_BATCH: usize = 100;
const FILLER_LIMIT: usize = 100_000;
/// Room that is left when eviction is switched on.
const ROOM_BYTES: i64 = 64 * 1024;

/// All keys of a server at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot(Vec<u8>);

impl Server {
    /// Makes a primary of a replica. Its old primary is not told and lives on.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn promote(&self) -> Result<()> {
        self.tell(&["REPLICAOF", "NO", "ONE"]).await?;
        self.keep().await
    }

    /// Removes every key.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn flush(&self) -> Result<()> {
        self.tell(&["FLUSHALL"]).await
    }

    /// Forgets every script.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn flush_scripts(&self) -> Result<()> {
        self.tell(&["SCRIPT", "FLUSH"]).await
    }

    /// Makes memory short under a policy and fills it until so many keys have been evicted.
    ///
    /// `allkeys-lru` takes old keys, the lab's own filling among them; `volatile-ttl` and the like
    /// take those alone that expire, which the filling does not.
    ///
    /// # Errors
    /// When the policy evicts too few.
    pub async fn evict(&self, policy: &str, keys: i64) -> Result<()> {
        let info = self.info().await?;
        let (before, used) = (info.number("evicted_keys")?, info.number("used_memory")?);
        self.set("maxmemory-policy", policy).await?;
        self.set("maxmemory", &(used + ROOM_BYTES).to_string()).await?;
        let mut connection = self.connect().await?;
        let filler = "x".repeat(FILLER_BYTES);
        for batch in 0..FILLER_LIMIT / FILLER_BATCH {
            let filled = fill(&mut connection, batch, &filler).await;
            if self.evicted().await? >= before + keys {
                return Ok(());
            }
            filled.with_context(|| format!("{policy} evicts less than {keys} keys"))?;
        }
        bail!("{} has evicted less than {keys} keys", self.name())
    }

    /// Ends the shortage: nothing is evicted any more, and the filling goes.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn end_eviction(&self) -> Result<()> {
        self.set("maxmemory", "0").await?;
        self.set("maxmemory-policy", "noeviction").await?;
        for key in self.keys(&format!("{FILLER}*")).await? {
            self.tell(&["DEL", &key]).await?;
        }
        Ok(())
    }

    /// All keys of a pattern.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<String>> {
        self.ask(&["KEYS", pattern]).await
    }

    /// Lets every key of a pattern expire after a time, as a clock that leaps ahead would; returns
    /// how many there were.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn expire(&self, pattern: &str, after: Duration) -> Result<usize> {
        let keys = self.keys(pattern).await?;
        for key in &keys {
            self.tell(&["PEXPIRE", key, &after.as_millis().to_string()]).await?;
        }
        Ok(keys.len())
    }

    /// Takes a snapshot of all keys.
    ///
    /// # Errors
    /// When the server cannot write it.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.tell(&["SAVE"]).await?;
        Ok(Snapshot(fs::read(self.snapshot_file()).context("SAVE leaves a file")?))
    }

    /// Kills the server and starts it with the keys of an old snapshot, as a restored backup does.
    ///
    /// # Errors
    /// When the server keeps an append-only file, which it would prefer, or does not come up.
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        ensure!(self.setting("appendonly").await? == "no", "a snapshot is read without AOF alone");
        self.kill().await?;
        fs::write(self.snapshot_file(), &snapshot.0)?;
        machine::give_to_server_user(&self.snapshot_file())?;
        self.start_again().await
    }

    fn snapshot_file(&self) -> std::path::PathBuf {
        self.folder().join("dump.rdb")
    }
}

/// Adds a batch of keys; one that memory has no room for is an error.
async fn fill(connection: &mut MultiplexedConnection, batch: usize, text: &str) -> RedisResult<()> {
    let mut pipeline = Pipeline::new();
    for number in 0..FILLER_BATCH {
        let key = format!("{FILLER}:{batch}:{number}");
        pipeline.add_command(Cmd::set(key, text)).ignore();
    }
    pipeline.query_async(connection).await
}
