//! One instance of the service: a `core::Partition` of its own, its sources, and what is asked of
//! it. It performs effects as the shell does, and decides nothing.

mod source;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::lineage::SystemId;
use tidegate_core::partition::{Effect, Event, Need, NeedId, Notable, Partition, WaitEnd, WaitFor};
use tidegate_core::routing::FallbackCap;
use tidegate_core::snapshot::{NodeSettings, Settings, Snapshot};
use tidegate_core::store_guard::EmbeddedGuard;
use tidegate_core::token::{ComponentKey, PartitionId};
use tidegate_core::trail::{ClockDrift, Floor};
use tidegate_core::views::NodeId;
use tidegate_core::wait::WaitId;

pub(crate) use source::{POLL_TIMEOUT, RowDone, Source};

use crate::check::Breach;
use crate::options::Options;
use crate::sim::{Happening, State};
use crate::store::link::Link;
use crate::store::own::{self, Presence};
use crate::store::{Memory, StoreKind};
use crate::world::SYSTEM;

/// A view older than this serves nobody.
pub(crate) const VIEW_MAX_AGE: Duration = Duration::from_millis(1_000);
pub(crate) const PARTITION: PartitionId = PartitionId::new(1);

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) task: usize,
    pub(crate) deadline: Instant,
    pub(crate) end: Option<WaitEnd>,
}

/// One instance.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) partition: Partition,
    pub(crate) snapshot: Arc<Snapshot>,
    /// The belief in a store in memory.
    pub(crate) guard: EmbeddedGuard,
    pub(crate) memory: Memory,
    pub(crate) presence: Presence,
    /// Its side of a shared store.
    pub(crate) link: Link,
    /// It is of the version before.
    pub(crate) previous: bool,
    pub(crate) cap: FallbackCap,
    pub(crate) sources: Vec<Source>,
    pub(crate) waits: BTreeMap<WaitId, Waiter>,
    pub(crate) needs: BTreeMap<NeedId, (usize, bool)>,
    pub(crate) rows_fail_until: u64,
    /// Which of its lives; events of former ones are void.
    pub(crate) life: u64,
    /// Conflicting rows it has read.
    pub(crate) conflicts: u64,
    kept: Arc<Facts>,
    settings: Arc<Settings>,
    sampled_at: Option<Instant>,
    ticks_at: Option<Instant>,
    ids: u64,
    polls: u64,
}

pub(crate) fn settings(options: &Options) -> Settings {
    Settings {
        nodes: vec![NodeSettings::default(); options.servers],
        view_max_age: VIEW_MAX_AGE,
        gate: options.gate,
        clock_drift: ClockDrift::parts_per_million(options.drift),
        idle_interval: Duration::from_millis(80),
        busy_interval: Duration::from_millis(10),
        store_interval: Duration::from_millis(100),
        waits_max: 64,
        async_commits_never: false,
        accepted_majors: vec![15],
        upgraded_from: None,
        guards: options.guards(),
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The belief in its memory of an instance that starts now.
fn guard_at(now: Instant, options: &Options) -> EmbeddedGuard {
    if options.store.kind == StoreKind::Own {
        let interval = own::interval(options.store.look_interval);
        return EmbeddedGuard::started(now, options.gate, Some(interval));
    }
    EmbeddedGuard::started(now, options.gate, None)
}

impl Instance {
    pub(crate) fn new(index: usize, options: &Options) -> Self {
        let settings = Arc::new(settings(options));
        let system = SystemId::new(SYSTEM);
        let partition = Partition::new(PARTITION, system, Arc::clone(&settings), Facts::new());
        Self {
            snapshot: Arc::new(partition.snapshot().clone()),
            partition,
            guard: guard_at(Instant::from_nanos(0), options),
            memory: Memory::default(),
            presence: Presence::of_new(index == 0),
            link: Link::new(0, options),
            previous: options.store.skewed,
            cap: FallbackCap::new(options.cap, FallbackCap::default_burst(options.cap)),
            sources: vec![Source::new(); options.servers],
            waits: BTreeMap::new(),
            needs: BTreeMap::new(),
            rows_fail_until: 0,
            life: index as u64,
            conflicts: 0,
            kept: Arc::new(Facts::new()),
            settings,
            sampled_at: None,
            ticks_at: None,
            ids: 0,
            polls: 0,
        }
    }

    pub(crate) const fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(crate) fn key() -> ComponentKey {
        ComponentKey::new(PARTITION, SystemId::new(SYSTEM))
    }
}

impl State {
    /// Tells an instance something, and does what it says.
    pub(crate) fn handle(&mut self, at: usize, event: Event) {
        let now = self.instant();
        let effects = self.instances[at].partition.handle(event, now);
        for effect in effects {
            self.perform(at, effect);
        }
        let instance = &mut self.instances[at];
        let due = instance.partition.poll_timeout();
        if due != instance.ticks_at {
            instance.ticks_at = due;
            if let Some(due) = due {
                let life = instance.life;
                let happening = Happening::Tick { instance: at, life };
                self.heap.push(due.as_nanos().max(self.now), happening);
            }
        }
    }

    fn perform(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Publish(snapshot) => {
                let newest = snapshot.trail.last();
                let instance = &mut self.instances[at];
                instance.snapshot = snapshot;
                if instance.sampled_at != newest.map(|sample| sample.sent_at) {
                    instance.sampled_at = newest.map(|sample| sample.sent_at);
                    if let Some(sample) = newest {
                        instance.guard.sampled(Instance::key(), sample);
                        self.store_sampled(at);
                    }
                }
            }
            Effect::Wake(id, end) => self.wake(at, id, end),
            Effect::Sampled(id) => {
                if let Some((task, came)) = self.instances[at].needs.get_mut(&id) {
                    *came = true;
                    self.heap.push(self.now, Happening::Resume(*task));
                }
            }
            Effect::Pace(node, pace) => {
                self.instances[at].sources[node.index()].pace = pace;
                self.look(at, node.index());
            }
            Effect::WriteRow { node, incarnation, row } => {
                let most = usize::try_from(self.options.row_latency_max).expect("small");
                let takes = self.random.within(1_000_000, most) as u64;
                let (life, node) = (self.instances[at].life, node.index());
                self.heap.push(
                    self.now + takes,
                    Happening::RowArrives { instance: at, life, node, polled: incarnation, row },
                );
            }
            Effect::StoreFacts(facts) => self.instances[at].kept = facts,
            Effect::Emit(notable) => {
                if let Notable::RowConflict(_) = notable {
                    self.instances[at].conflicts += 1;
                }
                self.check.trace.say(self.now, || format!("instance {at}: {notable:?}"));
            }
        }
    }

    fn wake(&mut self, at: usize, id: WaitId, end: WaitEnd) {
        let now = self.instant();
        let Some(waiter) = self.instances[at].waits.get_mut(&id) else {
            self.check.broken(self.now, Breach::WaitOfNobody, format!("{id:?}"));
            return;
        };
        if waiter.end.is_some() {
            self.check.broken(self.now, Breach::WaitEndedTwice, format!("{id:?}: {end:?}"));
            return;
        }
        if now.since(waiter.deadline) > Duration::from_millis(1) {
            let text = format!("{id:?}: {end:?} after {:?}", now.since(waiter.deadline));
            self.check.broken(self.now, Breach::WaitEndedLate, text);
        }
        self.check.figures.waits_ended += 1;
        waiter.end = Some(end);
        let task = waiter.task;
        self.heap.push(self.now, Happening::Resume(task));
    }

    pub(crate) fn need(&mut self, at: usize, id: NeedId, need: Need, since: Instant) {
        self.handle(at, Event::Need { id, need, since });
    }

    pub(crate) fn unneed(&mut self, at: usize, id: NeedId) {
        self.handle(at, Event::Unneed(id));
    }

    pub(crate) fn park(
        &mut self,
        at: usize,
        id: WaitId,
        floor: Floor,
        nodes: Vec<NodeId>,
        wait_for: WaitFor,
        deadline: Instant,
    ) {
        self.check.figures.waits_parked += 1;
        self.handle(at, Event::Park { id, floor, nodes, wait_for, deadline });
    }

    pub(crate) fn tick(&mut self, at: usize, life: u64) {
        if self.instances[at].life == life {
            let due = self.instances[at].partition.poll_timeout();
            if due.is_some_and(|due| due <= self.instant()) {
                self.instances[at].ticks_at = None;
                self.handle(at, Event::Tick);
            }
        }
    }

    /// Starts an instance again; calls under way fail.
    pub(crate) fn restart_instance(&mut self, at: usize, keeps_facts: bool) {
        let options = self.options.clone();
        self.check.restarts += 1;
        self.check.forgot |= !keeps_facts;
        let own = &mut self.instances[at];
        let facts = if keeps_facts { Facts::clone(&own.kept) } else { Facts::new() };
        own.life += 2;
        let settings = Arc::clone(&own.settings);
        own.kept = Arc::new(facts.clone());
        own.partition = Partition::new(PARTITION, SystemId::new(SYSTEM), settings, facts);
        own.snapshot = Arc::new(own.partition.snapshot().clone());
        own.guard = guard_at(Instant::from_nanos(self.now), &options);
        own.memory = Memory::default();
        own.presence = Presence::of_new(own.presence.is_there);
        own.link = own.link.restarted(&options);
        (own.sampled_at, own.ticks_at) = (None, None);
        let waits = std::mem::take(&mut own.waits);
        let left = waits.values().filter(|waiter| waiter.end.is_none()).count();
        self.check.figures.waits_left += left as u64;
        let gone = waits.into_values().map(|waiter| waiter.task);
        let unmet = std::mem::take(&mut own.needs).into_values().map(|(task, _)| task);
        let tasks: Vec<usize> = gone.chain(unmet).collect();
        for source in &mut own.sources {
            *source = source.restarted();
        }
        for task in tasks {
            self.heap.push(self.now, Happening::Resume(task));
        }
        for node in 0..options.servers {
            self.look(at, node);
        }
    }
}
