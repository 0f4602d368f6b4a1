//! Plays a schedule: visitors make their rounds while faults begin and end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tidegate_client::{Client, ClientOptions, DirectPool};
use tidegate_core::guards::Guards;
use tidegate_proto::v1::NodeState;
use tokio_postgres::Config;

use super::schedule::{Fault, Span, spans};
use super::sums::Sums;
use super::visitor::{Place, Visitor};
use super::{Reach, RoundsOptions};
use crate::history::Checker;
use crate::pgbouncer::{Pgbouncer, PgbouncerOptions};
use crate::postgres::{Cluster, ClusterOptions, Stop};
use crate::service::{Service, ServiceOptions};
use crate::wait::{LIMIT, until};

const VISITORS: u32 = 10;
/// Rounds of each visitor in one span: before the fault, and in it.
const CALM_ROUNDS: u32 = 3;
const FAULT_ROUNDS: u32 = 1;
/// Client connections to one address.
const CONNECTIONS: usize = 16;
/// Longer than any run: a commit hidden for so long is hidden until the test says otherwise.
const HIDDEN: Duration = Duration::from_secs(3600);

/// A cluster, a service before it, and its visitors.
#[derive(Debug)]
pub(super) struct Play {
    visitors: Vec<Visitor>,
    service: Service,
    place: Place,
    began_at: Instant,
}

impl Play {
    /// Starts everything.
    pub(super) async fn prepare(options: &RoundsOptions) -> Result<Self> {
        let began_at = Instant::now();
        let cluster = Cluster::start(ClusterOptions::new(options.major).standbys(2)).await?;
        let guards = options.off.as_deref().map_or_else(|| Ok(Guards::on()), without)?;
        let mut serving = ServiceOptions::of(&cluster).await?.guards(guards);
        let table = "create table rounds (visitor bigint, version bigint, \
                     primary key (visitor, version)); create table noise (at timestamptz)";
        cluster.leader().sql(table).await?;
        // A crashed standby comes back with the tables and without later rows.
        for standby in cluster.standbys() {
            standby.anchor(cluster.leader()).await?;
        }
        let mut poolers = Vec::new();
        if options.reach == Reach::Pooled {
            for server in cluster.servers() {
                let pooler = Pgbouncer::start(PgbouncerOptions::new(), server).await?;
                serving = serving.reach_through(server.name(), pooler.address(), "pooled");
                poolers.push(pooler);
            }
        }
        let service = Service::start(serving).await?;
        let connecting = guarded(ClientOptions::new(service.endpoint()), guards);
        let client = Client::connect(connecting).await?;
        let mut config = Config::new();
        config.user("postgres").dbname("postgres");
        let (pool, checker) = (DirectPool::new(config, CONNECTIONS), Checker::new());
        let place = Place { poolers, cluster, client, pool, checker, carries: options.carries };
        let mut visitors = Vec::new();
        for id in 0..VISITORS {
            visitors.push(Visitor::arrive(id, &place).await?);
        }
        Ok(Self { visitors, service, place, began_at })
    }

    /// Plays the schedule, to its end or until the first violation if so asked.
    pub(super) async fn play(&mut self, options: &RoundsOptions) -> Result<()> {
        let each = u64::from((CALM_ROUNDS + FAULT_ROUNDS) * VISITORS);
        let count = usize::try_from(options.rounds.div_ceil(each))?;
        for span in spans(options.seed, count) {
            self.calm(span).await?;
            self.faulty(span, options.off.is_some()).await?;
            if let Some(told) = options.progress {
                told(self.place.checker.figures().writes);
            }
            if options.until_violated && !self.place.checker.violations().is_empty() {
                break;
            }
        }
        Ok(())
    }

    async fn rounds(visitors: &mut [Visitor], place: &Place, count: u32) -> Result<()> {
        let rounds = visitors.iter_mut().map(async |visitor| {
            for _ in 0..count {
                visitor.round(place).await?;
            }
            anyhow::Ok(())
        });
        try_join_all(rounds).await.map(drop)
    }

    /// Rounds while at most one standby replays late.
    async fn calm(&mut self, span: Span) -> Result<()> {
        let (visitors, place) = (&mut self.visitors, &self.place);
        if let Some((late, delay)) = span.delay {
            place.cluster.standby(late).apply_delay(delay).await?;
            drop(place.checker.fault(Fault::Delay.kind()));
        }
        Self::rounds(visitors, place, CALM_ROUNDS).await?;
        if let Some((late, _)) = span.delay {
            place.cluster.standby(late).apply_delay(Duration::ZERO).await?;
        }
        place.cluster.catch_up().await
    }

    /// Rounds while something befalls a standby; afterwards all is well again.
    async fn faulty(&mut self, span: Span, unsafely: bool) -> Result<()> {
        let (visitors, place) = (&mut self.visitors, &self.place);
        let victim = place.cluster.standby(span.victim);
        let window = place.checker.fault(span.fault.kind());
        match span.fault {
            Fault::Delay => {}
            Fault::Hold => {
                let other = place.cluster.standby(1 - span.victim);
                let held = if span.both { vec![victim, other] } else { vec![victim] };
                for standby in &held {
                    standby.pause_replay().await?;
                }
                Self::rounds(visitors, place, FAULT_ROUNDS).await?;
                for standby in held {
                    standby.resume_replay().await?;
                }
            }
            Fault::CrashBehind => {
                place.cluster.leader().sql("insert into noise values (now())").await?;
                place.cluster.catch_up().await?;
                // In a pooler reads wait until it is back; others would only go elsewhere.
                let waiting = if place.poolers.is_empty() { 0 } else { visitors.len() / 2 };
                let (while_down, after) = visitors.split_at_mut(waiting);
                let rounds = Self::rounds(while_down, place, FAULT_ROUNDS);
                let (behind, round) = tokio::join!(victim.crash_behind(HIDDEN), rounds);
                behind.and(round)?;
                Self::rounds(after, place, FAULT_ROUNDS).await?;
                victim.apply_delay(Duration::ZERO).await?;
            }
            Fault::Restart => {
                let rounds = Self::rounds(visitors, place, FAULT_ROUNDS);
                tokio::try_join!(victim.restart(Stop::Immediate), rounds)?;
            }
            Fault::KillBackend => {
                let rounds = Self::rounds(visitors, place, FAULT_ROUNDS);
                tokio::try_join!(victim.kill_backend(), rounds)?;
            }
        }
        let streams = place.cluster.standbys().iter().map(|standby| standby.await_streaming());
        try_join_all(streams).await?;
        place.cluster.catch_up().await?;
        self.await_seen(unsafely).await?;
        drop(window);
        Ok(())
    }

    /// Waits until the service has seen that both standbys are well.
    async fn await_seen(&self, unsafely: bool) -> Result<()> {
        // Without a rule that forgets what a restart lost, another one throws the standby out.
        let is_seen = |node: &NodeState| {
            node.session_eligible || (unsafely && !node.quarantine_reason.is_empty())
        };
        until("both standbys may serve again", LIMIT, || async {
            let partition = self.service.partition().await?;
            Ok(partition.nodes.iter().all(|node| node.name == "l" || is_seen(node)))
        })
        .await
        .map(drop)
    }

    /// What the run has shown.
    pub(super) fn sums(&self) -> Sums {
        let violations = self.place.checker.violations();
        Sums {
            figures: self.place.checker.figures(),
            violations: violations.iter().map(ToString::to_string).collect(),
            unanswered: self.visitors.iter().map(|visitor| visitor.unanswered).sum(),
            selected_again: self.visitors.iter().map(|visitor| visitor.selected_again).sum(),
            took: self.began_at.elapsed(),
        }
    }
}

#[cfg(feature = "unsafe-guards")]
fn without(guard: &str) -> Result<Guards> {
    Guards::without(guard).with_context(|| format!("there is no guard `{guard}`"))
}

#[cfg(not(feature = "unsafe-guards"))]
fn without(guard: &str) -> Result<Guards> {
    None.with_context(|| format!("this build cannot switch `{guard}` off: `unsafe-guards` can"))
}

#[cfg(feature = "unsafe-guards")]
fn guarded(options: ClientOptions, guards: Guards) -> ClientOptions {
    options.guards(guards)
}

#[cfg(not(feature = "unsafe-guards"))]
fn guarded(options: ClientOptions, _: Guards) -> ClientOptions {
    options
}
