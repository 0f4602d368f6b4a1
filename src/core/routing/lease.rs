//! How long an answer with a bound may be used. It chooses no node.

use std::time::Duration;

use super::Policy;
use crate::instant::Instant;
use crate::snapshot::Snapshot;
use crate::views::NodeId;

/// How long, from the caller's own send, an answer with a bound that names a replica may be used;
/// `None` without a bound, and where too little is left of it: then it is not met.
pub fn valid_for(
    snapshot: &Snapshot,
    policy: &Policy,
    node: NodeId,
    now: Instant,
) -> Option<Duration> {
    let bound = policy.bound?;
    let newest = snapshot.newest_covered(node, now)?;
    snapshot.line(now).lease(bound).valid_for(now.since(newest.sent_at))
}

/// The same of an answer that names the leader, which has everything when it is read.
pub fn valid_for_leader(snapshot: &Snapshot, policy: &Policy, now: Instant) -> Option<Duration> {
    snapshot.line(now).lease(policy.bound?).valid_for(Duration::ZERO)
}
