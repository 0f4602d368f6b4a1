//! One read, from its session to a node.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::few::Few;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Contender;
use tidegate_core::lineage::{Epoch, Incarnation};
use tidegate_core::partition::{WaitEnd, WaitFor};
use tidegate_core::routing::{
    Guarantee, Plan, Policy, Reason, Shadow, Step, decide, lineage_reason, met, shadow, valid_for,
    valid_for_leader,
};
use tidegate_core::snapshot::{Lag, Snapshot};
use tidegate_core::token::{Notice, NoticeKind};
use tidegate_core::trail::Ready;
use tidegate_core::views::NodeId;

use super::judged::Demanded;
use super::prospect::Prospect;
use super::{Caller, ReadError, Reads, line, node_of};
use crate::partitions::PartitionHandle;
use crate::sessions::TokenStore;
use crate::sessions::{Committed, Holder, Ignorance, RaiseWhom, Whom};

/// Times a read may be judged again because something changed while it waited.
const ROUNDS_MAX: u32 = 256;

/// How long a read waits at least for a leader sample it needs, whatever its own budget is.
const SAMPLE_BUDGET: Duration = Duration::from_millis(50);

/// A node that may be read, with the lives it may be read in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Which.
    pub node: NodeId,
    /// The lives the answer is true for; one as a rule, which lies in place.
    pub incarnations: Few<Incarnation>,
    /// For a leader: the timeline it must be on, not in recovery.
    pub timeline: Option<u32>,
}

/// Where a read goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To this node; `stale`: labelled, how far it is behind.
    Served {
        /// Where.
        named: Named,
        /// Present: the node lacks something; how much, if that can be shown.
        stale: Option<Option<Lag>>,
    },
    /// Nowhere now.
    Refused {
        /// When to try again.
        retry_after: Duration,
        /// When a replica is expected to have everything; a prediction, `None`: none can be made.
        eta: Option<Duration>,
        /// How far the best replica is behind.
        best: Option<Lag>,
    },
}

/// One read, answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected {
    /// Where it goes.
    pub answer: Answer,
    /// What that really meets.
    pub met: Vec<Guarantee>,
    /// Why.
    pub reason: Reason,
    /// How long it waited for a replica, in vain or not; zero: it did not.
    pub waited: Duration,
    /// The token to carry from now on; empty: nothing changed.
    pub token: String,
    /// What was lost and not acknowledged.
    pub notices: Vec<Notice>,
    /// How long, from the caller's own send, the bound holds.
    pub valid_for: Option<Duration>,
    /// What the node the application would have read had.
    pub shadow: Option<Shadow>,
    /// The leader's epoch, for people; `None`: no leader was seen.
    pub epoch: Option<Epoch>,
}

/// What a select asks besides its session.
#[derive(Clone, Debug)]
pub struct SelectAsked {
    /// In which partition.
    pub partition: String,
    /// How fresh.
    pub policy: Policy,
    /// Whom a replaced mark raises.
    pub raise: RaiseWhom,
    /// A lost write is an error.
    pub loss_is_error: bool,
    /// The node read before, if any.
    pub previous: String,
    /// The node the application would read by itself, if any.
    pub shadow: String,
    /// The caller's own deadline.
    pub deadline: Option<Instant>,
}

/// How far one read has walked.
struct Walk {
    since: Instant,
    ends_at: Instant,
    /// Park steps that ended without a node.
    parks_done: usize,
    /// When the current park step gives up.
    park_until: Option<Instant>,
    /// A park step was entered, whatever it ended in.
    parked: bool,
    waited: bool,
    cap_full: Option<Duration>,
    pick: u64,
}

impl<S: TokenStore> Reads<S> {
    /// Finds a node for one read.
    ///
    /// # Errors
    /// [`ReadError`] if it could not be decided; that it was refused is an answer.
    pub async fn select(&self, caller: Caller, asked: SelectAsked) -> Result<Selected, ReadError> {
        let since = self.clock.now();
        let handle = Arc::clone(self.partition(&asked.partition)?);
        let previous = handle.node(&asked.previous);
        let shadowed = match asked.shadow.as_str() {
            "" => None,
            name => Some(node_of(&handle, name)?),
        };
        let holder = self.delivered(caller).await?;
        let mut walk = Walk {
            since,
            ends_at: self.ends_at(asked.deadline, Duration::MAX),
            parks_done: 0,
            park_until: None,
            parked: false,
            waited: false,
            cap_full: None,
            pick: fastrand::u64(..),
        };
        // Not when the call arrived: what its holders have learned since then is judged too.
        let demanded = Demanded::by(&asked.policy, self.clock.now());
        for _ in 0..ROUNDS_MAX {
            let sampled_by = walk.ends_at.min(since + asked.policy.wait_budget.max(SAMPLE_BUDGET));
            let (ready, snapshot) = self.judged(&handle, &holder, demanded, sampled_by).await;
            let now = self.clock.now();
            let plan = decide(&ready, &snapshot, &asked.policy, previous, now, walk.pick);
            let judged = Judged { ready, snapshot, plan };
            if let Some(end) = self.walk(&handle, &judged, &asked.policy, &mut walk).await {
                let shadow = shadowed.map(|n| shadow(&judged.ready, &judged.snapshot, n, now));
                let parked_since = walk.parked.then_some(walk.since);
                let ended = Ended { end, shadow, parked_since, cap_full: walk.cap_full };
                return self.finish(&handle, &holder, &asked, judged, ended).await;
            }
        }
        Err(ReadError::WaitsFull { partition: handle.info().name.clone() })
    }

    /// Walks the plan to its end; `None`: something changed, judge again.
    async fn walk(
        &self,
        handle: &PartitionHandle,
        judged: &Judged,
        policy: &Policy,
        walk: &mut Walk,
    ) -> Option<End> {
        let mut parks = 0;
        for step in &judged.plan.steps {
            match step {
                Step::Serve { node } => {
                    let reason = if walk.waited { Reason::Waited } else { Reason::Covered };
                    return Some(End::serve(*node, reason));
                }
                Step::Park { nodes, budget } => {
                    parks += 1;
                    if parks <= walk.parks_done {
                        continue;
                    }
                    if nodes.is_empty() {
                        // Whatever comes now, this wait is over.
                        (walk.parks_done, walk.park_until) = (parks, None);
                        continue;
                    }
                    // What waiting for a leader sample took is part of the first budget.
                    let begun = if parks == 1 { walk.since } else { self.clock.now() };
                    let ends_at = walk.ends_at;
                    let until =
                        *walk.park_until.get_or_insert_with(|| (begun + *budget).min(ends_at));
                    walk.parked = true;
                    let floor = judged.ready.floor.clone();
                    let parked = handle.park(floor, nodes.clone(), WaitFor::Any, until);
                    // Boxed: few reads park, and a call is moved about as large as it may get.
                    match Box::pin(parked).await {
                        WaitEnd::Fresh(_) | WaitEnd::Judge => {
                            walk.waited = true;
                            return None;
                        }
                        WaitEnd::Expired | WaitEnd::Gone | WaitEnd::Full => {
                            walk.parks_done = parks;
                            walk.park_until = None;
                        }
                    }
                }
                Step::Leader { leader, fallback: false } => {
                    let by_policy = policy.level == tidegate_core::routing::Level::Leader;
                    let reason =
                        if by_policy { Reason::LeaderByPolicy } else { Reason::NotCovered };
                    return Some(End::Leader { leader: *leader, reason });
                }
                Step::Leader { leader, fallback: true } => {
                    if walk.cap_full.is_none() {
                        let now = self.clock.now();
                        match handle.try_admit(now) {
                            Ok(()) => {
                                let reason = lineage_reason(&judged.snapshot, now)
                                    .unwrap_or(Reason::LeaderFallback);
                                return Some(End::Leader { leader: *leader, reason });
                            }
                            Err(full) => {
                                walk.cap_full =
                                    Some(full.retry_after.unwrap_or(Duration::from_secs(1)));
                            }
                        }
                    }
                }
                Step::Stale { node, .. } => {
                    // It may have waited since it was judged: the label says what is true now.
                    let (snapshot, now) = (handle.snapshot(), self.clock.now());
                    if snapshot.readable(*node, now) {
                        let lag = snapshot.lag(*node, now);
                        return Some(End::Stale { named: name_replica(&snapshot, *node), lag });
                    }
                }
                Step::Refuse { reason } => return Some(End::Refuse { reason: *reason }),
            }
        }
        Some(End::Refuse { reason: Reason::NotCovered })
    }

    async fn finish(
        &self,
        handle: &PartitionHandle,
        holder: &Holder,
        asked: &SelectAsked,
        judged: Judged,
        ended: Ended,
    ) -> Result<Selected, ReadError> {
        let change = self.change_of(handle, holder, &judged.ready);
        let committed = self.sessions.commit(holder, change, Whom::Read(asked.raise)).await?;
        self.answered(handle, holder, asked, (&judged.ready, &judged.snapshot), ended, committed)
    }

    /// The answer to a read whose walk ended, and whose holders were raised.
    pub(super) fn answered(
        &self,
        handle: &PartitionHandle,
        holder: &Holder,
        asked: &SelectAsked,
        (ready, snapshot): (&Ready, &Snapshot),
        ended: Ended,
        committed: Committed,
    ) -> Result<Selected, ReadError> {
        let lost = committed.notices.iter().any(|notice| notice.kind == NoticeKind::WriteLost);
        if asked.loss_is_error && lost {
            return Err(ReadError::LostWrite { partition: handle.info().name.clone() });
        }
        let policy = &asked.policy;
        let ignorance = holder.ignorance(handle.key(), &snapshot.settings.guards);
        let ignorance = ignorance.filter(|_| policy.asks_session());
        let (answer, met, reason, valid) = match ended.end {
            End::Serve { node, reason } => {
                line::note(handle, snapshot, &ready.floor, node);
                let named = name_replica(snapshot, node);
                let (mut met, mut reason) =
                    (met(ready, policy, false), reason_of(reason, ready, ignorance));
                let by_record = policy.asks_session() && holder.rests_on_record(handle.key());
                if by_record && self.sessions.store().is_async() {
                    reason = unpromised(reason, &mut met);
                }
                let now = || self.clock.now();
                let valid = policy.bound.and_then(|_| valid_for(snapshot, policy, node, now()));
                if policy.bound.is_some() && valid.is_none() {
                    // Raising its holders took what was left of it.
                    reason = unbounded(reason, &mut met);
                }
                (Answer::Served { named, stale: None }, met, reason, valid)
            }
            End::Leader { leader, reason } => {
                line::note(handle, snapshot, &ready.floor, leader.node);
                let answer = Answer::Served { named: name_leader(snapshot, leader), stale: None };
                let valid = valid_for_leader(snapshot, policy, self.clock.now());
                (answer, met(ready, policy, true), reason, valid)
            }
            End::Stale { named, lag } => {
                let answer = Answer::Served { named, stale: Some(lag) };
                (answer, Vec::new(), Reason::StaleByPolicy, None)
            }
            End::Refuse { reason } => {
                let (latest, now) = (handle.snapshot(), self.clock.now());
                let prospect = Prospect::of(ready, &latest, (WaitFor::Any, None), now);
                let (best, eta) = (prospect.best, prospect.eta);
                let capped = ended.cap_full.is_some() && reason == Reason::NotCovered;
                let reason = if capped { Reason::CapExhausted } else { reason };
                let retry_after = prospect.retry_after(ended.cap_full);
                (Answer::Refused { retry_after, eta, best }, Vec::new(), reason, None)
            }
        };
        Ok(Selected {
            answer,
            met,
            reason,
            waited: ended.parked_since.map_or(Duration::ZERO, |at| self.clock.now().since(at)),
            token: committed.token,
            notices: committed.notices,
            valid_for: valid,
            shadow: ended.shadow,
            epoch: epoch_of(snapshot),
        })
    }
}

/// A read as judged once.
struct Judged {
    ready: Ready,
    snapshot: Arc<Snapshot>,
    plan: Plan,
}

/// How a walk ended.
pub(super) struct Ended {
    pub(super) end: End,
    /// What the node the application would have read had.
    pub(super) shadow: Option<Shadow>,
    /// Since when it waited for a node; `None`: it did not.
    pub(super) parked_since: Option<Instant>,
    /// The cap had no room; when it has again.
    pub(super) cap_full: Option<Duration>,
}

/// What a walk ended in.
pub(super) enum End {
    Serve { node: NodeId, reason: Reason },
    Leader { leader: Contender, reason: Reason },
    Stale { named: Named, lag: Option<Lag> },
    Refuse { reason: Reason },
}

impl End {
    pub(super) const fn serve(node: NodeId, reason: Reason) -> Self {
        Self::Serve { node, reason }
    }
}

/// A covered read still says what it could not know.
fn reason_of(reason: Reason, ready: &Ready, ignorance: Option<Ignorance>) -> Reason {
    if ready.losses.iter().any(|loss| loss.future) {
        return Reason::FutureMark;
    }
    match ignorance {
        Some(Ignorance::StoreLost) => Reason::StoreLost,
        Some(Ignorance::Unreadable | Ignorance::StoreUnavailable | Ignorance::Overflow) => {
            Reason::UnknownSession
        }
        None if ready.ungated => Reason::NotProvable,
        None => reason,
    }
}

/// What is left of an answer that rests on a record which may be behind, unseen.
fn unpromised(reason: Reason, met: &mut Vec<Guarantee>) -> Reason {
    met.retain(|one| !matches!(one, Guarantee::ReadYourWrites | Guarantee::MonotonicReads));
    // What else is not known says more.
    if matches!(reason, Reason::Covered | Reason::Waited) { Reason::StoreAsync } else { reason }
}

/// What is left of an answer whose bound has run out before it was given.
fn unbounded(reason: Reason, met: &mut Vec<Guarantee>) -> Reason {
    met.retain(|one| *one != Guarantee::Bounded);
    if matches!(reason, Reason::Covered | Reason::Waited) { Reason::NotProvable } else { reason }
}

/// A replica, with the life it was seen in.
pub(super) fn name_replica(snapshot: &Snapshot, node: NodeId) -> Named {
    let incarnations = snapshot.view(node).map(|view| view.incarnation).into_iter().collect();
    Named { node, incarnations, timeline: None }
}

/// The leader, with what must be checked when a connection is taken.
pub(super) fn name_leader(snapshot: &Snapshot, leader: Contender) -> Named {
    Named {
        timeline: Some(leader.epoch.timeline),
        incarnations: Few::one(leader.epoch.incarnation(system_of(snapshot, leader))),
        node: leader.node,
    }
}

fn system_of(snapshot: &Snapshot, leader: Contender) -> tidegate_core::lineage::SystemId {
    let view = snapshot.view(leader.node);
    view.map_or(tidegate_core::lineage::SystemId::new(0), |view| view.incarnation.system)
}

/// The epoch of the leader.
pub(super) fn epoch_of(snapshot: &Snapshot) -> Option<Epoch> {
    snapshot.leadership.heads().first().copied()
}
