//! Walks a plan: serve, park, ask the cap, refuse. And learns what was read or written.
//!
//! - [`select`]: one read, from its session to a node; `at_once`: where nothing must be awaited
//! - [`wait`]: one wait, from its session to fresh nodes
//! - [`record`]: evidence of a write or a read, turned into marks
//! - [`policies`]: what requests may call by a name
//! - `prospect`: what a call is told that finds no node
//! - `line`: whether an answer took one line of leaders for another
//!
//! It knows no driver and no wire format, and decides nothing: the core's `resolve` and `decide`
//! do.

mod at_once;
mod judged;
mod line;
pub mod policies;
mod prospect;
pub mod record;
pub mod select;
pub mod wait;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tidegate_core::evidence::EvidenceError;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::IncarnationError;
use tidegate_core::token::NoticeId;

use crate::clock::Clock;
use crate::partitions::{PartitionHandle, Partitions};
use crate::sessions::TokenStore;
use crate::sessions::{ResolvedSession, SessionError, Sessions};
use policies::Policies;

pub use record::{Observed, Recorded};
pub use select::{Answer, Named, SelectAsked, Selected};
pub use wait::{Target, Waited, WaitedFor};

/// The bounds of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// The longest a call may wait.
    pub wait_max: Duration,
    /// How long a call waits for one observation.
    pub poll_timeout: Duration,
}

/// What a call carries of its session.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Whose session; empty: nobody's in particular.
    pub subject: String,
    /// Tokens as carried.
    pub tokens: Vec<String>,
    /// Evidence not recorded yet.
    pub evidence: Vec<String>,
    /// The longest token wanted back; 0: the default.
    pub max_token_chars: usize,
}

/// Why a call could not be decided.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReadError {
    /// No such partition.
    #[error("there is no partition `{name}`: this instance serves {known}")]
    PartitionUnknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such node.
    #[error("partition `{partition}` has no node `{name}`: it has {known}")]
    NodeUnknown {
        /// Where.
        partition: String,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The session could not be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The evidence has not the form it should have.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The evidence is of a database that is no partition here.
    #[error(
        "system id {system} is of no partition of this instance: record it where that database \
         is a partition"
    )]
    EvidenceForeign {
        /// The database it names.
        system: String,
    },
    /// The incarnation has not the form it should have.
    #[error(transparent)]
    Incarnation(#[from] IncarnationError),
    /// A field is missing or contradicts another.
    #[error("{0}")]
    Malformed(String),
    /// Too many reads wait already.
    #[error("too many reads wait in partition `{partition}`: try again later")]
    WaitsFull {
        /// Where.
        partition: String,
    },
    /// A write of the session was lost, and the policy wants that as an error.
    #[error("an acknowledged write of this session was lost in a failover of `{partition}`")]
    LostWrite {
        /// Where.
        partition: String,
    },
}

/// Answers the calls of one instance.
#[derive(Debug)]
pub struct Reads<S> {
    sessions: Arc<Sessions<S>>,
    partitions: Arc<Partitions>,
    policies: Policies,
    limits: CallLimits,
    clock: Clock,
}

impl<S: TokenStore> Reads<S> {
    /// Answers for these partitions and sessions.
    pub const fn new(
        sessions: Arc<Sessions<S>>,
        partitions: Arc<Partitions>,
        policies: Policies,
        limits: CallLimits,
        clock: Clock,
    ) -> Self {
        Self { sessions, partitions, policies, limits, clock }
    }

    /// Who is asking.
    pub fn sessions(&self) -> &Sessions<S> {
        &self.sessions
    }

    /// The partitions answered for.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// What calls may name.
    pub const fn policies(&self) -> &Policies {
        &self.policies
    }

    /// What is known of a session, over all partitions.
    ///
    /// # Errors
    /// [`ReadError`] for what cannot be read.
    pub async fn resolve(&self, caller: Caller) -> Result<ResolvedSession, ReadError> {
        let holder = self.delivered(caller).await?;
        Ok(self.sessions.resolve_session(&holder))
    }

    /// Takes notices out of every holder named; the token to carry from now on.
    ///
    /// # Errors
    /// [`ReadError`] for what cannot be read, or where the record could not be changed.
    pub async fn acknowledge(&self, caller: Caller, ids: &[NoticeId]) -> Result<String, ReadError> {
        let holder = self.delivered(caller).await?;
        Ok(self.sessions.acknowledge(&holder, ids).await?)
    }

    fn partition(&self, name: &str) -> Result<&Arc<PartitionHandle>, ReadError> {
        self.partitions.named(name).ok_or_else(|| {
            let known: Vec<&str> =
                self.partitions.iter().map(|handle| handle.info().name.as_str()).collect();
            ReadError::PartitionUnknown { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// The end of a call: its own deadline, and never later than `budget` allows.
    fn ends_at(&self, deadline: Option<Instant>, budget: Duration) -> Instant {
        let latest = self.clock.now() + budget.min(self.limits.wait_max);
        deadline.map_or(latest, |deadline| deadline.min(latest))
    }
}

/// The node of this name.
fn node_of(
    handle: &PartitionHandle,
    name: &str,
) -> Result<tidegate_core::views::NodeId, ReadError> {
    handle.node(name).ok_or_else(|| {
        let known: Vec<&str> = handle.info().nodes.iter().map(|node| node.name.as_str()).collect();
        ReadError::NodeUnknown {
            partition: handle.info().name.clone(),
            name: name.to_owned(),
            known: known.join(", "),
        }
    })
}
