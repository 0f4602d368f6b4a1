//! What one decision costs in the core: a session's read with a carried token, five replicas.
//!
//! The snapshot is the core's own, published by a partition that was shown these nodes. Parsing,
//! keys and transport are no part of it.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant as Timer};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tidegate_core::evidence::{Evidence, EvidenceKind, Role};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::lineage::{Epoch, Fork, Incarnation, Life, LineageRow, SystemId};
use tidegate_core::partition::{Event, Partition};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::routing::{Level, Policy, Step, decide};
use tidegate_core::snapshot::{NodeSettings, Settings, Snapshot};
use tidegate_core::token::{Component, ComponentKey, Mark, PartitionId};
use tidegate_core::trail::{ClockDrift, Known, Ready, Requested, resolve_into};
use tidegate_core::views::{NodeId, Observation};

const REPLICAS: u16 = 5;
const SYSTEM: SystemId = SystemId::new(7);
const ID: PartitionId = PartitionId::new(1);
/// What every node has.
const END: u64 = 0x300_0000;
/// Times every node is polled: as much as fills a trail.
const POLLS: u64 = 400;
/// Decisions between two looks at the clock.
const ROUND: u64 = 1_000;

/// One session's read, ready to be decided again and again.
#[derive(Debug)]
pub struct Decision {
    snapshot: Arc<Snapshot>,
    component: Component,
    policy: Policy,
    now: Instant,
}

/// What was measured, in nanoseconds of processor time a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// On one thread, one figure a sample.
    pub one_thread: Vec<f64>,
    /// On two threads at once, what each took.
    pub two_threads: Vec<f64>,
    /// Allocations of all decisions of one round.
    pub allocations: u64,
    /// The decisions of that round.
    pub decisions: u64,
}

impl Decision {
    /// A leader with replicas that all have what the session wrote.
    ///
    /// # Errors
    /// When the core does not name a replica for it: then nothing worth measuring would happen.
    pub fn new() -> Result<Self> {
        let settings = Arc::new(settings());
        let mut partition = Partition::new(ID, SYSTEM, settings, Facts::new());
        let led = Epoch::new(1, life(0));
        let row = LineageRow { epoch: led, parent: None, fork: Fork::Unknown, n: 1 };
        let mut now = Instant::default();
        for poll in 0..POLLS {
            for node in 0..=REPLICAS {
                now = now + Duration::from_millis(1);
                let row = Some(row).filter(|_| poll > 0 || node > 0);
                partition.handle(Event::Observed(seen(node, row, now)), now);
            }
        }
        let mark = Mark::wrote(None, Lsn::new(END).into());
        let decision = Self {
            snapshot: Arc::new(partition.snapshot().clone()),
            component: Component::of(led, mark),
            policy: Policy {
                level: Level::Session,
                bound: None,
                wait_budget: Duration::from_millis(50),
                may_fall_back: true,
                above_cap: Vec::new(),
                zone: None,
            },
            now,
        };
        let named: Vec<_> = (0..100).filter_map(|pick| decision.decide(pick)).collect();
        ensure!(named.len() == 100, "only {} of 100 reads were served", named.len());
        let all = (1..=REPLICAS).all(|node| named.contains(&NodeId::new(node)));
        ensure!(all, "not every replica was named: {named:?}");
        Ok(decision)
    }

    /// Decides the read once; the replica that may serve it.
    #[must_use]
    pub fn decide(&self, pick: u64) -> Option<NodeId> {
        let asked = Requested {
            key: ComponentKey::new(ID, SYSTEM),
            component: Some(&self.component),
            former: Vec::new(),
            known: Known::Yes,
            session: true,
            gate: None,
            barrier: None,
            bound: None,
            global: false,
            since: self.now,
            gave_up: false,
        };
        let snapshot = black_box(&*self.snapshot);
        let mut ready = Ready::default();
        if resolve_into(&mut ready, &asked, &snapshot.line(self.now), self.now).is_some() {
            return None;
        }
        let plan = decide(&ready, snapshot, &self.policy, None, self.now, pick);
        match plan.steps.first() {
            Some(Step::Serve { node }) => Some(*node),
            Some(
                Step::Park { .. } | Step::Leader { .. } | Step::Stale { .. } | Step::Refuse { .. },
            )
            | None => None,
        }
    }

    /// Decides so often; how many were served.
    #[must_use]
    pub fn round(&self, decisions: u64) -> u64 {
        (0..decisions).map(|pick| u64::from(black_box(self.decide(pick)).is_some())).sum()
    }

    /// Decides for `span`; nanoseconds of this thread's processor time a decision.
    fn nanos(&self, span: Duration) -> f64 {
        let (begun, used, mut decided) = (Timer::now(), processor_nanos(), 0_u64);
        while begun.elapsed() < span {
            decided += self.round(ROUND);
        }
        #[expect(clippy::cast_precision_loss, reason = "no span has 2^53 decisions")]
        let decided = decided as f64;
        (processor_nanos() - used) / decided
    }

    /// Measures so many samples of `span` each; `allocations` counts those of this process so far.
    ///
    /// # Errors
    /// When a thread cannot be had.
    pub fn measure(
        &self,
        samples: usize,
        span: Duration,
        allocations: impl Fn() -> u64,
    ) -> Result<Measured> {
        let before = allocations();
        let served = self.round(ROUND);
        let allocations = allocations() - before;
        ensure!(served == ROUND, "only {served} of {ROUND} reads were served");
        let (mut one_thread, mut two_threads) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            one_thread.push(self.nanos(span));
            let both = std::thread::scope(|scope| {
                let threads = [scope.spawn(|| self.nanos(span)), scope.spawn(|| self.nanos(span))];
                threads.map(|thread| thread.join().ok())
            });
            for nanos in both {
                two_threads.push(nanos.context("a thread panicked")?);
            }
        }
        Ok(Measured { one_thread, two_threads, allocations, decisions: ROUND })
    }
}

/// What this thread has used of a processor: others that want it too do not count.
#[expect(clippy::cast_precision_loss, reason = "no thread runs for 2^53 nanoseconds")]
fn processor_nanos() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 * 1e9 + used.tv_nsec as f64
}

fn settings() -> Settings {
    Settings {
        nodes: vec![NodeSettings::default(); usize::from(REPLICAS) + 1],
        view_max_age: Duration::from_secs(5),
        gate: Duration::from_secs(3600),
        clock_drift: ClockDrift::parts_per_million(500),
        idle_interval: Duration::from_millis(250),
        busy_interval: Duration::from_millis(2),
        store_interval: Duration::from_secs(1),
        waits_max: 1_000,
        async_commits_never: false,
        accepted_majors: vec![15, 16, 17, 18],
        upgraded_from: None,
        guards: Guards::on(),
    }
}

fn life(node: u16) -> Life {
    let start = 1_764_000_000_000_000 + i64::from(node);
    Life { start, reset: start }
}

/// Node 0 leads, the others follow it; all have everything.
fn seen(node: u16, row: Option<LineageRow>, at: Instant) -> Observation {
    let end: Position = Lsn::new(END).into();
    let role = match node {
        0 => Role::Writable { timeline: 1, insert: end, flush: end, flush_starts_page: false },
        _ => Role::Standby { received_timeline: Some(1) },
    };
    let evidence = Evidence {
        kind: EvidenceKind::Poll,
        server_version_num: 150_018,
        incarnation: Incarnation { system: SYSTEM, life: life(node) },
        role,
        replay: Some(end).filter(|_| node > 0),
        row: row.map(|row| row.epoch),
        asynchronous: false,
    };
    let rows = row.map(|row| vec![row]);
    Observation {
        node: NodeId::new(node),
        evidence,
        rows,
        switches: None,
        sent_at: at,
        received_at: at,
    }
}
