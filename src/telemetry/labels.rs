//! The closed sets that label metrics. No label carries a subject, a token or a text of a caller.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use tidegate_core::routing::Reason;
use tidegate_core::token::NoticeKind;

/// A value of a label, one of a closed set.
pub trait Label: Copy + 'static {
    /// Every value, in the order of [`Label::index`].
    const ALL: &'static [Self];

    /// The word in metrics.
    fn word(self) -> &'static str;
}

/// Defines the words of an enum whose variants need no more than a word.
macro_rules! labels {
    ($name:ident { $($variant:ident = $word:literal,)+ }) => {
        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

/// Lets a label stand in a set of labels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Word(pub(super) &'static str);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.0)
    }
}

/// Which kind of node a decision named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// A replica that has what was demanded.
    Replica,
    /// The leader; the reason tells a fallback from a policy.
    Leader,
    /// A replica that may not have it, labelled with its lag.
    Stale,
    /// None.
    Refused,
}

labels!(Answer { Replica = "replica", Leader = "leader", Stale = "stale", Refused = "refused", });

labels!(Reason {
    Covered = "covered",
    Waited = "waited",
    NotCovered = "not_covered",
    LeaderByPolicy = "leader_by_policy",
    LeaderFallback = "leader_fallback",
    StaleByPolicy = "stale_by_policy",
    CapExhausted = "cap_exhausted",
    NotProvable = "not_provable",
    UnknownSession = "unknown_session",
    UnknownEpoch = "unknown_epoch",
    StoreLost = "store_lost",
    StoreAsync = "store_async",
    Split = "split",
    NoLeader = "no_leader",
    NoNode = "no_node",
    LineageMissing = "lineage_missing",
    LineageUnwritable = "lineage_unwritable",
    FutureMark = "future_mark",
});

/// What a read brought to say whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionKind {
    /// A token, with a subject or without.
    Token,
    /// A subject and no token.
    Subject,
    /// Neither: nothing is promised but what the level itself promises.
    None,
}

labels!(SessionKind { Token = "token", Subject = "subject", None = "none", });

/// What a timeline's end is to the fork that was placed there, as a tool of the operator tells it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Agreement {
    /// It may have ended there.
    Fits,
    /// It cannot have.
    Contradicts,
}

labels!(Agreement { Fits = "fits", Contradicts = "contradicts", });

labels!(NoticeKind {
    PossiblyLost = "possibly_lost",
    ObservedStateLost = "observed_state_lost",
    WriteLost = "write_lost",
});

/// What a wait ended in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitEnd {
    /// The node became fresh.
    Fresh,
    /// Its budget ended first.
    TimedOut,
    /// What it waited for was lost.
    Lost,
    /// What it waited for became unknown.
    Unknown,
    /// The node was removed or drained.
    Gone,
    /// The caller left.
    Cancelled,
}

labels!(WaitEnd {
    Fresh = "fresh",
    TimedOut = "timed_out",
    Lost = "lost",
    Unknown = "unknown",
    Gone = "gone",
    Cancelled = "cancelled",
});

/// What became of one poll of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PollOutcome {
    /// It answered.
    Observed,
    /// No connection, or it broke.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// It starts or stops.
    NotReady,
    /// It refused role, password or database.
    Denied,
    /// TLS could not be agreed on.
    Tls,
    /// Its version is not supported.
    ServerTooOld,
    /// It is another database cluster.
    ForeignSystem,
    /// The statement failed, or its answer has another form.
    Rejected,
}

labels!(PollOutcome {
    Observed = "observed",
    Unreachable = "unreachable",
    TimedOut = "timed_out",
    NotReady = "not_ready",
    Denied = "denied",
    Tls = "tls",
    ServerTooOld = "server_too_old",
    ForeignSystem = "foreign_system",
    Rejected = "rejected",
});

/// What the cap said to a fallback.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Admission {
    /// The leader bears it.
    Admitted,
    /// It does not.
    Refused,
}

labels!(Admission { Admitted = "admitted", Refused = "refused", });

/// What a followed call waits for, as a span within that of the call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A node that has what was demanded.
    Park,
    /// An observation that was sent after the call came.
    Observe,
    /// A record of the token store.
    Lookup,
    /// A record that the token store is to change.
    Update,
}

labels!(Step { Park = "park", Observe = "observe", Lookup = "lookup", Update = "update", });

/// What is sent to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Signal {
    /// Spans of followed calls.
    Spans,
    /// Everything `/metrics` shows.
    Metrics,
}

labels!(Signal { Spans = "spans", Metrics = "metrics", });

/// What became of one export.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ExportEnd {
    /// The collector took it.
    Taken,
    /// The collector answered with an error, or could not be reached.
    Failed,
    /// There was no answer in time.
    TimedOut,
}

labels!(ExportEnd { Taken = "taken", Failed = "failed", TimedOut = "timed_out", });

/// Why a span never reached the collector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum SpanLoss {
    /// `telemetry.span_queue` spans waited already.
    QueueFull,
    /// Sending it failed and is not tried again.
    Failed,
    /// The collector refused it.
    Refused,
    /// The instance ended before it was sent.
    Shutdown,
}

labels!(SpanLoss {
    QueueFull = "queue_full",
    Failed = "failed",
    Refused = "refused",
    Shutdown = "shutdown",
});

/// A method of the service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Method {
    /// `RoutingService.SelectReplica`.
    SelectReplica,
    /// `RoutingService.WaitUntilFresh`.
    WaitUntilFresh,
    /// `RoutingService.Record`.
    Record,
    /// `RoutingService.ResolveSession`.
    ResolveSession,
    /// `RoutingService.AcknowledgeNotices`.
    AcknowledgeNotices,
    /// `RoutingService.Route`, the stream as a whole.
    Route,
    /// Any of `AdminService`.
    Admin,
    /// Health, reflection, and what does not exist.
    Other,
}

labels!(Method {
    SelectReplica = "SelectReplica",
    WaitUntilFresh = "WaitUntilFresh",
    Record = "Record",
    ResolveSession = "ResolveSession",
    AcknowledgeNotices = "AcknowledgeNotices",
    Route = "Route",
    Admin = "Admin",
    Other = "Other",
});

impl Method {
    /// The name of a call in traces: service and method.
    pub const fn full_name(self) -> &'static str {
        match self {
            Self::SelectReplica => "tidegate.v1.RoutingService/SelectReplica",
            Self::WaitUntilFresh => "tidegate.v1.RoutingService/WaitUntilFresh",
            Self::Record => "tidegate.v1.RoutingService/Record",
            Self::ResolveSession => "tidegate.v1.RoutingService/ResolveSession",
            Self::AcknowledgeNotices => "tidegate.v1.RoutingService/AcknowledgeNotices",
            Self::Route => "tidegate.v1.RoutingService/Route",
            Self::Admin => "tidegate.v1.AdminService",
            Self::Other => "other",
        }
    }

    /// The method a request path names.
    pub fn of_path(path: &str) -> Self {
        if path.starts_with("/tidegate.v1.AdminService/") {
            return Self::Admin;
        }
        let Some(name) = path.strip_prefix("/tidegate.v1.RoutingService/") else {
            return Self::Other;
        };
        let is_named = |method: &&Self| method.word() == name && **method != Self::Admin;
        Self::ALL.iter().find(is_named).copied().unwrap_or(Self::Other)
    }
}

/// The gRPC code a call was answered with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Code(u8);

/// The words of gRPC codes, by number.
const CODES: &[&str] = &[
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl Code {
    /// The call was answered, or its stream begun.
    pub const OK: Self = Self(0);
    /// What happened is not known.
    pub const UNKNOWN: Self = Self(2);
    /// The service failed.
    pub const INTERNAL: Self = Self(13);
    /// The caller left before there was an answer.
    pub const CANCELLED: Self = Self(1);

    /// True if the service, not its caller, is at fault, as semantic conventions have it.
    pub const fn is_fault(self) -> bool {
        // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
        matches!(self.0, 2 | 4 | 12..=15)
    }

    /// The code of this number; an unknown one is `UNKNOWN`, as gRPC has it.
    pub fn new(number: u8) -> Self {
        if usize::from(number) < CODES.len() { Self(number) } else { Self::UNKNOWN }
    }
}

impl Label for Code {
    const ALL: &'static [Self] = &{
        let mut all = [Self(0); CODES.len()];
        let mut number = 0_u8;
        while (number as usize) < CODES.len() {
            all[number as usize] = Self(number);
            number += 1;
        }
        all
    };

    fn word(self) -> &'static str {
        CODES.get(usize::from(self.0)).copied().unwrap_or("UNKNOWN")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_names_no_method_is_other() {
        for path in [
            "",
            "/",
            "/tidegate.v1.RoutingService/",
            "/tidegate.v1.RoutingService/Admin",
            "/tidegate.v1.RoutingService/selectReplica",
            "/tidegate.v1.RoutingService/SelectReplica/x",
            "/grpc.health.v1.Health/Check",
        ] {
            assert_eq!(Method::of_path(path), Method::Other, "{path:?}");
        }
        let select = Method::of_path("/tidegate.v1.RoutingService/SelectReplica");
        assert_eq!(select, Method::SelectReplica);
        assert_eq!(Method::of_path("/tidegate.v1.AdminService/DrainNode"), Method::Admin);
    }

    #[test]
    fn a_method_is_called_in_traces_as_in_its_path() {
        for method in Method::ALL {
            let path = format!("/{}", method.full_name());
            let known = !matches!(method, Method::Admin | Method::Other);
            assert_eq!(Method::of_path(&path) == *method, known || *method == Method::Other);
        }
    }

    #[test]
    fn a_code_that_grpc_does_not_have_is_unknown() {
        assert_eq!(Code::new(17).word(), "UNKNOWN");
        assert_eq!(Code::new(255).word(), "UNKNOWN");
        assert_eq!(Code::new(8).word(), "RESOURCE_EXHAUSTED");
        assert_eq!(Code::ALL.len(), 17);
    }
}
