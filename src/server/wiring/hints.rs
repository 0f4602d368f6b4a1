//! `Hints`: what a tool of the operator says, handed to the partition it is about.
//!
//! It asks for polls, and compares what the tool says of forks with those that were placed. It
//! moves none.

use std::sync::Arc;

use tidegate_core::lineage::{Epoch, Fork, History};
use tidegate_core::position::Position;

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
        let fork = fork_after(&snapshot.history, *head, end.timeline)?;
        let fits = holds(fork, end.at.into());
        let agreement = if fits { Agreement::Fits } else { Agreement::Contradicts };
        self.partition.telemetry().compared(agreement);
        Some(fits)
    }
}

/// The fork in which `timeline` ends on the line of `head`; `None`: it does not end there yet.
fn fork_after(history: &History, head: Epoch, timeline: u32) -> Option<Fork> {
    history.chain(head).find_map(|child| {
        let (parent, fork) = history.origin(child)?;
        let ends = parent?.timeline == timeline && child.timeline > timeline;
        ends.then_some(fork)
    })
}

/// Says whether a parent may have ended at `at`, by what the fork says.
fn holds(fork: Fork, at: Position) -> bool {
    fork.at_least().is_none_or(|least| at.covers(least))
        && fork.at_most().is_none_or(|most| most.covers(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::lineage::{Life, LineageRow};
    use tidegate_core::position::Lsn;

    fn at(value: u64) -> Position {
        Lsn::new(value).into()
    }

    fn epoch(timeline: u32, life: i64) -> Epoch {
        Epoch::new(timeline, Life { start: life, reset: life })
    }

    #[test]
    fn the_end_of_a_timeline_is_where_a_higher_one_begins_on_the_leaders_line() {
        let (root, again, third) = (epoch(1, 1), epoch(1, 2), epoch(3, 3));
        let (crash, fork) = (Fork::between(at(10), at(20)), Fork::between(at(50), at(60)));
        let twin = epoch(2, 4);
        let rows = [
            (root, None, Fork::Unknown),
            (again, Some(root), crash),
            (third, Some(again), fork),
            (twin, Some(again), Fork::between(at(30), at(30))),
        ];
        let mut history = History::new();
        for (n, (epoch, parent, fork)) in (1..).zip(rows) {
            history.read_row(LineageRow { epoch, parent, fork, n }).expect("rows agree");
        }
        assert_eq!(fork_after(&history, third, 1), Some(fork), "not the crash before it");
        assert_eq!(fork_after(&history, third, 2), None, "a step nobody saw");
        assert_eq!(fork_after(&history, again, 1), None, "it has not ended");
        assert_eq!(fork_after(&history, twin, 1), Some(Fork::between(at(30), at(30))));
    }

    #[test]
    fn a_switch_point_outside_the_fork_contradicts_it() {
        let fork = Fork::between(at(50), at(60));
        assert!(holds(fork, at(50)) && holds(fork, at(60)), "both ends are inclusive");
        assert!(!holds(fork, at(49)) && !holds(fork, at(61)));
        assert!(holds(Fork::Unknown, at(0)) && holds(Fork::Unbounded, at(7)));
    }
}
