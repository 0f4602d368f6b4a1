//! `Partition`: the only door for events. It owns history, trail, views and waits of one log.
//!
//! Events go in with the time, effects come out; it performs none of them, keeps no timer and never
//! fails because of the outside world. What requests read is the snapshot it publishes.

mod event;
mod waits;

use std::sync::Arc;

pub use event::{Effect, Event, Need, NeedId, Notable, Pace, RowOutcome, WaitEnd, WaitFor};
use waits::{Axis, Waits};

use crate::evidence::Role;
use crate::instant::Instant;
use crate::leader::{Contender, EpochFacts, Facts, Leadership, Origin};
use crate::lineage::{Epoch, Fork, LineageRow, SystemId};
use crate::snapshot::{Settings, Snapshot};
use crate::token::{ComponentKey, PartitionId};
use crate::trail::Sample;
use crate::views::{NodeId, NodeView, Observation, Quarantine, Taken, ViewRole};

/// One replication log with its leader and replicas.
#[derive(Debug)]
pub struct Partition {
    system: SystemId,
    snapshot: Snapshot,
    waits: Waits,
    paces: Vec<Option<Pace>>,
    /// What was last told of each node.
    quarantines: Vec<Option<Quarantine>>,
    /// The epoch that led last.
    last: Option<Epoch>,
    /// The row being written.
    writing: Option<Epoch>,
    /// A row that was refused is not tried again before.
    row_due_at: Instant,
    /// The latest time at which somebody asked for fresh observations of all nodes.
    hurry: Option<Instant>,
    facts_dirty: bool,
    facts_stored_at: Option<Instant>,
}

impl Partition {
    /// A partition nothing was seen of yet; `facts` are those kept from before.
    pub fn new(id: PartitionId, system: SystemId, settings: Arc<Settings>, facts: Facts) -> Self {
        let mut snapshot = Snapshot::unseen(ComponentKey::new(id, system), Arc::clone(&settings));
        snapshot.facts = Arc::new(facts);
        let paces = vec![None; settings.nodes.len()];
        let quarantines = vec![None; settings.nodes.len()];
        Self {
            system,
            waits: Waits::new(settings.waits_max),
            snapshot,
            paces,
            quarantines,
            last: None,
            writing: None,
            row_due_at: Instant::default(),
            hurry: None,
            facts_dirty: false,
            facts_stored_at: None,
        }
    }

    /// What requests read now.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// When [`Event::Tick`] is due; `None`: not before something else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let store = self.facts_dirty.then(|| self.facts_due_at());
        [self.waits.next_deadline(), store].into_iter().flatten().min()
    }

    fn facts_due_at(&self) -> Instant {
        let interval = self.snapshot.settings.store_interval;
        self.facts_stored_at.map_or_else(Instant::default, |at| at + interval)
    }

    /// Takes in one event.
    pub fn handle(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Observed(observation) => self.observed(&observation, now, &mut effects),
            Event::Need { id, need, since } => {
                if has_seen(&self.snapshot, &need, since) {
                    effects.push(Effect::Sampled(id));
                } else {
                    self.waits.need(id, need, since);
                }
            }
            Event::Unneed(id) => self.waits.unneed(id),
            Event::Hurry(since) => self.hurry = self.hurry.max(Some(since)),
            Event::Park { id, floor, nodes, wait_for, deadline } => {
                let parked = (floor, nodes, wait_for);
                effects.extend(self.waits.park(id, parked, deadline, &self.snapshot, now));
            }
            Event::Unpark(id) => self.waits.unpark(id),
            Event::RowWritten { epoch, outcome } => {
                self.row_written(epoch, outcome, now, &mut effects)
            }
            Event::Drain { node, drained } => {
                if let Some(flag) = self.snapshot.drained.get_mut(node.index()) {
                    *flag = drained;
                }
                self.publish(&mut effects);
                effects.extend(self.waits.judge_all(&self.snapshot, now));
            }
            Event::Resume(node) => {
                if let Some(Some(view)) = self.snapshot.views.get_mut(node.index()) {
                    Arc::make_mut(view).resume();
                }
                self.facts_dirty |= Arc::make_mut(&mut self.snapshot.facts).disown(node);
                self.lead(&mut effects);
                self.publish(&mut effects);
                effects.extend(self.waits.judge_all(&self.snapshot, now));
            }
            Event::Tick => effects.extend(self.waits.expire(now)),
        }
        self.store_facts(now, &mut effects);
        self.pace(&mut effects);
        effects
    }

    fn observed(&mut self, seen: &Observation, now: Instant, effects: &mut Vec<Effect>) {
        if seen.evidence.incarnation.system != self.system {
            effects.push(Effect::Emit(Notable::ForeignSystem(seen.node)));
            return;
        }
        if self.snapshot.views.get(seen.node.index()).is_none() {
            return;
        }
        let guards = self.snapshot.settings.guards;
        let known = self.snapshot.view(seen.node);
        if known.is_some_and(|view| view.is_out_of_date(seen, &guards)) {
            return;
        }
        let disputed = self.read_rows(seen, effects);
        self.place_epoch(seen, effects);
        let before = self.structure(seen.node);
        let is_taken = self.view(seen) != Taken::Dropped;
        let mut led = false;
        if is_taken {
            self.share_check(seen, now);
            self.learn_facts(seen);
            led = self.lead(effects);
            self.sample(seen);
            self.write_row(seen, now, effects);
        }
        let quarantined = self.note_quarantines(effects);
        self.publish(effects);
        if led || disputed {
            effects.extend(self.waits.end_all());
        } else if quarantined || before != self.structure(seen.node) {
            effects.extend(self.waits.judge_all(&self.snapshot, now));
        }
        if !is_taken {
            return;
        }
        self.advance(seen, now, effects);
        let snapshot = &self.snapshot;
        effects.extend(self.waits.met_by(|need, since| has_seen(snapshot, need, since)));
    }

    /// Says whether a row contradicts what is known: then marks must be judged again.
    fn read_rows(&mut self, seen: &Observation, effects: &mut Vec<Effect>) -> bool {
        let mut disputed = false;
        for row in seen.rows.iter().flatten() {
            if Arc::make_mut(&mut self.snapshot.history).read_row(*row).is_err() {
                effects.push(Effect::Emit(Notable::RowConflict(row.epoch)));
                disputed = true;
            }
        }
        disputed
    }

    /// Gives the epoch of a writable node its place, the first time it is seen.
    fn place_epoch(&mut self, seen: &Observation, effects: &mut Vec<Effect>) {
        let Some(epoch) = seen.evidence.epoch() else { return };
        // Rows that were not read yet say more than could be guessed without them.
        let unread = seen.evidence.row.is_some_and(|row| !self.snapshot.history.knows(row));
        if unread || (self.snapshot.history.knows(epoch) && !self.is_misplaced(seen, epoch)) {
            return;
        }
        let view = self.snapshot.view(seen.node);
        let guards = &self.snapshot.settings.guards;
        let Some(origin) = Origin::of(&seen.evidence, view, &self.snapshot.facts, guards) else {
            return;
        };
        if self.snapshot.history.origin(epoch) == Some((origin.parent, origin.fork)) {
            return;
        }
        let history = Arc::make_mut(&mut self.snapshot.history);
        history.unplace(epoch);
        let n = origin.parent.and_then(|parent| history.depth(parent)).unwrap_or(0) + 1;
        let row = LineageRow { epoch, parent: origin.parent, fork: origin.fork, n };
        if history.place(row).is_err() {
            effects.push(Effect::Emit(Notable::RowConflict(epoch)));
        }
        let unknown = origin.parent.is_some() && origin.fork == Fork::Unknown;
        effects.push(Effect::Emit(Notable::NewEpoch { row, unknown }));
    }

    /// Says whether an epoch was taken for a root because no row could be read, and now one can.
    fn is_misplaced(&self, seen: &Observation, epoch: Epoch) -> bool {
        let history = &self.snapshot.history;
        let is_root = history.origin(epoch).is_some_and(|(parent, _)| parent.is_none());
        is_root && !history.has_row(epoch) && seen.evidence.row.is_some_and(|row| row != epoch)
    }

    fn view(&mut self, seen: &Observation) -> Taken {
        let guards = &self.snapshot.settings.guards;
        let history = &self.snapshot.history;
        let Some(slot) = self.snapshot.views.get_mut(seen.node.index()) else {
            return Taken::Dropped;
        };
        match slot {
            Some(view) => Arc::make_mut(view).observe(seen, history, guards),
            None => {
                *slot = Some(Arc::new(NodeView::first(seen, history, guards)));
                Taken::NewIncarnation
            }
        }
    }

    /// One incarnation alive under two nodes quarantines both.
    fn share_check(&mut self, seen: &Observation, now: Instant) {
        let settings = Arc::clone(&self.snapshot.settings);
        let shares = |index: usize, view: &NodeView| {
            index != seen.node.index()
                && view.incarnation == seen.evidence.incarnation
                && now.since(view.sent_at) <= settings.view_max_age
        };
        let others = self.snapshot.views.iter().enumerate();
        let sharing: Vec<usize> = others
            .filter(|(index, view)| view.as_ref().is_some_and(|view| shares(*index, view)))
            .map(|(index, _)| index)
            .collect();
        if sharing.is_empty() || !settings.guards.shared_id() {
            return;
        }
        for index in sharing.into_iter().chain([seen.node.index()]) {
            if let Some(Some(view)) = self.snapshot.views.get_mut(index) {
                Arc::make_mut(view).quarantine = Some(Quarantine::SharedIncarnation);
            }
        }
    }

    /// Tells of nodes that stopped serving; says whether any did, or serves again.
    fn note_quarantines(&mut self, effects: &mut Vec<Effect>) -> bool {
        let mut changed = false;
        for node in self.snapshot.nodes() {
            let now = self.snapshot.quarantine(node);
            let told = self.quarantines.get_mut(node.index()).filter(|told| **told != now);
            let Some(told) = told else { continue };
            *told = now;
            changed = true;
            effects.extend(now.map(|why| Effect::Emit(Notable::Quarantined(node, why))));
        }
        changed
    }

    fn learn_facts(&mut self, seen: &Observation) {
        let facts = Arc::make_mut(&mut self.snapshot.facts);
        let changed = match (seen.evidence.role, seen.evidence.epoch()) {
            (Role::Writable { flush, flush_starts_page, .. }, Some(epoch)) => {
                let replay = Some(seen.evidence.replay);
                let node = Some(seen.node);
                let flush_seen = flush;
                facts.join(
                    epoch,
                    EpochFacts { node, flush_seen, flush_starts_page, replay, ended: false },
                )
            }
            (Role::Writable { .. }, None) | (Role::Standby { .. }, _) => {
                facts.end_all_of(seen.node)
            }
        };
        // An epoch that the current one has grown from: nothing is decided by its facts any more.
        let (history, heads) = (&self.snapshot.history, self.snapshot.leadership.heads());
        facts.trim(|epoch| heads.iter().any(|h| *h != epoch && history.descends(*h, epoch)));
        self.facts_dirty |= changed;
    }

    /// Judges who leads; says whether the leading epoch changed.
    fn lead(&mut self, effects: &mut Vec<Effect>) -> bool {
        let contenders: Vec<Contender> = self
            .snapshot
            .nodes()
            .filter_map(|node| {
                let epoch = match self.snapshot.view(node).map(|view| view.role) {
                    Some(ViewRole::Writable(epoch)) => Some(epoch),
                    Some(ViewRole::Standby) => None,
                    None => self.snapshot.facts.last_led_by(node),
                };
                epoch.map(|epoch| Contender { node, epoch })
            })
            .collect();
        let history = &self.snapshot.history;
        let guards = self.snapshot.settings.guards;
        let leadership = Leadership::of(&contenders, self.last, history, &guards);
        let leader = leadership.leader().map(|leader| leader.epoch);
        let changed = leader.is_some() && leader != self.last;
        if changed && let Some(leader) = leadership.leader() {
            let view = self.snapshot.view(leader.node);
            let in_recovery_at = view.and_then(|view| view.in_recovery_at);
            let history = Arc::clone(&self.snapshot.history);
            Arc::make_mut(&mut self.snapshot.trail).change_leader(
                leader.epoch,
                in_recovery_at,
                &history,
                &guards,
            );
            self.last = Some(leader.epoch);
            self.snapshot.row_unwritable = false;
        }
        let moved = leadership != self.snapshot.leadership;
        if moved {
            effects.push(Effect::Emit(Notable::Leadership(leadership.clone())));
            self.snapshot.leadership = leadership;
        }
        moved
    }

    /// A poll of the leader is a sample of what it had when the poll was sent.
    fn sample(&mut self, seen: &Observation) {
        let Some(leader) = self.snapshot.leadership.leader() else { return };
        let Role::Writable { insert, flush, .. } = seen.evidence.role else { return };
        if leader.node != seen.node || seen.evidence.epoch() != Some(leader.epoch) {
            return;
        }
        let guards = self.snapshot.settings.guards;
        let sent_at = if guards.trail_sent_at() { seen.sent_at } else { seen.received_at };
        let position = if guards.insert_lsn() { insert } else { flush };
        let sample = Sample { sent_at, epoch: leader.epoch, position };
        Arc::make_mut(&mut self.snapshot.trail).push(sample);
    }

    /// The leader's epoch is written down in its own log, once.
    fn write_row(&mut self, seen: &Observation, now: Instant, effects: &mut Vec<Effect>) {
        let Some(leader) = self.snapshot.leadership.leader() else { return };
        let written = seen.evidence.row == Some(leader.epoch);
        let polled = leader.node == seen.node && seen.evidence.epoch() == Some(leader.epoch);
        if polled && written {
            // Whoever wrote it: it stands.
            self.snapshot.row_unwritable = false;
        }
        if !polled || written || self.writing == Some(leader.epoch) || now < self.row_due_at {
            return;
        }
        let Some((parent, fork)) = self.snapshot.history.origin(leader.epoch) else { return };
        let n = self.snapshot.history.depth(leader.epoch).unwrap_or(1);
        self.writing = Some(leader.epoch);
        effects.push(Effect::WriteRow {
            node: leader.node,
            incarnation: seen.evidence.incarnation,
            row: LineageRow { epoch: leader.epoch, parent, fork, n },
        });
    }

    fn row_written(
        &mut self,
        epoch: Epoch,
        outcome: RowOutcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        self.writing = self.writing.filter(|writing| *writing != epoch);
        let mut disputed = false;
        match outcome {
            RowOutcome::Stands(row) => {
                self.snapshot.row_unwritable = false;
                if Arc::make_mut(&mut self.snapshot.history).read_row(row).is_err() {
                    effects.push(Effect::Emit(Notable::RowConflict(row.epoch)));
                    disputed = true;
                }
            }
            RowOutcome::NotThere => return,
            RowOutcome::NoTable => {
                self.snapshot.row_unwritable = false;
                self.row_due_at = now + self.snapshot.settings.store_interval;
            }
            RowOutcome::Failed => {
                if !self.snapshot.row_unwritable {
                    effects.push(Effect::Emit(Notable::RowUnwritable(epoch)));
                }
                self.snapshot.row_unwritable = true;
                self.row_due_at = now + self.snapshot.settings.store_interval;
            }
        }
        self.publish(effects);
        effects.extend(if disputed {
            self.waits.end_all()
        } else {
            self.waits.judge_all(&self.snapshot, now)
        });
    }

    fn advance(&mut self, seen: &Observation, now: Instant, effects: &mut Vec<Effect>) {
        if let Some(applied) = self.snapshot.view(seen.node).and_then(|view| view.applied) {
            let axis = Axis::Node(seen.node);
            effects.extend(self.waits.advance(axis, applied, &self.snapshot, now));
        }
        let leader = self.snapshot.leadership.leader();
        let flushed = leader.filter(|leader| leader.node == seen.node);
        let flushed = flushed.and_then(|leader| self.snapshot.facts.flush_seen(leader.epoch));
        if let Some(flushed) = flushed {
            effects.extend(self.waits.advance(Axis::Flush, flushed, &self.snapshot, now));
        }
    }

    /// What of a node a parked read depends on besides its position.
    fn structure(&self, node: NodeId) -> Option<impl PartialEq + use<>> {
        let view = self.snapshot.view(node)?;
        let place = view.place();
        Some((view.incarnation, view.role, view.quarantine, place.last, place.counted.is_some()))
    }

    fn publish(&mut self, effects: &mut Vec<Effect>) {
        self.snapshot.settle();
        effects.push(Effect::Publish(Arc::new(self.snapshot.clone())));
    }

    fn store_facts(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.facts_dirty && self.facts_due_at() <= now {
            self.facts_dirty = false;
            self.facts_stored_at = Some(now);
            effects.push(Effect::StoreFacts(Arc::clone(&self.snapshot.facts)));
        }
    }

    /// Polls fast only while somebody waits; the leader too, for its flush.
    fn pace(&mut self, effects: &mut Vec<Effect>) {
        let settings = Arc::clone(&self.snapshot.settings);
        let interval =
            if self.waits.is_empty() { settings.idle_interval } else { settings.busy_interval };
        let leader = self.snapshot.leadership.leader().map(|leader| leader.node);
        for node in self.snapshot.nodes() {
            let incarnation = self.snapshot.view(node).map(|view| view.incarnation);
            let wanted = self.waits.wanted_since(|need| match need {
                Need::Leader => leader.is_none_or(|leader| leader == node),
                Need::Incarnation(life) => incarnation.is_none_or(|seen| seen == *life),
            });
            let pace = Some(Pace { interval, sample_after: wanted.max(self.hurry) });
            let Some(known) = self.paces.get_mut(node.index()) else { continue };
            if *known != pace {
                *known = pace;
                effects.extend(pace.map(|pace| Effect::Pace(node, pace)));
            }
        }
    }
}

/// Says whether an observation sent at or after `since` is in the snapshot.
fn has_seen(snapshot: &Snapshot, need: &Need, since: Instant) -> bool {
    match need {
        Need::Leader => {
            let last = snapshot.trail.last();
            let epoch = snapshot.leadership.leader().map(|leader| leader.epoch);
            last.is_some_and(|sample| sample.sent_at >= since && Some(sample.epoch) == epoch)
        }
        Need::Incarnation(life) => snapshot
            .views
            .iter()
            .flatten()
            .any(|view| view.incarnation == *life && view.sent_at >= since),
    }
}
