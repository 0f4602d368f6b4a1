//! Three Sentinels over a primary and two replicas.
//!
//! Who is promoted when is theirs to decide: the lab kills or freezes, and asks.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};

use super::ask::Info;
use super::options::{Options, PRIMARY_NAME, Part};
use super::server::Server;
use crate::wait::{LIMIT, until};

const SENTINELS: usize = 3;
const REPLICAS: usize = 2;

/// The watched servers and those who watch; dropping it ends them all.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    // They end first: none may fail over while the servers end.
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts everything; returns when every Sentinel knows the others and both replicas.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start(options: Options) -> Result<Self> {
        let primary = Server::named("server 0", options.clone()).await?;
        let mut servers = vec![primary.clone()];
        for number in 1..=REPLICAS {
            let options = options.clone().replica_of(primary.address());
            let server = Server::named(&format!("server {number}"), options).await?;
            server.await_attached().await?;
            servers.push(server);
        }
        let mut sentinels = Vec::new();
        for number in 0..SENTINELS {
            let mut own = Options::new(options.kind).part(Part::Sentinel(primary.address()));
            own = own.sentinel_secret(options.password.clone());
            sentinels.push(Server::named(&format!("sentinel {number}"), own).await?);
        }
        let all = Self { servers, sentinels };
        all.await_settled().await?;
        Ok(all)
    }

    /// The name under which Sentinels know the primary.
    #[must_use]
    pub fn name(&self) -> &'static str {
        PRIMARY_NAME
    }

    /// Where the Sentinels answer.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(Server::address).collect()
    }

    /// The three servers, whoever leads now.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Whom the Sentinels take for the primary; the first that answers is believed.
    ///
    /// # Errors
    /// When none answers.
    pub async fn primary(&self) -> Result<&Server> {
        let address = self.primary_address(&self.sentinels[0]).await?;
        let found = self.servers.iter().find(|server| server.address() == address);
        found.with_context(|| format!("{address} is none of the servers"))
    }

    async fn primary_address(&self, sentinel: &Server) -> Result<SocketAddr> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME];
        let (host, port): (String, u16) = sentinel.ask(&words).await?;
        Ok(SocketAddr::new(host.parse::<IpAddr>()?, port))
    }

    /// Waits until all Sentinels name one primary other than `old`, and it takes itself for one;
    /// returns how long that took.
    ///
    /// # Errors
    /// When that takes longer than the usual limit.
    pub async fn await_failover(&self, old: &Server) -> Result<Duration> {
        until("the Sentinels have promoted another", LIMIT, || async {
            let mut named = Vec::new();
            for sentinel in &self.sentinels {
                named.push(self.primary_address(sentinel).await?);
            }
            let new = named[0];
            if new == old.address() || named.iter().any(|address| *address != new) {
                return Ok(false);
            }
            Ok(self.primary().await?.shows(Info::is_primary).await)
        })
        .await
    }

    /// Waits until the Sentinels name one primary, and each of the other servers receives from it:
    /// also when they have promoted once more, as they do on a machine that stalls.
    ///
    /// # Errors
    /// When that takes longer than the usual limit.
    pub async fn await_following(&self) -> Result<()> {
        let followed = until("all servers but one receive from it", LIMIT, || async {
            let primary = self.primary().await?;
            if !primary.shows(Info::is_primary).await {
                return Ok(false);
            }
            for server in self.servers.iter().filter(|one| one.address() != primary.address()) {
                if !server.shows(|info| info.follows(primary.address())).await {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        let logs = || self.servers.iter().map(Server::log_tail).collect::<Vec<_>>().join("\n");
        followed.await.map(drop).with_context(logs)
    }

    /// Waits until every Sentinel knows the two others and both replicas, and all are well.
    ///
    /// # Errors
    /// When that takes longer than the usual limit.
    pub async fn await_settled(&self) -> Result<()> {
        let settled = until("the Sentinels know each other", LIMIT, || async {
            for sentinel in &self.sentinels {
                let quorum = sentinel.tell(&["SENTINEL", "CKQUORUM", PRIMARY_NAME]).await.is_ok();
                let words = ["SENTINEL", "MASTER", PRIMARY_NAME];
                let said: std::collections::BTreeMap<String, String> = sentinel.ask(&words).await?;
                let number = |name: &str| said.get(name).and_then(|n| n.parse().ok());
                let others = number("num-other-sentinels") == Some(SENTINELS - 1);
                let replicas = number("num-slaves") == Some(REPLICAS);
                let well = said.get("flags").is_some_and(|flags| flags == "master");
                if !(quorum && others && replicas && well) {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        settled.await.map(drop).with_context(|| self.sentinels[0].log_tail())
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.sentinels.clear();
    }
}
