//! The rooms' types into messages.

use std::time::Duration;

use tidegate_core::routing::{Guarantee, Reason, Shadow};
use tidegate_core::snapshot::Lag;
use tidegate_core::token::{Notice, NoticeKind};
use tidegate_proto::v1;

use super::texts;
use crate::partitions::handle::Reach;
use crate::partitions::{PartitionHandle, Partitions};
use crate::reads::{Answer, Named, Recorded, Selected, Waited, WaitedFor};
use crate::sessions::Stored;
use crate::sessions::notice_id_text;

/// A duration of the wire; the longest it can say where `span` is longer.
pub fn duration(span: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(span)
        .unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 })
}

/// A lag.
pub fn lag(lag: Lag) -> v1::Lag {
    v1::Lag { bytes: lag.bytes, time: Some(duration(lag.time)) }
}

fn node(handle: &PartitionHandle, named: &Named) -> v1::Node {
    let role = if named.timeline.is_some() { v1::Role::Leader } else { v1::Role::Replica };
    let Some(info) = handle.node_info(named.node) else { return v1::Node::default() };
    let reach = match info.reach {
        Reach::Direct => v1::Reach::Direct,
        Reach::Pooled => v1::Reach::Pooled,
        Reach::Shared => v1::Reach::Shared,
    };
    v1::Node {
        name: info.name.clone(),
        addresses: info.addresses.clone(),
        role: role.into(),
        reach: reach.into(),
        zone: info.zone.clone(),
    }
}

fn served(handle: &PartitionHandle, named: &Named, waited: Duration) -> v1::Served {
    v1::Served {
        node: Some(node(handle, named)),
        acceptable_incarnations: named.incarnations.iter().map(texts::incarnation).collect(),
        leader: named.timeline.map(|timeline| v1::LeaderCheck { timeline }),
        stale: None,
        waited: Some(duration(waited)),
    }
}

/// The answer of `SelectReplica`.
pub fn select(
    partitions: &Partitions,
    handle: &PartitionHandle,
    selected: Selected,
) -> v1::SelectReplicaResponse {
    use v1::select_replica_response::Outcome;
    let outcome = match &selected.answer {
        Answer::Served { named, stale } => {
            let mut served = served(handle, named, selected.waited);
            served.stale = stale.map(|behind| v1::Staleness { lag: behind.map(lag) });
            Outcome::Served(served)
        }
        Answer::Refused { retry_after, eta, best } => Outcome::Refused(v1::Refused {
            retry_after: Some(duration(*retry_after)),
            eta: eta.map(duration),
            best: best.map(lag),
        }),
    };
    v1::SelectReplicaResponse {
        outcome: Some(outcome),
        met: selected.met.iter().map(|met| guarantee(*met).into()).collect(),
        reason: reason(selected.reason).into(),
        token: selected.token,
        notices: notices(partitions, &selected.notices),
        valid_for: selected.valid_for.map(duration),
        shadow: selected.shadow.map(shadow),
        epoch: texts::epoch(selected.epoch),
    }
}

fn shadow(shadow: Shadow) -> v1::Shadow {
    v1::Shadow { fresh: shadow.fresh, behind: shadow.behind.map(lag) }
}

/// The answer of `WaitUntilFresh`.
pub fn wait(
    partitions: &Partitions,
    handle: &PartitionHandle,
    waited: Waited,
) -> v1::WaitUntilFreshResponse {
    use v1::wait_until_fresh_response::Outcome;
    let (outcome, served) = match &waited.outcome {
        WaitedFor::Fresh(named) => (Outcome::Fresh, Some(served(handle, named, waited.waited))),
        WaitedFor::TimedOut | WaitedFor::Capped => (Outcome::TimedOut, None),
        WaitedFor::Lost => (Outcome::Lost, None),
        WaitedFor::Unknown => (Outcome::Unknown, None),
        WaitedFor::Gone => (Outcome::Gone, None),
    };
    v1::WaitUntilFreshResponse {
        outcome: outcome.into(),
        served,
        token: waited.token,
        notices: notices(partitions, &waited.notices),
        eta: waited.eta.map(duration),
        best: waited.best.map(lag),
        reason: reason(waited.reason).into(),
        epoch: texts::epoch(waited.epoch),
    }
}

/// The answer of `Record`.
pub fn record(partitions: &Partitions, recorded: Recorded) -> v1::RecordResponse {
    v1::RecordResponse {
        token: recorded.token,
        stored: stored(recorded.stored).into(),
        notices: notices(partitions, &recorded.notices),
    }
}

const fn stored(stored: Option<Stored>) -> v1::Stored {
    match stored {
        None => v1::Stored::NotAsked,
        Some(Stored::Memory) => v1::Stored::Memory,
        Some(Stored::PrimaryOnly) => v1::Stored::PrimaryOnly,
        Some(Stored::Replicated) => v1::Stored::Replicated,
    }
}

/// Notices, with the names of their partitions; the number where a partition is not served here.
pub fn notices(partitions: &Partitions, notices: &[Notice]) -> Vec<v1::Notice> {
    notices.iter().map(|one| notice(partitions, one)).collect()
}

fn notice(partitions: &Partitions, notice: &Notice) -> v1::Notice {
    use v1::notice::Kind;
    let kind = match notice.kind {
        NoticeKind::WriteLost => Kind::WriteLost,
        NoticeKind::ObservedStateLost => Kind::ObservedStateLost,
        NoticeKind::PossiblyLost => Kind::PossiblyLost,
    };
    let seconds = i64::try_from(notice.told_seconds).unwrap_or(i64::MAX);
    let served_here = partitions.numbered(notice.partition);
    v1::Notice {
        id: notice_id_text(notice.id()),
        partition: served_here.map_or_else(
            || notice.partition.value().to_string(),
            |handle| handle.info().name.clone(),
        ),
        kind: kind.into(),
        lost_epoch: notice.lost.to_string(),
        epoch: notice.child.to_string(),
        told_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
    }
}

const fn guarantee(guarantee: Guarantee) -> v1::Guarantee {
    match guarantee {
        Guarantee::ReadYourWrites => v1::Guarantee::ReadYourWrites,
        Guarantee::MonotonicReads => v1::Guarantee::MonotonicReads,
        Guarantee::Bounded => v1::Guarantee::Bounded,
        Guarantee::Global => v1::Guarantee::Global,
        Guarantee::Leader => v1::Guarantee::Leader,
    }
}

const fn reason(reason: Reason) -> v1::Reason {
    match reason {
        Reason::Covered => v1::Reason::Covered,
        Reason::Waited => v1::Reason::Waited,
        Reason::NotCovered => v1::Reason::NotCovered,
        Reason::LeaderByPolicy => v1::Reason::LeaderByPolicy,
        Reason::LeaderFallback => v1::Reason::LeaderFallback,
        Reason::StaleByPolicy => v1::Reason::StaleByPolicy,
        Reason::CapExhausted => v1::Reason::CapExhausted,
        Reason::NotProvable => v1::Reason::NotProvable,
        Reason::UnknownSession => v1::Reason::UnknownSession,
        Reason::UnknownEpoch => v1::Reason::UnknownEpoch,
        Reason::StoreLost => v1::Reason::StoreLost,
        Reason::StoreAsync => v1::Reason::StoreAsync,
        Reason::Split => v1::Reason::Split,
        Reason::NoLeader => v1::Reason::NoLeader,
        Reason::NoNode => v1::Reason::NoNode,
        Reason::LineageMissing => v1::Reason::LineageMissing,
        Reason::LineageUnwritable => v1::Reason::LineageUnwritable,
        Reason::FutureMark => v1::Reason::FutureMark,
    }
}
