//! Crashes, promotions, clones and restored copies of a server.
//!
//! Every recipe leaves a server that runs, unless it says otherwise, and returns what happened
//! as figures, so that a test can show that it did happen.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio_postgres::Row;

use super::Lsn;
use super::guard::Stop;
use super::server::Server;
use crate::machine;
use crate::wait::{LIMIT, until};

/// How far back a crashed standby opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The last position it had reported.
    pub reported: Lsn,
    /// The first position it reported after the restart.
    pub opened_at: Lsn,
}

impl Behind {
    /// The bytes of log that it had shown and no longer shows.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.reported).saturating_sub(u64::from(self.opened_at))
    }
}

/// A copy of a server's data folder, an old backup; removed with the cluster.
#[derive(Clone, Debug)]
pub struct DataCopy {
    path: PathBuf,
    /// Up to where the server had replayed; none for a leader.
    pub replayed: Option<Lsn>,
}

impl DataCopy {
    /// Removes the copy now, before the cluster's end.
    ///
    /// # Errors
    /// When the folder cannot be removed.
    pub async fn remove(self) -> Result<()> {
        machine::blocking(move || Ok(fs::remove_dir_all(&self.path)?)).await
    }
}

impl Server {
    /// Promotes the standby and returns the fork: where its old history ends.
    ///
    /// # Errors
    /// When it is no standby or not writable within [`LIMIT`].
    pub async fn promote(&self) -> Result<Lsn> {
        self.sql("select pg_promote(false)").await?;
        let what = format!("{} is promoted", self.name());
        until(&what, LIMIT, || async { Ok(!self.is_in_recovery().await?) }).await?;
        self.state().standby = false;
        self.replay_lsn().await
    }

    /// The timeline that a leader writes.
    ///
    /// # Errors
    /// When the server is unreachable or in recovery.
    pub async fn timeline(&self) -> Result<u32> {
        let file: String =
            self.value("select pg_walfile_name(pg_current_wal_insert_lsn())").await?;
        let digits = file.get(..8).with_context(|| format!("no timeline in {file}"))?;
        u32::from_str_radix(digits, 16).with_context(|| format!("no timeline in {file}"))
    }

    /// Kills one connection's process: the server crashes and recovers, its start time stays.
    ///
    /// # Errors
    /// When the server does not come back within [`LIMIT`].
    pub async fn kill_backend(&self) -> Result<()> {
        const RESET: &str = "select pg_stat_get_bgwriter_stat_reset_time()::text";
        let victim = self.connect("postgres", "postgres").await?;
        let row: Row = victim.query_one("select pg_backend_pid()", &[]).await?;
        let pid = u32::try_from(row.try_get::<_, i32>(0)?)?;
        let before: String = self.value(RESET).await?;
        machine::signal(pid, "KILL")?;
        let what = format!("{} has recovered from its crash", self.name());
        until(&what, LIMIT, || async {
            // Refused connections are what a crash looks like.
            Ok(self.value::<String>(RESET).await.is_ok_and(|now| now != before))
        })
        .await
        .map(drop)
        .with_context(|| self.log_tail())
    }

    /// Resets the server's own statistics, which must not be taken for a crash.
    ///
    /// # Errors
    /// When the server is unreachable.
    pub async fn reset_statistics(&self) -> Result<()> {
        self.sql("select pg_stat_reset_shared('bgwriter')").await
    }

    /// Stops or continues (`STOP`, `CONT`) one background process, `walwriter` for example.
    ///
    /// # Errors
    /// When there is no such process.
    pub async fn signal_process(&self, backend_type: &str, signal: &str) -> Result<()> {
        let query =
            format!("select pid from pg_stat_activity where backend_type = '{backend_type}'");
        let pid: i32 = self.value(&query).await?;
        machine::signal(u32::try_from(pid)?, signal)
    }

    /// Makes what the standby shows now survive a crash; only later commits can be hidden.
    ///
    /// # Errors
    /// When either server is unreachable or the standby does not catch up.
    pub async fn anchor(&self, leader: &Self) -> Result<()> {
        leader.sql("checkpoint").await?;
        self.catch_up_with(leader).await?;
        // On a standby this is a restartpoint, which writes out every page.
        self.sql("checkpoint").await
    }

    /// Crashes the standby so that it comes back behind what it had reported.
    ///
    /// It hides commits made since the last [`Server::anchor`] (or since the cluster's start),
    /// each until it is `hide` old: an hour hides them until `apply_delay(Duration::ZERO)`.
    /// Needs at least one such commit younger than `hide`.
    ///
    /// # Errors
    /// When the server does not come back, or comes back with everything.
    pub async fn crash_behind(&self, hide: Duration) -> Result<Behind> {
        let reported = self.replay_lsn().await?;
        self.stop(Stop::Immediate).await?;
        self.apply_delay(hide).await?;
        self.start().await?;
        let opened_at = self.replay_lsn().await?;
        let behind = Behind { reported, opened_at };
        if behind.bytes() == 0 {
            bail!("{} came back with everything: commit something just before", self.name());
        }
        Ok(behind)
    }

    /// Replaces this server by a fresh clone of another one, and streams from it.
    ///
    /// # Errors
    /// When pg_basebackup fails or the clone does not stream.
    pub async fn clone_from(&self, upstream: &Self) -> Result<()> {
        self.stop(Stop::Immediate).await?;
        let (target, source) = (self.clone(), upstream.clone());
        machine::blocking(move || target.base_backup(&source)).await?;
        self.repoint_to(upstream.address()).await?;
        self.start().await?;
        self.await_streaming().await
    }

    fn base_backup(&self, source: &Self) -> Result<()> {
        let data = self.data_dir();
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        let mut command = machine::as_server_user(&self.0.binaries.tool("pg_basebackup")?)?;
        command.arg("-h").arg(source.socket_dir()).args(["-p", &source.port().to_string()]);
        command.args(["-U", "postgres", "-X", "stream", "-R", "--checkpoint=fast", "--no-sync"]);
        machine::run(command.arg("-D").arg(&data))?;
        // -R writes the upstream where it would outrank the lab's own settings.
        super::conf::place(&data.join("postgresql.auto.conf"), "")
    }

    /// Turns a stopped or running server whose log has diverged into a standby of another one.
    ///
    /// # Errors
    /// When pg_rewind fails or the server does not stream afterwards.
    pub async fn rewind_from(&self, source: &Self) -> Result<()> {
        // Before its first checkpoint a promoted server still shows its old timeline, and
        // pg_rewind would find nothing to do.
        source.sql("checkpoint").await?;
        self.stop(Stop::Fast).await?;
        let (target, from) = (self.clone(), source.clone());
        machine::blocking(move || target.rewind(&from)).await?;
        // The target opens only beyond the source's position at the rewind, which an idle
        // source would never write out.
        source.sql("checkpoint").await?;
        self.repoint_to(source.address()).await?;
        self.start().await?;
        self.await_streaming().await
    }

    fn rewind(&self, source: &Self) -> Result<()> {
        let mut command = machine::as_server_user(&self.0.binaries.tool("pg_rewind")?)?;
        command.arg("--no-sync").arg("-D").arg(self.data_dir()).arg(format!(
            "--source-server=host={} port={} user=postgres dbname=postgres",
            source.socket_dir().display(),
            source.port()
        ));
        machine::run(&mut command).map(drop)
    }

    /// Copies the data folder, as a backup would; the server restarts for it.
    ///
    /// # Errors
    /// When the server does not stop or start, or the disk is full.
    pub async fn copy_data_dir(&self) -> Result<DataCopy> {
        let replayed: Option<Lsn> = self.value("select pg_last_wal_replay_lsn()").await?;
        let number = fastrand::u32(..);
        let path = self.0.root.join(format!("{}.copy-{number:08x}", self.name()));
        self.stop(Stop::Fast).await?;
        let (from, to) = (self.data_dir(), path.clone());
        machine::blocking(move || machine::copy_tree(&from, &to)).await?;
        self.start().await?;
        Ok(DataCopy { path, replayed })
    }

    /// Puts an older copy in place of the data folder and leaves the server stopped.
    ///
    /// Cut reception before starting it, or it catches up at once.
    ///
    /// # Errors
    /// When the server does not stop or the disk is full.
    pub async fn restore_data_dir(&self, copy: &DataCopy) -> Result<()> {
        self.stop(Stop::Immediate).await?;
        let (from, to) = (copy.path.clone(), self.data_dir());
        machine::blocking(move || {
            fs::remove_dir_all(&to)?;
            // The copy stays usable.
            machine::run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(&from).arg(&to))
                .map(drop)
        })
        .await
    }
}
