//! Answers as values: which node serves, or why none does.
//!
//! They say what the service decided; nothing is decided here.

use std::time::{Duration, SystemTime};

use tidegate_proto::v1;

use crate::clock::Instant;
use crate::error::ClientError;
use crate::policy::read_span;
use crate::{Guarantee, Reason, Role};

/// How a node is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reach {
    /// One server behind one address.
    Direct,
    /// Behind a pooler.
    Pooled,
    /// An address shared by several servers.
    Shared,
}

/// One database server as an application reaches it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Node {
    /// Its name, unique in its partition.
    pub name: String,
    /// Its addresses, `host:port`, in order of preference.
    pub addresses: Vec<String>,
    /// What it was when the answer was made.
    pub role: Role,
    /// How it is reached.
    pub reach: Reach,
    /// Its zone; empty: none.
    pub zone: String,
}

/// How far a node is behind the leader, as last seen. For people and labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Lag {
    /// Bytes of log.
    pub bytes: u64,
    /// An upper estimate; `None`: unknown.
    pub time: Option<Duration>,
}

/// A node that may serve the read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Served {
    /// The node.
    pub node: Node,
    /// Incarnations in which the answer holds, compared as strings and nothing else.
    pub acceptable_incarnations: Vec<String>,
    /// Set where the node was named as the leader: the timeline it must be writing.
    pub leader_timeline: Option<u32>,
    /// Set where the node may be behind the demand: by how much.
    pub stale: Option<Lag>,
    /// How long the read waited inside the service.
    pub waited: Duration,
}

/// No node may serve the read now.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Refused {
    /// When trying again makes sense, counted from the answer.
    pub retry_after: Duration,
    /// When the first replica is predicted to have what is demanded; `None`: not predictable.
    pub eta: Option<Duration>,
    /// The lag of the replica that comes closest; `None`: none was seen.
    pub best: Option<Lag>,
}

/// Where a read may go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// To this node.
    Served(Served),
    /// Nowhere now.
    Refused(Refused),
}

/// The answer to one select.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Selection {
    /// Where the read may go.
    pub outcome: Outcome,
    /// Every promise the answer keeps.
    pub met: Vec<Guarantee>,
    /// Why it ended so.
    pub reason: Reason,
    /// The epoch it was judged in, as opaque text.
    pub epoch: String,
    /// When the answer ceases to hold; `None`: time does not limit it.
    ends_at: Option<Instant>,
}

impl Selection {
    /// Says whether a read that starts now may still rely on the answer.
    pub fn holds(&self) -> bool {
        self.ends_at.is_none_or(|at| at > Instant::now())
    }

    /// `sent_at`: when the call was sent, from which the answer's validity counts.
    pub(crate) fn read(
        answer: v1::SelectReplicaResponse,
        sent_at: Instant,
    ) -> Result<Self, ClientError> {
        use v1::select_replica_response::Outcome as Wire;
        let (reason, met) = (answer.reason(), answer.met().collect());
        let outcome = match answer.outcome {
            Some(Wire::Served(served)) => Outcome::Served(Served::read(served)?),
            Some(Wire::Refused(refused)) => Outcome::Refused(Refused {
                retry_after: read_span(refused.retry_after).unwrap_or_default(),
                eta: read_span(refused.eta),
                best: refused.best.map(Lag::read),
            }),
            None => return Err(ClientError::NotUnderstood { what: "a select without an outcome" }),
        };
        let ends_at = read_span(answer.valid_for).map(|span| sent_at.plus(span));
        Ok(Self { outcome, met, reason, epoch: answer.epoch, ends_at })
    }
}

impl Served {
    fn read(served: v1::Served) -> Result<Self, ClientError> {
        let no_node = ClientError::NotUnderstood { what: "served by no node" };
        let node = served.node.ok_or(no_node)?;
        let reach = match node.reach() {
            v1::Reach::Direct => Reach::Direct,
            v1::Reach::Pooled => Reach::Pooled,
            v1::Reach::Shared => Reach::Shared,
            v1::Reach::Unspecified => {
                return Err(ClientError::NotUnderstood { what: "a node without a reach" });
            }
        };
        let role = node.role();
        let node =
            Node { name: node.name, addresses: node.addresses, role, reach, zone: node.zone };
        Ok(Self {
            node,
            acceptable_incarnations: served.acceptable_incarnations,
            leader_timeline: served.leader.map(|check| check.timeline),
            stale: served.stale.map(|stale| Lag::read(stale.lag.unwrap_or_default())),
            waited: read_span(served.waited).unwrap_or_default(),
        })
    }
}

impl Lag {
    fn read(lag: v1::Lag) -> Self {
        Self { bytes: lag.bytes, time: read_span(lag.time) }
    }
}

/// What a wait is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitTarget {
    /// Whichever node is fresh first.
    Any,
    /// All nodes that are neither drained nor removed.
    All,
    /// The node of this name.
    Node(String),
}

impl WaitTarget {
    pub(crate) fn wire(self) -> v1::wait_until_fresh_request::Target {
        use v1::wait_until_fresh_request::Target;
        match self {
            Self::Any => Target::Any(v1::AnyNode {}),
            Self::All => Target::All(v1::AllNodes {}),
            Self::Node(name) => Target::Node(name),
        }
    }
}

/// How a wait ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitOutcome {
    /// The nodes waited for have it: this one, or this one last.
    Fresh(Served),
    /// The budget ended first.
    TimedOut,
    /// Something waited for is lost; the session's notices tell it.
    Lost,
    /// It cannot be known.
    Unknown,
    /// The node waited for was removed or drained.
    Gone,
}

/// The answer to one wait.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Waited {
    /// How it ended.
    pub outcome: WaitOutcome,
    /// Why it ended so.
    pub reason: Reason,
    /// When it is predicted to end; `None`: not predictable, or fresh.
    pub eta: Option<Duration>,
    /// The lag of the node that comes closest; `None`: none was seen.
    pub best: Option<Lag>,
}

impl Waited {
    pub(crate) fn read(answer: v1::WaitUntilFreshResponse) -> Result<Self, ClientError> {
        use v1::wait_until_fresh_response::Outcome as Wire;
        let reason = answer.reason();
        let outcome = match (answer.outcome(), answer.served) {
            (Wire::Fresh, Some(served)) => WaitOutcome::Fresh(Served::read(served)?),
            (Wire::TimedOut, _) => WaitOutcome::TimedOut,
            (Wire::Lost, _) => WaitOutcome::Lost,
            (Wire::Unknown, _) => WaitOutcome::Unknown,
            (Wire::Gone, _) => WaitOutcome::Gone,
            (Wire::Fresh, None) | (Wire::Unspecified, _) => {
                return Err(ClientError::NotUnderstood { what: "a wait without an outcome" });
            }
        };
        let best = answer.best.map(Lag::read);
        Ok(Self { outcome, reason, eta: read_span(answer.eta), best })
    }
}

/// What is known about a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The session's last write is gone.
    WriteLost,
    /// Something the session read is gone; its own writes are not.
    ObservedStateLost,
    /// What it wrote or read may be gone.
    PossiblyLost,
}

/// Tells a session that something it wrote or saw is gone, or may be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Notice {
    /// Names it when it is acknowledged.
    pub id: String,
    /// The partition in which it happened.
    pub partition: String,
    /// What is known about the loss.
    pub kind: NoticeKind,
    /// The epoch that ended, as opaque text.
    pub lost_epoch: String,
    /// The epoch that follows it, as opaque text.
    pub epoch: String,
    /// When the service first told it.
    pub told_time: Option<SystemTime>,
}

impl Notice {
    /// Of a kind this version does not know, the worst is not assumed, and not nothing either.
    pub(crate) fn read(notice: v1::Notice) -> Self {
        let kind = match notice.kind() {
            v1::notice::Kind::WriteLost => NoticeKind::WriteLost,
            v1::notice::Kind::ObservedStateLost => NoticeKind::ObservedStateLost,
            v1::notice::Kind::PossiblyLost | v1::notice::Kind::Unspecified => {
                NoticeKind::PossiblyLost
            }
        };
        Self {
            id: notice.id,
            partition: notice.partition,
            kind,
            lost_epoch: notice.lost_epoch,
            epoch: notice.epoch,
            told_time: notice.told_time.and_then(|time| SystemTime::try_from(time).ok()),
        }
    }
}
