//! Why a call to the service failed. An answer that was decided, a refusal included, is no error.

use std::time::Duration;

use thiserror::Error;
use tidegate_proto::v1::ErrorReason;
use tidegate_proto::{ERROR_DOMAIN, RpcStatus};
use tonic::Code;
use tonic_types::{ErrorDetails, RpcStatusExt, StatusExt};

/// The service answered that it could not decide.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{message} ({code:?})")]
#[non_exhaustive]
pub struct ServiceError {
    /// The gRPC code.
    pub code: Code,
    /// The machine-readable reason; `Unspecified` where this version knows it not.
    pub reason: ErrorReason,
    /// What happened and what to do, for people.
    pub message: String,
    /// When trying again makes sense, where it does.
    pub retry_after: Option<Duration>,
}

impl ServiceError {
    pub(crate) fn of_status(status: &tonic::Status) -> Self {
        let details = status.get_error_details();
        Self::new(status.code(), status.message(), &details)
    }

    pub(crate) fn of_frame(status: &RpcStatus) -> Self {
        let details = status.get_error_details();
        Self::new(Code::from(status.code), &status.message, &details)
    }

    fn new(code: Code, message: &str, details: &ErrorDetails) -> Self {
        let info = details.error_info().filter(|info| info.domain == ERROR_DOMAIN);
        let reason = info
            .and_then(|info| ErrorReason::from_str_name(&format!("ERROR_REASON_{}", info.reason)));
        Self {
            code,
            reason: reason.unwrap_or(ErrorReason::Unspecified),
            message: message.to_owned(),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
        }
    }
}

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The endpoint is not one.
    #[error("`{endpoint}` is no endpoint: {problem}")]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The service answered that it could not decide.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The service could not be reached. What was not recorded goes with the session's next call.
    #[error("Tidegate at {endpoint} cannot be reached, tried {attempts} times: {last}")]
    Unreachable {
        /// Where it should be.
        endpoint: String,
        /// Attempts made for this call.
        attempts: u32,
        /// How the last one ended.
        last: String,
        /// When the service asked to try again, if it did.
        retry_after: Option<Duration>,
    },
    /// No answer came in time.
    #[error("no answer from Tidegate within {after:?}")]
    DeadlineExceeded {
        /// How long was waited.
        after: Duration,
    },
    /// As many calls are in progress as the client allows.
    #[error("{limit} calls are in progress already: await some, or raise `calls_max`")]
    Busy {
        /// How many that is.
        limit: usize,
    },
    /// The task that carries the calls has ended, as when its runtime shut down.
    #[error("the client is closed: make a new one in a running runtime")]
    Closed,
    /// The service answered something this client does not understand.
    #[error("the answer of Tidegate is not understood: {what}")]
    NotUnderstood {
        /// What is wrong with it.
        what: &'static str,
    },
}

impl ClientError {
    /// The machine-readable reason, where the service gave one.
    pub const fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Service(error) => Some(error.reason),
            Self::Endpoint { .. }
            | Self::Unreachable { .. }
            | Self::DeadlineExceeded { .. }
            | Self::Busy { .. }
            | Self::Closed
            | Self::NotUnderstood { .. } => None,
        }
    }

    /// When trying again makes sense; `None` where it does not or nobody knows.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Service(error) => error.retry_after,
            Self::Unreachable { retry_after, .. } => *retry_after,
            Self::Endpoint { .. }
            | Self::DeadlineExceeded { .. }
            | Self::Busy { .. }
            | Self::Closed
            | Self::NotUnderstood { .. } => None,
        }
    }
}
