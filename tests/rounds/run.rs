//! Plays a schedule: visitors make their rounds while faults begin and end.

use std::fmt::Write;
use std::ops::Add;
use std::time::Duration;

use futures::future::join_all;
use tidegate::clock::Clock;
use tidegate_client::{Client, ClientOptions, DirectPool};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_lab::history::{Checker, Figures};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Stop};
use tidegate_lab::service::{Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::NodeState;
use tokio_postgres::Config;

use super::ROUNDS;
use super::schedule::{Fault, Span, spans};
use super::visitor::{Carries, Place, Visitor};

const VISITORS: i64 = 10;
/// Rounds of each visitor in one span: before the fault, and in it.
const CALM_ROUNDS: usize = 3;
const FAULT_ROUNDS: usize = 1;
/// Longer than any run: a commit hidden for so long is hidden until the test says otherwise.
const HIDDEN: Duration = Duration::from_secs(3600);

/// A cluster, a service before it, and its visitors.
pub(crate) struct Run {
    place: Place,
    visitors: Vec<Visitor>,
    service: Service,
    /// Without one of the safety rules.
    unsafely: bool,
    clock: Clock,
    began_at: Instant,
}

impl Run {
    /// Starts everything; `off` names a safety rule that service and client do without.
    pub(crate) async fn prepare(major: Major, off: Option<&str>, carries: Carries) -> Self {
        let clock = Clock::new();
        let cluster = Cluster::start(ClusterOptions::new(major).standbys(2)).await;
        let cluster = cluster.expect("a cluster starts");
        let guards = off.map_or_else(Guards::on, |name| Guards::without(name).expect("a guard"));
        let options = ServiceOptions::of(&cluster).await.expect("the leader answers");
        let table = "create table rounds (visitor bigint, version bigint, \
                     primary key (visitor, version)); create table noise (at timestamptz)";
        cluster.leader().sql(table).await.expect("tables");
        // A crashed standby comes back with the tables and without later rows.
        for standby in cluster.standbys() {
            standby.anchor(cluster.leader()).await.expect("a restartpoint");
        }
        let service = Service::start(options.guards(guards)).await.expect("a service starts");
        let options = ClientOptions::new(service.endpoint()).guards(guards);
        let client = Client::connect(options).await.expect("the service is reached");
        let mut config = Config::new();
        config.user("postgres").dbname("postgres");
        let pool = DirectPool::new(config, 16);
        let mut visitors = Vec::new();
        for id in 0..VISITORS {
            visitors.push(Visitor::arrive(id, &cluster).await);
        }
        let place = Place { cluster, client, pool, checker: Checker::new(), carries };
        let began_at = clock.now();
        Self { place, visitors, service, unsafely: off.is_some(), clock, began_at }
    }

    /// Plays the schedule of a seed, to its end or until the first violation.
    pub(crate) async fn play(&mut self, seed: u64, until_violated: bool) {
        let each = CALM_ROUNDS + FAULT_ROUNDS;
        let rounds_of_span = u64::try_from(each).expect("few") * VISITORS.unsigned_abs();
        let count = usize::try_from(ROUNDS / rounds_of_span).expect("few");
        for span in spans(seed, count) {
            self.calm(span).await;
            self.faulty(span).await;
            if until_violated && !self.place.checker.violations().is_empty() {
                break;
            }
        }
    }

    async fn rounds(visitors: &mut [Visitor], place: &Place, count: usize) {
        join_all(visitors.iter_mut().map(async |visitor| {
            for _ in 0..count {
                visitor.round(place).await;
            }
        }))
        .await;
    }

    /// Rounds while at most one standby replays late.
    async fn calm(&mut self, span: Span) {
        let (visitors, place) = (&mut self.visitors, &self.place);
        if let Some((late, delay)) = span.delay {
            place.cluster.standby(late).apply_delay(delay).await.expect("it is delayed");
            drop(place.checker.fault(Fault::Delay.kind()));
        }
        Self::rounds(visitors, place, CALM_ROUNDS).await;
        if let Some((late, _)) = span.delay {
            place.cluster.standby(late).apply_delay(Duration::ZERO).await.expect("in time again");
        }
        place.cluster.catch_up().await.expect("both have everything");
    }

    /// Rounds while something befalls a standby; afterwards all is well again.
    async fn faulty(&mut self, span: Span) {
        let (visitors, place) = (&mut self.visitors, &self.place);
        let victim = place.cluster.standby(span.victim);
        let window = place.checker.fault(span.fault.kind());
        match span.fault {
            Fault::Delay => {}
            Fault::Hold => {
                let other = place.cluster.standby(1 - span.victim);
                let held = if span.both { vec![victim, other] } else { vec![victim] };
                for standby in &held {
                    standby.pause_replay().await.expect("it is held");
                }
                Self::rounds(visitors, place, FAULT_ROUNDS).await;
                for standby in held {
                    standby.resume_replay().await.expect("it goes on");
                }
            }
            Fault::CrashBehind => {
                place.cluster.leader().sql("insert into noise values (now())").await.expect("one");
                place.cluster.catch_up().await.expect("the victim shows it");
                victim.crash_behind(HIDDEN).await.expect("it comes back behind");
                Self::rounds(visitors, place, FAULT_ROUNDS).await;
                victim.apply_delay(Duration::ZERO).await.expect("it may go on");
            }
            Fault::Restart => {
                let restart = victim.restart(Stop::Immediate);
                let rounds = Self::rounds(visitors, place, FAULT_ROUNDS);
                let (restarted, ()) = tokio::join!(restart, rounds);
                restarted.expect("it comes back");
            }
            Fault::KillBackend => {
                let rounds = Self::rounds(visitors, place, FAULT_ROUNDS);
                let (killed, ()) = tokio::join!(victim.kill_backend(), rounds);
                killed.expect("it recovers");
            }
        }
        let streams = place.cluster.standbys().iter().map(|standby| standby.await_streaming());
        futures::future::try_join_all(streams).await.expect("both stream again");
        place.cluster.catch_up().await.expect("both have everything");
        self.await_seen().await;
        drop(window);
    }

    /// Waits until the service has seen that both standbys are well.
    async fn await_seen(&self) {
        // Without a rule that forgets what a restart lost, another one throws the standby out.
        let is_seen = |node: &NodeState| {
            node.session_eligible || (self.unsafely && !node.quarantine_reason.is_empty())
        };
        until("both standbys may serve again", LIMIT, || async {
            let partition = self.service.partition().await?;
            Ok(partition.nodes.iter().all(|node| node.name == "l" || is_seen(node)))
        })
        .await
        .expect("they are seen");
    }

    /// What the run has shown.
    pub(crate) fn sums(&self) -> Sums {
        let violations = self.place.checker.violations();
        Sums {
            figures: self.place.checker.figures(),
            violations: violations.iter().map(ToString::to_string).collect(),
            unanswered: self.visitors.iter().map(|visitor| visitor.unanswered).sum(),
            took: self.clock.now().since(self.began_at),
        }
    }
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) figures: Figures,
    pub(crate) violations: Vec<String>,
    /// Reads that were refused or broke off.
    pub(crate) unanswered: u64,
    took: Duration,
}

impl Add for Sums {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        let (own, more) = (&mut self.figures, other.figures);
        own.writes += more.writes;
        own.reads += more.reads;
        own.calm_replica_reads += more.calm_replica_reads;
        own.replica_reads += more.replica_reads;
        own.leader_reads += more.leader_reads;
        own.flagged_reads += more.flagged_reads;
        own.rounds_lacking += more.rounds_lacking;
        own.notices += more.notices;
        for (kind, count) in more.faults {
            *own.faults.entry(kind).or_default() += count;
        }
        self.violations.extend(other.violations);
        self.unanswered += other.unanswered;
        self.took = self.took.max(other.took);
        self
    }
}

impl Sums {
    /// The figures of several runs side by side.
    pub(crate) fn table(runs: &[(&str, &Self)]) -> String {
        type Line = fn(&Sums) -> String;
        let lines: [(&str, Line); 9] = [
            ("rounds", |sums| sums.figures.writes.to_string()),
            ("rows missing on a node called fresh", |sums| sums.violations.len().to_string()),
            ("reads judged", |sums| sums.figures.reads.to_string()),
            ("unflagged on a replica, no fault", |sums| {
                sums.figures.calm_replica_reads.to_string()
            }),
            ("unflagged on a replica", |sums| sums.figures.replica_reads.to_string()),
            ("on the leader", |sums| sums.figures.leader_reads.to_string()),
            ("flagged", |sums| sums.figures.flagged_reads.to_string()),
            ("refused or broken off", |sums| sums.unanswered.to_string()),
            ("rounds in which a standby lacked it", |sums| sums.figures.rounds_lacking.to_string()),
        ];
        let mut text = String::new();
        let mut row = |name: &str, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
            writeln!(text, "{name:<38}{cells}").expect("a string takes everything");
        };
        row("PostgreSQL", runs.iter().map(|(major, _)| (*major).to_owned()).collect());
        for (name, figure) in lines {
            row(name, runs.iter().map(|(_, sums)| figure(sums)).collect());
        }
        for fault in Fault::ALL {
            let fired = |sums: &Self| sums.figures.faults.get(fault.kind()).copied().unwrap_or(0);
            row(fault.kind(), runs.iter().map(|(_, sums)| fired(sums).to_string()).collect());
        }
        row(
            "seconds",
            runs.iter().map(|(_, sums)| format!("{:.1}", sums.took.as_secs_f64())).collect(),
        );
        text
    }
}
