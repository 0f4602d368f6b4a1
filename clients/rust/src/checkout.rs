//! Whether a connection leads to the server an answer named, compared before a read begins.
//!
//! A direct connection ends with its server process, so what it is connected to is asked once. A
//! server that restarted can have come back behind what it had shown.

use std::sync::OnceLock;

use tidegate_core::guards::Guards;
use tokio_postgres::{Client, Error};

use crate::outcome::Served;
use crate::sql;

/// What is known of the server process behind one physical connection. Kept with the connection,
/// never longer.
#[derive(Debug, Default)]
pub struct Identity {
    incarnation: OnceLock<String>,
    /// The timeline it writes, once it is known to write: that ends with the process.
    writes: OnceLock<u32>,
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
    /// The incarnation of the process, as far as it was asked.
    pub(crate) fn incarnation(&self) -> Option<&str> {
        self.incarnation.get().map(String::as_str)
    }

    /// Compares the server behind `client` with an answer; `None`: the answer holds for it.
    ///
    /// # Errors
    /// If the server does not answer, as when the `tidegate` objects are missing.
    pub(crate) async fn mismatch(
        &self,
        client: &Client,
        served: &Served,
        guards: &Guards,
    ) -> Result<Option<Mismatch>, Error> {
        if guards.incarnation() {
            let found = match self.incarnation.get() {
                Some(known) => known.clone(),
                None => match sql::incarnation(client).await? {
                    Some(read) => self.incarnation.get_or_init(|| read).clone(),
                    None => return Ok(Some(Mismatch::Silent)),
                },
            };
            if !served.acceptable_incarnations.contains(&found) {
                return Ok(Some(Mismatch::Incarnation { found }));
            }
        }
        let Some(expected) = served.leader_timeline else { return Ok(None) };
        let found = match self.writes.get() {
            Some(known) => Some(*known),
            None => {
                let sample = sql::sample(client).await?;
                let read = sample.as_deref().and_then(sql::written_timeline);
                read.map(|timeline| *self.writes.get_or_init(|| timeline))
            }
        };
        let matches = found == Some(expected);
        Ok((!matches).then_some(Mismatch::Leader { expected, found }))
    }
}
