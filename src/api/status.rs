//! Every error of the API, built in one place: code, `ErrorInfo`, and when to try again.
//!
//! A message says what to do. Causes stay in the log.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::evidence::EvidenceError;
use tidegate_proto::v1::ErrorReason;
use tidegate_proto::{ERROR_DOMAIN, RpcStatus};
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::reads::ReadError;
use crate::sessions::{SessionError, StoreError};

/// How long a caller should wait where nothing better is known.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// Builds one error; `facts` are its metadata, for programs.
pub fn error(
    code: Code,
    reason: ErrorReason,
    message: impl Into<String>,
    retry_after: Option<Duration>,
    facts: &[(&str, &str)],
) -> Status {
    let name = reason.as_str_name().trim_start_matches("ERROR_REASON_");
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let metadata: HashMap<String, String> = facts.iter().map(owned).collect();
    let mut details = ErrorDetails::with_error_info(name, ERROR_DOMAIN, metadata);
    if let Some(retry_after) = retry_after {
        details.set_retry_info(Some(retry_after));
    }
    Status::with_error_details(code, message, details)
}

/// A request that cannot be read.
pub fn malformed(message: impl Into<String>) -> Status {
    let text = message.into();
    let facts = [("problem", text.as_str())];
    error(Code::InvalidArgument, ErrorReason::RequestMalformed, text.as_str(), None, &facts)
}

/// A field that cannot be read; `problem` names it, too.
pub fn field(field: &str, problem: impl Into<String>) -> Status {
    let text = problem.into();
    let facts = [("field", field), ("problem", text.as_str())];
    error(Code::InvalidArgument, ErrorReason::RequestMalformed, text.as_str(), None, &facts)
}

/// A named policy that this instance does not have; `known` are those it has.
pub fn policy_unknown(name: &str, known: &str) -> Status {
    let has = if known.is_empty() {
        "its configuration names none".to_owned()
    } else {
        format!("its configuration names {known}")
    };
    let message = format!(
        "this instance has no policy `{name}`: {has}; add a section [policy.NAME] and reload, or \
         send the fields of the policy instead"
    );
    error(Code::NotFound, ErrorReason::PolicyUnknown, message, None, &[("policy", name)])
}

/// A call that this instance was not wired for.
pub fn not_built(call: &str) -> Status {
    let text = format!("{call} is not built into this instance");
    let facts = [("problem", text.as_str())];
    error(Code::Unimplemented, ErrorReason::RequestMalformed, text.as_str(), None, &facts)
}

/// A configuration that is not taken over; each line of `problems` says where and why.
pub fn config_refused(problems: &str) -> Status {
    let reason = ErrorReason::RequestMalformed;
    error(Code::FailedPrecondition, reason, problems, None, &[("field", "configuration")])
}

/// More streams than this instance opens.
pub fn streams_full(limit: usize) -> Status {
    let message = format!("{limit} Route streams are open already: share one per process");
    full(ErrorReason::StreamsFull, message, &[], limit)
}

/// More streams of events than this instance opens.
pub fn watchers_full(limit: usize) -> Status {
    let message = format!("{limit} streams of events are open already: share one per tool");
    full(ErrorReason::StreamsFull, message, &[], limit)
}

/// More calls than this instance has in progress at once.
pub fn calls_full(limit: usize) -> Status {
    let message = format!("{limit} calls are in progress already: try again later");
    full(ErrorReason::QuotaExceeded, message, &[("quota", "calls_in_flight")], limit)
}

/// More frames on one stream than may wait for their answers.
pub fn frames_full(limit: usize) -> Status {
    let message = format!("{limit} frames of this stream wait for answers: slow down");
    full(ErrorReason::QuotaExceeded, message, &[("quota", "route_in_flight")], limit)
}

fn full(reason: ErrorReason, message: String, facts: &[(&str, &str)], limit: usize) -> Status {
    let limit = limit.to_string();
    let facts: Vec<_> = facts.iter().copied().chain([("limit", limit.as_str())]).collect();
    error(Code::ResourceExhausted, reason, message, Some(RETRY_AFTER), &facts)
}

/// The instance is shutting down.
pub fn draining() -> Status {
    let message = "this instance is shutting down: call another one";
    error(Code::Unavailable, ErrorReason::Draining, message, Some(RETRY_AFTER), &[])
}

/// The instance has not tried each of its nodes yet.
pub fn not_ready() -> Status {
    let message = "this instance has just started and has not tried each node yet";
    error(Code::Unavailable, ErrorReason::NotReady, message, Some(RETRY_AFTER), &[])
}

/// A task of ours has ended, which it should not.
pub fn internal(what: &str) -> Status {
    tracing::error!(what, "internal error");
    let message = "this instance could not answer: its log says why";
    error(Code::Internal, ErrorReason::Internal, message, None, &[])
}

/// What a call that could not be decided ends with.
pub fn of_read(failed: &ReadError) -> Status {
    use ErrorReason as Reason;
    let text = failed.to_string();
    match failed {
        ReadError::PartitionUnknown { name, .. } => {
            error(Code::NotFound, Reason::PartitionUnknown, text, None, &[("partition", name)])
        }
        ReadError::NodeUnknown { partition, name, .. } => {
            let facts = [("partition", partition.as_str()), ("node", name)];
            error(Code::NotFound, Reason::NodeUnknown, text, None, &facts)
        }
        ReadError::Session(failed) => of_session(failed),
        ReadError::Evidence(failed) => of_evidence(failed),
        ReadError::Incarnation(_) => {
            let facts = [("problem", text.as_str())];
            let reason = Reason::EvidenceMalformed;
            error(Code::InvalidArgument, reason, text.as_str(), None, &facts)
        }
        ReadError::EvidenceForeign { system } => {
            let facts = [("system_id", system.as_str())];
            error(Code::FailedPrecondition, Reason::EvidenceForeign, text, None, &facts)
        }
        ReadError::Malformed(_) => malformed(text),
        ReadError::WaitsFull { partition } => {
            let facts = [("partition", partition.as_str())];
            let reason = Reason::WaitsFull;
            error(Code::ResourceExhausted, reason, text, Some(RETRY_AFTER), &facts)
        }
        ReadError::LostWrite { partition } => {
            let facts = [("partition", partition.as_str())];
            error(Code::FailedPrecondition, Reason::LostWrite, text, None, &facts)
        }
    }
}

fn of_evidence(failed: &EvidenceError) -> Status {
    use ErrorReason as Reason;
    let text = failed.to_string();
    let problem = ("problem", text.as_str());
    let malformed = |facts: &[(&str, &str)]| {
        error(Code::InvalidArgument, Reason::EvidenceMalformed, text.as_str(), None, facts)
    };
    match failed {
        EvidenceError::InRecovery => {
            let reason = Reason::EvidenceInRecovery;
            error(Code::FailedPrecondition, reason, text.as_str(), None, &[problem])
        }
        EvidenceError::Field { field } => malformed(&[("evidence_field", field), problem]),
        EvidenceError::TooLong { .. } | EvidenceError::NotEvidence => malformed(&[problem]),
    }
}

fn of_session(failed: &SessionError) -> Status {
    use ErrorReason as Reason;
    let text = failed.to_string();
    let problem = [("problem", text.as_str())];
    match failed {
        SessionError::SubjectTooLong { .. } => field("session.subject", text.as_str()),
        SessionError::TokenRoom { .. } => field("session.max_token_chars", text.as_str()),
        SessionError::TooManyTokens { .. }
        | SessionError::TokensTooLong { .. }
        | SessionError::TokenTooLarge(_) => {
            error(Code::InvalidArgument, Reason::TokenTooLarge, text.as_str(), None, &problem)
        }
        SessionError::TokenMalformed(_) => {
            error(Code::InvalidArgument, Reason::TokenMalformed, text.as_str(), None, &problem)
        }
        SessionError::TokenForeign(_) => {
            error(Code::FailedPrecondition, Reason::TokenForeign, text.as_str(), None, &problem)
        }
        SessionError::Store(StoreError::Full { .. }) => {
            let (code, facts) = (Code::ResourceExhausted, [("quota", "subjects")]);
            error(code, Reason::QuotaExceeded, text.as_str(), Some(RETRY_AFTER), &facts)
        }
        SessionError::Store(StoreError::Unreachable(_)) => {
            let reason = Reason::StoreUnavailable;
            error(Code::Unavailable, reason, text.as_str(), Some(RETRY_AFTER), &problem)
        }
    }
}

/// The error of a message that could not be read, if `refused` is tonic's own word on that.
pub fn undecodable(refused: &Status) -> Option<Status> {
    if !refused.details().is_empty() {
        return None;
    }
    let found = refused.message();
    if refused.code() == Code::OutOfRange {
        let text = format!("{found}: send fewer or shorter tokens and evidence");
        return Some(malformed(text));
    }
    let unread = refused.code() == Code::Internal && found.starts_with("failed to decode");
    unread.then(|| malformed(format!("{found}: build the message from the .proto files")))
}

/// An answer in which a message that could not be read has its reason, like any other error.
pub fn reasoned(response: Response<Body>) -> Response<Body> {
    let refused = Status::from_header_map(response.headers());
    match refused.as_ref().and_then(undecodable) {
        Some(error) => error.into_http(),
        None => response,
    }
}

/// The same error as a frame of `Route`.
pub fn frame(status: &Status) -> RpcStatus {
    use prost::Message;
    match RpcStatus::decode(status.details()) {
        Ok(rpc) if rpc.code != 0 => rpc,
        Ok(_) | Err(_) => RpcStatus {
            code: status.code() as i32,
            message: status.message().to_owned(),
            details: Vec::new(),
        },
    }
}
