//! What the core finds notable, as it is logged and told to whoever watches.

use tidegate_core::partition::Notable;
use tidegate_core::views::NodeId;
use tracing::{info, warn};

use super::PartitionInfo;
use super::feed::{Feed, Happening};

/// Logs what the core found notable, and tells whoever watches.
pub(super) fn report(info: &PartitionInfo, feed: &Feed, notable: Notable) {
    log(info, &notable);
    feed.tell(Happening::Noted(notable));
}

fn log(info: &PartitionInfo, notable: &Notable) {
    let partition = info.name.as_str();
    let name = |node: &NodeId| info.nodes.get(node.index()).map_or("?", |info| info.name.as_str());
    match notable {
        Notable::Leadership(leadership) => {
            let leader = leadership.leader();
            let node = leader.as_ref().map(|leader| name(&leader.node));
            let epoch = leader.map(|leader| leader.epoch.to_string());
            if leadership.is_split() {
                warn!(partition, "several nodes claim to lead");
            } else {
                info!(partition, node, epoch, "leadership changed");
            }
        }
        Notable::Quarantined(node, why) => {
            warn!(partition, node = name(node), ?why, "node quarantined");
        }
        Notable::RowConflict(epoch) => {
            warn!(partition, %epoch, "the origin of an epoch is contradicted");
        }
        Notable::NewEpoch { row, unknown } => {
            info!(partition, epoch = %row.epoch, unknown, "a new epoch was placed");
        }
        Notable::Restored(node, epoch) => {
            warn!(partition, node = name(node), %epoch, "a leader continues nothing known");
        }
        Notable::Verdict(winner, aside) => {
            warn!(partition, %winner, ?aside, "an operator said which epoch counts");
        }
        Notable::Resumed(node) => {
            info!(partition, node = name(node), "an operator vouched for a node");
        }
        Notable::RowUnwritable(epoch) => {
            warn!(partition, %epoch, "the lineage row cannot be written");
        }
        Notable::ForeignSystem(node) => {
            warn!(partition, node = name(node), "node answers as another database");
        }
    }
}
