//! Why a read has no value, or one that is not recorded.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Error;

use crate::Reason;
use crate::error::ClientError;
use crate::outcome::Lag;
use crate::sql::STATEMENT_POOLING;
use crate::write::UnrecordedCause;

/// Why a read has no value, or one that is not recorded.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError<T, E> {
    /// The service did not answer.
    Client(ClientError),
    /// No node may serve the read now.
    Refused {
        /// Why.
        reason: Reason,
        /// When trying again makes sense.
        retry_after: Duration,
        /// When the first replica is predicted to have what is demanded; `None`: not predictable.
        eta: Option<Duration>,
        /// The lag of the replica that comes closest; `None`: none was seen.
        best: Option<Lag>,
    },
    /// No connection led to the server that was named, within the bounds of a read.
    Checkout {
        /// The node named last.
        node: String,
        /// Selects made.
        selects: u32,
        /// What stood against the last one.
        problem: String,
    },
    /// The caller's statements failed.
    Body(E),
    /// The connection was, or was left, inside a transaction. What was read may be older than the
    /// answer allows; it was not handed out and the connection was discarded.
    OpenTransaction,
    /// The reading transaction could not begin or end, as when its body had swallowed an error.
    Transaction(Error),
    /// The pooler gives each statement a server of its own: no transaction can say where it runs.
    /// Let it pool by transaction or by session.
    StatementPooling(Error),
    /// What was read behind a pooler was not all read in one transaction: the body ended it, or the
    /// pooler parted it. It was not handed out.
    TransactionLeft,
    /// It was read, and the session could not be raised by it. The session's later calls bring what
    /// is missing; another device or process of the session may read behind it until then.
    Unrecorded {
        /// What the caller's statements returned.
        value: T,
        /// What `tidegate.sample()` returned; `None`: it could not be asked, and the session's next
        /// read demands what the leader has then.
        evidence: Option<String>,
        /// Why it is not recorded.
        cause: UnrecordedCause,
    },
}

impl<T, E> From<ClientError> for ReadError<T, E> {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl<T, E> ReadError<T, E> {
    /// When trying again makes sense; `None` where it does not or nobody knows.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Client(error) => error.retry_after(),
            Self::Refused { retry_after, .. } => Some(*retry_after),
            Self::Checkout { .. }
            | Self::Body(_)
            | Self::OpenTransaction
            | Self::Transaction(_)
            | Self::StatementPooling(_)
            | Self::TransactionLeft
            | Self::Unrecorded { .. } => None,
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for ReadError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Refused { reason, retry_after, .. } => {
                write!(f, "refused ({}): try again in {retry_after:?}", reason.as_str_name())
            }
            Self::Checkout { node, selects, problem } => write!(
                f,
                "no connection to the server that was named, selected {selects} times, the last \
                 time {node}: {problem}"
            ),
            Self::Body(error) => error.fmt(f),
            Self::OpenTransaction => write!(
                f,
                "the connection was inside a transaction: a pool must hand out clean ones, and a \
                 read must leave them so"
            ),
            Self::Transaction(_) => write!(f, "the reading transaction could not begin or end"),
            Self::StatementPooling(_) => write!(f, "{STATEMENT_POOLING}"),
            Self::TransactionLeft => write!(
                f,
                "the reading transaction was ended or parted half-way: behind a pooler a read must \
                 not end it, and the pooler must pool by transaction or by session"
            ),
            Self::Unrecorded { cause, .. } => write!(f, "read but not recorded: {cause}"),
        }
    }
}

impl<T: fmt::Debug, E: fmt::Debug + fmt::Display> std::error::Error for ReadError<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => std::error::Error::source(error),
            Self::Transaction(error) | Self::StatementPooling(error) => Some(error),
            Self::Unrecorded { cause, .. } => Some(cause),
            Self::Refused { .. }
            | Self::Checkout { .. }
            | Self::Body(_)
            | Self::OpenTransaction
            | Self::TransactionLeft => None,
        }
    }
}
