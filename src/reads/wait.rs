//! One wait, from its session to nodes that have everything it depends on.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::lineage::Epoch;
use tidegate_core::partition::{WaitEnd, WaitFor};
use tidegate_core::routing::Reason;
use tidegate_core::snapshot::{Lag, Snapshot, WhyNot};
use tidegate_core::token::{Notice, NoticeKind};
use tidegate_core::trail::{Known, Ready, Unprovable};
use tidegate_core::views::NodeId;

use super::judged::Demanded;
use super::prospect::Prospect;
use super::select::{Named, epoch_of, name_leader, name_replica};
use super::{Caller, ReadError, Reads, line, node_of};
use crate::partitions::PartitionHandle;
use crate::sessions::TokenStore;
use crate::sessions::{Holder, RaiseWhom, Whom};

/// Times a wait may be judged again because something changed.
const ROUNDS_MAX: u32 = 256;

/// A permit is asked for again after this part of what is left of the budget, or later.
const PERMIT_ASKED_EVERY: u32 = 8;

/// Which nodes a wait is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// One replica.
    Any,
    /// Every replica that serves.
    All,
    /// The node of this name.
    Node(String),
}

/// How a wait ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitedFor {
    /// This node has everything.
    Fresh(Named),
    /// The budget ended.
    TimedOut,
    /// The node leads, and the cap had no room for one more read within the budget.
    Capped,
    /// Something the session depends on was lost.
    Lost,
    /// What the session depends on cannot be known now.
    Unknown,
    /// None of the nodes serves any more.
    Gone,
}

/// One wait, answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waited {
    /// How it ended.
    pub outcome: WaitedFor,
    /// Why.
    pub reason: Reason,
    /// How long it took.
    pub waited: Duration,
    /// The token to carry from now on; empty: nothing changed.
    pub token: String,
    /// What was lost and not acknowledged.
    pub notices: Vec<Notice>,
    /// How far the best replica is behind.
    pub best: Option<Lag>,
    /// When the nodes are expected to have everything, if the budget ended before; a prediction.
    pub eta: Option<Duration>,
    /// The leader's epoch, for people; `None`: no leader was seen.
    pub epoch: Option<Epoch>,
}

impl<S: TokenStore> Reads<S> {
    /// Waits until nodes have everything the session depends on.
    ///
    /// # Errors
    /// [`ReadError`] if it could not be decided; that it timed out is an answer.
    pub async fn wait(
        &self,
        caller: Caller,
        partition: &str,
        target: Target,
        budget: Duration,
        deadline: Option<Instant>,
    ) -> Result<Waited, ReadError> {
        let since = self.clock.now();
        let handle = Arc::clone(self.partition(partition)?);
        let named = match &target {
            Target::Node(name) => Some(node_of(&handle, name)?),
            Target::Any | Target::All => None,
        };
        let holder = self.delivered(caller).await?;
        let until = self.ends_at(deadline, budget);
        let known = self.clock.now();
        // A wait cannot say that less is promised: it waits for all there is instead.
        let global = holder.rests_on_record(handle.key()) && self.sessions.store().is_async();
        let demanded = Demanded { session: true, bound: None, global, since: known };
        for _ in 0..ROUNDS_MAX {
            let (ready, snapshot) = self.judged(&handle, &holder, demanded, until).await;
            let outcome = match self.ended(&handle, &holder, &ready, &snapshot) {
                Some(outcome) => outcome,
                None => match self.park(&handle, &ready, &snapshot, (&target, named), until).await?
                {
                    Some(outcome) => outcome,
                    None => continue,
                },
            };
            let nodes = (wait_for(&target), named);
            return self.waited((&handle, nodes), &holder, &ready, outcome, since).await;
        }
        Err(ReadError::WaitsFull { partition: handle.info().name.clone() })
    }

    /// What ends a wait before it is parked.
    fn ended(
        &self,
        handle: &PartitionHandle,
        holder: &Holder,
        ready: &Ready,
        snapshot: &Snapshot,
    ) -> Option<WaitedFor> {
        let kinds = || ready.losses.iter().map(|loss| loss.kind);
        if kinds().any(|kind| kind != NoticeKind::PossiblyLost) {
            return Some(WaitedFor::Lost);
        }
        if kinds().next().is_some() {
            // What may be lost was replaced: the next wait of this session is judged by that.
            return Some(WaitedFor::Unknown);
        }
        let unknown = holder.known(handle.key(), &snapshot.settings.guards) == Known::No;
        match ready.unprovable {
            Some(Unprovable::UnknownEpoch { .. } | Unprovable::Split) => Some(WaitedFor::Unknown),
            Some(Unprovable::NoLeader | Unprovable::NoSample) if unknown => {
                Some(WaitedFor::Unknown)
            }
            Some(Unprovable::NoLeader | Unprovable::NoSample) => Some(WaitedFor::TimedOut),
            // A read is told which promise does not hold; a wait can only say that nothing is
            // known.
            None => ready.ungated.then_some(WaitedFor::Unknown),
        }
    }

    /// Parks; `None`: something changed, judge again.
    async fn park(
        &self,
        handle: &PartitionHandle,
        ready: &Ready,
        snapshot: &Snapshot,
        (target, named): (&Target, Option<NodeId>),
        until: Instant,
    ) -> Result<Option<WaitedFor>, ReadError> {
        let now = self.clock.now();
        let leader = snapshot.session_leader(now);
        if let Some(leader) = leader.filter(|leader| Some(leader.node) == named) {
            // It may have been parked on as a standby: a read of the leader all the same.
            let Err(full) = handle.try_admit_waiting(now) else {
                return Ok(Some(WaitedFor::Fresh(name_leader(snapshot, leader))));
            };
            return Ok(match asked_again(full.retry_after, now, until) {
                None => Some(WaitedFor::Capped),
                Some(pause) => {
                    tokio::time::sleep(pause).await;
                    None
                }
            });
        }
        let nodes: Vec<NodeId> = match named {
            Some(node) => vec![node],
            None => snapshot
                .nodes()
                .filter(|node| snapshot.eligible(*node, now) != Err(WhyNot::Writable))
                .collect(),
        };
        let wait_for = wait_for(target);
        match handle.park(ready.floor.clone(), nodes, wait_for, until).await {
            WaitEnd::Fresh(nodes) => {
                // Named by what is known now: a node may have restarted behind since it was woken.
                let (snapshot, now) = (handle.snapshot(), self.clock.now());
                let still = |node: &NodeId| snapshot.satisfies(*node, &ready.floor, now);
                let all = wait_for == WaitFor::Any || nodes.iter().all(still);
                let node = nodes.into_iter().find(still).filter(|_| all);
                Ok(node.map(|node| WaitedFor::Fresh(name_replica(&snapshot, node))))
            }
            WaitEnd::Judge => Ok(None),
            WaitEnd::Expired => Ok(Some(WaitedFor::TimedOut)),
            WaitEnd::Gone => Ok(Some(WaitedFor::Gone)),
            WaitEnd::Full => Err(ReadError::WaitsFull { partition: handle.info().name.clone() }),
        }
    }

    async fn waited(
        &self,
        (handle, nodes): (&PartitionHandle, (WaitFor, Option<NodeId>)),
        holder: &Holder,
        ready: &Ready,
        outcome: WaitedFor,
        since: Instant,
    ) -> Result<Waited, ReadError> {
        let change = self.change_of(handle, holder, ready);
        let whom = Whom::Read(RaiseWhom::TokenOrRecord);
        let committed = self.sessions.commit(holder, change, whom).await?;
        let (now, snapshot) = (self.clock.now(), handle.snapshot());
        if let WaitedFor::Fresh(named) = &outcome
            && ready.floor.holds_under(&snapshot.leadership, &snapshot.history)
        {
            line::note(handle, &snapshot, &ready.floor, named.node);
        }
        let Prospect { best, eta, .. } = Prospect::of(ready, &snapshot, nodes, now);
        let eta = eta.filter(|_| outcome == WaitedFor::TimedOut);
        let reason = match (&outcome, ready.unprovable) {
            (WaitedFor::Fresh(_), _) => Reason::Waited,
            (_, Some(Unprovable::NoLeader)) => Reason::NoLeader,
            (_, Some(Unprovable::NoSample)) => Reason::NotProvable,
            (_, Some(Unprovable::Split)) => Reason::Split,
            (_, Some(Unprovable::UnknownEpoch { .. })) => Reason::UnknownEpoch,
            (WaitedFor::Unknown, None) if ready.ungated => Reason::NotProvable,
            (WaitedFor::Gone, None) => Reason::NoNode,
            (WaitedFor::Capped, None) => Reason::CapExhausted,
            (WaitedFor::TimedOut | WaitedFor::Lost | WaitedFor::Unknown, None) => {
                Reason::NotCovered
            }
        };
        Ok(Waited {
            outcome,
            reason,
            waited: now.since(since),
            token: committed.token,
            notices: committed.notices,
            best,
            eta,
            epoch: epoch_of(&snapshot),
        })
    }
}

fn wait_for(target: &Target) -> WaitFor {
    match target {
        Target::All => WaitFor::All,
        Target::Any | Target::Node(_) => WaitFor::Any,
    }
}

/// After what pause a permit of the leader may be asked for again; `None`: not within the budget.
///
/// Those who wait for one ask apart from each other.
fn asked_again(retry_after: Option<Duration>, now: Instant, until: Instant) -> Option<Duration> {
    let left = until.since(now);
    let least = retry_after?.max(left / PERMIT_ASKED_EVERY);
    let pause = least + least.mul_f64(fastrand::f64());
    if pause < left { Some(pause) } else { Some(least).filter(|least| *least < left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_asked_for_a_bounded_number_of_times_and_never_after_the_budget() {
        let ms = Duration::from_millis;
        let until = Instant::from_nanos(60_000_000_000);
        for retry_after in [ms(0), ms(1), ms(1_000)] {
            let (mut now, mut times) = (Instant::from_nanos(0), 0);
            while let Some(pause) = asked_again(Some(retry_after), now, until) {
                assert!(pause >= retry_after && now + pause < until, "{retry_after:?}");
                (now, times) = (now + pause, times + 1);
                assert!(times < ROUNDS_MAX, "{retry_after:?}");
                if until.since(now) < ms(1) {
                    break;
                }
            }
        }
        let now = Instant::from_nanos(0);
        assert_eq!(asked_again(None, now, until), None, "none is ever allowed");
        assert_eq!(asked_again(Some(ms(60_000)), now, until), None);
    }
}
