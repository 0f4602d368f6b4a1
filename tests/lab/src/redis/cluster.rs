//! A Cluster of six processes: three primaries that share the slots, and a replica of each.
//!
//! Who is promoted when is the Cluster's to decide: the lab kills or freezes, and asks. Moving a
//! slot stands in `slots`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;

use super::options::{Options, Part};
use super::server::Server;
use crate::wait::{LIMIT, until};

const PRIMARIES: u16 = 3;
const SLOTS: u16 = 16_384;
/// After this long without an answer a node counts as failed.
const NODE_TIMEOUT: Duration = Duration::from_millis(1000);

/// Six nodes; dropping it ends them all.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

/// What one node says of another, or of itself.
#[derive(Clone, Debug)]
struct Seen {
    id: String,
    flags: Vec<String>,
    /// Whom it replicates, by id.
    primary: Option<String>,
    slots: Vec<String>,
}

impl Seen {
    /// Reads a line of `CLUSTER NODES`.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _, flags, primary, _, _, _, _, slots @ ..] = words.as_slice() else { return None };
        Some(Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            primary: (*primary != "-").then(|| (*primary).to_owned()),
            slots: slots.iter().map(|slot| (*slot).to_owned()).collect(),
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Tells whether a slot is its own.
    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().filter(|range| !range.starts_with('[')).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
            bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
        })
    }
}

impl Cluster {
    /// Starts six nodes; returns when all agree who owns what and every replica receives.
    ///
    /// # Errors
    /// When one does not come up, or they do not agree.
    pub async fn start(options: Options) -> Result<Self> {
        let options = options.part(Part::Node(NODE_TIMEOUT));
        let starts = (0..2 * PRIMARIES).map(|number| {
            let options = options.clone();
            async move { Server::named(&format!("node {number}"), options).await }
        });
        let nodes = try_join_all(starts).await?;
        let mut ids = Vec::new();
        for node in &nodes {
            ids.push(node.ask(&["CLUSTER", "MYID"]).await?);
        }
        let cluster = Self { nodes, ids };
        cluster.introduce().await?;
        cluster.await_settled(usize::from(PRIMARIES)).await?;
        Ok(cluster)
    }

    async fn introduce(&self) -> Result<()> {
        for (number, node) in (0..).zip(&self.nodes) {
            // Different from the start, so that no two quarrel about theirs.
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &format!("{}", number + 1)]).await?;
            if number < PRIMARIES {
                let first = SLOTS / PRIMARIES * number;
                let last = if number + 1 == PRIMARIES {
                    SLOTS - 1
                } else {
                    SLOTS / PRIMARIES * (number + 1) - 1
                };
                let (first, last) = (first.to_string(), last.to_string());
                node.tell(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?;
            }
        }
        for node in &self.nodes[1..] {
            let (port, bus) = (node.port().to_string(), node.bus().context("a node has a bus")?);
            let words = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus.to_string()];
            self.nodes[0].tell(&words).await?;
        }
        for number in 0..usize::from(PRIMARIES) {
            let replica = &self.nodes[number + usize::from(PRIMARIES)];
            // It must have heard of its primary first.
            let words = ["CLUSTER", "REPLICATE", &self.ids[number]];
            let what = format!("{} replicates", replica.name());
            until(&what, LIMIT, || async { Ok(replica.tell(&words).await.is_ok()) }).await?;
        }
        Ok(())
    }

    /// All nodes; the first three were the primaries at the start, the others their replicas in
    /// the same order.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Where the nodes answer.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Server::address).collect()
    }

    /// The URLs of all nodes, for a client that finds its way.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    pub(super) fn id_of(&self, node: &Server) -> Result<&str> {
        let at = self.nodes.iter().position(|other| other.address() == node.address());
        let id = at.and_then(|at| self.ids.get(at));
        id.map(String::as_str).with_context(|| format!("{} is no node", node.name()))
    }

    fn node_of(&self, id: &str) -> Option<&Server> {
        self.ids.iter().position(|own| own == id).and_then(|at| self.nodes.get(at))
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn slot(&self, key: &str) -> Result<u16> {
        self.some_node()?.ask(&["CLUSTER", "KEYSLOT", key]).await
    }

    fn some_node(&self) -> Result<&Server> {
        self.nodes.iter().find(|node| node.pid().is_some()).context("no node runs")
    }

    /// The node that owns a slot, as a node that runs says.
    ///
    /// # Errors
    /// When no node answers or nobody owns it.
    pub async fn owner(&self, slot: u16) -> Result<&Server> {
        let seen = Self::seen_by(self.some_node()?).await?;
        let owner = seen.into_values().find(|node| node.owns(slot) && node.is("master"));
        let node = owner.and_then(|owner| self.node_of(&owner.id));
        node.with_context(|| format!("nobody owns slot {slot}"))
    }

    /// The replica of a node.
    ///
    /// # Errors
    /// When no node answers or it has none.
    pub async fn replica(&self, primary: &Server) -> Result<&Server> {
        let id = self.id_of(primary)?;
        let seen = Self::seen_by(self.some_node()?).await?;
        let replica = seen.into_values().find(|node| node.primary.as_deref() == Some(id));
        let node = replica.and_then(|replica| self.node_of(&replica.id));
        node.with_context(|| format!("{} has no replica", primary.name()))
    }

    async fn seen_by(node: &Server) -> Result<BTreeMap<String, Seen>> {
        let text: String = node.ask(&["CLUSTER", "NODES"]).await?;
        Ok(text.lines().filter_map(Seen::parse).map(|seen| (seen.id.clone(), seen)).collect())
    }

    /// Waits until every node that runs sees all slots served, as many well replicas as there
    /// should be, and every replica receives; returns how long that took.
    ///
    /// # Errors
    /// When that takes longer than the usual limit.
    pub async fn await_settled(&self, replicas: usize) -> Result<Duration> {
        let settled = until("the nodes of the Cluster agree", LIMIT, || async {
            for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
                if !self.is_settled(node, replicas).await? {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        settled.await.with_context(|| self.nodes[0].log_tail())
    }

    async fn is_settled(&self, node: &Server, replicas: usize) -> Result<bool> {
        let state: String = node.ask(&["CLUSTER", "INFO"]).await?;
        let seen = Self::seen_by(node).await?;
        let well = |node: &&Seen| !node.is("fail") && !node.is("fail?") && !node.is("handshake");
        let (mut following, mut leading) = (0, 0);
        for node in seen.values().filter(well) {
            following += usize::from(node.is("slave"));
            leading += usize::from(node.is("master") && !node.slots.is_empty());
        }
        let info = node.info().await?;
        Ok(state.contains("cluster_state:ok")
            && following == replicas
            && leading == usize::from(PRIMARIES)
            && (info.is_primary() || info.is_attached()))
    }

    /// Waits until a replica has taken its primary's place and every running node that the test
    /// has not frozen serves again; returns how long the promotion took.
    ///
    /// # Errors
    /// When that takes longer than the usual limit.
    pub async fn await_failover(&self, replica: &Server) -> Result<Duration> {
        let took = replica.await_primary().await?;
        let what = format!("{} serves its slots", replica.name());
        until(&what, LIMIT, || async {
            let state: String = replica.ask(&["CLUSTER", "INFO"]).await?;
            Ok(state.contains("cluster_state:ok"))
        })
        .await?;
        Ok(took)
    }

    /// Lets a replica take its primary's place in peace, losing nothing.
    ///
    /// # Errors
    /// When it does not within the usual limit.
    pub async fn switch_over(&self, replica: &Server) -> Result<()> {
        replica.tell(&["CLUSTER", "FAILOVER"]).await?;
        replica.await_primary().await?;
        self.await_settled(usize::from(PRIMARIES)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_owns_its_ranges_and_single_slots_but_no_slot_on_the_move() {
        let line = "a1 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-9 12 [20->-b2]";
        let seen = Seen::parse(line).expect("a node");
        assert!(seen.is("master") && seen.primary.is_none());
        let owned: Vec<u16> = (0..30).filter(|slot| seen.owns(*slot)).collect();
        assert_eq!(owned, (0..10).chain([12]).collect::<Vec<u16>>());
    }
}
