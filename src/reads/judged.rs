//! What a session demands of a partition now: `resolve`, with the samples it asks for.

use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::partition::Need;
use tidegate_core::routing::{Level, Policy};
use tidegate_core::snapshot::Snapshot;
use tidegate_core::token::{Change, Component, SessionToken};
use tidegate_core::trail::{Ready, Requested, resolve_into};

use super::Reads;
use crate::partitions::PartitionHandle;
use crate::sessions::TokenStore;
use crate::sessions::{Holder, losses_to_notices};

/// Times a call may ask for a leader sample.
const SAMPLES_MAX: u32 = 2;

/// What a call demands, of every kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Demanded {
    pub session: bool,
    pub bound: Option<Duration>,
    pub global: bool,
    /// When all its holders depend on was known: a leader sample sent before says nothing of it.
    pub since: Instant,
}

impl Demanded {
    pub(super) fn by(policy: &Policy, since: Instant) -> Self {
        let by_time = matches!(policy.level, Level::Bounded | Level::Session | Level::Global);
        Self {
            session: policy.asks_session(),
            bound: policy.bound.filter(|_| by_time),
            global: policy.level == Level::Global,
            since,
        }
    }
}

impl<S: TokenStore> Reads<S> {
    /// Resolves a session against the snapshot of now; waits for a leader sample where needed.
    pub(super) async fn judged(
        &self,
        handle: &PartitionHandle,
        holder: &Holder,
        demanded: Demanded,
        until: Instant,
    ) -> (Ready, std::sync::Arc<Snapshot>) {
        let (mut asked_samples, mut asked_others) = (0, false);
        let mut gave_up = false;
        loop {
            let now = self.clock.now();
            let snapshot = handle.snapshot();
            if !asked_others && names_unknown(handle, holder, &snapshot) {
                asked_others = true;
                // Half of the time: a sample of the leader may still be needed. Boxed as below.
                let half = now + until.since(now) / 2;
                Box::pin(handle.learn(half)).await;
                continue;
            }
            let requested = self.requested(handle, holder, demanded, gave_up, &snapshot);
            let mut ready = Ready::default();
            let missing = resolve_into(&mut ready, &requested, &snapshot.line(now), now);
            let Some(since) = missing else { return (ready, snapshot) };
            let until = until.min(now + self.limits.poll_timeout);
            asked_samples += 1;
            // Boxed: few calls need one, and a call is moved about as large as it may get.
            let came = Box::pin(handle.need(Need::Leader, since, until)).await;
            gave_up = !came || asked_samples >= SAMPLES_MAX;
        }
    }

    pub(super) fn requested<'a>(
        &self,
        handle: &PartitionHandle,
        holder: &'a Holder,
        demanded: Demanded,
        gave_up: bool,
        snapshot: &Snapshot,
    ) -> Requested<'a> {
        let key = handle.key();
        let guards = &snapshot.settings.guards;
        let upgraded = handle.info().upgraded_from;
        let gate = holder.gate_binds(key).then_some(snapshot.settings.gate);
        Requested {
            key,
            component: holder.component(key),
            former: holder
                .former(key)
                .map(|(former, component)| (former, component, upgraded == Some(former.system_tag)))
                .collect(),
            known: holder.known(key, guards),
            session: demanded.session,
            gate,
            barrier: holder.barrier(key),
            bound: demanded.bound,
            global: demanded.global,
            since: demanded.since,
            gave_up,
        }
    }

    /// The change a resolved session makes to its holders; what it lost is counted.
    pub(super) fn change_of(
        &self,
        handle: &PartitionHandle,
        holder: &Holder,
        ready: &Ready,
    ) -> Change {
        let mut join = SessionToken::new();
        for (key, component) in &ready.raise.join {
            join.join_component(*key, component);
        }
        let settle = ready.raise.settle.iter().filter_map(|key| {
            let judged = if *key == handle.key() {
                holder.component(*key)
            } else {
                holder.former(handle.key()).find(|(former, _)| former == key).map(|(_, c)| c)
            };
            judged.map(|component| (*key, component.clone()))
        });
        ready.losses.iter().for_each(|loss| handle.telemetry().lost(loss.kind));
        let told_seconds = if ready.losses.is_empty() { 0 } else { self.clock.wall_seconds() };
        Change {
            drop: ready.raise.drop.clone(),
            settle: settle.collect(),
            join,
            tell: losses_to_notices(handle.info().id, &ready.losses, told_seconds),
            acknowledge: Vec::new(),
        }
    }
}

/// Whether a session depends on an epoch that other instances may know and this one does not.
pub(super) fn names_unknown(
    handle: &PartitionHandle,
    holder: &Holder,
    snapshot: &Snapshot,
) -> bool {
    let unknown =
        |component: &Component| component.marks().any(|(epoch, _)| !snapshot.history.knows(epoch));
    handle.shares_facts() && holder.component(handle.key()).is_some_and(unknown)
}
