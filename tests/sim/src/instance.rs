//! One instance of the service: a `core::Partition` of its own, its sources, and what is asked of
//! it. It performs effects as the shell does, and decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::evidence::Evidence;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::lineage::{Epoch, Incarnation, LineageRow, SystemId, TimelineHistory};
use tidegate_core::partition::{
    Effect, Event, Need, NeedId, Notable, Pace, Partition, RowOutcome, WaitEnd, WaitFor,
};
use tidegate_core::routing::FallbackCap;
use tidegate_core::snapshot::{NodeSettings, Settings, Snapshot};
use tidegate_core::store_guard::EmbeddedGuard;
use tidegate_core::token::{ComponentKey, PartitionId};
use tidegate_core::trail::Floor;
use tidegate_core::views::{NodeId, Observation};
use tidegate_core::wait::WaitId;

use crate::check::Breach;
use crate::options::{MILLI, Options};
use crate::sim::{Happening, PollId, State};
use crate::world::SYSTEM;
use crate::world::log::RowWrite;

/// How long a source waits for an answer.
pub(crate) const POLL_TIMEOUT: u64 = 300 * MILLI;
/// How long it waits after a failure.
const BACKOFF: u64 = 40 * MILLI;
/// A view older than this serves nobody.
pub(crate) const VIEW_MAX_AGE: Duration = Duration::from_millis(1_000);
pub(crate) const PARTITION: PartitionId = PartitionId::new(1);

/// What became of a row.
pub(crate) type RowDone = (Epoch, RowOutcome);

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) task: usize,
    pub(crate) deadline: Instant,
    pub(crate) end: Option<WaitEnd>,
}

/// What polls one node.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pace: Pace,
    sent_at: Option<u64>,
    flight: Option<u64>,
    not_before: u64,
    seen_row: Option<(Incarnation, Epoch)>,
    /// It cannot reach its node before.
    pub(crate) cut_until: u64,
    /// Its answers are lost before.
    pub(crate) deaf_until: u64,
    /// Its answers are slow before.
    pub(crate) slow_until: u64,
    pub(crate) slow_by: u64,
    /// Its next answer comes this much later, and another may be asked for meanwhile.
    pub(crate) hold_next: Option<u64>,
}

/// One instance.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) partition: Partition,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) guard: EmbeddedGuard,
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

impl Source {
    const fn new() -> Self {
        Self {
            pace: Pace { interval: Duration::from_millis(80), sample_after: None },
            sent_at: None,
            flight: None,
            not_before: 0,
            seen_row: None,
            cut_until: 0,
            deaf_until: 0,
            slow_until: 0,
            slow_by: 0,
            hold_next: None,
        }
    }

    fn due_at(&self) -> u64 {
        let at = match (self.sent_at, self.pace.sample_after) {
            (None, _) => 0,
            (Some(sent), Some(after)) if sent < after.as_nanos() => 0,
            (Some(sent), _) => sent + nanos(self.pace.interval),
        };
        at.max(self.not_before)
    }

    /// The network is what it should be.
    pub(crate) const fn heal(&mut self) {
        (self.cut_until, self.deaf_until, self.slow_until) = (0, 0, 0);
        self.hold_next = None;
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The belief of an instance that starts now, and is told of every loss.
fn guard_at(now: Instant, options: &Options) -> EmbeddedGuard {
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

    /// Looks at a source as soon as it has something to do.
    fn look(&mut self, instance: usize, node: usize) {
        let at = self.instances[instance].sources[node].due_at().max(self.now);
        self.heap.push(at, Happening::Due { instance, node });
    }

    /// Polls a node if it is time.
    pub(crate) fn due(&mut self, instance: usize, node: usize) {
        let most = usize::try_from(self.options.poll_latency_max).expect("small");
        let (loss, overtaken) = (self.options.poll_loss, self.options.overtaken);
        let now = self.now;
        let own = &mut self.instances[instance];
        let source = &mut own.sources[node];
        if source.flight.is_some() || now < source.due_at() {
            return;
        }
        own.polls += 1;
        let number = own.polls;
        source.flight = Some(number);
        let out = self.random.within(300_000, most) as u64;
        let mut back = self.random.within(300_000, most) as u64;
        if now < source.slow_until {
            back += source.slow_by;
        }
        if self.random.below(1000) < overtaken {
            back += POLL_TIMEOUT + self.random.within(1, 500) as u64 * MILLI;
        }
        if let Some(by) = source.hold_next.take() {
            back += POLL_TIMEOUT + by;
        }
        let lost = now < source.cut_until || self.random.below(1000) < loss;
        let life = own.life;
        let poll = PollId { number, life, sent_at: now, back };
        if !lost {
            self.heap.push(now + out, Happening::Asked { instance, node, poll });
        }
        self.heap.push(now + POLL_TIMEOUT, Happening::GivenUp { instance, node, poll });
    }

    /// What a server says to a poll that reaches it.
    pub(crate) fn asked(&mut self, instance: usize, node: usize, poll: PollId) {
        let at = self.world.at_address(node, poll.number);
        if !self.world.servers[at].answers() {
            return;
        }
        self.world.servers[at].read_rows(&self.world.tree);
        let server = &self.world.servers[at];
        let mut text = server.evidence(&self.world.tree, "poll", true);
        if self.world.foreign[node] {
            // Another database, whatever else it says.
            text = text.replacen(&format!("|{SYSTEM}|"), &format!("|{}|", SYSTEM + 1), 1);
        }
        let guards = self.options.guards();
        let evidence = Evidence::parse(&text, &guards).expect("servers speak well");
        let own = &mut self.instances[instance];
        let last = evidence.row.map(|row| (evidence.incarnation, row));
        let source = &mut own.sources[node];
        // All rows are read whenever the last one was not seen before on this connection.
        let known = last.is_some() && source.seen_row == last;
        let rows = (!known).then(|| server.rows.clone());
        let reads = self.options.reads_history
            && evidence
                .epoch()
                .is_some_and(|epoch| evidence.row.is_none_or(|row| row.timeline < epoch.timeline));
        let switches = reads.then(|| {
            let text = self.world.history_file(at);
            TimelineHistory::parse(&text).expect("servers write good history files")
        });
        if self.now >= source.deaf_until {
            source.seen_row = last;
            let (sent_at, now) = (Instant::from_nanos(poll.sent_at), self.instant());
            let node_id = Self::node(node);
            let received_at = now;
            let seen =
                Observation { node: node_id, evidence, rows, switches, sent_at, received_at };
            let seen = Some(Box::new(seen));
            let happening = Happening::Answered { instance, node, poll, seen };
            self.heap.push(self.now + poll.back, happening);
        }
    }

    pub(crate) fn answered(
        &mut self,
        instance: usize,
        node: usize,
        poll: PollId,
        seen: Option<Box<Observation>>,
    ) {
        let own = &mut self.instances[instance];
        if own.life != poll.life {
            return;
        }
        let source = &mut own.sources[node];
        if source.flight == Some(poll.number) {
            source.flight = None;
            source.sent_at = Some(poll.sent_at);
        } else {
            self.check.figures.late_answers += 1;
        }
        if let Some(mut seen) = seen {
            seen.received_at = Instant::from_nanos(self.now);
            self.check.figures.polls += 1;
            self.check.trace.mark(1, [self.now, node as u64, seen.sent_at.as_nanos()]);
            self.check.seen(instance, &seen);
            self.handle(instance, Event::Observed(*seen));
        }
        self.look(instance, node);
    }

    pub(crate) fn given_up(&mut self, instance: usize, node: usize, poll: PollId) {
        let own = &mut self.instances[instance];
        let source = &mut own.sources[node];
        if own.life == poll.life && source.flight == Some(poll.number) {
            source.flight = None;
            source.seen_row = None;
            source.sent_at = None;
            source.not_before = self.now + BACKOFF;
            self.look(instance, node);
        }
    }

    /// Inserts a row, if the polled life is still there and can write.
    pub(crate) fn row_arrives(
        &mut self,
        instance: usize,
        life: u64,
        node: usize,
        polled: Incarnation,
        row: LineageRow,
    ) {
        let fails = self.now < self.instances[instance].rows_fail_until
            || self.random.below(100) < self.options.row_failures;
        let guarded = self.options.guards().guarded_insert();
        let at = self.world.address[node];
        let server = &mut self.world.servers[at];
        let answers = server.answers() && !fails && !self.world.foreign[node];
        server.read_rows(&self.world.tree);
        let own = server.leads.is_some() && (!guarded || server.life == polled.life);
        let taken = |other: &LineageRow| other.epoch == row.epoch || other.n == row.n;
        if answers && own && !server.rows.iter().any(taken) {
            let mut table = server.rows.clone();
            table.push(row);
            // The first change of a page after a checkpoint carries the whole page.
            let image = self.options.images() || self.random.one_in(3);
            self.world.append(at, Some(RowWrite { row, table, image }), false);
            self.world.flush_all(at, self.now);
            self.world.servers[at].read_rows(&self.world.tree);
            self.check.trace.say(self.now, || format!("row {row:?} written on server {at}"));
        }
        let stands = self.world.servers[at].rows.iter().find(|other| other.epoch == row.epoch);
        let outcome = match stands {
            Some(stands) if answers => RowOutcome::Stands(*stands),
            None if answers => RowOutcome::NotThere,
            Some(_) | None => RowOutcome::Failed,
        };
        let back = self.random.within(1_000_000, 5_000_000) as u64;
        let done = (row.epoch, outcome);
        self.heap.push(self.now + back, Happening::RowAnswered { instance, life, done });
    }

    pub(crate) fn row_answered(&mut self, instance: usize, life: u64, (epoch, outcome): RowDone) {
        if self.instances[instance].life == life {
            self.handle(instance, Event::RowWritten { epoch, outcome });
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
        (own.sampled_at, own.ticks_at) = (None, None);
        let waits = std::mem::take(&mut own.waits);
        let left = waits.values().filter(|waiter| waiter.end.is_none()).count();
        self.check.figures.waits_left += left as u64;
        let gone = waits.into_values().map(|waiter| waiter.task);
        let unmet = std::mem::take(&mut own.needs).into_values().map(|(task, _)| task);
        let tasks: Vec<usize> = gone.chain(unmet).collect();
        for source in &mut own.sources {
            let cut_until = source.cut_until;
            *source = Source { cut_until, ..Source::new() };
        }
        for task in tasks {
            self.heap.push(self.now, Happening::Resume(task));
        }
        for node in 0..options.servers {
            self.look(at, node);
        }
    }
}
