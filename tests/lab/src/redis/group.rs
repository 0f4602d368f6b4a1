//! A primary with replicas, each of which receives through a link of its own that can be cut.
//!
//! Promotes nobody by itself: who is primary after a fault is the test's doing, so
//! [`Group::primary`] stays the first primary.

use std::time::Duration;

use anyhow::Result;

use super::options::Options;
use super::server::Server;
use crate::proxy::{Mode, Proxy};

/// A primary and its replicas; dropping it ends them all.
#[derive(Debug)]
pub struct Group {
    primary: Server,
    replicas: Vec<Replica>,
}

#[derive(Debug)]
struct Replica {
    server: Server,
    link: Proxy,
}

impl Group {
    /// Starts a primary and its replicas, all with the same options; returns when all receive and
    /// the primary takes writes.
    ///
    /// # Errors
    /// When one does not come up.
    pub async fn start(options: Options, replicas: usize) -> Result<Self> {
        let primary = Server::named("primary", options.clone()).await?;
        let mut group = Self { primary, replicas: Vec::new() };
        for number in 0..replicas {
            let link = Proxy::start(group.primary.address()).await?;
            let options = options.clone().replica_of(link.address());
            let server = Server::named(&format!("replica {number}"), options).await?;
            group.replicas.push(Replica { server, link });
        }
        group.await_attached().await?;
        group.primary.await_writable().await?;
        Ok(group)
    }

    /// The server that was the primary at the start.
    #[must_use]
    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// A replica by its number, from 0.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn replica(&self, number: usize) -> &Server {
        &self.replicas[number].server
    }

    /// All servers, the first primary first.
    #[must_use]
    pub fn servers(&self) -> Vec<&Server> {
        let replicas = self.replicas.iter().map(|replica| &replica.server);
        std::iter::once(&self.primary).chain(replicas).collect()
    }

    /// The line through which a replica receives.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn link(&self, number: usize) -> &Proxy {
        &self.replicas[number].link
    }

    /// Waits until every replica receives.
    ///
    /// # Errors
    /// When one does not within the usual limit.
    pub async fn await_attached(&self) -> Result<()> {
        for replica in &self.replicas {
            replica.server.await_attached().await?;
        }
        Ok(())
    }

    /// Waits until every replica has applied what the primary has written so far.
    ///
    /// # Errors
    /// When one has not within the usual limit.
    pub async fn await_caught_up(&self) -> Result<()> {
        for replica in &self.replicas {
            replica.server.await_caught_up(&self.primary).await?;
        }
        Ok(())
    }

    /// Silences the line of a replica: both ends wait, and neither is told. What the primary is
    /// written from now on the replica lacks.
    ///
    /// # Errors
    /// When the line cannot be changed.
    pub async fn cut(&self, number: usize) -> Result<()> {
        self.link(number).set(Mode::BlackHole).await
    }

    /// Lets everything arrive at a replica this much later.
    ///
    /// # Errors
    /// When the line cannot be changed.
    pub async fn slow(&self, number: usize, delay: Duration) -> Result<()> {
        self.link(number).set(Mode::Delay(delay)).await
    }

    /// Mends the line of a replica.
    ///
    /// # Errors
    /// When the line cannot be changed.
    pub async fn mend(&self, number: usize) -> Result<()> {
        self.link(number).set(Mode::Pass).await
    }

    /// Splits the group: cuts a replica off and promotes it, while the old primary lives on and
    /// does not know.
    ///
    /// # Errors
    /// When the replica does not answer.
    pub async fn split(&self, number: usize) -> Result<()> {
        self.cut(number).await?;
        self.replica(number).promote().await
    }

    /// Kills the primary and promotes a replica: what it lacks is lost.
    ///
    /// # Errors
    /// When the replica does not answer.
    pub async fn fail_over(&self, number: usize) -> Result<()> {
        self.primary.kill().await?;
        self.replica(number).promote().await
    }

    /// Puts the old primary under a promoted replica, as whoever ends a split does; its own
    /// writes since the promotion are gone when this returns.
    ///
    /// # Errors
    /// When it does not receive within the usual limit.
    pub async fn heal(&self, number: usize) -> Result<()> {
        self.primary.follow(self.replica(number).address()).await?;
        self.primary.await_attached().await
    }

    /// Puts a promoted replica back under the old primary, as whoever undoes a promotion does: what
    /// it alone was written is gone when this returns, and the old primary shows no other id.
    ///
    /// # Errors
    /// When it does not receive within the usual limit.
    pub async fn undo(&self, number: usize) -> Result<()> {
        self.mend(number).await?;
        self.replica(number).follow(self.link(number).address()).await?;
        self.replica(number).await_attached().await?;
        self.primary.await_writable().await
    }
}
