//! The order of events: by time, then by who came first. It does not know what an event is.

use std::collections::BTreeMap;

/// What is still to happen.
#[derive(Debug)]
pub(crate) struct Heap<E> {
    entries: BTreeMap<(u64, u64), E>,
    next: u64,
}

impl<E> Heap<E> {
    pub(crate) const fn new() -> Self {
        Self { entries: BTreeMap::new(), next: 0 }
    }

    /// Lets `event` happen at `at`, after everything that was asked for earlier at that time.
    pub(crate) fn push(&mut self, at: u64, event: E) {
        self.entries.insert((at, self.next), event);
        self.next += 1;
    }

    /// The next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.entries.pop_first().map(|((at, _), event)| (at, event))
    }
}
