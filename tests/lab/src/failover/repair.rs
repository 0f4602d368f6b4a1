//! `Trio::repair`: one leader with two following standbys again, whatever was played before.
//!
//! By clones, as an operator would who trusts nothing. Judges nothing and asks Tidegate nothing.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;

use super::trio::Trio;
use crate::postgres::Server;
use crate::wait::LIMIT;

/// What a repair has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// The servers that were cloned again.
    pub cloned: Vec<String>,
    /// The leader's lineage row stood within the lab's limit; `false` where nobody watches.
    pub accepted: bool,
}

impl Trio {
    /// Makes one leader with two following standbys of the servers.
    ///
    /// Servers that need it are cloned again from the leader; on return both standbys have
    /// everything it has written.
    ///
    /// # Errors
    /// When no server can lead, or a clone fails.
    pub async fn repair(&mut self) -> Result<Repaired> {
        self.look().await?;
        let leader = self.find_leader().await?;
        self.leads(&leader);
        let mut cloned = Vec::new();
        for standby in self.others() {
            if self.broken.contains(standby.name()) || !follows(&standby, &leader).await {
                cloned.push(standby);
            }
        }
        let clones = cloned.iter().map(async |standby| {
            standby.apply_delay(Duration::ZERO).await.ok();
            standby.clone_from(&leader).await?;
            // It may have been asked to delay before it was ended.
            standby.apply_delay(Duration::ZERO).await
        });
        try_join_all(clones).await?;
        self.broken.clear();
        let accepted = self.accepted(&leader, LIMIT).await?;
        for standby in self.others() {
            standby.catch_up_with(&leader).await?;
        }
        self.all_seen().await?;
        let cloned = cloned.iter().map(|server| server.name().to_owned()).collect();
        Ok(Repaired { cloned, accepted })
    }

    /// The leader if it runs and can write, else another server that can, else the leader started.
    async fn find_leader(&self) -> Result<Server> {
        let mut candidates = vec![self.leader().clone()];
        candidates.extend(self.others());
        for server in candidates {
            if server.is_running() && matches!(server.is_in_recovery().await, Ok(false)) {
                return Ok(server);
            }
        }
        let leader = self.leader().clone();
        leader.start().await.context("no server can lead")?;
        if leader.is_in_recovery().await? {
            leader.promote().await?;
        }
        Ok(leader)
    }
}

/// Whether a standby streams from a server.
async fn follows(standby: &Server, leader: &Server) -> bool {
    let query = format!(
        "select count(*) from pg_stat_wal_receiver \
         where status = 'streaming' and sender_port = {}",
        leader.port()
    );
    standby.is_running() && matches!(standby.value::<i64>(&query).await, Ok(1))
}
