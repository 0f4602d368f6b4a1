//! Whether an answer took one line of leaders for another: looked at once more after the decision.
//!
//! It changes no answer and repeats no rule: it compares what was named with the line it should be
//! of. Whatever it finds is a broken promise, counted and logged.

use tidegate_core::snapshot::Snapshot;
use tidegate_core::trail::Floor;
use tidegate_core::views::NodeId;

use crate::partitions::PartitionHandle;

/// Counts and logs an unlabelled answer that crosses; `floor` is what the read demanded.
pub(super) fn note(handle: &PartitionHandle, snapshot: &Snapshot, floor: &Floor, node: NodeId) {
    if snapshot.crosses(floor, node) {
        handle.telemetry().crossed();
        let name = handle.node_info(node).map(|info| info.name.as_str());
        let partition = handle.info().name.as_str();
        tracing::error!(partition, node = name, "an answer took one line of leaders for another");
    }
}
