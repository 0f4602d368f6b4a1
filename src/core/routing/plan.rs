//! `Plan`: the ordered steps for one read. Values only; `reads` walks it.

use std::time::Duration;

use crate::few::Few;
use crate::leader::Contender;
use crate::snapshot::Lag;
use crate::views::NodeId;

/// A guarantee an answer really meets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Guarantee {
    /// Everything the session wrote is there, or was told as lost.
    ReadYourWrites,
    /// Nothing the session saw is missing, or was told as lost.
    MonotonicReads,
    /// No older than the bound.
    Bounded,
    /// Everything acknowledged before the call is there.
    Global,
    /// The node leads, to be verified at checkout.
    Leader,
}

/// Why an answer is what it is. Closed; the same words in API, metrics and logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A replica had everything demanded.
    Covered,
    /// A replica had it after a wait.
    Waited,
    /// No replica had it in time.
    NotCovered,
    /// The policy asked for the leader.
    LeaderByPolicy,
    /// No replica had it; the cap permitted the leader.
    LeaderFallback,
    /// No replica had it; the policy prefers stale data with a label.
    StaleByPolicy,
    /// The leader takes no more fallbacks now.
    CapExhausted,
    /// Nothing can prove what was asked, now.
    NotProvable,
    /// What the session depends on is not known.
    UnknownSession,
    /// A mark names a line that no configured node shows.
    UnknownEpoch,
    /// The token store forgot, and nothing has been sampled since.
    StoreLost,
    /// The token store cannot fence a deposed primary: the record may be behind, unseen.
    StoreAsync,
    /// Several nodes claim to lead.
    Split,
    /// No leader is known.
    NoLeader,
    /// No node may serve at all.
    NoNode,
    /// The lineage table is missing: only the leader can serve sessions.
    LineageMissing,
    /// The lineage row could not be written: only the leader covers its marks.
    LineageUnwritable,
    /// A mark lay beyond what its leader had.
    FutureMark,
}

/// One thing the shell does for a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Answer with this replica.
    Serve {
        /// Which.
        node: NodeId,
    },
    /// Wait until one of these has the floor, then decide again.
    Park {
        /// Which; none: no node may come within the budget, so the step is skipped. It keeps its
        /// place, so that those of a later plan for the same read are told apart.
        nodes: Vec<NodeId>,
        /// How long.
        budget: Duration,
    },
    /// Answer with the leader.
    Leader {
        /// Which, in which epoch.
        leader: Contender,
        /// Needs a permit of the cap.
        fallback: bool,
    },
    /// Answer with a replica that lacks something, labelled.
    Stale {
        /// Which.
        node: NodeId,
        /// How far behind it is; `None` if that cannot be shown.
        lag: Option<Lag>,
    },
    /// Refuse.
    Refuse {
        /// Why.
        reason: Reason,
    },
}

/// The ordered steps for one read. The last one always answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The steps.
    pub steps: Few<Step>,
}

impl Plan {
    /// The plan of one step.
    pub(super) const fn of(step: Step) -> Self {
        Self { steps: Few::one(step) }
    }
}
