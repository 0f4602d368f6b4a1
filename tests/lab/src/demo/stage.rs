//! What the demo plays on: servers, the service, visitors, and the truth about a row.
//!
//! The truth is always read by the lab's own connection on the server that was named; no answer of
//! Tidegate and no position takes part in it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::process::ServiceProcess;
use super::visitor::{Seen, Visitor, Whose};
use crate::install::Major;
use crate::postgres::{Cluster, ClusterOptions, Server};
use crate::service::ServiceOptions;

/// Leader reads a second that the demo's service allows while no standby is fresh.
pub(super) const CAP: u32 = 20;

/// What a form of the demo's little application is stored in.
const TABLES: &str = "create table form (id bigint primary key, words text not null); \
                      create table noise (words text not null)";

/// Running servers with a running service. Dropping it ends the service first.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) service: ServiceProcess,
    pub(super) cluster: Cluster,
    /// Reads demand nothing: the wrong way, to see the claims fail.
    careless: bool,
}

impl Stage {
    /// Starts a leader, two standbys and the service.
    ///
    /// # Errors
    /// When PostgreSQL cannot be installed, or a server or the service does not come up.
    pub(super) async fn build(careless: bool) -> Result<Self> {
        let cluster = Cluster::start(ClusterOptions::new(Major::V15).standbys(2)).await?;
        cluster.leader().sql(TABLES).await?;
        let options = ServiceOptions::of(&cluster).await?;
        let options = options.limit("fallback_reads", &CAP.to_string());
        let options = options.limit("drain_limit", "\"2s\"");
        cluster.catch_up().await?;
        let service = ServiceProcess::start(options, cluster.folder()).await?;
        Ok(Self { service, cluster, careless })
    }

    /// Somebody who comes with a process of their own: no visitor shares memory with another.
    ///
    /// # Errors
    /// When the service cannot be reached.
    pub(super) async fn visitor(&self, whose: Whose) -> Result<Visitor> {
        Visitor::arrive(&self.service.endpoint(), whose, self.careless).await
    }

    /// A server by the name that an answer gave.
    ///
    /// # Errors
    /// When there is no such server.
    pub(super) fn server(&self, name: &str) -> Result<&Server> {
        self.cluster.server(name).with_context(|| format!("there is no server {name}"))
    }

    /// The truth: whether a server shows a form, asked of the server itself.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) async fn shows(&self, server: &str, form: i64) -> Result<bool> {
        let query = format!("select exists (select from form where id = {form})");
        self.server(server)?.value(&query).await
    }

    /// Other people write until the leader's log has grown by about this many kilobytes.
    ///
    /// # Errors
    /// When the leader refuses them.
    pub(super) async fn others_write(&self, leader: &Server, kilobytes: u32) -> Result<()> {
        let rows = format!("select repeat('x', 970) from generate_series(1, {kilobytes})");
        leader.sql(&format!("insert into noise {rows}")).await
    }

    /// Lets both standbys replay as they come, and waits until they have everything.
    ///
    /// # Errors
    /// When one does not catch up.
    pub(super) async fn level(&self) -> Result<()> {
        for standby in self.cluster.standbys() {
            standby.resume_replay().await?;
        }
        self.cluster.catch_up().await
    }

    /// How far a standby is behind, asked of both servers.
    ///
    /// # Errors
    /// When one does not answer.
    pub(super) async fn bytes_behind(&self, leader: &Server, standby: &Server) -> Result<u64> {
        let end = u64::from(leader.insert_lsn().await?);
        Ok(end.saturating_sub(u64::from(standby.replay_lsn().await?)))
    }
}

/// Reads of one form, counted by the server they were named.
#[derive(Debug, Default)]
pub(super) struct Tally {
    by_server: BTreeMap<String, u64>,
    missing: u64,
}

impl Tally {
    /// Counts a read and reads the truth on the server it was named.
    ///
    /// # Errors
    /// When that server does not answer.
    pub(super) async fn count(&mut self, stage: &Stage, seen: &Seen, form: i64) -> Result<()> {
        self.note(seen);
        self.missing += u64::from(seen.found && !stage.shows(&seen.server, form).await?);
        Ok(())
    }

    /// Counts a read by the row that it found itself on the server it was named.
    pub(super) fn note(&mut self, seen: &Seen) {
        *self.by_server.entry(seen.server.clone()).or_default() += 1;
        self.missing += u64::from(!seen.found);
    }

    /// Reads that were named this server.
    pub(super) fn of(&self, server: &str) -> u64 {
        self.by_server.get(server).copied().unwrap_or(0)
    }

    /// All reads.
    pub(super) fn reads(&self) -> u64 {
        self.by_server.values().sum()
    }

    /// Reads whose row was missing on the server they were named.
    pub(super) const fn missing(&self) -> u64 {
        self.missing
    }

    /// The counts for people: servers in order, and in how many reads the row was there.
    pub(super) fn words(&self, stage: &Stage) -> String {
        let servers = stage.cluster.servers().iter().map(Server::name);
        let counts: Vec<String> =
            servers.map(|server| format!("{} to {server}", self.of(server))).collect();
        let found = self.reads() - self.missing;
        format!("{}; the row was there in {found}.", counts.join(", "))
    }
}
