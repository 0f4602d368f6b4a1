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

/// Builds one error.
pub fn error(
    code: Code,
    reason: ErrorReason,
    message: impl Into<String>,
    retry_after: Option<Duration>,
) -> Status {
    let name = reason.as_str_name().trim_start_matches("ERROR_REASON_");
    let mut details = ErrorDetails::with_error_info(name, ERROR_DOMAIN, HashMap::new());
    if let Some(retry_after) = retry_after {
        details.set_retry_info(Some(retry_after));
    }
    Status::with_error_details(code, message, details)
}

/// A field that cannot be read.
pub fn malformed(message: impl Into<String>) -> Status {
    error(Code::InvalidArgument, ErrorReason::RequestMalformed, message, None)
}

/// A named policy that this instance does not have.
pub fn policy_unknown(name: &str) -> Status {
    let message = format!(
        "there is no policy `{name}`: named policies are not built yet, send its fields instead"
    );
    error(Code::NotFound, ErrorReason::PolicyUnknown, message, None)
}

/// More streams than this instance opens.
pub fn streams_full(limit: usize) -> Status {
    let message = format!("{limit} Route streams are open already: share one per process");
    error(Code::ResourceExhausted, ErrorReason::StreamsFull, message, Some(RETRY_AFTER))
}

/// More calls than this instance has in progress at once.
pub fn calls_full(limit: usize) -> Status {
    let message = format!("{limit} calls are in progress already: try again later");
    error(Code::ResourceExhausted, ErrorReason::QuotaExceeded, message, Some(RETRY_AFTER))
}

/// More frames on one stream than may wait for their answers.
pub fn frames_full(limit: usize) -> Status {
    let message = format!("{limit} frames of this stream wait for answers: slow down");
    error(Code::ResourceExhausted, ErrorReason::QuotaExceeded, message, Some(RETRY_AFTER))
}

/// The instance is shutting down.
pub fn draining() -> Status {
    let message = "this instance is shutting down: call another one";
    error(Code::Unavailable, ErrorReason::Draining, message, Some(RETRY_AFTER))
}

/// The instance has not tried each of its nodes yet.
pub fn not_ready() -> Status {
    let message = "this instance has just started and has not tried each node yet";
    error(Code::Unavailable, ErrorReason::NotReady, message, Some(RETRY_AFTER))
}

/// A task of ours has ended, which it should not.
pub fn internal(what: &str) -> Status {
    tracing::error!(what, "internal error");
    let message = "this instance could not answer: its log says why";
    error(Code::Internal, ErrorReason::Internal, message, None)
}

/// What a call that could not be decided ends with.
pub fn of_read(failed: &ReadError) -> Status {
    use ErrorReason as Reason;
    let text = failed.to_string();
    match failed {
        ReadError::PartitionUnknown { .. } => {
            error(Code::NotFound, Reason::PartitionUnknown, text, None)
        }
        ReadError::NodeUnknown { .. } => error(Code::NotFound, Reason::NodeUnknown, text, None),
        ReadError::Session(failed) => of_session(failed),
        ReadError::Evidence(EvidenceError::InRecovery) => {
            error(Code::FailedPrecondition, Reason::EvidenceInRecovery, text, None)
        }
        ReadError::Evidence(
            EvidenceError::TooLong { .. }
            | EvidenceError::NotEvidence
            | EvidenceError::Field { .. },
        )
        | ReadError::Incarnation(_) => {
            error(Code::InvalidArgument, Reason::EvidenceMalformed, text, None)
        }
        ReadError::EvidenceForeign { .. } => {
            error(Code::FailedPrecondition, Reason::EvidenceForeign, text, None)
        }
        ReadError::Malformed(_) => malformed(text),
        ReadError::WaitsFull { .. } => {
            error(Code::ResourceExhausted, Reason::WaitsFull, text, Some(RETRY_AFTER))
        }
        ReadError::LostWrite { .. } => {
            error(Code::FailedPrecondition, Reason::LostWrite, text, None)
        }
    }
}

fn of_session(failed: &SessionError) -> Status {
    use ErrorReason as Reason;
    let text = failed.to_string();
    match failed {
        SessionError::SubjectTooLong { .. } | SessionError::TokenRoom { .. } => malformed(text),
        SessionError::TooManyTokens { .. }
        | SessionError::TokensTooLong { .. }
        | SessionError::TokenTooLarge(_) => {
            error(Code::InvalidArgument, Reason::TokenTooLarge, text, None)
        }
        SessionError::TokenMalformed(_) => {
            error(Code::InvalidArgument, Reason::TokenMalformed, text, None)
        }
        SessionError::TokenForeign(_) => {
            error(Code::FailedPrecondition, Reason::TokenForeign, text, None)
        }
        SessionError::Store(StoreError::Full { .. }) => {
            error(Code::ResourceExhausted, Reason::QuotaExceeded, text, Some(RETRY_AFTER))
        }
        SessionError::Store(StoreError::Unreachable(_)) => {
            error(Code::Unavailable, Reason::StoreUnavailable, text, Some(RETRY_AFTER))
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
