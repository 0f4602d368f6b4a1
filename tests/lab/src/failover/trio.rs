//! `Trio`: a leader with two standbys, the markers written to them, and those who look at them.
//!
//! Whoever watches polls each server at [`Trio::poll_address`]: there a gap can be made in which
//! nobody sees anything. What happens to the servers is in the recipes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use tidegate::clock::Clock;
use tokio_postgres::SimpleQueryMessage;

use super::truth::{Census, EpochId, Marker, Step, census, marker};
use crate::install::Major;
use crate::postgres::{Cluster, ClusterOptions, Server, Stop};
use crate::proxy::{Mode, Proxy};
use crate::service;
use crate::wait::{LIMIT, until};

const TABLES: &str = "create table failover_marker (id bigint primary key); \
                      create table failover_noise (words text not null)";

/// How long a standby may take to follow another server before it counts as broken.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(8);

/// When a marker is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// After its commit was flushed.
    Flushed,
    /// At once.
    Unflushed,
}

/// A leader, a standby that may be promoted, and another standby.
pub(super) type Roles = (Server, Server, Server);

/// A leader with two standbys, with the objects of Tidegate installed.
#[derive(Debug)]
pub struct Trio {
    cluster: Cluster,
    proxies: Vec<Proxy>,
    clock: Clock,
    watchers: i64,
    /// Servers nobody can look at.
    unwatched: BTreeSet<String>,
    next_marker: i64,
    pub(super) leader: String,
    pub(super) broken: BTreeSet<String>,
    pub(super) markers: Vec<Marker>,
    pub(super) censuses: Vec<Census>,
    pub(super) steps: Vec<Step>,
}

impl Trio {
    /// Starts the servers l, r1 and r2; l leads.
    ///
    /// # Errors
    /// When one does not come up.
    pub async fn start(major: Major) -> Result<Self> {
        Self::over(Cluster::start(ClusterOptions::new(major).standbys(2)).await?).await
    }

    /// Takes a cluster of three that runs already.
    ///
    /// # Errors
    /// When its leader refuses the objects, or a proxy does not start.
    pub async fn over(cluster: Cluster) -> Result<Self> {
        service::install(cluster.leader()).await?;
        cluster.leader().sql(TABLES).await?;
        cluster.catch_up().await?;
        let mut proxies = Vec::new();
        for server in cluster.servers() {
            proxies.push(Proxy::start(server.address()).await?);
        }
        let leader = cluster.leader().name().to_owned();
        Ok(Self {
            cluster,
            proxies,
            clock: Clock::new(),
            watchers: 0,
            unwatched: BTreeSet::new(),
            next_marker: 1,
            leader,
            broken: BTreeSet::new(),
            markers: Vec::new(),
            censuses: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// Says how many pollers look at each server: recipes then wait until all have seen what they
    /// are to see. They call themselves `tidegate/...` and come by [`Trio::poll_address`].
    pub const fn watched_by(&mut self, watchers: i64) {
        self.watchers = watchers;
    }

    /// Where to poll a server, so that gaps can be made.
    #[must_use]
    pub fn poll_address(&self, server: &Server) -> SocketAddr {
        let mut both = self.cluster.servers().iter().zip(&self.proxies);
        let found = both.find(|(other, _)| other.name() == server.name());
        found.map_or_else(|| server.address(), |(_, proxy)| proxy.address())
    }

    /// The servers, in the order l, r1, r2.
    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The server that leads.
    ///
    /// # Panics
    /// Never: it is one of the cluster's.
    #[must_use]
    pub fn leader(&self) -> &Server {
        self.cluster.server(&self.leader).unwrap_or_else(|| self.cluster.leader())
    }

    /// The other two servers.
    #[must_use]
    pub fn others(&self) -> Vec<Server> {
        let all = self.cluster.servers().iter();
        all.filter(|server| server.name() != self.leader).cloned().collect()
    }

    /// The time, as it stands in what was played: nanoseconds of the boot-time clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// The leader, and the standbys in an order of chance.
    pub(super) fn roles(&self, random: &mut Rng) -> Result<Roles> {
        let mut others = self.others();
        random.shuffle(&mut others);
        let [one, other] = &others[..] else { anyhow::bail!("a trio has three servers") };
        Ok((self.leader().clone(), one.clone(), other.clone()))
    }

    /// Notes what was done.
    pub(super) fn did(&mut self, what: String) {
        let at = self.now();
        self.steps.push(Step { at, what });
    }

    /// The server leads from now on.
    pub(super) fn leads(&mut self, server: &Server) {
        server.name().clone_into(&mut self.leader);
        self.broken.remove(server.name());
    }

    /// The server must be made a standby again by the repair.
    pub(super) fn breaks(&mut self, server: &Server) {
        self.broken.insert(server.name().to_owned());
    }

    /// Writes and commits one marker; returns when it is acknowledged.
    ///
    /// # Errors
    /// When the server does not take it.
    pub async fn write(&mut self, server: &Server, commit: Commit) -> Result<Marker> {
        let id = self.next_marker;
        self.next_marker += 1;
        let setting = if commit == Commit::Unflushed { "off" } else { "on" };
        let client = server.connect("postgres", service::DATABASE).await?;
        let sql = format!(
            "begin; set local synchronous_commit = {setting}; \
             insert into failover_marker values ({id}); select tidegate.before(); commit; \
             select tidegate.capture()"
        );
        let answers = client.simple_query(&sql).await.context("a marker is not taken")?;
        let mut texts = answers.iter().filter_map(|answer| {
            let SimpleQueryMessage::Row(row) = answer else { return None };
            row.get(0)
        });
        let both = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        let written = marker(id, server, both, commit == Commit::Unflushed, self.now())?;
        self.markers.push(written.clone());
        Ok(written)
    }

    /// Writes about this many kilobytes that nobody looks for.
    pub(super) async fn noise(&self, server: &Server, kilobytes: u32) -> Result<()> {
        let rows = format!("select repeat('x', 970) from generate_series(1, {kilobytes})");
        server.sql(&format!("insert into failover_noise {rows}")).await
    }

    /// Asks all running servers what they show.
    pub(super) async fn ask_all(&mut self) -> Result<()> {
        for server in self.cluster.servers().to_vec() {
            if server.is_running() {
                let seen = census(&server, self.now()).await?;
                self.censuses.push(seen);
            }
        }
        Ok(())
    }

    /// Waits until every watcher has polled the server, beginning after this call.
    pub(super) async fn seen(&self, server: &Server) -> Result<()> {
        if !self.is_watched(server) {
            return Ok(());
        }
        let asked = self.polled_once(server).await?;
        let old = format!(
            "select count(*) from pg_stat_activity where application_name like 'tidegate/%' \
             and backend_start < '{asked}'"
        );
        // The first poll of a new connection only finds out whether it can be asked.
        if server.value::<i64>(&old).await? < self.watchers {
            self.polled_once(server).await?;
        }
        Ok(())
    }

    /// Waits for one poll of every watcher; returns the server's time before it.
    async fn polled_once(&self, server: &Server) -> Result<String> {
        let now: String = server.value("select clock_timestamp()::text").await?;
        let polled = format!(
            "select count(*) from pg_stat_activity where application_name like 'tidegate/%' \
             and query like '%tge1|poll|%' and state = 'idle' and query_start > '{now}'"
        );
        let what = format!("{} is polled", server.name());
        until(&what, LIMIT, || async { Ok(server.value::<i64>(&polled).await? >= self.watchers) })
            .await?;
        Ok(now)
    }

    fn is_watched(&self, server: &Server) -> bool {
        self.watchers > 0 && !self.unwatched.contains(server.name())
    }

    /// As [`Trio::seen`], for all running servers.
    pub(super) async fn all_seen(&self) -> Result<()> {
        for server in self.cluster.servers().iter().filter(|server| server.is_running()) {
            self.seen(server).await?;
        }
        Ok(())
    }

    /// Waits until the leader's lineage row stands; tells whether it does within the limit.
    pub(super) async fn accepted(&self, server: &Server, limit: Duration) -> Result<bool> {
        if !self.is_watched(server) {
            return Ok(false);
        }
        let own = census(server, 0).await?.writes;
        let Some(EpochId { timeline, start, reset }) = own else { return Ok(false) };
        let stands = format!(
            "select exists (select from tidegate.lineage where timeline = {timeline} \
             and start_us = {start} and reset_us = {reset})"
        );
        let row = async || server.value::<bool>(&stands).await;
        Ok(until("the row of the leader stands", limit, row).await.is_ok())
    }

    /// From now on nobody can look at any server.
    pub(super) async fn look_away(&mut self) -> Result<()> {
        for (server, proxy) in self.cluster.servers().iter().zip(&self.proxies) {
            self.unwatched.insert(server.name().to_owned());
            proxy.set(Mode::Cut).await?;
        }
        self.did("nobody can look".to_owned());
        Ok(())
    }

    /// From now on everybody can look at this server again.
    pub(super) async fn look_at(&mut self, server: &Server) -> Result<()> {
        for (other, proxy) in self.cluster.servers().iter().zip(&self.proxies) {
            if other.name() == server.name() && self.unwatched.remove(server.name()) {
                proxy.set(Mode::Pass).await?;
                self.steps.push(Step {
                    at: self.clock.now().as_nanos(),
                    what: format!("everybody can look at {}", server.name()),
                });
            }
        }
        Ok(())
    }

    /// The end of [`Trio::look_away`].
    pub(super) async fn look(&mut self) -> Result<()> {
        for server in self.cluster.servers().to_vec() {
            self.look_at(&server).await?;
        }
        Ok(())
    }

    /// Ends a server without a goodbye.
    pub(super) async fn kill(&mut self, server: &Server, random: &mut Rng) -> Result<()> {
        let how = if random.bool() { Stop::Immediate } else { Stop::Kill };
        server.stop(how).await?;
        self.did(format!("{} is killed ({how:?})", server.name()));
        Ok(())
    }

    /// Promotes a standby, which leads from then on.
    pub(super) async fn promote(&mut self, server: &Server) -> Result<()> {
        let fork = server.promote().await?;
        self.leads(server);
        self.did(format!("{} is promoted at {fork}", server.name()));
        Ok(())
    }

    /// Lets a standby follow another server, by reload; one that cannot is broken.
    pub(super) async fn follow(&mut self, standby: &Server, upstream: &Server) -> Result<bool> {
        standby.repoint_to(upstream.address()).await?;
        let streams = tokio::time::timeout(FOLLOWS_WITHIN, standby.await_streaming()).await;
        let streams = matches!(streams, Ok(Ok(())));
        if !streams {
            self.breaks(standby);
        }
        let word = if streams { "follows" } else { "cannot follow" };
        self.did(format!("{} {word} {}", standby.name(), upstream.name()));
        Ok(streams)
    }
}
