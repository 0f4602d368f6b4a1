//! One wait, from its session to fresh nodes, as `src/reads/wait.rs` does.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::partition::{WaitEnd, WaitFor};
use tidegate_core::snapshot::WhyNot;
use tidegate_core::trail::Known;
use tidegate_core::views::NodeId;

use super::holder::Whom;
use super::judged::{Demanded, change_of, judged};
use super::record::delivered;
use super::select::{Selected, replica};
use crate::check::Breach;
use crate::sim::Sim;

const ROUNDS_MAX: u32 = 256;

/// Waits until nodes have everything the session depends on; `None`: they have not, in time.
pub(crate) async fn wait(
    sim: &Sim,
    at: usize,
    device: usize,
    all: bool,
    budget: Duration,
) -> Option<Vec<Selected>> {
    let since = sim.with(|state| state.instant());
    let life = sim.with(|state| state.instances[at].life);
    let (holder, mut deps) = delivered(sim, at, device).await;
    let until = since + budget;
    let known = sim.with(|state| state.instant());
    let demanded = Demanded { session: true, bound: None, global: false, since: known };
    for _ in 0..ROUNDS_MAX {
        let (ready, snapshot) = judged(sim, at, &holder, demanded, until).await;
        let unknown = holder.known(&snapshot.settings.guards) == Known::No;
        let stuck = ready.unprovable.is_some() || ready.ungated;
        let nodes = if !ready.losses.is_empty() || stuck {
            Vec::new()
        } else {
            let wait_for = if all { WaitFor::All } else { WaitFor::Any };
            let now = sim.with(|state| state.instant());
            let among: Vec<NodeId> = snapshot
                .nodes()
                .filter(|node| snapshot.eligible(*node, now) != Err(WhyNot::Writable))
                .collect();
            match sim.park(at, ready.floor.clone(), among, wait_for, until).await {
                WaitEnd::Fresh(nodes) => nodes,
                WaitEnd::Judge => continue,
                WaitEnd::Expired | WaitEnd::Gone | WaitEnd::Full => Vec::new(),
            }
        };
        if sim.with(|state| state.instances[at].life) != life || (unknown && nodes.is_empty()) {
            return None;
        }
        let change = sim.with(|state| change_of(state, &holder, &ready));
        let committed = holder.commit(sim, &change, Whom::TokenOrRecord, &[]).await;
        return sim.with(|state| {
            if state.instances[at].life != life {
                return None;
            }
            let judged_by = Arc::clone(&snapshot);
            // Named by what is known now: a node may have restarted behind since it was woken.
            let (snapshot, now) = (state.instances[at].snapshot.clone(), state.instant());
            let still = |node: &NodeId| snapshot.satisfies(*node, &ready.floor, now);
            let fresh: Vec<NodeId> = nodes.into_iter().filter(still).collect();
            committed.spread(state, device, &[]);
            state.justify(&judged_by, &change, &deps);
            state.tell(at, device, &committed, &change.tell, &mut deps);
            let leader = snapshot.leadership.leader().map(|leader| leader.epoch);
            let named = |node: &NodeId| Selected {
                served: Some(replica(&snapshot, *node, false)),
                met: vec![tidegate_core::routing::Guarantee::ReadYourWrites],
                valid_for: None,
                deps: deps.clone(),
                holder: committed.known(holder.merged()),
                leader,
                since: since.as_nanos(),
            };
            Some(fresh.iter().map(named).collect())
        });
    }
    sim.with(|state| {
        let text = format!("device {device} at instance {at}");
        state.check.broken(state.now, Breach::EndlessWait, text);
    });
    None
}
