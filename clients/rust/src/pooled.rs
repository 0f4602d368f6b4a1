//! A read behind a pooler or a shared address: checked inside its own transaction.
//!
//! There the same client connection can move to another server between two transactions without an
//! error, but not within one. So the transaction says where it runs before the caller's statements
//! are sent, and at its end that it still was the same one: nothing is read anywhere else, not even
//! to be thrown away, and the caller's statements run once.

use std::time::Duration;

use tidegate_core::guards::Guards;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, IsolationLevel, SimpleQueryStream, Transaction};

use crate::checkout::{Mismatch, mismatch};
use crate::held::{Answer, EXPIRED, Held, silent};
use crate::pool::NodePool;
use crate::read_error::ReadError;
use crate::session::Session;
use crate::sql::{self, Begun};

/// Why a reading transaction is not gone on with.
pub(crate) enum Stop<T, E> {
    /// It runs elsewhere, or nobody knows where: another select may help.
    Moved(String),
    /// Another select does not help.
    Failed(ReadError<T, E>),
}

/// Why nothing is known of a transaction.
const UNANSWERED: &str = "no answer in time";

impl Session {
    /// Begins a transaction where the answer holds, within `left`.
    pub(crate) async fn begin_pooled<P: NodePool, T, E>(
        &self,
        held: &Held<'_, P>,
        left: Duration,
    ) -> Result<Begun, Stop<T, E>> {
        let leader = held.answer.served.leader_timeline.is_some();
        let sent = sql::begin(&held.connection, leader).await;
        checked(sent, &held.answer, self.client().guards(), left).await
    }

    /// As [`Self::begin_pooled`], with one snapshot for all statements.
    pub(crate) async fn begin_snapshot_pooled<'h, P: NodePool, T, E>(
        &self,
        held: &'h mut Held<'_, P>,
        left: Duration,
    ) -> Result<(Transaction<'h>, Begun), Stop<T, E>> {
        let Held { connection, answer, .. } = held;
        let client: &mut Client = connection;
        let begin = async {
            // An open one could have its snapshot from before the answer.
            let outside = sql::is_outside(client).await?;
            let builder = client.build_transaction().read_only(true);
            let begun = builder.isolation_level(IsolationLevel::RepeatableRead).start().await;
            Ok::<_, Error>((outside, begun?))
        };
        let transaction = match tokio::time::timeout(left, begin).await {
            Ok(Ok((true, transaction))) => transaction,
            Ok(Ok((false, _))) => return Err(Stop::Failed(ReadError::OpenTransaction)),
            Ok(Err(error)) => return Err(not_begun(error)),
            Err(_) => return Err(Stop::Moved(UNANSWERED.to_owned())),
        };
        let sent = sql::ask_begun(transaction.client()).await;
        let begun = checked(sent, answer, self.client().guards(), left).await?;
        Ok((transaction, begun))
    }
}

/// Holds what a transaction says of itself against the answer it is for.
async fn checked<T, E>(
    sent: Result<SimpleQueryStream, Error>,
    answer: &Answer,
    guards: &Guards,
    left: Duration,
) -> Result<Begun, Stop<T, E>> {
    let asked = async { sql::begun(sent?).await };
    let begun = match tokio::time::timeout(left, asked).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(error)) => return Err(not_begun(error)),
        Err(_) => return Err(Stop::Moved(UNANSWERED.to_owned())),
    };
    if !begun.fresh {
        return Err(Stop::Failed(ReadError::OpenTransaction));
    }
    if begun.transaction.is_none() {
        return Err(Stop::Moved(Mismatch::Silent.to_string()));
    }
    if let Some(mismatch) = mismatch(&begun, &answer.served, guards) {
        return Err(Stop::Moved(mismatch.to_string()));
    }
    // A pooler may have kept it waiting for a server.
    if !answer.holds() {
        return Err(Stop::Moved(EXPIRED.to_owned()));
    }
    Ok(begun)
}

/// What it means that a transaction did not begin.
fn not_begun<T, E>(error: Error) -> Stop<T, E> {
    if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) {
        Stop::Failed(ReadError::OpenTransaction)
    } else if sql::is_statement_pooling(&error) {
        Stop::Failed(ReadError::StatementPooling(error))
    } else {
        Stop::Moved(silent(&error))
    }
}

/// What a transaction says at its end, if it is still the one that was begun: a sample from behind
/// everything read in it.
pub(crate) async fn ended<T, E>(
    sent: Result<SimpleQueryStream, Error>,
    begun: &Begun,
) -> Result<Option<String>, ReadError<T, E>> {
    let asked = async { sql::ended(sent?).await };
    let ended = asked.await.map_err(ReadError::Transaction)?;
    if ended.transaction == begun.transaction {
        Ok(ended.sample)
    } else {
        Err(ReadError::TransactionLeft)
    }
}
