//! `EmbeddedGuard`: what may be believed of a store in this process.
//!
//! Its start is a loss with a barrier and no fence: nobody else can still be recording. An instance
//! that sees another one beside it, or cannot look, believes nothing: what was recorded there is
//! not here. It looks at no server itself.

use std::collections::BTreeMap;
use std::time::Duration;

use super::worth::{Barriers, Belief};
use crate::guards::Guards;
use crate::instant::Instant;
use crate::token::ComponentKey;
use crate::trail::Sample;

/// What may be believed of the token store in this process.
///
/// At most one barrier is kept for each partition sampled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmbeddedGuard {
    d_max: Duration,
    lost_at: Instant,
    barriers: Barriers,
    /// How often instances look for each other.
    look_interval: Duration,
    /// When each partition's leader was last asked who else is there, and nobody was.
    alone_at: BTreeMap<ComponentKey, Instant>,
}

impl EmbeddedGuard {
    /// Intervals that a look counts, and that an instance is seen before it takes a call.
    pub const LOOKS: u32 = 2;

    /// The belief in a store that starts `now`, empty: all that was recorded before is lost.
    ///
    /// When `d_max`, the gate's bound, has passed since a barrier was sampled, the gate alone
    /// demands as much.
    pub const fn started(now: Instant, d_max: Duration, look_interval: Duration) -> Self {
        let barriers = Barriers::none();
        Self { d_max, lost_at: now, barriers, look_interval, alone_at: BTreeMap::new() }
    }

    /// Notes that the store forgot, `now` or earlier: every partition needs a new barrier.
    pub fn lost(&mut self, now: Instant) {
        self.lost_at = self.lost_at.max(now);
        self.barriers = Barriers::none();
    }

    /// When the store last forgot.
    pub const fn lost_at(&self) -> Instant {
        self.lost_at
    }

    /// Notes what a look at the leader of a partition showed, which was sent at `sent_at` and
    /// answered by `now`: whether `others` keep records of their own there.
    pub fn looked(&mut self, key: ComponentKey, sent_at: Instant, others: bool, now: Instant) {
        if others {
            self.alone_at.remove(&key);
            // What they recorded goes with them; when that was, nobody sees.
            self.lost(now);
        } else {
            let alone_at = self.alone_at.entry(key).or_insert(sent_at);
            *alone_at = sent_at.max(*alone_at);
        }
    }

    /// Offers a sample of the leader of a partition; says whether it became the barrier.
    ///
    /// Only one sent after the loss covers all that was acknowledged before it. The first such
    /// sample to arrive stays: later ones would demand more than was lost.
    pub fn sampled(&mut self, key: ComponentKey, sample: Sample) -> bool {
        let becomes = sample.sent_at > self.lost_at && !self.barriers.has(key);
        if becomes {
            let demand = (sample.epoch, sample.position);
            self.barriers.set(key, demand, sample.sent_at, self.d_max);
        }
        becomes
    }

    /// Whether the partition still needs a sample, sent after [`Self::lost_at`].
    pub fn needs_sample(&self, key: ComponentKey) -> bool {
        !self.barriers.has(key)
    }

    /// What a lookup of a subject is worth in the partition of `key`.
    pub fn belief(&self, key: ComponentKey, now: Instant, guards: &Guards) -> Belief {
        let looked = self.alone_at.get(&key);
        let counts = |at: &Instant| now.since(*at) <= self.look_interval * Self::LOOKS;
        if guards.foreign_instance() && !looked.is_some_and(counts) {
            return Belief::Unknown;
        }
        self.barriers.belief(key, now, guards)
    }
}
