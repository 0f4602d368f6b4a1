//! The read scope: select, a connection to the named server, read, sample, record.
//!
//! The connection is compared with the answer before the read's snapshot; what was read is sampled
//! after it, on the same connection, and recorded before the value is handed out. Nothing here
//! chooses a node: a server that is not the one named is selected again.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, IsolationLevel, Transaction};

use crate::client::causes;
use crate::clock::Instant;
use crate::outcome::{Lag, Node, Outcome, Reach, Refused, Selection, Served};
use crate::policy::{Policy, longest_wait};
use crate::pool::{NodeAddress, NodeConnection, NodePool};
use crate::read_error::ReadError;
use crate::session::{Observed, Session};
use crate::write::UnrecordedCause;
use crate::{Guarantee, Raise, Reason, sql};

/// Selects one read may need, when servers restart under it.
const SELECTS_MAX: u32 = 8;
/// The first pause before selecting again; it doubles.
const PAUSE_LEAST: Duration = Duration::from_millis(10);
/// No pause is longer: a service that polls every 250 ms has then seen the restart.
const PAUSE_MOST: Duration = Duration::from_millis(100);

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

impl Session {
    /// Reads: runs `body` on a connection to a node that may serve this session, and raises the
    /// session by what it may have seen before the value is returned.
    ///
    /// The connection is outside any transaction, and `body` leaves it so.
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
        let mut held = self.checked_out(pool, policy).await?;
        let early = self.early_sample(&held).await;
        let client: &Client = &held.connection;
        let value = match body(client).await {
            Ok(value) => value,
            Err(error) => {
                if sql::is_outside(client).await.unwrap_or(false) {
                    held.give_back();
                }
                return Err(ReadError::Body(error));
            }
        };
        self.raised(held, policy, value, early).await
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
        body: F,
    ) -> Result<Read<T>, ReadError<T, E>>
    where
        P: NodePool,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        let mut held = self.checked_out(pool, policy).await?;
        let early = self.early_sample(&held).await;
        let client: &mut Client = &mut held.connection;
        // An open transaction could have its snapshot from before the connection was compared.
        if !sql::is_outside(client).await.map_err(failed)? {
            return Err(ReadError::OpenTransaction);
        }
        let begun = client
            .build_transaction()
            .read_only(true)
            .isolation_level(IsolationLevel::RepeatableRead)
            .start()
            .await;
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
        self.raised(held, policy, value, early).await
    }

    /// Selects until a connection leads to the server that was named.
    async fn checked_out<'p, P: NodePool, T, E>(
        &self,
        pool: &'p P,
        policy: &Policy,
    ) -> Result<Held<'p, P>, ReadError<T, E>> {
        let started = Instant::now();
        let budget = longest_wait(&policy.wire()).saturating_add(self.client().call_grace());
        let (mut pause, mut selects) = (PAUSE_LEAST, 0);
        loop {
            selects += 1;
            let selection = self.select_after(policy, started.elapsed()).await?;
            let served = match &selection.outcome {
                Outcome::Served(served) => served.clone(),
                Outcome::Refused(Refused { retry_after, eta, best }) => {
                    let (retry_after, eta, best) = (*retry_after, *eta, *best);
                    let reason = selection.reason;
                    return Err(ReadError::Refused { reason, retry_after, eta, best });
                }
            };
            if served.node.reach != Reach::Direct {
                let (node, reach) = (served.node.name, served.node.reach);
                return Err(ReadError::Reach { node, reach });
            }
            let left = budget.saturating_sub(started.elapsed());
            let checked = self.connection_to(pool, &served);
            let problem = match tokio::time::timeout(left, checked).await {
                Ok(Ok(connection)) if selection.holds() => {
                    self.carried().served_by(&served.node.name);
                    return Ok(Held { pool, connection, clean: false, selection, served, selects });
                }
                Ok(Ok(connection)) => {
                    drop(connection);
                    "the answer ceased to hold before the read began".to_owned()
                }
                Ok(Err(problem)) => problem,
                Err(_) => "no connection in time".to_owned(),
            };
            tracing::debug!(node = %served.node.name, problem, "selecting again");
            // The node that could not be used must not be kept for being the last one.
            self.carried().served_by("");
            if selects >= SELECTS_MAX || started.elapsed() + pause >= budget {
                return Err(ReadError::Checkout { node: served.node.name, selects, problem });
            }
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    /// A connection to the node at the first of its addresses that takes one, compared with the
    /// answer; or what stood against it.
    async fn connection_to<P: NodePool>(
        &self,
        pool: &P,
        served: &Served,
    ) -> Result<P::Connection, String> {
        let mut problem = "it has no address".to_owned();
        for address in &served.node.addresses {
            let node = NodeAddress { node: served.node.name.clone(), address: address.clone() };
            let mut connection = match pool.checkout(&node).await {
                Ok(connection) => connection,
                Err(error) => {
                    problem = error.to_string();
                    continue;
                }
            };
            let guards = self.client().guards();
            let compared = connection.identity().mismatch(&connection, served, guards).await;
            match compared {
                Ok(None) => return Ok(connection),
                Ok(Some(mismatch)) => problem = mismatch.to_string(),
                Err(error) => problem = silent(&error),
            }
            pool.discard(&mut connection);
        }
        Err(problem)
    }

    /// The wrong way, which a test shows to be wrong: a sample from before the read.
    async fn early_sample<P: NodePool>(&self, held: &Held<'_, P>) -> Option<String> {
        if self.client().guards().snapshot_order() {
            return None;
        }
        sql::sample(&held.connection).await.ok().flatten()
    }

    /// Samples behind the read and records it, then hands the value out.
    async fn raised<P: NodePool, T, E>(
        &self,
        mut held: Held<'_, P>,
        policy: &Policy,
        value: T,
        early: Option<String>,
    ) -> Result<Read<T>, ReadError<T, E>> {
        let raise = policy.raised();
        let sampled = sql::sample_outside(&held.connection).await;
        if let Ok((_, false)) = sampled {
            return Err(ReadError::OpenTransaction);
        }
        if raise == Raise::None {
            if sampled.is_ok() {
                held.give_back();
            }
            return Ok(held.read(value));
        }
        let cause = match sampled {
            Ok((Some(sample), _)) => {
                held.give_back();
                let evidence = early.unwrap_or(sample);
                let recorded = self.record(Observed::Evidence(evidence.clone()), raise).await;
                return match recorded {
                    Ok(_) => Ok(held.read(value)),
                    Err(error) => {
                        let (evidence, cause) = (Some(evidence), error.into());
                        Err(ReadError::Unrecorded { value, evidence, cause })
                    }
                };
            }
            Ok((None, _)) => UnrecordedCause::Silent,
            Err(error) => UnrecordedCause::Database(error),
        };
        // The connection broke behind the read: what it was connected to is all that is known.
        let Some(incarnation) = held.connection.identity().incarnation().map(str::to_owned) else {
            self.carried().doubt();
            return Err(ReadError::Unrecorded { value, evidence: None, cause });
        };
        match self.record(Observed::Incarnation(incarnation), raise).await {
            Ok(_) => Ok(held.read(value)),
            Err(error) => {
                let cause = error.into();
                Err(ReadError::Unrecorded { value, evidence: None, cause })
            }
        }
    }
}

/// A connection that is discarded when dropped, unless it is given back: a read that failed or was
/// dropped half-way may have left it inside a transaction.
struct Held<'p, P: NodePool> {
    pool: &'p P,
    connection: P::Connection,
    clean: bool,
    selection: Selection,
    served: Served,
    selects: u32,
}

impl<P: NodePool> Held<'_, P> {
    const fn give_back(&mut self) {
        self.clean = true;
    }

    fn read<T>(&self, value: T) -> Read<T> {
        Read {
            value,
            node: self.served.node.clone(),
            reason: self.selection.reason,
            met: self.selection.met.clone(),
            stale: self.served.stale,
            waited: self.served.waited,
            epoch: self.selection.epoch.clone(),
            selects: self.selects,
        }
    }
}

impl<P: NodePool> Drop for Held<'_, P> {
    fn drop(&mut self) {
        if !self.clean {
            self.pool.discard(&mut self.connection);
        }
    }
}

/// Why a server did not say which it is.
fn silent(error: &Error) -> String {
    let missing = [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME];
    if error.code().is_some_and(|code| missing.contains(code)) {
        return "its database has no `tidegate` objects: run `tidegate sql | psql` there"
            .to_owned();
    }
    causes(error)
}

/// A connection inside an aborted transaction answers nothing else.
fn failed<T, E>(error: Error) -> ReadError<T, E> {
    if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) {
        ReadError::OpenTransaction
    } else {
        ReadError::Transaction(error)
    }
}
