//! What a session demands now: `resolve`, with the samples it asks for.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::partition::Need;
use tidegate_core::routing::{Level, Policy};
use tidegate_core::snapshot::Snapshot;
use tidegate_core::token::{Change, Notice, SessionToken};
use tidegate_core::trail::{Loss, Ready, Requested, Resolution, resolve};

use super::holder::Holder;
use crate::instance::{Instance, PARTITION, POLL_TIMEOUT};
use crate::sim::{Sim, State};

/// Times a call may ask for a leader sample.
const SAMPLES_MAX: u32 = 2;

/// What a call demands, of every kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demanded {
    pub(crate) session: bool,
    pub(crate) bound: Option<Duration>,
    pub(crate) global: bool,
    pub(crate) since: Instant,
}

impl Demanded {
    pub(crate) fn by(policy: &Policy, since: Instant) -> Self {
        let by_time = matches!(policy.level, Level::Bounded | Level::Session | Level::Global);
        Self {
            session: policy.asks_session(),
            bound: policy.bound.filter(|_| by_time),
            global: policy.level == Level::Global,
            since,
        }
    }
}

/// Resolves a session against the snapshot of now; waits for a leader sample where needed.
pub(crate) async fn judged(
    sim: &Sim,
    at: usize,
    holder: &Holder,
    demanded: Demanded,
    until: Instant,
) -> (Ready, Arc<Snapshot>) {
    let mut asked_samples = 0;
    let mut gave_up = false;
    loop {
        let (resolution, snapshot, now) = sim.with(|state| {
            let snapshot = Arc::clone(&state.instances[at].snapshot);
            let guards = snapshot.settings.guards;
            let requested = Requested {
                key: Instance::key(),
                component: holder.component(),
                former: Vec::new(),
                known: holder.known(&guards),
                session: demanded.session,
                gate: holder.gate_binds().then_some(snapshot.settings.gate),
                barrier: holder.barrier(&guards),
                bound: demanded.bound,
                global: demanded.global,
                since: demanded.since,
                gave_up,
            };
            let now = state.instant();
            let resolution = resolve(&requested, &snapshot.line(now), now);
            (resolution, snapshot, now)
        });
        match resolution {
            Resolution::Ready(ready) => return (ready, snapshot),
            Resolution::NeedSample { since } => {
                let until = until.min(now + Duration::from_nanos(POLL_TIMEOUT));
                asked_samples += 1;
                let came = sim.need(at, Need::Leader, since, until).await;
                gave_up = !came || asked_samples >= SAMPLES_MAX;
            }
        }
    }
}

pub(crate) fn losses_to_notices(losses: &[Loss], told_seconds: u64) -> Vec<Notice> {
    let notice = |loss: &Loss| {
        let Loss { kind, lost, child, upto, future: _ } = *loss;
        Notice { partition: PARTITION, kind, lost, child, upto, told_seconds }
    };
    losses.iter().map(notice).collect()
}

/// The change a resolved session makes to its holders.
pub(crate) fn change_of(state: &State, holder: &Holder, ready: &Ready) -> Change {
    let mut join = SessionToken::new();
    for (key, component) in &ready.raise.join {
        join.join_component(*key, component);
    }
    let judged = |key| holder.merged().component(key);
    let settle = ready.raise.settle.iter();
    Change {
        drop: ready.raise.drop.clone(),
        settle: settle.filter_map(|key| Some((*key, judged(*key)?.clone()))).collect(),
        join,
        tell: losses_to_notices(&ready.losses, state.now / 1_000_000_000),
        acknowledge: Vec::new(),
    }
}
