//! What a call made of its caller's session, and whom that makes depend on what.

use std::collections::BTreeSet;

use tidegate_core::lineage::Epoch;
use tidegate_core::token::{Notice, SessionToken};

use crate::check::{Corner, Dep};
use crate::sim::State;
use crate::store::Promise;
use crate::world::log::Rec;

/// What a call made of its caller's session.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// The token to carry from now on; empty: what is carried stands.
    pub(crate) token: Vec<u8>,
    /// What was carried could not be read, all of it.
    pub(crate) unreadable: bool,
    pub(crate) notices: Vec<Notice>,
    /// What its holders hold together afterwards.
    pub(crate) merged: SessionToken,
    /// The token was raised.
    pub(crate) raised_token: bool,
    /// The record was raised.
    pub(crate) raised_record: bool,
    /// Epochs whose marks did not fit any more, of the token and of the record.
    pub(crate) fifth: [Vec<Epoch>; 2],
    /// The component did not fit into the token.
    pub(crate) dropped: bool,
    /// To whom what was recorded is promised.
    pub(crate) promise: Promise,
    /// What the record was made of when it was looked up, and is now.
    pub(crate) held: BTreeSet<Rec>,
}

impl Committed {
    /// What its holders held when it came, and hold now: a record that waits tells less.
    pub(crate) fn known(&self, came_with: &SessionToken) -> SessionToken {
        let mut known = came_with.clone();
        known.join(&self.merged);
        known
    }

    /// Gives the holders that were raised what this call made them depend on.
    pub(crate) fn spread(&self, state: &mut State, device: usize, new: &[Dep]) {
        let State { devices, store, world, .. } = state;
        let own = &mut devices[device];
        if !self.token.is_empty() && own.carries {
            own.tokens = vec![self.token.clone()];
        }
        for (_, dep, raised) in std::mem::take(&mut own.delivered) {
            if let Some(dep) = dep.filter(|_| raised && own.carries) {
                own.deps.add(Dep { promise: Promise::All, ..dep }, world);
            }
        }
        if self.raised_token && own.carries {
            for dep in new {
                own.deps.add(*dep, world);
            }
        }
        for epoch in &self.fifth[0] {
            own.deps.unmark(Some(*epoch), Corner::FifthLife, world);
        }
        if self.dropped {
            own.deps.unmark(None, Corner::NoRoom, world);
        }
        if self.unreadable && !self.token.is_empty() {
            own.deps.unmark(None, Corner::Unreadable, world);
        }
        let Some(subject) = own.subject else { return };
        if self.raised_record {
            for dep in new {
                store.deps[subject].add(Dep { promise: self.promise, ..*dep }, world);
            }
        }
        for epoch in &self.fifth[1] {
            store.deps[subject].unmark(Some(*epoch), Corner::FifthLife, world);
        }
    }
}
