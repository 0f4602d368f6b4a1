//! Which rows a session must find, and from when on.
//!
//! A row is due at once where its record was answered in plain circumstances. It is due later, when
//! all is settled, where the record lay in the memory of its instance or that instance had said
//! that its store may have forgotten; and never, where the memory went with the instance. Shares no
//! rule with the service: rows are counted, nothing else.

use std::collections::BTreeMap;

/// Rows that a session goes on to look for.
const KEEP: usize = 8;

/// From when on a row must be found by whoever knows only the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// Since its record was answered.
    AtOnce,
    /// When all is settled again; until then its instance must not have been restarted.
    Settled {
        /// How often that had happened.
        settled: u64,
        /// Where it was recorded, and how often that had been restarted; none: in the store.
        kept_by: Option<(usize, u64)>,
    },
}

/// The rows of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(BTreeMap<i64, Due>);

impl Memory {
    /// A row was written and recorded.
    pub(super) fn wrote(&mut self, row: i64, due: Due) {
        self.0.insert(row, due);
        while self.0.len() > KEEP {
            self.0.pop_first();
        }
    }

    /// The oldest row of interest.
    pub(super) fn oldest(&self) -> i64 {
        self.0.keys().next().copied().unwrap_or_default()
    }

    /// The rows that a read must find that begins now. What was kept by an instance that was
    /// restarted since is not promised any more.
    pub(super) fn due(&mut self, settled: u64, restarts: impl Fn(usize) -> u64) -> Vec<i64> {
        self.0.retain(|_, due| match due {
            Due::AtOnce | Due::Settled { kept_by: None, .. } => true,
            Due::Settled { settled: then, kept_by: Some((instance, before)) } => {
                *then < settled || restarts(*instance) == *before
            }
        });
        let is_due = |due: &Due| match due {
            Due::AtOnce => true,
            Due::Settled { settled: then, .. } => *then < settled,
        };
        self.0.iter().filter(|(_, due)| is_due(due)).map(|(row, _)| *row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(instance: usize) -> Due {
        Due::Settled { settled: 1, kept_by: Some((instance, 0)) }
    }

    #[test]
    fn what_lay_in_memory_is_due_when_all_is_settled_unless_the_memory_is_gone() {
        let mut memory = Memory::default();
        memory.wrote(1, Due::AtOnce);
        memory.wrote(2, kept(0));
        memory.wrote(3, kept(1));
        memory.wrote(4, Due::Settled { settled: 1, kept_by: None });
        let restarted = |instance| u64::from(instance == 1);
        assert_eq!(memory.due(1, restarted), [1]);
        assert_eq!(memory.due(2, restarted), [1, 2, 4]);
    }

    #[test]
    fn a_restart_after_it_was_settled_takes_nothing_back() {
        let mut memory = Memory::default();
        memory.wrote(3, kept(1));
        assert_eq!(memory.due(2, |_| 1), [3]);
    }

    #[test]
    fn only_the_newest_rows_are_looked_for() {
        let mut memory = Memory::default();
        (1..=20).for_each(|row| memory.wrote(row, Due::AtOnce));
        assert_eq!(memory.due(0, |_| 0), (13..=20).collect::<Vec<_>>());
        assert_eq!(memory.oldest(), 13);
    }
}
