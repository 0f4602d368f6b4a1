//! Whether an answer took one line of leaders for another: looked at once more after the decision.
//!
//! It changes no answer and repeats no rule: it compares what was named with the line it should be
//! of. Whatever it finds is a broken promise, counted and logged.

use tidegate_core::lineage::{Epoch, Relation};
use tidegate_core::snapshot::Snapshot;
use tidegate_core::trail::Floor;
use tidegate_core::views::NodeId;

use crate::partitions::PartitionHandle;

/// Counts and logs an unlabelled answer that crosses; `floor` is what the read demanded.
pub(super) fn note(handle: &PartitionHandle, snapshot: &Snapshot, floor: &Floor, node: NodeId) {
    if crosses(snapshot, floor, node) {
        handle.telemetry().crossed();
        let name = handle.node_info(node).map(|info| info.name.as_str());
        let partition = handle.info().name.as_str();
        tracing::error!(partition, node = name, "an answer took one line of leaders for another");
    }
}

/// The node's last row is on no leader's line, or a position demanded is not in every one.
fn crosses(snapshot: &Snapshot, floor: &Floor, node: NodeId) -> bool {
    let heads = snapshot.leadership.heads();
    let row = snapshot.view(node).and_then(|view| view.row);
    let is_off = row.is_some_and(|row| {
        !heads.is_empty() && !heads.iter().any(|head| snapshot.history.descends(*head, row))
    });
    let guards = &snapshot.settings.guards;
    let history = &snapshot.history;
    let is_alive = |head: &Epoch, epoch, position| {
        *head == epoch
            || history.relation(*head, epoch, position, guards) == Relation::Alive
            // A session may know that so much was flushed.
            || history.kept(*head, epoch, Some(position)).own.covers(position)
    };
    is_off
        || floor
            .demands()
            .iter()
            .any(|demand| !heads.iter().all(|head| is_alive(head, demand.epoch, demand.position)))
}
