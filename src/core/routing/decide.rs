//! `decide`: the flow chart of one read, on one screen.

use std::time::Duration;

use super::{AboveCap, Guarantee, Level, Plan, Policy, Reason, Step};
use crate::few::Few;
use crate::instant::Instant;
use crate::snapshot::{Lag, Snapshot, WhyNot};
use crate::trail::{Ready, Unprovable};
use crate::views::{NodeId, NodeSet};

/// Plans one read. `pick` is a random number: it spreads reads over equally good replicas.
pub fn decide(
    ready: &Ready,
    snapshot: &Snapshot,
    policy: &Policy,
    previous: Option<NodeId>,
    now: Instant,
    pick: u64,
) -> Plan {
    let leader = || snapshot.named_leader(now);
    match policy.level {
        Level::Eventual => {
            let readable = snapshot.nodes().filter(|node| snapshot.readable(*node, now));
            let replica = choose(&readable.collect(), snapshot, policy, previous, pick);
            let step = replica.map(|node| Step::Serve { node });
            let step =
                step.or_else(|| leader().map(|leader| Step::Leader { leader, fallback: false }));
            return Plan::of(step.unwrap_or(Step::Refuse { reason: Reason::NoNode }));
        }
        Level::Leader => {
            let reason =
                if snapshot.leadership.is_split() { Reason::Split } else { Reason::NoLeader };
            let step = leader().map(|leader| Step::Leader { leader, fallback: false });
            return Plan::of(step.unwrap_or(Step::Refuse { reason }));
        }
        Level::Session | Level::Bounded | Level::Global => {}
    }
    // A floor that does not hold any more is satisfied by none.
    if ready.unprovable.is_none()
        && let satisfying = snapshot.satisfying(&ready.floor, now)
        && let Some(node) = choose(&satisfying, snapshot, policy, previous, pick)
    {
        return Plan::of(Step::Serve { node });
    }
    let is_provable = ready.unprovable.is_none()
        && ready.floor.holds_under(&snapshot.leadership, &snapshot.history);
    // How long the read may have waited when a wait ends.
    let mut waited = Duration::ZERO;
    let mut park = |budget: Duration| {
        waited = waited.saturating_add(budget);
        let nodes = if is_provable { hopeful(ready, snapshot, waited, now) } else { Vec::new() };
        Step::Park { nodes, budget }
    };
    let mut steps = Few::none();
    if !policy.wait_budget.is_zero() {
        steps.push(park(policy.wait_budget));
    }
    if policy.may_fall_back
        && is_provable
        && let Some(leader) = snapshot.session_leader(now)
    {
        steps.push(Step::Leader { leader, fallback: true });
    }
    for step in &policy.above_cap {
        match step {
            AboveCap::Wait(budget) => steps.push(park(*budget)),
            AboveCap::Stale => {
                if let Some(node) = least_stale(snapshot, now) {
                    steps.push(Step::Stale { node, lag: snapshot.lag(node, now) });
                }
            }
            AboveCap::Refuse => break,
        }
    }
    steps.push(Step::Refuse { reason: refusal(ready, snapshot, now) });
    Plan { steps }
}

/// Among equally good replicas: the caller's zone, the one it read before, else an even spread.
#[inline]
fn choose(
    nodes: &NodeSet,
    snapshot: &Snapshot,
    policy: &Policy,
    previous: Option<NodeId>,
    pick: u64,
) -> Option<NodeId> {
    if policy.zone.is_none() {
        return spread(nodes, previous, pick);
    }
    spread(&nearby(nodes, snapshot, policy), previous, pick)
}

/// Those of the caller's zone; all of them if there are none.
#[inline(never)]
fn nearby(nodes: &NodeSet, snapshot: &Snapshot, policy: &Policy) -> NodeSet {
    let settings = &snapshot.settings.nodes;
    let near =
        |node: &NodeId| settings.get(node.index()).is_some_and(|own| own.zone == policy.zone);
    let nearby: NodeSet = nodes.iter().filter(near).collect();
    if nearby.is_empty() { *nodes } else { nearby }
}

#[inline]
fn spread(nodes: &NodeSet, previous: Option<NodeId>, pick: u64) -> Option<NodeId> {
    if let Some(previous) = previous.filter(|node| nodes.contains(*node)) {
        return Some(previous);
    }
    // Half of the number is chance enough, and divided in half the time.
    let pick = u32::try_from(pick & u64::from(u32::MAX)).unwrap_or(0);
    nodes.nth(pick.checked_rem(nodes.len())?)
}

/// The replicas that may come to have everything within a budget.
fn hopeful(ready: &Ready, snapshot: &Snapshot, budget: Duration, now: Instant) -> Vec<NodeId> {
    let in_time = |node: &NodeId| snapshot.may_come_within(*node, &ready.floor, budget, now);
    snapshot.nodes().filter(|node| may_come(snapshot, *node, now)).filter(in_time).collect()
}

/// Says whether waiting for a replica can be of use.
fn may_come(snapshot: &Snapshot, node: NodeId, now: Instant) -> bool {
    match snapshot.eligible(node, now) {
        Ok(_) | Err(WhyNot::Uncounted) => true,
        Err(WhyNot::NoRow) => !snapshot.lineage_is_missing(),
        Err(WhyNot::Diverged) => snapshot.lacks_only_the_row(node),
        Err(
            WhyNot::Unseen
            | WhyNot::ViewTooOld
            | WhyNot::Quarantined(_)
            | WhyNot::Drained
            | WhyNot::Writable
            | WhyNot::UntestedMajor,
        ) => false,
    }
}

/// The readable replica that is least behind.
fn least_stale(snapshot: &Snapshot, now: Instant) -> Option<NodeId> {
    let readable = snapshot.nodes().filter(|node| snapshot.readable(*node, now));
    readable.min_by_key(|node| {
        let lag = snapshot.lag(*node, now);
        lag.map_or((Duration::MAX, u64::MAX), |lag| (lag.time, lag.bytes))
    })
}

fn refusal(ready: &Ready, snapshot: &Snapshot, now: Instant) -> Reason {
    match ready.unprovable {
        Some(Unprovable::NoLeader) => Reason::NoLeader,
        Some(Unprovable::Split) => Reason::Split,
        Some(Unprovable::NoSample) => Reason::NotProvable,
        Some(Unprovable::UnknownEpoch { .. }) => Reason::UnknownEpoch,
        None if !ready.floor.holds_under(&snapshot.leadership, &snapshot.history) => {
            Reason::NotProvable
        }
        None => {
            let seen = snapshot.nodes().any(|node| snapshot.view(node).is_some());
            let usual = if seen { Reason::NotCovered } else { Reason::NoNode };
            lineage_reason(snapshot, now).unwrap_or(usual)
        }
    }
}

/// What keeps replicas from a session's read where that is the lineage table; `None`: it is not.
pub fn lineage_reason(snapshot: &Snapshot, now: Instant) -> Option<Reason> {
    let shows_none = |node| snapshot.eligible(node, now).err() == Some(WhyNot::NoRow);
    if !snapshot.nodes().any(shows_none) {
        None
    } else if snapshot.row_unwritable {
        Some(Reason::LineageUnwritable)
    } else {
        snapshot.lineage_is_missing().then_some(Reason::LineageMissing)
    }
}

/// What an answer meets that names a node satisfying the floor; `leader`: a verified leader.
pub fn met(ready: &Ready, policy: &Policy, leader: bool) -> Vec<Guarantee> {
    let mut met = Vec::new();
    if policy.asks_session() && (!ready.ungated || leader) {
        met.extend([Guarantee::ReadYourWrites, Guarantee::MonotonicReads]);
    }
    if policy.bound.is_some() {
        met.push(Guarantee::Bounded);
    }
    if policy.level == Level::Global {
        met.push(Guarantee::Global);
    }
    if leader {
        met.push(Guarantee::Leader);
    }
    met
}

/// What a node that was not asked for would have answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shadow {
    /// It had everything demanded.
    pub fresh: bool,
    /// How far behind it is; `None` if that cannot be shown.
    pub behind: Option<Lag>,
}

/// Judges the node the application would have read by itself.
pub fn shadow(ready: &Ready, snapshot: &Snapshot, node: NodeId, now: Instant) -> Shadow {
    let leads = snapshot.session_leader(now).is_some_and(|leader| leader.node == node);
    let is_provable = ready.unprovable.is_none()
        && ready.floor.holds_under(&snapshot.leadership, &snapshot.history);
    let fresh = is_provable && (leads || snapshot.satisfies(node, &ready.floor, now));
    Shadow { fresh, behind: snapshot.lag(node, now) }
}
