//! `Memory`: records in one process, as the memory store keeps them.

use std::collections::BTreeMap;

use tidegate_core::token::{BodyLimits, Change, SessionToken};

use super::Held;
use crate::world::log::Rec;

/// Bytes of our own are read whatever their size.
pub(super) const OWN_BYTES: BodyLimits = BodyLimits { bytes: usize::MAX, components: usize::MAX };

#[derive(Debug)]
struct Record {
    body: Vec<u8>,
    held: Held,
    used_at: u64,
}

/// Records by subject; one that nobody used for a lifetime is gone.
#[derive(Default, Debug)]
pub(crate) struct Memory {
    records: BTreeMap<usize, Record>,
}

impl Memory {
    /// What is kept of a subject, and what that was made of.
    pub(crate) fn lookup(&mut self, subject: usize, now: u64) -> Option<(SessionToken, Held)> {
        let record = self.records.get_mut(&subject)?;
        record.used_at = now;
        let read = SessionToken::decode(&record.body, OWN_BYTES);
        Some((read.expect("own bytes are read back").0, record.held.clone()))
    }

    /// Lets a record go that expired; says whether it did.
    pub(crate) fn expire(&mut self, subject: usize, lifetime: u64, now: u64) -> bool {
        let expired = |record: &Record| now - record.used_at >= lifetime;
        let gone = self.records.get(&subject).is_some_and(expired);
        if gone {
            self.records.remove(&subject);
        }
        gone
    }

    /// Applies a change; what is kept afterwards.
    pub(crate) fn update(
        &mut self,
        subject: usize,
        change: &Change,
        tips: &[Rec],
        now: u64,
    ) -> (SessionToken, Held) {
        let (mut token, mut held) = self.lookup(subject, now).unwrap_or_default();
        change.apply(&mut token);
        held.tips.extend(tips);
        if token.is_empty() {
            self.records.remove(&subject);
        } else {
            let record = Record { body: token.encode(0), held: held.clone(), used_at: now };
            self.records.insert(subject, record);
        }
        (token, held)
    }

    /// Forgets everything.
    pub(crate) fn lose(&mut self) {
        self.records.clear();
    }
}
