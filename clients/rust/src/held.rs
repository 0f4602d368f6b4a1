//! From an answer to a connection: selects until one leads, or may lead, to the server named.
//!
//! Chooses no node: a server that is not the one named is selected again, within the bounds of one
//! read. A connection that was not given back is discarded.

use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::checkout::Compared;
use crate::client::causes;
use crate::clock::Instant;
use crate::outcome::{Outcome, Reach, Refused, Selection, Served};
use crate::policy::{Policy, longest_wait};
use crate::pool::{NodeAddress, NodeConnection, NodePool};
use crate::read::Read;
use crate::read_error::ReadError;
use crate::session::Session;

/// Selects one read may need, when servers restart under it.
const SELECTS_MAX: u32 = 8;
/// The first pause before selecting again; it doubles.
const PAUSE_LEAST: Duration = Duration::from_millis(10);
/// No pause is longer: a service that polls every 250 ms has then seen the restart.
const PAUSE_MOST: Duration = Duration::from_millis(100);

/// Why an answer is not used any more.
pub(crate) const EXPIRED: &str = "the answer ceased to hold before the read began";

/// What one read has used up of its bounds.
#[derive(Debug)]
pub(crate) struct Tries {
    started: Instant,
    budget: Duration,
    pause: Duration,
    selects: u32,
}

/// A connection that is discarded when dropped, unless it is given back: a read that failed or was
/// dropped half-way may have left it inside a transaction.
pub(crate) struct Held<'p, P: NodePool> {
    pool: &'p P,
    pub(crate) connection: P::Connection,
    clean: bool,
    /// Only a transaction says where it leads.
    pub(crate) pooled: bool,
    pub(crate) answer: Answer,
    selects: u32,
}

/// The answer a connection is held for.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) served: Served,
    selection: Selection,
}

impl Answer {
    /// Says whether a read that starts now may still rely on it.
    pub(crate) fn holds(&self) -> bool {
        self.selection.holds()
    }
}

impl Session {
    /// The bounds of a read that begins now.
    pub(crate) fn tries(&self, policy: &Policy) -> Tries {
        let budget = longest_wait(&policy.wire()).saturating_add(self.client().call_grace());
        Tries { started: Instant::now(), budget, pause: PAUSE_LEAST, selects: 0 }
    }

    /// Selects until a connection leads to the server that was named.
    pub(crate) async fn checked_out<'p, P: NodePool, T, E>(
        &self,
        pool: &'p P,
        policy: &Policy,
        tries: &mut Tries,
    ) -> Result<Held<'p, P>, ReadError<T, E>> {
        loop {
            tries.selects += 1;
            let selection = self.select_after(policy, tries.started.elapsed()).await?;
            let served = match &selection.outcome {
                Outcome::Served(served) => served.clone(),
                Outcome::Refused(Refused { retry_after, eta, best }) => {
                    let (retry_after, eta, best) = (*retry_after, *eta, *best);
                    let reason = selection.reason;
                    return Err(ReadError::Refused { reason, retry_after, eta, best });
                }
            };
            let checked = self.connection_to(pool, &served);
            let problem = match tokio::time::timeout(tries.left(), checked).await {
                Ok(Ok((connection, pooled))) if selection.holds() => {
                    self.carried().served_by(&served.node.name);
                    let (clean, selects) = (false, tries.selects);
                    let answer = Answer { served, selection };
                    return Ok(Held { pool, connection, clean, pooled, answer, selects });
                }
                Ok(Ok((connection, _))) => {
                    drop(connection);
                    EXPIRED.to_owned()
                }
                Ok(Err(problem)) => problem,
                Err(_) => "no connection in time".to_owned(),
            };
            self.select_again(tries, &served.node.name, problem).await?;
        }
    }

    /// Pauses before the next select of a read.
    ///
    /// # Errors
    /// [`ReadError::Checkout`] if the bounds of the read are used up.
    pub(crate) async fn select_again<T, E>(
        &self,
        tries: &mut Tries,
        node: &str,
        problem: String,
    ) -> Result<(), ReadError<T, E>> {
        tracing::debug!(node, problem, "selecting again");
        // The node that could not be used must not be kept for being the last one.
        self.carried().served_by("");
        if tries.selects >= SELECTS_MAX || tries.pause >= tries.left() {
            let (node, selects) = (node.to_owned(), tries.selects);
            return Err(ReadError::Checkout { node, selects, problem });
        }
        tokio::time::sleep(tries.pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        tries.pause = (tries.pause * 2).min(PAUSE_MOST);
        Ok(())
    }

    /// A connection to the node at the first of its addresses that takes one, compared with the
    /// answer, and whether a transaction must be; or what stood against it.
    async fn connection_to<P: NodePool>(
        &self,
        pool: &P,
        served: &Served,
    ) -> Result<(P::Connection, bool), String> {
        let guards = self.client().guards();
        let declared = served.node.reach != Reach::Direct && guards.pooled_check();
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
            if declared {
                return Ok((connection, true));
            }
            match connection.identity().compare(&connection, served, guards).await {
                Ok(Compared::Holds) => return Ok((connection, false)),
                Ok(Compared::Pooled) => {
                    self.client().pooler_found(&node.node, &node.address);
                    return Ok((connection, true));
                }
                Ok(Compared::Not(mismatch)) => problem = mismatch.to_string(),
                Err(error) => problem = silent(&error),
            }
            pool.discard(&mut connection);
        }
        Err(problem)
    }
}

impl Tries {
    /// What is left of the budget.
    pub(crate) fn left(&self) -> Duration {
        self.budget.saturating_sub(self.started.elapsed())
    }
}

impl<P: NodePool> Held<'_, P> {
    pub(crate) const fn give_back(&mut self) {
        self.clean = true;
    }

    /// Discards the connection; the name of the node it was for.
    pub(crate) fn discarded(mut self) -> String {
        self.clean = false;
        self.answer.served.node.name.clone()
    }

    pub(crate) fn read<T>(&self, value: T) -> Read<T> {
        let Answer { served, selection } = &self.answer;
        Read {
            value,
            node: served.node.clone(),
            reason: selection.reason,
            met: selection.met.clone(),
            stale: served.stale,
            waited: served.waited,
            epoch: selection.epoch.clone(),
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
pub(crate) fn silent(error: &Error) -> String {
    let missing = [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME];
    if error.code().is_some_and(|code| missing.contains(code)) {
        return "its database has no `tidegate` objects: run `tidegate sql | psql` there"
            .to_owned();
    }
    causes(error)
}
