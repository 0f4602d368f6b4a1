//! What goes into a partition and what comes out. Plain values.

use std::sync::Arc;
use std::time::Duration;

use crate::instant::Instant;
use crate::leader::{Facts, Leadership};
use crate::lineage::{Epoch, Incarnation, LineageRow};
use crate::snapshot::Snapshot;
use crate::trail::Floor;
use crate::views::{NodeId, Observation, Quarantine};
use crate::wait::WaitId;

/// Names one request for an observation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NeedId(u64);

impl NeedId {
    /// Wraps a number the caller will not use again while the request stands.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }
}

/// Whose observation is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// The current leader's.
    Leader,
    /// The node's that lives this life.
    Incarnation(Incarnation),
}

/// Which of its nodes a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// One of them.
    Any,
    /// All of them.
    All,
}

/// What became of a lineage row that was to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowOutcome {
    /// It, or another instance's of the same epoch, stands in the database now.
    Stands(LineageRow),
    /// The server is not the polled incarnation any more, or not writable.
    NotThere,
    /// The server has no table for it.
    NoTable,
    /// The server refused it.
    Failed,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A source read a node.
    Observed(Observation),
    /// Somebody needs an observation sent at or after `since`.
    Need {
        /// Names the request.
        id: NeedId,
        /// Whose.
        need: Need,
        /// Not sent before.
        since: Instant,
    },
    /// Nobody needs it any more.
    Unneed(NeedId),
    /// An observation of every node sent at or after this would be welcome.
    Hurry(Instant),
    /// A read waits for a floor.
    Park {
        /// Names the wait.
        id: WaitId,
        /// What it demands.
        floor: Floor,
        /// The nodes it may be served by.
        nodes: Vec<NodeId>,
        /// One or all of them.
        wait_for: WaitFor,
        /// When it gives up.
        deadline: Instant,
    },
    /// The wait is not wanted any more.
    Unpark(WaitId),
    /// A lineage row was to be written to this node.
    RowWritten {
        /// The epoch of the row.
        epoch: Epoch,
        /// What became of it.
        outcome: RowOutcome,
    },
    /// An operator takes a node out, or back in.
    Drain {
        /// Which.
        node: NodeId,
        /// Out or in.
        drained: bool,
    },
    /// Other instances know this of the partition.
    Learned(Arc<Facts>),
    /// An operator vouches for a quarantined node.
    Resume(NodeId),
    /// An operator says which writable server counts. It changes nothing where
    /// [`Snapshot::may_resolve`] says that it may not.
    Resolve(Incarnation),
    /// Time passed.
    Tick,
}

/// How a wait ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitEnd {
    /// These nodes have the floor.
    Fresh(Vec<NodeId>),
    /// The leadership changed: what the session depends on must be judged again.
    Judge,
    /// The budget ended.
    Expired,
    /// None of the nodes serves any more.
    Gone,
    /// Too many reads wait already.
    Full,
}

/// How often a source polls a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// From one poll's send to the next.
    pub interval: Duration,
    /// Poll at once unless a poll was sent at or after this.
    pub sample_after: Option<Instant>,
}

/// Something an operator may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notable {
    /// The leadership changed.
    Leadership(Leadership),
    /// A node stopped serving.
    Quarantined(NodeId, Quarantine),
    /// Two sources disagree about where an epoch came from.
    RowConflict(Epoch),
    /// A new epoch was placed; `unknown`: where its parent ended cannot be told.
    NewEpoch {
        /// What it would be written down as.
        row: LineageRow,
        /// The fork is unknown: old marks are resolved upward.
        unknown: bool,
    },
    /// A leader continues nothing that is known, though something was: a copy of an older day, or a
    /// database whose rows are gone.
    Restored(NodeId, Epoch),
    /// An operator said which epoch counts; these do not.
    Verdict(Epoch, Vec<Epoch>),
    /// An operator vouched for what a node holds.
    Resumed(NodeId),
    /// The lineage row of the leader could not be written.
    RowUnwritable(Epoch),
    /// A node answered as another database than the partition's.
    ForeignSystem(NodeId),
}

/// Something the shell must do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Publish what requests read from now on.
    Publish(Arc<Snapshot>),
    /// End a wait.
    Wake(WaitId, WaitEnd),
    /// The needed observation has come; it is in the snapshot published before.
    Sampled(NeedId),
    /// Poll a node like this from now on.
    Pace(NodeId, Pace),
    /// Write a lineage row, if `incarnation` is still there and writable.
    WriteRow {
        /// To which node.
        node: NodeId,
        /// What it was polled as.
        incarnation: Incarnation,
        /// The row.
        row: LineageRow,
    },
    /// Keep these facts.
    StoreFacts(Arc<Facts>),
    /// Tell whoever watches.
    Emit(Notable),
}
