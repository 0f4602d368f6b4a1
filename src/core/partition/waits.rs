//! The parked reads of one partition, and the requests for observations.
//!
//! A wait is parked on scalars and judged again whenever one is reached, or when something else
//! changed. It owns no timer.

use super::needs::Needs;
use super::{Effect, Need, NeedId, WaitEnd, WaitFor};
use crate::instant::Instant;
use crate::lineage::Incarnation;
use crate::position::Position;
use crate::snapshot::{Snapshot, WhyNot};
use crate::trail::Floor;
use crate::views::{Coverage, NodeId};
use crate::wait::{WaitId, WaitQueue};

/// What a wait is parked on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Axis {
    /// The applied position of a node.
    Node(NodeId),
    /// The flush position of the current leader.
    Flush,
}

/// One parked read.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    floor: Floor,
    nodes: Vec<NodeId>,
    wait_for: WaitFor,
}

/// All that is waited for in one partition.
#[derive(Debug)]
pub(super) struct Waits {
    queue: WaitQueue<Axis, Parked>,
    needs: Needs,
}

/// What a wait is to its nodes now.
enum State {
    Fresh(Vec<NodeId>),
    Gone,
    Waiting(Vec<(Axis, u64)>),
}

impl Waits {
    pub(super) fn new(limit: usize) -> Self {
        Self { queue: WaitQueue::new(limit), needs: Needs::default() }
    }

    pub(super) fn park(
        &mut self,
        id: WaitId,
        (floor, nodes, wait_for): (Floor, Vec<NodeId>, WaitFor),
        deadline: Instant,
        snapshot: &Snapshot,
        now: Instant,
    ) -> Option<Effect> {
        let parked = Parked { floor, nodes, wait_for };
        if !parked.floor.holds_under(&snapshot.leadership, &snapshot.history) {
            // The leadership changed between the judgement and now.
            return Some(Effect::Wake(id, WaitEnd::Judge));
        }
        match parked.judge(snapshot, now) {
            State::Fresh(nodes) => Some(Effect::Wake(id, WaitEnd::Fresh(nodes))),
            State::Gone => Some(Effect::Wake(id, WaitEnd::Gone)),
            State::Waiting(_) if deadline <= now => Some(Effect::Wake(id, WaitEnd::Expired)),
            State::Waiting(slots) => {
                let refused = self.queue.park(id, deadline, slots, parked).is_err();
                refused.then_some(Effect::Wake(id, WaitEnd::Full))
            }
        }
    }

    pub(super) fn unpark(&mut self, id: WaitId) {
        self.queue.take(id);
    }

    pub(super) fn expire(&mut self, now: Instant) -> Vec<Effect> {
        let ended = self.queue.expire(now).into_iter();
        ended.map(|(id, _)| Effect::Wake(id, WaitEnd::Expired)).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.queue.next_deadline()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A node, or the leader's flush, has reached `position`.
    pub(super) fn advance(
        &mut self,
        axis: Axis,
        position: Position,
        snapshot: &Snapshot,
        now: Instant,
    ) -> Vec<Effect> {
        let reached = self.queue.advance(axis, position.scalar());
        reached.into_iter().filter_map(|id| self.judge(id, snapshot, now)).collect()
    }

    /// Something other than a scalar changed: every wait is judged in one pass.
    pub(super) fn judge_all(&mut self, snapshot: &Snapshot, now: Instant) -> Vec<Effect> {
        self.queue.ids().into_iter().filter_map(|id| self.judge(id, snapshot, now)).collect()
    }

    /// The leadership changed: every wait ends, and its session is judged again.
    pub(super) fn end_all(&mut self) -> Vec<Effect> {
        let ids = self.queue.ids();
        for id in &ids {
            self.queue.take(*id);
        }
        ids.into_iter().map(|id| Effect::Wake(id, WaitEnd::Judge)).collect()
    }

    fn judge(&mut self, id: WaitId, snapshot: &Snapshot, now: Instant) -> Option<Effect> {
        let end = match self.queue.get(id)?.judge(snapshot, now) {
            State::Waiting(slots) => {
                self.queue.repark(id, slots);
                return None;
            }
            State::Fresh(nodes) => WaitEnd::Fresh(nodes),
            State::Gone => WaitEnd::Gone,
        };
        self.queue.take(id);
        Some(Effect::Wake(id, end))
    }

    /// Notes that somebody needs an observation.
    pub(super) fn need(&mut self, id: NeedId, need: Need, since: Instant) {
        self.needs.need(id, need, since);
    }

    pub(super) fn unneed(&mut self, id: NeedId) {
        self.needs.unneed(id);
    }

    /// The requests that are satisfied by what was `seen`: whose observations, sent when.
    pub(super) fn met_by(&mut self, seen: impl Iterator<Item = (Need, Instant)>) -> Vec<Effect> {
        let met = seen.flat_map(|(need, sent_at)| self.needs.meet(need, sent_at));
        let mut met: Vec<NeedId> = met.collect();
        met.sort_unstable();
        met.into_iter().map(Effect::Sampled).collect()
    }

    /// The latest time any request about a node must not be sent before: of one that may lead, and
    /// lives this life.
    pub(super) fn wanted_since(
        &self,
        may_lead: bool,
        life: Option<Incarnation>,
    ) -> Option<Instant> {
        self.needs.latest(may_lead, life)
    }
}

impl Parked {
    fn judge(&self, snapshot: &Snapshot, now: Instant) -> State {
        let mut fresh = Vec::new();
        let mut slots = Vec::new();
        let mut serving = 0_usize;
        for node in &self.nodes {
            match snapshot.eligible(*node, now) {
                Ok(place) => {
                    serving += 1;
                    match snapshot.coverage(&place, &self.floor) {
                        Coverage::Covered => fresh.push(*node),
                        Coverage::Applied(unmet) => slots.push((Axis::Node(*node), unmet.at_least)),
                        Coverage::Flushed(unmet) => slots.push((Axis::Flush, unmet.at_least)),
                        // Ended by a change that is no scalar; judged again then.
                        Coverage::Unjudged | Coverage::NoRow | Coverage::Uncounted => {}
                    }
                }
                Err(WhyNot::Drained) => {}
                Err(WhyNot::ViewTooOld | WhyNot::Unseen) => {
                    serving += 1;
                    slots.push((Axis::Node(*node), 0));
                }
                Err(
                    WhyNot::Quarantined(_)
                    | WhyNot::Writable
                    | WhyNot::Diverged
                    | WhyNot::NoRow
                    | WhyNot::Uncounted
                    | WhyNot::UntestedMajor,
                ) => serving += 1,
            }
        }
        let done = match self.wait_for {
            WaitFor::Any => !fresh.is_empty(),
            WaitFor::All => serving > 0 && fresh.len() == serving,
        };
        match (done, serving) {
            (true, _) => State::Fresh(fresh),
            (false, 0) => State::Gone,
            (false, _) => State::Waiting(slots),
        }
    }
}
