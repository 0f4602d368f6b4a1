//! One instance: a partition of the core, its polls, and its answers to reads with a bound.
//!
//! Its clock counts what its machine sleeps, at a rate of its own. It knows no real time.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::evidence::{Evidence, EvidenceKind, Role};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::lineage::{Epoch, Incarnation, Life, LineageRow, SystemId};
use tidegate_core::partition::{Effect, Event, Partition, RowOutcome};
use tidegate_core::routing::{Level, Policy, Step, decide, valid_for, valid_for_leader};
use tidegate_core::snapshot::{NodeSettings, Settings};
use tidegate_core::token::PartitionId;
use tidegate_core::trail::{ClockDrift, Known, Ready, Requested, resolve_into};
use tidegate_core::views::{NodeId, Observation};

use super::servers::{MILLI, NODES, SECOND, Servers};
use crate::random::Random;

/// By how much clocks are off at most, in parts per million: what the instance is told.
pub(crate) const DRIFT: u32 = 500;
const SYSTEM: SystemId = SystemId::new(7);
/// Times a read may ask for a leader sample.
const SAMPLES_MAX: u32 = 2;

/// A clock that is off by some parts per million.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(i64);

impl Clock {
    /// As slow as it may be, right, or as fast.
    pub(crate) fn any(random: &mut Random) -> Self {
        Self([-i64::from(DRIFT), 0, i64::from(DRIFT)][random.below(3)])
    }

    /// What it shows of a real span.
    pub(crate) fn shows(self, real: u64) -> u64 {
        let off = i64::try_from(real).expect("no world lives so long") * self.0 / 1_000_000;
        real.checked_add_signed(off).expect("it runs forward")
    }
}

/// What an instance answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) node: usize,
    pub(crate) line: usize,
    pub(crate) valid_for: u64,
}

#[derive(Debug)]
pub(crate) struct Instance {
    partition: Partition,
    clock: Clock,
    /// Rows that stand in the logs, by line.
    rows: Vec<LineageRow>,
    /// Nobody answers a poll of the node until then.
    pub(crate) silent_until: [u64; NODES],
    /// When it first saw that another node leads.
    pub(crate) detected_at: Option<u64>,
}

fn life(node: usize) -> Life {
    let start = 1_000 * (i64::try_from(node).expect("few") + 1);
    Life { start, reset: start }
}

impl Instance {
    pub(crate) fn new(guards: Guards, random: &mut Random) -> Self {
        let settings = Settings {
            nodes: vec![NodeSettings::default(); NODES],
            view_max_age: Duration::from_secs(5),
            gate: Duration::from_secs(3600),
            clock_drift: ClockDrift::parts_per_million(DRIFT),
            idle_interval: Duration::from_millis(250),
            busy_interval: Duration::from_millis(2),
            store_interval: Duration::from_secs(1),
            waits_max: 1,
            accepted_majors: vec![15],
            async_commits_never: false,
            upgraded_from: None,
            guards,
        };
        let partition =
            Partition::new(PartitionId::new(1), SYSTEM, Arc::new(settings), Facts::new());
        let (rows, silent_until) = (Vec::new(), [0; NODES]);
        Self { partition, clock: Clock::any(random), rows, silent_until, detected_at: None }
    }

    fn now(&self, servers: &Servers) -> Instant {
        Instant::from_nanos(self.clock.shows(servers.now))
    }

    /// Polls one node; time passes meanwhile, much of it where the machine falls asleep.
    pub(crate) fn poll(&mut self, servers: &mut Servers, node: usize, random: &mut Random) {
        let sent_at = self.now(servers);
        let most = if random.one_in(1_000) { 4 * SECOND } else { 6 * MILLI };
        let takes = random.within(200_000, usize::try_from(most).expect("small")) as u64;
        let there = random.next() % takes;
        servers.advance(there);
        let evidence = self.evidence(servers, node);
        servers.advance(takes - there);
        if servers.now < self.silent_until[node] {
            return;
        }
        let seen = Observation {
            node: NodeId::new(u16::try_from(node).expect("few")),
            rows: evidence.row.map(|row| {
                self.rows.iter().rev().skip_while(|own| own.epoch != row).copied().collect()
            }),
            evidence,
            switches: None,
            sent_at,
            received_at: self.now(servers),
        };
        self.tell(Event::Observed(seen), servers);
        let leader = self.partition.snapshot().leadership.leader();
        if leader.is_some_and(|leader| leader.node.index() == 1) {
            self.detected_at.get_or_insert(servers.now);
        }
    }

    fn tell(&mut self, event: Event, servers: &Servers) {
        let now = self.now(servers);
        for effect in self.partition.handle(event, now) {
            if let Effect::WriteRow { row, .. } = effect {
                self.rows.push(row);
                let outcome = RowOutcome::Stands(row);
                self.partition.handle(Event::RowWritten { epoch: row.epoch, outcome }, now);
            }
        }
    }

    fn evidence(&self, servers: &Servers, node: usize) -> Evidence {
        let leads = match node {
            0 => Some(1),
            1 if servers.promoted_at().is_some() => Some(2),
            _ => None,
        };
        let shows = servers.shows(node);
        let role = match leads {
            Some(timeline) => {
                Role::Writable { timeline, insert: shows, flush: shows, flush_starts_page: false }
            }
            None => Role::Standby { received_timeline: Some(1) },
        };
        let of_line = |row: &&LineageRow| row.epoch.timeline <= leads.unwrap_or(1);
        Evidence {
            kind: EvidenceKind::Poll,
            server_version_num: 150_018,
            incarnation: Incarnation { system: SYSTEM, life: life(node) },
            role,
            replay: leads.is_none().then_some(shows),
            row: self.rows.iter().rev().find(of_line).map(|row| row.epoch),
            asynchronous: false,
        }
    }

    /// Answers one read with a bound; `None`: it is refused, or not with the bound.
    pub(crate) fn ask(
        &mut self,
        servers: &mut Servers,
        bound: u64,
        random: &mut Random,
    ) -> Option<Answer> {
        let policy = Policy {
            level: Level::Bounded,
            bound: Some(Duration::from_nanos(bound)),
            wait_budget: Duration::ZERO,
            may_fall_back: random.one_in(2),
            above_cap: Vec::new(),
            zone: None,
        };
        let since = self.now(servers);
        let mut ready = Ready::default();
        for asked in 0..=SAMPLES_MAX {
            let (snapshot, now) = (self.partition.snapshot(), self.now(servers));
            let requested = Requested {
                key: snapshot.key,
                component: None,
                former: Vec::new(),
                known: Known::Yes,
                session: false,
                gate: None,
                barrier: None,
                bound: policy.bound,
                global: false,
                since,
                gave_up: asked == SAMPLES_MAX,
            };
            ready = Ready::default();
            if resolve_into(&mut ready, &requested, &snapshot.line(now), now).is_none() {
                break;
            }
            let leader = snapshot.leadership.leader()?.node.index();
            self.poll(servers, leader, random);
        }
        let (snapshot, now) = (self.partition.snapshot(), self.now(servers));
        let plan = decide(&ready, snapshot, &policy, None, now, random.next());
        let (node, valid) = plan.steps.iter().find_map(|step| match step {
            Step::Serve { node } => Some((*node, valid_for(snapshot, &policy, *node, now))),
            Step::Leader { leader, .. } => {
                Some((leader.node, valid_for_leader(snapshot, &policy, now)))
            }
            Step::Park { .. } | Step::Stale { .. } | Step::Refuse { .. } => None,
        })?;
        let head: Epoch = *snapshot.leadership.heads().first()?;
        let valid_for = u64::try_from(valid?.as_nanos()).unwrap_or(u64::MAX);
        let line = usize::from(head.timeline > 1);
        Some(Answer { node: node.index(), line, valid_for })
    }
}
