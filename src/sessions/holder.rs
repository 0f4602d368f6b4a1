//! `Holder`: one caller, as a request names it: what it carries, what is kept of it, and what is
//! not known of either.
//!
//! It answers what the core's `resolve` asks of a session. It is a value: nothing is looked up or
//! raised here.

use std::fmt;

use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::Epoch;
use tidegate_core::position::Position;
use tidegate_core::store_guard::Belief;
use tidegate_core::token::{Component, ComponentKey, Notice, SessionToken};
use tidegate_core::trail::Known;

use super::asked::Carried;
use crate::ports::{Looked, StoreError, SubjectKey};

/// Why it is not known all that a session depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ignorance {
    /// A token of it cannot be read: its key or version is not known here.
    Unreadable,
    /// The store does not answer.
    StoreUnavailable,
    /// The store may have forgotten it.
    StoreLost,
    /// Its token or record had to drop components.
    Overflow,
}

/// One caller: the token it carries and the record of the subject it names.
#[derive(Clone)]
pub struct Holder {
    pub(super) carried: SessionToken,
    /// Tokens it came with.
    pub(super) tokens: usize,
    pub(super) unreadable: bool,
    /// What is carried has changed since it came.
    pub(super) raised: bool,
    pub(super) named: Option<Named>,
    /// Bytes of the longest body its caller has room for.
    pub(super) body_bytes: usize,
    /// The join of both holders, where there are two.
    merged: Option<SessionToken>,
    /// What it was to be told when it came: a record may be lost before its call is answered.
    pub(super) told: Vec<Notice>,
}

/// The subject a request names.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) key: SubjectKey,
    /// What the store said of it, as of `looked_at`.
    pub(super) looked: Result<Looked, StoreError>,
    pub(super) looked_at: Instant,
    pub(super) guards: Guards,
}

impl Named {
    fn belief(&self, key: ComponentKey) -> Belief {
        let looked = self.looked.as_ref();
        looked.map_or(Belief::Unknown, |looked| {
            looked.worth.belief(key, self.looked_at, &self.guards)
        })
    }

    /// What the store keeps; `None` if nothing, or if it did not say.
    pub(super) fn found(&self) -> Option<&SessionToken> {
        self.looked.as_ref().ok()?.record.as_ref()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("tokens", &self.tokens)
            .field("unreadable", &self.unreadable)
            .field("has_subject", &self.has_subject())
            .finish_non_exhaustive()
    }
}

impl Holder {
    pub(super) fn new(
        carried: Carried,
        tokens: usize,
        named: Option<Named>,
        body_bytes: usize,
    ) -> Self {
        let Carried { token: carried, unreadable } = carried;
        let (raised, merged, told) = (false, None, Vec::new());
        let mut holder =
            Self { carried, tokens, unreadable, raised, named, body_bytes, merged, told };
        holder.merge();
        holder.told = holder.merged().notices().copied().collect();
        holder
    }

    /// Joins both holders again, after one was raised.
    pub(super) fn merge(&mut self) {
        let record = self.named.as_ref().and_then(Named::found);
        self.merged = record.map(|record| {
            let mut merged = self.carried.clone();
            merged.join(record);
            merged
        });
    }

    /// What the caller depends on as far as it is known: its token joined with its record.
    pub fn merged(&self) -> &SessionToken {
        self.merged.as_ref().unwrap_or(&self.carried)
    }

    /// All it is told and has not acknowledged: what it came with, holds now, and `fresh`.
    pub(super) fn notices(&self, fresh: &[Notice]) -> Vec<Notice> {
        if self.told.is_empty() && fresh.is_empty() {
            return self.merged().notices().copied().collect();
        }
        let mut all = self.merged().clone();
        self.told.iter().chain(fresh).for_each(|notice| all.tell(*notice));
        all.notices().copied().collect()
    }

    /// Says whether the request carries a token, readable or not.
    pub const fn carries_token(&self) -> bool {
        self.tokens > 0
    }

    /// Says whether the request names a subject.
    pub const fn has_subject(&self) -> bool {
        self.named.is_some()
    }

    /// What it depends on in one partition.
    pub fn component(&self, key: ComponentKey) -> Option<&Component> {
        self.merged().component(key)
    }

    /// What it depended on in the databases that served the partition of `key` before.
    pub fn former(
        &self,
        key: ComponentKey,
    ) -> impl Iterator<Item = (ComponentKey, &Component)> + '_ {
        self.merged().partition(key.partition).filter(move |(own, _)| *own != key)
    }

    /// Whether [`Self::component`] is all it depends on in the partition of `key`.
    pub fn known(&self, key: ComponentKey, guards: &Guards) -> Known {
        match self.ignorance(key, guards) {
            None => Known::Yes,
            Some(
                Ignorance::Unreadable
                | Ignorance::StoreUnavailable
                | Ignorance::StoreLost
                | Ignorance::Overflow,
            ) => Known::No,
        }
    }

    /// Why [`Self::component`] may not be all it depends on; `None` if it is.
    pub fn ignorance(&self, key: ComponentKey, guards: &Guards) -> Option<Ignorance> {
        if self.unreadable {
            return Some(Ignorance::Unreadable);
        }
        if let Some(named) = &self.named {
            if named.looked.is_err() {
                return Some(Ignorance::StoreUnavailable);
            }
            match named.belief(key) {
                Belief::Unknown => return Some(Ignorance::StoreLost),
                Belief::Barrier(..) | Belief::Clear => {}
            }
        }
        // From here on a record that is named is believed.
        let record = self.named.as_ref().and_then(Named::found);
        let dropped = |held: &SessionToken| held.overflow && held.component(key).is_none();
        // A record makes up for no token: a read raises the token alone, where one is carried.
        let dropped = dropped(&self.carried) || record.is_some_and(dropped);
        (guards.overflow() && dropped).then_some(Ignorance::Overflow)
    }

    /// Says whether the gate binds it: it names a subject, or carries no component of `key`.
    ///
    /// Records expire and cookies get lost; what was forgotten is older than the gate allows any
    /// node to be.
    pub fn gate_binds(&self, key: ComponentKey) -> bool {
        self.has_subject() || self.carried.component(key).is_none()
    }

    /// Says whether what it depends on in the partition of `key` is known from its record alone.
    pub fn rests_on_record(&self, key: ComponentKey) -> bool {
        self.has_subject() && self.carried.component(key).is_none()
    }

    /// The demand that covers all the store forgot in the partition of `key`; `None` if it forgot
    /// nothing that matters, is not believed at all, or no subject is named.
    pub fn barrier(&self, key: ComponentKey) -> Option<(Epoch, Position)> {
        match self.named.as_ref()?.belief(key) {
            Belief::Barrier(epoch, position) => Some((epoch, position)),
            Belief::Unknown | Belief::Clear => None,
        }
    }

    /// Why the store did not answer, if it was asked and did not.
    pub fn store_error(&self) -> Option<&StoreError> {
        self.named.as_ref().and_then(|named| named.looked.as_ref().err())
    }
}
