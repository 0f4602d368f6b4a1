//! Reads with a bound on real servers: a leader that is idle for long, and a commit that is
//! acknowledged while nobody gets it.
//!
//! Every answer is judged by the rows of the node it names. A standby that stopped before the last
//! row is there all the time: naming it would be the false freshness.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_client::{
    AboveCap, Client, ClientOptions, Guarantee, Level, Outcome, Policy, Selection, Session,
    SessionOptions,
};

use super::{Options, at_least, say};
use crate::claims::Claims;
use crate::install::Major;
use crate::postgres::{Cluster, ClusterOptions};
use crate::service::{DATABASE, PARTITION, Service, ServiceOptions};
use crate::wait::{LIMIT, until};

const BOUND: Duration = Duration::from_secs(1);
/// Between two reads.
const PACE: Duration = Duration::from_millis(100);
/// How long a commit is kept from everybody: the bound ends early in it.
const PENDING: Duration = Duration::from_secs(8);

/// Plays both on one cluster.
pub(super) fn prove(options: &Options, claims: &mut Claims) -> Result<()> {
    let idle = Duration::from_secs(options.idle_seconds);
    say(format_args!("bounded: a commit nobody gets, and {} s of an idle leader", idle.as_secs()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let stage = Stage::start().await?;
        stage.pending(claims).await?;
        stage.idle(idle, claims).await
    })
}

struct Stage {
    session: Session,
    // Ends before the servers it polls.
    _service: Service,
    cluster: Cluster,
}

impl Stage {
    async fn start() -> Result<Self> {
        // Autovacuum commits, and the leader is to be idle.
        let options = ClusterOptions::new(Major::V15).standbys(2).setting("autovacuum", "off");
        let cluster = Cluster::start(options).await?;
        cluster.leader().sql("create table t (id bigint primary key)").await?;
        let service = Service::start(ServiceOptions::of(&cluster).await?).await?;
        let client = Client::connect(ClientOptions::new(service.endpoint())).await?;
        let session = client.session(SessionOptions::new(PARTITION));
        cluster.catch_up().await?;
        Ok(Self { session, _service: service, cluster })
    }

    /// A standby with the bound, or a refusal.
    async fn read(&self) -> Result<Selection> {
        let policy = Policy::new(Level::Bounded(BOUND)).fallback(false);
        let policy = policy.wait_budget(Duration::ZERO).above_cap([AboveCap::Refuse]);
        Ok(self.session.select(&policy).await?)
    }

    /// Whether the node named shows the row; `None`: no bound is claimed.
    async fn shows(&self, read: &Selection, id: i64) -> Result<Option<bool>> {
        let Outcome::Served(served) = &read.outcome else { return Ok(None) };
        if !read.met.contains(&Guarantee::Bounded) || !read.holds() {
            return Ok(None);
        }
        let standbys = [0, 1].map(|at| self.cluster.standby(at));
        let Some(node) = standbys.into_iter().find(|node| node.name() == served.node.name) else {
            bail!("{} is no standby", served.node.name);
        };
        let question = format!("select exists (select from t where id = {id})");
        Ok(Some(node.value(&question).await?))
    }

    /// The WAL writer is stopped: an asynchronous commit stays in the leader's memory.
    async fn pending(&self, claims: &mut Claims) -> Result<()> {
        let leader = self.cluster.leader();
        leader.signal_process("walwriter", "STOP").await?;
        let writer = leader.connect("postgres", DATABASE).await?;
        writer.batch_execute("set synchronous_commit = off; insert into t values (1)").await?;
        let committed_at = Instant::now();
        let (mut claimed, mut missing, mut reads) = (0, 0, 0);
        let mut pace = tokio::time::interval(PACE);
        while committed_at.elapsed() < PENDING {
            pace.tick().await;
            // Only a read that begins a bound after the commit must have it.
            let is_due = committed_at.elapsed() > BOUND;
            let read = self.read().await?;
            let shows = self.shows(&read, 1).await?.filter(|_| is_due);
            reads += u64::from(is_due);
            claimed += u64::from(shows.is_some());
            missing += u64::from(shows == Some(false));
        }
        let r1 = self.cluster.standby(0);
        let there: bool = r1.value("select exists (select from t where id = 1)").await?;
        leader.signal_process("walwriter", "CONT").await?;
        let name = "bounded: rows missing while a commit is kept in memory";
        claims.count(name, missing, 0, reads);
        let kept = "bounded: standbys that lacked it to the end";
        at_least(claims, kept, 1, u64::from(!there), 1);
        claims.figure("bounded: reads that claimed the bound meanwhile", claimed);
        let came = until("the bound is claimed again", LIMIT, || async {
            Ok(self.shows(&self.read().await?, 1).await? == Some(true))
        });
        came.await.context("after the WAL writer went on").map(|_| ())
    }

    /// Nobody writes; one standby stopped before the last row.
    async fn idle(&self, lasts: Duration, claims: &mut Claims) -> Result<()> {
        self.cluster.catch_up().await?;
        let (r1, r2) = (self.cluster.standby(0), self.cluster.standby(1));
        r2.pause_replay().await?;
        self.cluster.leader().sql("insert into t values (2)").await?;
        r1.catch_up_with(self.cluster.leader()).await?;
        let written_at = Instant::now();
        let (mut reads, mut evicted, mut stale) = (0, 0, 0);
        let mut pace = tokio::time::interval(PACE);
        while written_at.elapsed() < BOUND + lasts {
            pace.tick().await;
            if written_at.elapsed() <= BOUND {
                continue;
            }
            let shows = self.shows(&self.read().await?, 2).await?;
            reads += 1;
            evicted += u64::from(shows.is_none());
            stale += u64::from(shows == Some(false));
        }
        let lacked: bool = r2.value("select not exists (select from t where id = 2)").await?;
        r2.resume_replay().await?;
        let stopped = "bounded: standbys that lacked the last row all the time";
        at_least(claims, stopped, 1, u64::from(lacked), 1);
        claims.count("bounded: false freshness while the leader is idle", stale, 0, reads);
        claims.count("bounded: reads no standby answered while it is idle", evicted, 0, reads);
        Ok(())
    }
}
