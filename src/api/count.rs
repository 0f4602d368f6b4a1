//! What is counted of each select and each wait that was answered.
//!
//! Calls that ended in an error are counted by the trace layer alone, and what the cap said where
//! it was asked.

use crate::reads::{Answer, Caller, Selected, Waited, WaitedFor};
use crate::telemetry::{self, PartitionTelemetry, SessionKind, WaitEnd};

/// What a caller brought to say whose session it is.
pub(super) const fn brought(caller: &Caller) -> SessionKind {
    if !caller.tokens.is_empty() {
        SessionKind::Token
    } else if !caller.subject.is_empty() {
        SessionKind::Subject
    } else {
        SessionKind::None
    }
}

/// Counts one select.
pub(super) fn select(metrics: &PartitionTelemetry, selected: &Selected, brought: SessionKind) {
    let answer = match &selected.answer {
        Answer::Served { stale: Some(_), .. } => telemetry::Answer::Stale,
        Answer::Served { named, .. } if named.timeline.is_some() => telemetry::Answer::Leader,
        Answer::Served { .. } => telemetry::Answer::Replica,
        Answer::Refused { .. } => telemetry::Answer::Refused,
    };
    metrics.select(answer, selected.reason, brought);
    if !selected.waited.is_zero() {
        let in_time = answer == telemetry::Answer::Replica;
        let end = if in_time { WaitEnd::Fresh } else { WaitEnd::TimedOut };
        metrics.wait(end, selected.waited);
    }
}

/// Counts one wait.
pub(super) fn wait(metrics: &PartitionTelemetry, waited: &Waited, brought: SessionKind) {
    let end = match waited.outcome {
        WaitedFor::Fresh(_) => WaitEnd::Fresh,
        WaitedFor::TimedOut | WaitedFor::Capped => WaitEnd::TimedOut,
        WaitedFor::Lost => WaitEnd::Lost,
        WaitedFor::Unknown => WaitEnd::Unknown,
        WaitedFor::Gone => WaitEnd::Gone,
    };
    metrics.wait(end, waited.waited);
    metrics.session(brought);
}
