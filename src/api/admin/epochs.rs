//! Which leader lives followed which: where each ended, what of it was lost, who was told.
//!
//! What is shown as lost is for people: what a session is told, the core's `resolve` says.

use std::collections::BTreeMap;

use tidegate_core::lineage::{End, Epoch, Fork, LineageRow};
use tidegate_core::position::Position;
use tidegate_core::snapshot::Snapshot;
use tidegate_proto::v1;

use super::show::{name, text, time};
use crate::partitions::PartitionHandle;
use crate::sessions::{LossKey, LossLedger, Told};

/// Losses, and twins, shown of one epoch.
const SHOWN_MAX: usize = 16;

/// The epochs of one partition, the latest first.
pub(super) fn list(handle: &PartitionHandle, ledger: &LossLedger, limit: usize) -> Vec<v1::Epoch> {
    let snapshot = handle.snapshot();
    let told: BTreeMap<LossKey, Told> = ledger.in_partition(handle.info().id).into_iter().collect();
    let mut rows: Vec<LineageRow> = snapshot.history.rows().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.n, row.epoch)));
    let heads = snapshot.leadership.heads();
    let epoch = |row: &LineageRow| {
        let facts = snapshot.facts.of(row.epoch);
        let node = facts.and_then(|facts| facts.node);
        v1::Epoch {
            epoch: row.epoch.to_string(),
            parent: text(row.parent),
            fork: row.parent.map(|_| fork(row.fork)),
            node: node.map_or_else(String::new, |node| name(handle, node)),
            row_seen: snapshot.history.has_row(row.epoch),
            flush_seen: text(facts.map(|facts| facts.flush_seen)),
            ended: facts.is_some_and(|facts| facts.ended),
            on_chain: heads.iter().any(|head| snapshot.history.descends(*head, row.epoch)),
            accept_time: None,
            losses: losses(handle, &snapshot, &told, row.epoch),
            twin_epochs: twins(&snapshot, row.epoch),
            first_seen_time: handle.first_seen(row.epoch).map(time),
        }
    };
    rows.iter().take(limit).map(epoch).collect()
}

/// Where a parent ends in its child.
pub(super) fn fork(fork: Fork) -> v1::Fork {
    use v1::fork::Kind;
    let (kind, at_least, at_most) = match fork {
        Fork::Between { at_least, at_most } => (Kind::Interval, Some(at_least), Some(at_most)),
        Fork::Unbounded => (Kind::Unbounded, None, None),
        Fork::Unknown => (Kind::Unknown, None, None),
    };
    v1::Fork { kind: kind.into(), at_least: text(at_least), at_most: text(at_most) }
}

/// The epochs beside `epoch` of which neither it nor the other gives way: the lives of one server
/// are no twins.
fn twins(snapshot: &Snapshot, epoch: Epoch) -> Vec<String> {
    let node = |epoch| snapshot.facts.of(epoch).and_then(|facts| facts.node);
    let is_other = |twin: &Epoch| node(epoch).is_none() || node(epoch) != node(*twin);
    let twins = snapshot.history.twins(epoch).filter(is_other);
    twins.take(SHOWN_MAX).map(|twin| twin.to_string()).collect()
}

/// What of `epoch` is not in the leader's line, and what sessions were told.
fn losses(
    handle: &PartitionHandle,
    snapshot: &Snapshot,
    told: &BTreeMap<LossKey, Told>,
    epoch: Epoch,
) -> Vec<v1::Loss> {
    let partition = handle.info().id;
    let end = end_of(snapshot, epoch);
    let to = snapshot.facts.flush_seen(epoch);
    let key = |child| LossKey { partition, lost: epoch, child };
    let mut losses = Vec::new();
    if let Some(end) = end {
        let told = told.get(&key(end.child)).copied().unwrap_or_default();
        if told.sessions() > 0 || to.is_some_and(|to| !end.survives(to)) {
            losses.push(loss(key(end.child), Some(&end), to, told));
        }
    }
    let shown = losses.first().map(|loss| loss.epoch.clone());
    let others = told
        .iter()
        .filter(|(other, _)| other.lost == epoch && Some(other.child.to_string()) != shown);
    losses.extend(others.map(|(key, told)| loss(*key, None, to, *told)).take(SHOWN_MAX - 1));
    losses
}

/// Where `epoch` ends in the line of the one head; `None`: there is no such head, or it does not.
fn end_of(snapshot: &Snapshot, epoch: Epoch) -> Option<End> {
    let heads = snapshot.leadership.heads();
    let [head] = heads.iter().as_slice() else { return None };
    snapshot.history.end_towards(*head, epoch)
}

fn loss(key: LossKey, end: Option<&End>, to: Option<Position>, told: Told) -> v1::Loss {
    let from = end.and_then(|end| end.from);
    let bytes = from.zip(to).map_or(0, |(from, to)| from.bytes_behind(to));
    let at = |seconds: u64| (seconds > 0).then(|| time(seconds));
    v1::Loss {
        lost_epoch: key.lost.to_string(),
        epoch: key.child.to_string(),
        from: text(from),
        surely_from: text(end.and_then(|end| end.surely_from)),
        to: text(to),
        byte_count: bytes,
        write_lost_session_count: told.write_lost,
        observed_state_lost_session_count: told.observed_state_lost,
        possibly_lost_session_count: told.possibly_lost,
        first_told_time: at(told.first_seconds),
        last_told_time: at(told.last_seconds),
    }
}

/// What of one loss is known now.
pub(super) fn loss_of(handle: &PartitionHandle, key: LossKey, told: Told) -> v1::Loss {
    let snapshot = handle.snapshot();
    let end = end_of(&snapshot, key.lost).filter(|end| end.child == key.child);
    loss(key, end.as_ref(), snapshot.facts.flush_seen(key.lost), told)
}
