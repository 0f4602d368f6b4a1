//! One read, from its session to a node, as `src/reads/select.rs` does.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::leader::Contender;
use tidegate_core::lineage::{Epoch, Incarnation, SystemId};
use tidegate_core::partition::{WaitEnd, WaitFor};
use tidegate_core::routing::{
    Guarantee, Plan, Policy, Step, decide, met, valid_for, valid_for_leader,
};
use tidegate_core::snapshot::Snapshot;
use tidegate_core::token::SessionToken;
use tidegate_core::trail::Ready;
use tidegate_core::views::NodeId;

use super::committed::Committed;
use super::holder::{Holder, Whom};
use super::judged::{Demanded, change_of, judged};
use super::record::delivered;
use crate::check::{Breach, Deps};
use crate::sim::Sim;
use crate::world::SYSTEM;

const ROUNDS_MAX: u32 = 256;
const SAMPLE_BUDGET: Duration = Duration::from_millis(50);
/// The longest a call may wait.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Where a read goes.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) node: NodeId,
    pub(crate) acceptable: Vec<Incarnation>,
    /// It must lead, on this timeline.
    pub(crate) timeline: Option<u32>,
    pub(crate) stale: bool,
}

/// One read, answered.
#[derive(Clone, Debug)]
pub(crate) struct Selected {
    /// `None`: refused.
    pub(crate) served: Option<Served>,
    pub(crate) met: Vec<Guarantee>,
    pub(crate) valid_for: Option<Duration>,
    /// What the session depends on and was not told of as lost.
    pub(crate) deps: Deps,
    pub(crate) holder: SessionToken,
    /// The epoch held for the leader's.
    pub(crate) leader: Option<Epoch>,
    /// When the call arrived.
    pub(crate) since: u64,
}

struct Walk {
    since: Instant,
    ends_at: Instant,
    parks_done: usize,
    park_until: Option<Instant>,
    cap_full: bool,
    pick: u64,
}

enum End {
    Serve(NodeId),
    Leader(Contender),
    Stale(Served),
    Refuse(String),
}

struct Judged {
    ready: Ready,
    snapshot: Arc<Snapshot>,
    plan: Plan,
}

/// Finds a node for one read; `None` if the instance restarted meanwhile.
pub(crate) async fn select(
    sim: &Sim,
    at: usize,
    device: usize,
    policy: &Policy,
    whom: Whom,
    pick: u64,
) -> Option<Selected> {
    let since = sim.with(|state| state.instant());
    let life = sim.with(|state| state.instances[at].life);
    let (holder, deps) = delivered(sim, at, device).await;
    sim.with(|state| state.count_lacking(&deps));
    let ends_at = since + WAIT_MAX;
    let mut walk = Walk { since, ends_at, parks_done: 0, park_until: None, cap_full: false, pick };
    let demanded = Demanded::by(policy, sim.with(|state| state.instant()));
    for _ in 0..ROUNDS_MAX {
        let sampled_by = walk.ends_at.min(since + policy.wait_budget.max(SAMPLE_BUDGET));
        let (ready, snapshot) = judged(sim, at, &holder, demanded, sampled_by).await;
        let now = sim.with(|state| state.instant());
        let plan = decide(&ready, &snapshot, policy, None, now, walk.pick);
        let judged = Judged { ready, snapshot, plan };
        let end = walk_plan(sim, at, &judged, &mut walk).await;
        if sim.with(|state| state.instances[at].life) != life {
            return None;
        }
        if let Some(end) = end {
            let found = (&judged, end, since);
            return finish(sim, at, device, &holder, deps, policy, whom, found).await;
        }
    }
    sim.with(|state| {
        let text = format!("device {device} at instance {at}");
        state.check.broken(state.now, Breach::EndlessRead, text);
    });
    None
}

/// Walks the plan to its end; `None`: something changed, judge again.
async fn walk_plan(sim: &Sim, at: usize, judged: &Judged, walk: &mut Walk) -> Option<End> {
    let mut parks = 0;
    for step in &judged.plan.steps {
        let now = sim.with(|state| state.instant());
        match step {
            Step::Serve { node } => return Some(End::Serve(*node)),
            Step::Park { nodes, budget } => {
                parks += 1;
                if parks <= walk.parks_done {
                    continue;
                }
                if nodes.is_empty() {
                    (walk.parks_done, walk.park_until) = (parks, None);
                    continue;
                }
                let begun = if parks == 1 { walk.since } else { now };
                let ends_at = walk.ends_at;
                let until = *walk.park_until.get_or_insert_with(|| (begun + *budget).min(ends_at));
                let floor = judged.ready.floor.clone();
                match sim.park(at, floor, nodes.clone(), WaitFor::Any, until).await {
                    WaitEnd::Fresh(_) | WaitEnd::Judge => return None,
                    WaitEnd::Expired | WaitEnd::Gone | WaitEnd::Full => {
                        walk.parks_done = parks;
                        walk.park_until = None;
                    }
                }
            }
            Step::Leader { leader, fallback: false } => return Some(End::Leader(*leader)),
            Step::Leader { leader, fallback: true } => {
                if !walk.cap_full {
                    if sim.with(|state| state.admit(at)) {
                        return Some(End::Leader(*leader));
                    }
                    walk.cap_full = true;
                }
            }
            Step::Stale { node, .. } => {
                let latest = sim.with(|state| Arc::clone(&state.instances[at].snapshot));
                if latest.readable(*node, now) {
                    return Some(End::Stale(replica(&latest, *node, true)));
                }
            }
            Step::Refuse { reason } => return Some(End::Refuse(format!("{reason:?}"))),
        }
    }
    Some(End::Refuse("nothing left".to_owned()))
}

#[expect(clippy::too_many_arguments, reason = "the facts of one walk, gathered once")]
async fn finish(
    sim: &Sim,
    at: usize,
    device: usize,
    holder: &Holder,
    mut deps: Deps,
    policy: &Policy,
    whom: Whom,
    (judged, end, since): (&Judged, End, Instant),
) -> Option<Selected> {
    let since = since.as_nanos();
    let Judged { ready, snapshot, .. } = judged;
    let (change, life) =
        sim.with(|state| (change_of(state, holder, ready), state.instances[at].life));
    let committed: Committed = holder.commit(sim, &change, whom, &[]).await;
    sim.with(|state| {
        if state.instances[at].life != life {
            return None;
        }
        committed.spread(state, device, &[]);
        state.justify(snapshot, &change, &deps);
        state.tell(at, device, &committed, &change.tell, &mut deps);
        let now = state.instant();
        let (served, met, valid_for, reason) = match end {
            End::Serve(node) => {
                let valid = valid_for(snapshot, policy, node, now);
                let mut met = met(ready, policy, false);
                met.retain(|one| valid.is_some() || *one != Guarantee::Bounded);
                (Some(replica(snapshot, node, false)), met, valid, "serve")
            }
            End::Leader(leader) => {
                let system = SystemId::new(SYSTEM);
                let acceptable = vec![leader.epoch.incarnation(system)];
                let timeline = Some(leader.epoch.timeline);
                let served = Served { node: leader.node, acceptable, timeline, stale: false };
                let valid = valid_for_leader(snapshot, policy, now);
                (Some(served), met(ready, policy, true), valid, "leader")
            }
            End::Stale(ref served) => (Some(served.clone()), Vec::new(), None, "stale"),
            End::Refuse(_) => (None, Vec::new(), None, "refused"),
        };
        let why = if let End::Refuse(why) = &end { why.as_str() } else { "" };
        let reason = format!("{reason} {why}");
        state.check.trace.say(state.now, || {
            format!("device {device} at {at}: {reason} {served:?} met {met:?}; {ready:?}")
        });
        let leader = snapshot.leadership.leader().map(|leader| leader.epoch);
        let holder = committed.known(holder.merged());
        Some(Selected { served, met, valid_for, deps, holder, leader, since })
    })
}

/// A replica, with the life it was seen in.
pub(super) fn replica(snapshot: &Snapshot, node: NodeId, stale: bool) -> Served {
    let acceptable = snapshot.view(node).map(|view| view.incarnation).into_iter().collect();
    Served { node, acceptable, timeline: None, stale }
}

/// A read after everything was healed: it must be answered by a replica, unflagged.
pub(crate) async fn healed_read(sim: &Sim, at: usize, device: usize, policy: &Policy) {
    let whom = Whom::All;
    let mut answer = None;
    for _ in 0..4 {
        answer = select(sim, at, device, policy, whom, 7).await;
        let replica = |one: &Selected| {
            one.served.as_ref().is_some_and(|served| served.timeline.is_none())
                && one.met.contains(&Guarantee::ReadYourWrites)
        };
        if answer.as_ref().is_some_and(replica) {
            if let Some(answer) = &answer {
                super::client::check_read(sim, at, answer, None);
            }
            return;
        }
        sim.sleep(300_000_000).await;
    }
    sim.with(|state| {
        let text = format!("device {device} at instance {at}: {answer:?}");
        state.check.broken(state.now, Breach::Stuck, text);
    });
}
