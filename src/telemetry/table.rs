//! `Table`: handles of one family, each resolved when it is first used and then by its index.
//!
//! Looking a metric up by its labels takes a lock and a hash; a read must pay neither. What never
//! happened is not reported at all.

use std::sync::OnceLock;

use super::labels::Label;

/// Handles by index.
#[derive(Debug)]
pub(super) struct Table<M> {
    cells: Box<[OnceLock<M>]>,
}

impl<M> Table<M> {
    /// A table of `len` handles, none resolved.
    pub(super) fn new(len: usize) -> Self {
        Self { cells: std::iter::repeat_with(OnceLock::new).take(len).collect() }
    }

    /// The handle at `cell`, resolved by `make` the first time.
    pub(super) fn resolve(&self, cell: usize, make: impl FnOnce() -> M) -> Handle<'_, M> {
        match self.cells.get(cell) {
            Some(cell) => Handle::Kept(cell.get_or_init(make)),
            None => Handle::Made(make()),
        }
    }
}

/// A resolved handle.
pub(super) enum Handle<'a, M> {
    /// From the table.
    Kept(&'a M),
    /// The table has no such cell, so it was made for this use.
    Made(M),
}

impl<M> std::ops::Deref for Handle<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        match self {
            Self::Kept(metric) => metric,
            Self::Made(metric) => metric,
        }
    }
}

/// The place of a label in its set.
pub(super) fn place<L: Label + PartialEq>(label: L) -> usize {
    L::ALL.iter().position(|other| *other == label).unwrap_or(usize::MAX)
}

/// The place of a pair of labels in a table of both sets.
pub(super) fn cell<A: Label + PartialEq, B: Label + PartialEq>(first: A, second: B) -> usize {
    place(first).saturating_mul(B::ALL.len()).saturating_add(place(second))
}
