//! The token store both instances use: bytes under a name, changed one after the other.
//!
//! What it may be believed is each instance's own `StoreGuard`.

use std::collections::BTreeMap;

use tidegate_core::token::{BodyLimits, Change, SessionToken};

use crate::check::Deps;
use crate::options::Options;

const OWN_BYTES: BodyLimits = BodyLimits { bytes: usize::MAX, components: usize::MAX };

#[derive(Debug)]
struct Record {
    body: Vec<u8>,
    used_at: u64,
}

#[derive(Debug)]
pub(crate) struct Store {
    records: BTreeMap<usize, Record>,
    /// What each subject depends on, whatever the store remembers of it.
    pub(crate) deps: Vec<Deps>,
    /// A record nobody used for so long is gone.
    lifetime: u64,
}

impl Store {
    pub(crate) fn new(options: &Options) -> Self {
        let lifetime = u64::try_from(options.gate.as_nanos()).expect("short") * 2;
        let deps = vec![Deps::default(); options.subjects];
        Self { records: BTreeMap::new(), deps, lifetime }
    }

    /// What is kept of a subject.
    pub(crate) fn lookup(&mut self, subject: usize, now: u64) -> Option<SessionToken> {
        let expired = |record: &Record| now - record.used_at >= self.lifetime;
        if self.records.get(&subject).is_some_and(expired) {
            self.records.remove(&subject);
            self.deps[subject].forget();
        }
        let record = self.records.get_mut(&subject)?;
        record.used_at = now;
        let read = SessionToken::decode(&record.body, OWN_BYTES);
        Some(read.expect("own bytes are read back").0)
    }

    /// Applies a change; what is kept afterwards.
    pub(crate) fn update(&mut self, subject: usize, change: &Change, now: u64) -> SessionToken {
        let mut token = self.lookup(subject, now).unwrap_or_default();
        change.apply(&mut token);
        if token.is_empty() {
            self.records.remove(&subject);
        } else {
            self.records.insert(subject, Record { body: token.encode(0), used_at: now });
        }
        token
    }

    /// Forgets everything.
    pub(crate) fn lose(&mut self) {
        self.records.clear();
        for deps in &mut self.deps {
            deps.forget();
        }
    }
}
