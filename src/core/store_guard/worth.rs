//! `Worth`: what one answer of a token store may be believed.
//!
//! A value, taken with the answer: what the store does later says nothing of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::EmbeddedGuard;
use crate::guards::Guards;
use crate::instant::Instant;
use crate::lineage::Epoch;
use crate::position::Position;
use crate::token::ComponentKey;

/// What a lookup of a subject in the token store is worth for one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Belief {
    /// The store may have forgotten, and no barrier stands yet: every lookup is unknown.
    Unknown,
    /// The store may have forgotten: whoever names a subject demands this besides its own marks.
    Barrier(Epoch, Position),
    /// What was forgotten is older than the gate allows any node to be.
    Clear,
}

/// Why an answer of a store is not believed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unbelieved {
    /// It may have forgotten, and no barrier stands yet.
    Lost,
    /// Its server may have been deposed: no write of ours was accepted there lately.
    Deposed,
    /// Its server is a replica.
    Replica,
}

/// What one answer of a token store may be believed.
#[derive(Clone, Debug)]
pub enum Worth {
    /// All it says, besides the barriers.
    Believed(Arc<Barriers>),
    /// A store in this process.
    Embedded(Arc<EmbeddedGuard>),
    /// Nothing, least of all "none".
    Unknown(Unbelieved),
}

impl Worth {
    /// What the answer is worth in the partition of `key`, `now`.
    pub fn belief(&self, key: ComponentKey, now: Instant, guards: &Guards) -> Belief {
        match self {
            Self::Believed(barriers) => barriers.belief(key, now, guards),
            Self::Embedded(guard) => guard.belief(key, now, guards),
            Self::Unknown(_) => Belief::Unknown,
        }
    }
}

/// What everyone who names a subject demands after the store forgot, per partition.
///
/// A barrier stands until the gate alone demands as much.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Barriers {
    of: BTreeMap<ComponentKey, Barrier>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Barrier {
    epoch: Epoch,
    position: Position,
    expires_at: Instant,
}

impl Barriers {
    pub(super) const fn none() -> Self {
        Self { of: BTreeMap::new() }
    }

    /// Sets the barrier of one partition; it was sampled at or before `since`.
    pub(super) fn set(
        &mut self,
        key: ComponentKey,
        (epoch, position): (Epoch, Position),
        since: Instant,
        d_max: Duration,
    ) {
        let expires_at = since + d_max;
        self.of.insert(key, Barrier { epoch, position, expires_at });
    }

    /// Takes over until when the same barrier stands.
    pub(super) fn keep_terms(&mut self, before: &Self) {
        for (key, barrier) in &mut self.of {
            let same = before
                .of
                .get(key)
                .filter(|known| (known.epoch, known.position) == (barrier.epoch, barrier.position));
            if let Some(known) = same {
                barrier.expires_at = known.expires_at;
            }
        }
    }

    pub(super) fn remove(&mut self, key: ComponentKey) {
        self.of.remove(&key);
    }

    pub(super) fn has(&self, key: ComponentKey) -> bool {
        self.of.contains_key(&key)
    }

    /// Without a barrier it stays [`Belief::Unknown`], however long that takes.
    pub(super) fn belief(&self, key: ComponentKey, now: Instant, guards: &Guards) -> Belief {
        if !guards.barrier() {
            return Belief::Clear;
        }
        match self.of.get(&key) {
            None => Belief::Unknown,
            Some(barrier) if now >= barrier.expires_at => Belief::Clear,
            Some(barrier) => Belief::Barrier(barrier.epoch, barrier.position),
        }
    }
}
