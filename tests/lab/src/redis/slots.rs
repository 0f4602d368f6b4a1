//! One slot of a Cluster on the move from one node to another: while it is, keys that have left
//! are answered with ASK, and commands over several keys with TRYAGAIN.
//!
//! Moves keys one by one, when the test says so, so that it can stop in the middle.

use anyhow::{Result, ensure};

use super::cluster::Cluster;
use super::server::Server;
use crate::wait::{LIMIT, until};

/// A slot between two nodes; nobody owns it alone until [`Migration::finish`].
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a Server,
    to: &'a Server,
}

impl Cluster {
    /// Begins to move a slot from its owner to another primary.
    ///
    /// # Errors
    /// When a node refuses.
    pub async fn migrate(&self, slot: u16, to: &Server) -> Result<Migration<'_>> {
        let from = self.owner(slot).await?;
        let known = self.nodes().iter().find(|node| node.address() == to.address());
        let to = anyhow::Context::context(known, "the target is a node")?;
        ensure!(from.address() != to.address(), "{} owns slot {slot} already", to.name());
        let number = slot.to_string();
        // In this order: a key must have a place to go before anybody is sent there.
        to.tell(&["CLUSTER", "SETSLOT", &number, "IMPORTING", self.id_of(from)?]).await?;
        from.tell(&["CLUSTER", "SETSLOT", &number, "MIGRATING", self.id_of(to)?]).await?;
        Ok(Migration { cluster: self, slot, from, to })
    }
}

impl Migration<'_> {
    /// The node that the slot leaves.
    #[must_use]
    pub fn from(&self) -> &Server {
        self.from
    }

    /// The node that the slot goes to.
    #[must_use]
    pub fn to(&self) -> &Server {
        self.to
    }

    /// Moves one key.
    ///
    /// # Errors
    /// When a node refuses or the key is not there.
    pub async fn carry(&self, key: &str) -> Result<()> {
        let port = self.to.port().to_string();
        let said: String =
            self.from.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await?;
        ensure!(said == "OK", "{key} was not moved: {said}");
        Ok(())
    }

    /// Moves what is left and gives the slot to its new owner; returns when all nodes know.
    ///
    /// # Errors
    /// When a node refuses.
    pub async fn finish(self) -> Result<()> {
        let number = self.slot.to_string();
        let left: Vec<String> =
            self.from.ask(&["CLUSTER", "GETKEYSINSLOT", &number, "100000"]).await?;
        for key in &left {
            self.carry(key).await?;
        }
        let owner = self.cluster.id_of(self.to)?;
        for node in [self.to, self.from] {
            node.tell(&["CLUSTER", "SETSLOT", &number, "NODE", owner]).await?;
        }
        let what = format!("slot {number} has moved");
        until(&what, LIMIT, || async {
            Ok(self.cluster.owner(self.slot).await?.address() == self.to.address())
        })
        .await
        .map(drop)
    }
}
