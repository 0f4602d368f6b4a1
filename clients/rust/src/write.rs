//! The write scope: BEGIN, the caller's statements, COMMIT, capture, record.
//!
//! COMMIT and capture are one batch: inside the transaction the capture would lie below the commit,
//! in a packet of its own a pooler could send it to another life of the server. What was committed
//! and cannot be recorded is said, kept, and told with the session's next call.

use std::fmt;

use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::{Client, Error, Transaction};

use crate::error::ClientError;
use crate::session::Session;
use crate::sql::{Committed, STATEMENT_POOLING};
use crate::{Raise, Stored, sql};

/// What was written and recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Written<T> {
    /// What the caller's statements returned.
    pub value: T,
    /// Where the record of the session's subject was kept.
    pub stored: Stored,
    /// What `tidegate.capture()` returned.
    pub capture: String,
}

/// Why a write is not written, or not recorded.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError<T, E> {
    /// The connection is inside a transaction already; nothing was done.
    OpenTransaction,
    /// The transaction could not begin; nothing was done.
    Begin(Error),
    /// The pooler gives each statement a server of its own and knows no transactions; nothing was
    /// done. Let it pool by transaction or by session.
    StatementPooling(Error),
    /// The caller's statements failed; they were rolled back.
    Body(E),
    /// The server refused the commit, or had aborted the transaction; nothing was written.
    NotCommitted(Error),
    /// The answer to COMMIT was lost: it may be written or not. The session's next read demands
    /// what the leader has then, and so sees it if it was committed by then.
    CommitUnknown(Error),
    /// It was committed and is not recorded. Do not write it again. The session's later calls bring
    /// what is missing; another device or process of the session may read behind it until then.
    Unrecorded {
        /// What the caller's statements returned.
        value: T,
        /// What `tidegate.capture()` returned; `None`: it could not be asked, and the session's
        /// next read demands what the leader has then.
        evidence: Option<String>,
        /// Why it is not recorded.
        cause: UnrecordedCause,
    },
}

/// Why what happened in the database is not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnrecordedCause {
    /// The database did not say where it is.
    #[error("the database did not answer the capture")]
    Database(#[source] Error),
    /// The database said nothing.
    #[error(
        "the `tidegate` objects of the database returned nothing: run `tidegate sql | psql` there"
    )]
    Silent,
    /// The service did not take it.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl<T, E> WriteError<T, E> {
    /// What the caller's statements returned, if they were certainly committed.
    pub fn into_committed(self) -> Option<T> {
        match self {
            Self::Unrecorded { value, .. } => Some(value),
            Self::OpenTransaction
            | Self::Begin(_)
            | Self::StatementPooling(_)
            | Self::Body(_)
            | Self::NotCommitted(_)
            | Self::CommitUnknown(_) => None,
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for WriteError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenTransaction => write!(
                f,
                "the connection is inside a transaction: end it first, or pass another connection"
            ),
            Self::Begin(_) => write!(f, "the transaction could not begin"),
            Self::StatementPooling(_) => write!(f, "{STATEMENT_POOLING}"),
            Self::Body(error) => write!(f, "rolled back: {error}"),
            Self::NotCommitted(_) => write!(f, "the server refused the commit"),
            Self::CommitUnknown(_) => {
                write!(f, "the answer to COMMIT was lost: look whether it was written")
            }
            Self::Unrecorded { cause, .. } => {
                write!(f, "committed but not recorded, do not write it again: {cause}")
            }
        }
    }
}

impl<T: fmt::Debug, E: fmt::Debug + fmt::Display> std::error::Error for WriteError<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OpenTransaction | Self::Body(_) => None,
            Self::Begin(error)
            | Self::StatementPooling(error)
            | Self::NotCommitted(error)
            | Self::CommitUnknown(error) => Some(error),
            Self::Unrecorded { cause, .. } => Some(cause),
        }
    }
}

impl Session {
    /// Writes: runs `body` in one transaction on a connection to the leader, commits, and records
    /// where the commit lies before it returns, so that every later read of this session sees it.
    ///
    /// The connection may be direct or behind a pooler, by transaction or by session.
    ///
    /// `body` must not end the transaction itself. If PostgreSQL aborted it and `body` swallowed
    /// the error, it is rolled back, and the answer is [`WriteError::NotCommitted`].
    ///
    /// # Errors
    /// [`WriteError`], which says whether it was written.
    pub async fn write<T, E, F>(
        &self,
        connection: &mut Client,
        body: F,
    ) -> Result<Written<T>, WriteError<T, E>>
    where
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        if !sql::is_outside(connection).await.map_err(begin_error)? {
            return Err(WriteError::OpenTransaction);
        }
        let transaction = connection.transaction().await.map_err(begin_error)?;
        let value = match body(&transaction).await {
            Ok(value) => value,
            Err(error) => {
                // Dropping it rolls back too; awaited, so that the connection is clean for its next
                // user. The caller's error is the one to tell.
                drop(transaction.rollback().await);
                return Err(WriteError::Body(error));
            }
        };
        // From here until the capture is kept the session may have written without evidence,
        // whatever fails and wherever this future is dropped.
        let doubt = self.in_doubt();
        // Its drop would roll back behind our commit; it holds nothing else.
        std::mem::forget(transaction);
        let committed = match sql::commit(connection, self.reads_before()).await {
            Ok(committed) => committed,
            Err(error) if certainly_refused(&error) => {
                doubt.dispel();
                // A batch that failed before its COMMIT left the transaction open.
                drop(sql::rollback(connection).await);
                return Err(WriteError::NotCommitted(error));
            }
            Err(error) => return Err(WriteError::CommitUnknown(error)),
        };
        let Committed { before, capture } = committed;
        let capture = match capture {
            Ok(Some(capture)) => capture,
            Ok(None) => {
                let cause = UnrecordedCause::Silent;
                return Err(WriteError::Unrecorded { value, evidence: None, cause });
            }
            Err(error) => {
                let cause = UnrecordedCause::Database(error);
                return Err(WriteError::Unrecorded { value, evidence: None, cause });
            }
        };
        let kept = self.carried().keep(capture.clone());
        doubt.dispel();
        match self.record_kept(kept, before, Raise::Unspecified).await {
            Ok(stored) => Ok(Written { value, stored, capture }),
            Err(error) => {
                let (evidence, cause) = (Some(capture), error.into());
                Err(WriteError::Unrecorded { value, evidence, cause })
            }
        }
    }
}

/// A connection inside an aborted transaction answers nothing else.
fn begin_error<T, E>(error: Error) -> WriteError<T, E> {
    if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) {
        WriteError::OpenTransaction
    } else if sql::is_statement_pooling(&error) {
        WriteError::StatementPooling(error)
    } else {
        WriteError::Begin(error)
    }
}

/// Says whether a failed COMMIT certainly wrote nothing: the server said so, and lives on.
///
/// A server that ends the connection may have committed already, as while it waited for a
/// synchronous standby.
fn certainly_refused(error: &Error) -> bool {
    let Some(told) = error.as_db_error() else { return false };
    let unclear = *told.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
    told.parsed_severity() == Some(Severity::Error) && !unclear
}
