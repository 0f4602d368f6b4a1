//! How long an answer with a bound may be used. It chooses no node.

use std::time::Duration;

use super::Policy;
use crate::instant::Instant;
use crate::snapshot::Snapshot;
use crate::views::NodeId;

/// How long, from the caller's own send, an answer with a bound may be used; `None` without one.
pub fn valid_for(
    snapshot: &Snapshot,
    policy: &Policy,
    node: NodeId,
    now: Instant,
) -> Option<Duration> {
    let bound = policy.bound?;
    let newest = snapshot.newest_covered(node, now)?;
    Some(bound.saturating_sub(now.since(newest.sent_at)))
}
