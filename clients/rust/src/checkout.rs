//! Whether a connection leads to the server an answer named.
//!
//! A direct connection ends with its server process, so what it is connected to is asked once and
//! compared at checkout. A server that restarted can have come back behind what it had shown.
//! Behind a pooler that is worth nothing: there only a reading transaction says where it runs.

use std::sync::OnceLock;

use tidegate_core::guards::Guards;
use tokio_postgres::{Client, Error};

use crate::outcome::Served;
use crate::sql::Begun;
use crate::{process, sql};

/// What is known of the server process behind one physical connection. Kept with the connection,
/// never longer.
#[derive(Debug, Default)]
pub struct Identity {
    /// The incarnation; absent where a pooler is between.
    asked: OnceLock<Option<String>>,
    /// The timeline it writes, once it is known to write: that ends with the process.
    writes: OnceLock<u32>,
}

/// What comparing a connection with an answer came to.
#[derive(Debug)]
pub(crate) enum Compared {
    /// It leads to the server named, and will until it ends.
    Holds,
    /// A pooler is between: a connection says nothing, a transaction does.
    Pooled,
    /// It must not be used.
    Not(Mismatch),
}

/// Why a connection is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mismatch {
    /// It leads to another life of the server, or to another server.
    Incarnation { found: String },
    /// It leads to no leader, or to one that was deposed.
    Leader { expected: u32, found: Option<u32> },
    /// The database has no `tidegate` objects, or they answered nothing.
    Silent,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Incarnation { found } => {
                write!(f, "the connection leads to incarnation {found}, which the answer excludes")
            }
            Self::Leader { expected, found: Some(found) } => {
                write!(f, "it writes timeline {found}, the leader writes timeline {expected}")
            }
            Self::Leader { expected, found: None } => {
                write!(f, "it is in recovery, the leader writes timeline {expected}")
            }
            Self::Silent => write!(f, "tidegate.incarnation() returned nothing"),
        }
    }
}

impl Identity {
    /// The incarnation of the process, as far as it was asked and means something.
    pub(crate) fn incarnation(&self) -> Option<&str> {
        self.asked.get()?.as_deref()
    }

    /// Compares the server behind `client` with an answer.
    ///
    /// # Errors
    /// If the server does not answer, as when the `tidegate` objects are missing.
    pub(crate) async fn compare(
        &self,
        client: &Client,
        served: &Served,
        guards: &Guards,
    ) -> Result<Compared, Error> {
        if guards.incarnation() {
            let found = match self.asked.get() {
                Some(known) => known.clone(),
                None => match ask(client, guards).await? {
                    Some(asked) => self.asked.get_or_init(|| asked).clone(),
                    None => return Ok(Compared::Not(Mismatch::Silent)),
                },
            };
            let Some(found) = found else { return Ok(Compared::Pooled) };
            if !served.acceptable_incarnations.contains(&found) {
                return Ok(Compared::Not(Mismatch::Incarnation { found }));
            }
        }
        let Some(expected) = to_write(served, guards) else { return Ok(Compared::Holds) };
        let found = match self.writes.get() {
            Some(known) => Some(*known),
            None => {
                let sample = sql::sample(client).await?;
                let read = sample.as_deref().and_then(sql::written_timeline);
                read.map(|timeline| *self.writes.get_or_init(|| timeline))
            }
        };
        if found == Some(expected) {
            Ok(Compared::Holds)
        } else {
            Ok(Compared::Not(Mismatch::Leader { expected, found }))
        }
    }
}

/// Asks a connection where it leads; the inner `None`: a pooler is between, or may be.
async fn ask(client: &Client, guards: &Guards) -> Result<Option<Option<String>>, Error> {
    let (incarnation, backend) = sql::identity(client).await?;
    let Some(incarnation) = incarnation else { return Ok(None) };
    // A pooler starts the connection under a number of its own.
    let direct = backend.is_some() && process::protocol_pid(client).await == backend;
    Ok(Some((direct || !guards.pooled_check()).then_some(incarnation)))
}

/// The timeline that the server must be writing; `None`: it may be in recovery.
fn to_write(served: &Served, guards: &Guards) -> Option<u32> {
    served.leader_timeline.filter(|_| guards.leader_check())
}

/// Compares the transaction a read runs in with an answer; `None`: the answer holds for it.
pub(crate) fn mismatch(begun: &Begun, served: &Served, guards: &Guards) -> Option<Mismatch> {
    if guards.incarnation() {
        let Some(found) = &begun.incarnation else { return Some(Mismatch::Silent) };
        if !served.acceptable_incarnations.contains(found) {
            return Some(Mismatch::Incarnation { found: found.clone() });
        }
    }
    let expected = to_write(served, guards)?;
    let found = begun.writes;
    (found != Some(expected)).then_some(Mismatch::Leader { expected, found })
}
