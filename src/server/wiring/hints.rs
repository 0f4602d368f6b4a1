//! `Hints`: what a tool of the operator says, handed to the partition it is about.
//!
//! It asks for polls, and compares what the tool says of forks with those that were placed. It
//! moves none.

use std::sync::Arc;

use crate::partitions::PartitionHandle;
use crate::ports::{HintTaker, TimelineEnd};
use crate::telemetry::Agreement;

/// Hands hints to one partition.
#[derive(Debug)]
pub(super) struct Hints {
    partition: Arc<PartitionHandle>,
}

impl Hints {
    /// Hands them to `partition`.
    pub(super) const fn new(partition: Arc<PartitionHandle>) -> Self {
        Self { partition }
    }
}

impl HintTaker for Hints {
    fn hurry(&self) {
        self.partition.hurry();
    }

    fn fits(&self, end: TimelineEnd) -> Option<bool> {
        let snapshot = self.partition.snapshot();
        let heads: Vec<_> = snapshot.leadership.heads().iter().copied().collect();
        // Each head of a split has a history of its own; the tool speaks of one.
        let [head] = heads.as_slice() else { return None };
        let fork = snapshot.history.end_of(*head, end.timeline)?;
        let fits = fork.allows(end.at.into());
        let agreement = if fits { Agreement::Fits } else { Agreement::Contradicts };
        self.partition.telemetry().compared(agreement);
        Some(fits)
    }
}
