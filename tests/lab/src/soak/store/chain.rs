//! The store of a round: a primary with one replica, and a third server that follows the replica,
//! so that the replica takes writes as soon as it is promoted.
//!
//! Each server receives through a line that can be cut. After a failover the old primary joins at
//! the end. Knows nothing of what the keys mean.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tokio::time::Duration;

use crate::proxy::{Mode, Proxy};
use crate::redis::{Kind, Options, Server};
use crate::wait::{LIMIT, until};

/// Without a replica that answered in the last second a primary takes no write.
const MIN_REPLICAS: (usize, u32) = (1, 1);

/// All keys of one server with their values.
pub(super) type Contents = BTreeMap<String, Vec<u8>>;

/// Three servers in a row.
#[derive(Debug)]
pub(super) struct Chain {
    servers: Vec<Server>,
    /// By the numbers of the server that sends and of the one that receives.
    lines: BTreeMap<(usize, usize), Proxy>,
    /// Their numbers: the primary, its replica, the replica's follower.
    order: [usize; 3],
}

impl Chain {
    /// Starts three servers; returns when all receive and the first takes writes.
    pub(super) async fn start(kind: Kind) -> Result<Self> {
        let (replicas, max_lag) = MIN_REPLICAS;
        let options = Options::new(kind).min_replicas(replicas, max_lag);
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(Server::start(options.clone()).await?);
        }
        let mut lines = BTreeMap::new();
        for (from, server) in servers.iter().enumerate() {
            for to in (0..servers.len()).filter(|to| *to != from) {
                lines.insert((from, to), Proxy::start(server.address()).await?);
            }
        }
        let chain = Self { servers, lines, order: [0, 1, 2] };
        chain.follow(1, 0).await?;
        chain.follow(2, 1).await?;
        chain.primary().await_writable().await?;
        Ok(chain)
    }

    /// Who takes writes.
    pub(super) fn primary(&self) -> &Server {
        &self.servers[self.order[0]]
    }

    /// Who follows the primary.
    pub(super) fn replica(&self) -> &Server {
        &self.servers[self.order[1]]
    }

    /// Who was the primary before the last failover, until it has joined again.
    pub(super) fn old(&self) -> &Server {
        &self.servers[self.order[2]]
    }

    fn line(&self, from: usize, to: usize) -> Result<&Proxy> {
        self.lines.get(&(from, to)).context("there is a line between any two servers")
    }

    async fn follow(&self, number: usize, upstream: usize) -> Result<()> {
        let line = self.line(upstream, number)?;
        line.set(Mode::Pass).await?;
        self.servers[number].follow(line.address()).await?;
        self.servers[number].await_attached().await
    }

    /// Silences the line from the primary to its replica; neither is told.
    pub(super) async fn cut(&self) -> Result<()> {
        self.line(self.order[0], self.order[1])?.set(Mode::BlackHole).await
    }

    /// Lets everything arrive so much later at the replica.
    pub(super) async fn slow(&self, delay: Duration) -> Result<()> {
        self.line(self.order[0], self.order[1])?.set(Mode::Delay(delay)).await
    }

    /// Lets everything pass at once again; returns when the primary takes writes.
    pub(super) async fn mend(&self) -> Result<()> {
        self.line(self.order[0], self.order[1])?.set(Mode::Pass).await?;
        self.replica().await_attached().await?;
        self.primary().await_writable().await
    }

    /// Makes the replica the primary. The old one is not told.
    pub(super) async fn promote(&mut self) -> Result<()> {
        self.replica().promote().await?;
        self.order.rotate_left(1);
        self.primary().await_writable().await
    }

    /// Puts the old primary behind the others, started again if it was killed.
    pub(super) async fn rejoin(&self) -> Result<()> {
        if self.old().pid().is_none() {
            self.old().start_again().await?;
        }
        self.follow(self.order[2], self.order[1]).await
    }

    /// Waits until a deposed primary takes no writes any more.
    pub(super) async fn await_refusal(&self, server: &Server) -> Result<()> {
        until("a primary without replicas refuses writes", LIMIT, || async {
            Ok(server.tell(&["DEL", "tidegate-lab-nothing"]).await.is_err())
        })
        .await
        .map(drop)
    }
}

/// Everything a server holds now.
pub(super) async fn contents(server: &Server) -> Result<Contents> {
    let keys = server.keys("*").await?;
    if keys.is_empty() {
        return Ok(Contents::new());
    }
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    let values: Vec<Option<Vec<u8>>> = server.ask(&words).await?;
    let held = keys.into_iter().zip(values);
    Ok(held.filter_map(|(key, value)| Some((key, value?))).collect())
}

/// How many of these keys are gone or have another value there.
pub(super) fn differing(before: &Contents, after: &Contents) -> u64 {
    before.iter().filter(|(key, value)| after.get(*key) != Some(*value)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_and_what_is_older_differs() {
        let held = |pairs: &[(&str, u8)]| -> Contents {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), vec![*value])).collect()
        };
        let before = held(&[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(differing(&before, &held(&[("a", 1), ("b", 1), ("d", 4)])), 2);
        assert_eq!(differing(&before, &before), 0);
    }
}
