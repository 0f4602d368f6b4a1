//! Making a standby lag: holding its replay, delaying it, cutting or moving its reception.
//!
//! Each recipe returns when it is in effect. Pausing replay before a promotion loses nothing:
//! received log survives; to lose writes, cut reception first.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use tokio_postgres::error::SqlState;

use super::server::Server;
use crate::wait::{LIMIT, until};

/// A walreceiver that is told to stop does so within 1.5 seconds, unless replay is paused.
const CUT_LIMIT: Duration = Duration::from_secs(10);

/// Tells whether replay cancelled what was asked.
fn is_conflict(error: &Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    causes
        .filter_map(tokio_postgres::Error::code)
        .any(|code| *code == SqlState::T_R_SERIALIZATION_FAILURE)
}

impl Server {
    /// Holds replay where it stands; reception goes on.
    ///
    /// # Errors
    /// When the server is no standby or does not pause.
    pub async fn pause_replay(&self) -> Result<()> {
        self.sql("select pg_wal_replay_pause()").await?;
        self.await_pause_state("paused").await
    }

    /// Lets replay go on.
    ///
    /// # Errors
    /// When the server is no standby.
    pub async fn resume_replay(&self) -> Result<()> {
        // What goes on at once may be in conflict with the call itself, and cancel it.
        until(&format!("replay of {} is resumed", self.name()), LIMIT, || async {
            let called = self.sql("select pg_wal_replay_resume()").await;
            match called {
                Ok(_) => Ok(true),
                Err(error) if is_conflict(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await?;
        self.await_pause_state("not paused").await
    }

    async fn await_pause_state(&self, wanted: &str) -> Result<()> {
        let what = format!("replay of {} is {wanted}", self.name());
        until(&what, LIMIT, || async {
            let state = self.value::<String>("select pg_get_wal_replay_pause_state()").await;
            match state {
                Ok(state) => Ok(state == wanted),
                Err(error) if is_conflict(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await
        .map(drop)
    }

    /// Replays every commit this long after it was made; zero ends the delay.
    ///
    /// The position stops just before the commit record, so it stays honest.
    ///
    /// # Errors
    /// When the running server does not read its configuration again.
    pub async fn apply_delay(&self, delay: Duration) -> Result<()> {
        self.set("recovery_min_apply_delay", &format!("{}ms", delay.as_millis())).await
    }

    /// Stops reception, as if the network to the leader were gone; replay goes on.
    ///
    /// A stopped server will start without reception. Cut before pausing: a paused standby
    /// keeps receiving.
    ///
    /// # Errors
    /// When the walreceiver does not stop, because replay is paused for example.
    pub async fn cut_reception(&self) -> Result<()> {
        self.set("primary_conninfo", "").await?;
        if !self.is_running() {
            return Ok(());
        }
        let what = format!("{} has stopped receiving", self.name());
        until(&what, CUT_LIMIT, || async {
            Ok(self.value::<i64>("select count(*) from pg_stat_wal_receiver").await? == 0)
        })
        .await
        .map(drop)
        .context("reception does not stop while replay is paused: resume first, or use a proxy")
    }

    /// Lets reception begin again, from the same server as before.
    ///
    /// # Errors
    /// When a running server does not stream within [`LIMIT`].
    pub async fn restore_reception(&self) -> Result<()> {
        self.unset("primary_conninfo").await?;
        if self.is_running() { self.await_streaming().await } else { Ok(()) }
    }

    /// Makes this server receive from another one, which must run.
    ///
    /// A running standby moves at once; a stopped server starts as a standby next time, an old
    /// leader too, with whatever its log holds.
    ///
    /// # Errors
    /// When a running standby does not stream within [`LIMIT`]: its log may have diverged.
    pub async fn repoint(&self, upstream: &Self) -> Result<()> {
        self.repoint_to(upstream.address()).await?;
        if self.is_running() { self.await_streaming().await } else { Ok(()) }
    }

    /// Makes this server receive from an address, a proxy's for example; does not wait.
    ///
    /// # Errors
    /// When the running server does not read its configuration again.
    pub async fn repoint_to(&self, upstream: SocketAddr) -> Result<()> {
        {
            let mut state = self.state();
            state.upstream = Some(upstream);
            state.settings.remove("primary_conninfo");
            if state.guard.is_none() {
                state.standby = true;
            }
        }
        self.reload().await
    }

    /// Waits until the standby streams from its upstream.
    ///
    /// # Errors
    /// When it does not within [`LIMIT`]; the message carries the end of its log.
    pub async fn await_streaming(&self) -> Result<()> {
        let upstream = self.state().upstream.map_or(0, |address| i32::from(address.port()));
        let query = format!(
            "select count(*) from pg_stat_wal_receiver \
             where status = 'streaming' and sender_port = {upstream}"
        );
        let what = format!("{} streams", self.name());
        until(&what, LIMIT, || async { Ok(self.value::<i64>(&query).await? == 1) })
            .await
            .map(drop)
            .with_context(|| self.log_tail())
    }
}
