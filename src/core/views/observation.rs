//! `Observation`: one reading of a node by one of our own sources. Plain data.

use crate::evidence::Evidence;
use crate::instant::Instant;
use crate::lineage::{LineageRow, TimelineHistory};

/// The number of a node in its partition: its place in the config.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u16);

impl NodeId {
    /// The node at `index` in the config.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// Its place in the config.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One reading of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// Which node answered.
    pub node: NodeId,
    /// What it said, of kind [`crate::evidence::EvidenceKind::Poll`].
    pub evidence: Evidence,
    /// All lineage rows it shows, read under the same incarnation on the same connection.
    ///
    /// Read whenever the last row was not seen before; `None` otherwise, and where the table is
    /// missing.
    pub rows: Option<Vec<LineageRow>>,
    /// What the history file of a promoted server says; `None` where it was not or cannot be read.
    pub switches: Option<TimelineHistory>,
    /// When the question was sent: what was acknowledged before is in the answer.
    pub sent_at: Instant,
    /// When the answer had come.
    pub received_at: Instant,
}
