//! What a server says of itself, and its settings.
//!
//! Each question opens a connection of its own: nothing is remembered over a restart, a
//! promotion or a freeze.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use redis::{Cmd, FromRedisValue};

use super::server::Server;
use crate::wait::{LIMIT, until};

/// All that `INFO` says, at one moment.
#[derive(Clone, Debug)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Reads the lines of an answer; headings and blank lines say nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// One field as it stands there.
    ///
    /// # Errors
    /// When the server does not say it.
    pub fn field(&self, name: &str) -> Result<&str> {
        self.0.get(name).map(String::as_str).with_context(|| format!("INFO has no {name}"))
    }

    /// One field that is a number.
    ///
    /// # Errors
    /// When the server does not say it, or not as a number.
    pub fn number(&self, name: &str) -> Result<i64> {
        self.field(name)?.parse().with_context(|| format!("{name} is a number"))
    }

    /// Tells whether the server takes itself for a primary.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.0.get("role").is_some_and(|role| role == "master")
    }

    /// How many seconds ago each attached replica answered; told as it is, not as it was counted.
    #[must_use]
    pub fn replica_lags(&self) -> Vec<i64> {
        let replica = |name: &str| {
            let number = name.strip_prefix("slave")?;
            number.parse::<usize>().ok()
        };
        let replicas = self.0.iter().filter(|(name, _)| replica(name).is_some());
        let lags = replicas.filter_map(|(_, said)| {
            let mut words = said.split(',').filter_map(|word| word.split_once('='));
            let online = words.clone().any(|word| word == ("state", "online"));
            words.find(|(name, _)| *name == "lag" && online)?.1.parse().ok()
        });
        lags.collect()
    }

    /// Tells whether it is a replica that receives from its primary.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        !self.is_primary() && self.0.get("master_link_status").is_some_and(|link| link == "up")
    }

    /// Tells whether it is a replica that receives from the server at this address.
    #[must_use]
    pub fn follows(&self, primary: SocketAddr) -> bool {
        let is = |name: &str, value: &str| self.0.get(name).is_some_and(|said| said == value);
        let at = is("master_host", &primary.ip().to_string());
        self.is_attached() && at && is("master_port", &primary.port().to_string())
    }
}

impl Server {
    /// Asks one thing, in the words of the protocol.
    ///
    /// # Errors
    /// When the server does not answer, refuses, or answers something else.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        let mut connection = self.connect().await?;
        let mut command = Cmd::new();
        command.arg(words);
        let answer = command.query_async(&mut connection).await;
        answer.with_context(|| format!("{}: {}", self.name(), words.join(" ")))
    }

    /// Tells one thing and ignores how it is acknowledged.
    ///
    /// # Errors
    /// When the server does not answer or refuses.
    pub async fn tell(&self, words: &[&str]) -> Result<()> {
        self.ask::<redis::Value>(words).await.map(drop)
    }

    /// Everything the server says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn info(&self) -> Result<Info> {
        Ok(Info::parse(&self.ask::<String>(&["INFO", "everything"]).await?))
    }

    /// The id of the history of writes that the server holds.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn replid(&self) -> Result<String> {
        self.info().await?.field("master_replid").map(str::to_owned)
    }

    /// How many keys it has evicted since its start.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn evicted(&self) -> Result<i64> {
        self.info().await?.number("evicted_keys")
    }

    /// One setting as it is in force.
    ///
    /// # Errors
    /// When there is none of this name.
    pub async fn setting(&self, name: &str) -> Result<String> {
        let pair: Vec<String> = self.ask(&["CONFIG", "GET", name]).await?;
        pair.into_iter().nth(1).with_context(|| format!("there is no setting {name}"))
    }

    /// Changes a setting, now and for all later starts.
    ///
    /// # Errors
    /// When the server does not run or refuses the value.
    pub async fn set(&self, name: &str, value: &str) -> Result<()> {
        self.tell(&["CONFIG", "SET", name, value]).await?;
        self.keep().await
    }

    /// Replicates from another server from now on; returns before the two agree.
    ///
    /// # Errors
    /// When the server does not run.
    pub async fn follow(&self, primary: SocketAddr) -> Result<()> {
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        self.tell(&["REPLICAOF", &host, &port]).await?;
        self.keep().await
    }

    /// Lets the server write what it is now into the file it starts with.
    pub(super) async fn keep(&self) -> Result<()> {
        self.tell(&["CONFIG", "REWRITE"]).await
    }

    /// Tells whether the server answers, and what it says is so. Whoever gives it another role may
    /// cut everybody off, as a Sentinel does: that is an answer to be asked for again.
    pub(super) async fn shows(&self, is_so: impl Fn(&Info) -> bool) -> bool {
        self.info().await.is_ok_and(|info| is_so(&info))
    }

    /// Waits until it receives from its primary.
    ///
    /// # Errors
    /// When it does not within the usual limit.
    pub async fn await_attached(&self) -> Result<()> {
        let what = format!("{} receives from its primary", self.name());
        let attached = until(&what, LIMIT, || async { Ok(self.shows(Info::is_attached).await) });
        attached.await.map(drop).with_context(|| self.log_tail())
    }

    /// Waits until it takes itself for a primary; returns how long that took.
    ///
    /// # Errors
    /// When it does not within the usual limit.
    pub async fn await_primary(&self) -> Result<std::time::Duration> {
        let what = format!("{} is a primary", self.name());
        until(&what, LIMIT, || async { Ok(self.shows(Info::is_primary).await) }).await
    }

    /// Waits until it has applied what `primary` has written so far.
    ///
    /// # Errors
    /// When it has not within the usual limit.
    pub async fn await_caught_up(&self, primary: &Self) -> Result<()> {
        let written = primary.info().await?.number("master_repl_offset")?;
        let what = format!("{} has applied {written}", self.name());
        let applied = until(&what, LIMIT, || async {
            Ok(self.info().await?.number("master_repl_offset")? >= written)
        });
        applied.await.map(drop)
    }

    /// Waits until a primary takes writes: enough replicas have answered lately.
    ///
    /// # Errors
    /// When it still refuses after the usual limit.
    pub async fn await_writable(&self) -> Result<()> {
        // A deletion of nothing is refused like any write, and changes nothing.
        let nothing = ["DEL", "tidegate-lab-nothing"];
        let what = format!("{} takes writes", self.name());
        until(&what, LIMIT, || async { Ok(self.tell(&nothing).await.is_ok()) }).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_are_online_have_a_lag() {
        let info = Info::parse(
            "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
             slave0:ip=127.0.0.1,port=1,state=online,offset=50,lag=9,type=replica\r\n\
             slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
             slave_expires_tracked_keys:0\r\n",
        );
        assert!(info.is_primary() && !info.is_attached());
        assert_eq!(info.replica_lags(), [9]);
    }
}
