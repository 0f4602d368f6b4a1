//! `Partition`: the only door for events. It owns history, trail, views and waits of one log.
//!
//! Events go in with the time, effects come out; it performs none of them, keeps no timer and never
//! fails because of the outside world. What requests read is the snapshot it publishes.

mod event;
mod leading;
mod learned;
mod needs;
mod operator;
mod waits;

use std::sync::Arc;

pub use event::{Effect, Event, Need, NeedId, Notable, Pace, RowOutcome, WaitEnd, WaitFor};
use waits::{Axis, Waits};

use crate::instant::Instant;
use crate::leader::Facts;
use crate::lineage::{Epoch, SystemId};
use crate::snapshot::{Settings, Snapshot};
use crate::token::{ComponentKey, PartitionId};
use crate::views::{NodeId, NodeView, Observation, Quarantine, Taken};

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
    /// The epoch that was found to be a copy's last.
    restored: Option<Epoch>,
    /// The row being written.
    writing: Option<Epoch>,
    /// The row that was tried last, and when it may be tried again.
    row_due: Option<(Epoch, Instant)>,
    /// The latest time at which somebody asked for fresh observations of all nodes.
    hurry: Option<Instant>,
    facts_dirty: bool,
    facts_stored_at: Option<Instant>,
}

impl Partition {
    /// A partition nothing was seen of yet; `facts` are those kept from before.
    pub fn new(id: PartitionId, system: SystemId, settings: Arc<Settings>, facts: Facts) -> Self {
        let mut snapshot = Snapshot::unseen(ComponentKey::new(id, system), Arc::clone(&settings));
        snapshot.history = Arc::new(leading::history_of(&facts));
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
            restored: None,
            writing: None,
            row_due: None,
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
                if has_seen(&self.snapshot, need, since) {
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
            Event::Learned(facts) => self.learn(&facts, now, &mut effects),
            Event::Resume(node) => self.resume(node, now, &mut effects),
            Event::Resolve(incarnation) => self.resolve(incarnation, now, &mut effects),
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
            self.overwrite(seen);
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
        effects.extend(self.waits.met_by(last_seen(&self.snapshot)));
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
            let may_lead = leader.is_none_or(|leader| leader == node);
            let wanted = self.waits.wanted_since(may_lead, incarnation);
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
fn has_seen(snapshot: &Snapshot, need: Need, since: Instant) -> bool {
    last_seen(snapshot).any(|(seen, sent_at)| seen == need && sent_at >= since)
}

/// Whose observations are in the snapshot, and when the last one of each was sent.
fn last_seen(snapshot: &Snapshot) -> impl Iterator<Item = (Need, Instant)> + '_ {
    let epoch = snapshot.leadership.leader().map(|leader| leader.epoch);
    let led = snapshot.trail.last().filter(|sample| Some(sample.epoch) == epoch);
    let views = snapshot.views.iter().flatten();
    let views = views.map(|view| (Need::Incarnation(view.incarnation), view.sent_at));
    led.map(|sample| (Need::Leader, sample.sent_at)).into_iter().chain(views)
}
