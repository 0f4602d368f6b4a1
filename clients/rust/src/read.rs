//! The read scope: select, a connection to the named server, read, sample, record.
//!
//! Where it runs is compared with the answer before anything read is believed; what was read is
//! sampled after it, on the same server, and recorded before the value is handed out. Nothing here
//! chooses a node: a server that is not the one named is selected again.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, IsolationLevel, Transaction};

use crate::held::Held;
use crate::outcome::{Lag, Node};
use crate::policy::Policy;
use crate::pool::{NodeConnection, NodePool};
use crate::pooled::{Stop, ended};
use crate::read_error::ReadError;
use crate::session::{Observed, Session};
use crate::write::UnrecordedCause;
use crate::{Guarantee, Raise, Reason, sql};

/// What was read, and how it was served.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Read<T> {
    /// What the caller's statements returned.
    pub value: T,
    /// The node that served it.
    pub node: Node,
    /// Why it was this one.
    pub reason: Reason,
    /// Every promise that was kept.
    pub met: Vec<Guarantee>,
    /// Set where the node may be behind the demand: by how much.
    pub stale: Option<Lag>,
    /// How long the read waited inside the service.
    pub waited: Duration,
    /// The epoch it was judged in, as opaque text.
    pub epoch: String,
    /// Selects it took; more than one where a server was not the one named.
    pub selects: u32,
}

/// What is known of the position behind a read.
enum Behind {
    Sample(String),
    Unknown { cause: UnrecordedCause, incarnation: Option<String> },
}

/// What one transaction behind a pooler came to.
enum Snapshot<T, F> {
    /// What was read, a sample from behind it, and where that was.
    Read(T, Option<String>, Option<String>),
    /// It ran elsewhere, so nothing was read in it.
    Moved(String, F),
}

impl Session {
    /// Reads: runs `body` on a connection to a node that may serve this session, and raises the
    /// session by what it may have seen before the value is returned.
    ///
    /// On a direct connection `body` runs outside any transaction and leaves it so. Behind a pooler
    /// or a shared address it runs inside a read-only transaction, which it must not end;
    /// statements it prepares there must not outlive it, and an error it swallows fails the read.
    ///
    /// # Errors
    /// [`ReadError`]; a refusal is one, with the time after which to try again.
    pub async fn read<P, T, E, F>(
        &self,
        pool: &P,
        policy: &Policy,
        body: F,
    ) -> Result<Read<T>, ReadError<T, E>>
    where
        P: NodePool,
        F: AsyncFnOnce(&Client) -> Result<T, E>,
    {
        let mut tries = self.tries(policy);
        let (mut held, begun) = loop {
            let held = self.checked_out(pool, policy, &mut tries).await?;
            if !held.pooled {
                break (held, None);
            }
            match self.begin_pooled(&held, tries.left()).await {
                Ok(begun) => break (held, Some(begun)),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Moved(problem)) => {
                    let node = held.discarded();
                    self.select_again(&mut tries, &node, problem).await?;
                }
            }
        };
        let early = self.early_sample(&held).await;
        let client: &Client = &held.connection;
        let value = match body(client).await {
            Ok(value) => value,
            Err(error) => {
                let (sample, life, is_clean) = match begun {
                    None => {
                        let asked = sql::sample_outside(client).await;
                        let (sample, is_outside) = asked.unwrap_or((None, false));
                        let life = held.connection.identity().incarnation().map(str::to_owned);
                        (sample, life, is_outside)
                    }
                    Some(begun) => {
                        let is_clean = sql::rollback(client).await.is_ok();
                        (None, begun.incarnation, is_clean)
                    }
                };
                if is_clean {
                    held.give_back();
                }
                self.saw_by_error(policy, sample, life).await;
                return Err(ReadError::Body(error));
            }
        };
        let Some(begun) = begun else {
            return self.raised(held, policy, value, early).await;
        };
        let sample = ended(sql::end(client, true).await, &begun).await?;
        held.give_back();
        let behind = behind(early.or(sample), begun.incarnation);
        self.handed_out(&held, policy, value, behind).await
    }

    /// Reads as [`Self::read`], in one transaction: READ ONLY, REPEATABLE READ, so that all
    /// statements see the same.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_transaction<P, T, E, F>(
        &self,
        pool: &P,
        policy: &Policy,
        mut body: F,
    ) -> Result<Read<T>, ReadError<T, E>>
    where
        P: NodePool,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        let mut tries = self.tries(policy);
        loop {
            let mut held = self.checked_out(pool, policy, &mut tries).await?;
            let early = self.early_sample(&held).await;
            if !held.pooled {
                let value = match in_transaction(&mut held, body).await {
                    Ok(value) => value,
                    Err(error) => {
                        let life = held.connection.identity().incarnation().map(str::to_owned);
                        if matches!(error, ReadError::Body(_)) {
                            self.saw_by_error(policy, None, life).await;
                        }
                        return Err(error);
                    }
                };
                return self.raised(held, policy, value, early).await;
            }
            let read = self.in_snapshot(&mut held, tries.left(), body).await;
            if matches!(read, Err(ReadError::Body(_))) && policy.raised() != Raise::None {
                self.carried().doubt();
            }
            let problem = match read? {
                Snapshot::Read(value, sample, incarnation) => {
                    held.give_back();
                    let behind = behind(early.or(sample), incarnation);
                    return self.handed_out(&held, policy, value, behind).await;
                }
                Snapshot::Moved(problem, unused) => {
                    body = unused;
                    problem
                }
            };
            let node = held.discarded();
            self.select_again(&mut tries, &node, problem).await?;
        }
    }

    /// Runs `body` in one transaction behind a pooler, if that is where the answer holds.
    async fn in_snapshot<P, T, E, F>(
        &self,
        held: &mut Held<'_, P>,
        left: Duration,
        body: F,
    ) -> Result<Snapshot<T, F>, ReadError<T, E>>
    where
        P: NodePool,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        let (transaction, begun) = match self.begin_snapshot_pooled(held, left).await {
            Ok(begun) => begun,
            Err(Stop::Moved(problem)) => return Ok(Snapshot::Moved(problem, body)),
            Err(Stop::Failed(error)) => return Err(error),
        };
        let value = body(&transaction).await.map_err(ReadError::Body)?;
        let sent = sql::end(transaction.client(), false).await;
        let committed = transaction.commit().await;
        let sample = ended(sent, &begun).await?;
        committed.map_err(ReadError::Transaction)?;
        Ok(Snapshot::Read(value, sample, begun.incarnation))
    }

    /// The wrong way, which a test shows to be wrong: a sample from before the read.
    async fn early_sample<P: NodePool>(&self, held: &Held<'_, P>) -> Option<String> {
        if self.client().guards().snapshot_order() {
            return None;
        }
        sql::sample(&held.connection).await.ok().flatten()
    }

    /// Samples behind a read on a direct connection, then hands it out.
    async fn raised<P: NodePool, T, E>(
        &self,
        mut held: Held<'_, P>,
        policy: &Policy,
        value: T,
        early: Option<String>,
    ) -> Result<Read<T>, ReadError<T, E>> {
        let known = held.connection.identity().incarnation().map(str::to_owned);
        let behind = match sql::sample_outside(&held.connection).await {
            Ok((_, false)) => return Err(ReadError::OpenTransaction),
            Ok((sample, true)) => {
                held.give_back();
                behind(sample.map(|sample| early.unwrap_or(sample)), known)
            }
            // The connection broke behind the read: what it was connected to is all that is known.
            Err(error) => {
                let cause = UnrecordedCause::Database(error);
                Behind::Unknown { cause, incarnation: known }
            }
        };
        self.handed_out(&held, policy, value, behind).await
    }

    /// What a body tells by its error it has seen too. That it is not recorded fails nothing: what
    /// is missing comes with the next call.
    async fn saw_by_error(
        &self,
        policy: &Policy,
        sample: Option<String>,
        incarnation: Option<String>,
    ) {
        let raise = policy.raised();
        let observed = match (sample, incarnation) {
            _ if raise == Raise::None => return,
            (Some(sample), _) => Observed::Evidence(sample),
            (None, Some(incarnation)) => Observed::Incarnation(incarnation),
            (None, None) => return self.carried().doubt(),
        };
        drop(self.record(observed, raise).await);
    }

    /// Records what a read may have seen, then hands the value out.
    async fn handed_out<P: NodePool, T, E>(
        &self,
        held: &Held<'_, P>,
        policy: &Policy,
        value: T,
        behind: Behind,
    ) -> Result<Read<T>, ReadError<T, E>> {
        let raise = policy.raised();
        if raise == Raise::None {
            return Ok(held.read(value));
        }
        let (observed, evidence) = match behind {
            Behind::Sample(evidence) => (Observed::Evidence(evidence.clone()), Some(evidence)),
            Behind::Unknown { incarnation: Some(incarnation), .. } => {
                (Observed::Incarnation(incarnation), None)
            }
            Behind::Unknown { cause, incarnation: None } => {
                self.carried().doubt();
                return Err(ReadError::Unrecorded { value, evidence: None, cause });
            }
        };
        match self.record(observed, raise).await {
            Ok(_) => Ok(held.read(value)),
            Err(error) => {
                let cause = error.into();
                Err(ReadError::Unrecorded { value, evidence, cause })
            }
        }
    }
}

/// Runs `body` in one transaction of a direct connection.
async fn in_transaction<P, T, E, F>(held: &mut Held<'_, P>, body: F) -> Result<T, ReadError<T, E>>
where
    P: NodePool,
    F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
{
    let client: &mut Client = &mut held.connection;
    // An open transaction could have its snapshot from before the connection was compared.
    if !sql::is_outside(client).await.map_err(failed)? {
        return Err(ReadError::OpenTransaction);
    }
    let builder = client.build_transaction().read_only(true);
    let begun = builder.isolation_level(IsolationLevel::RepeatableRead).start().await;
    let transaction = begun.map_err(ReadError::Transaction)?;
    let value = match body(&transaction).await {
        Ok(value) => value,
        Err(error) => {
            if transaction.rollback().await.is_ok() {
                held.give_back();
            }
            return Err(ReadError::Body(error));
        }
    };
    transaction.commit().await.map_err(ReadError::Transaction)?;
    Ok(value)
}

fn behind(sample: Option<String>, incarnation: Option<String>) -> Behind {
    let cause = UnrecordedCause::Silent;
    sample.map_or(Behind::Unknown { cause, incarnation }, Behind::Sample)
}

/// A connection inside an aborted transaction answers nothing else.
fn failed<T, E>(error: Error) -> ReadError<T, E> {
    if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) {
        ReadError::OpenTransaction
    } else {
        ReadError::Transaction(error)
    }
}
