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
    /// What the looks at each partition's leader show.
    looks: BTreeMap<ComponentKey, Looks>,
}

/// What looks at a leader show of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looks {
    Beside,
    /// Since then none showed others, and none came later after the one before than it counts.
    Alone {
        since: Instant,
        /// When the last of them was sent.
        looked_at: Instant,
        /// Whoever was there before, were it only cut off, believes nothing any more.
        settled: bool,
    },
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
        Self { d_max, lost_at: now, barriers, look_interval, looks: BTreeMap::new() }
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
    ///
    /// Looks at two servers, as after a failover, do not continue each other: whoever looks says
    /// in between that there may be others. A start is settled by whoever starts: it takes no call
    /// until others had the time to see it, and says then that the store [`Self::lost`] all.
    pub fn looked(&mut self, key: ComponentKey, sent_at: Instant, others: bool, now: Instant) {
        let counts = self.counts();
        let mut looks = match (others, self.looks.get(&key)) {
            (true, _) => Looks::Beside,
            (false, None) => Looks::Alone { since: now, looked_at: sent_at, settled: true },
            (false, Some(Looks::Alone { since, looked_at, settled }))
                if now.since(*looked_at) <= counts =>
            {
                let looked_at = sent_at.max(*looked_at);
                Looks::Alone { since: *since, looked_at, settled: *settled }
            }
            (false, Some(_)) => Looks::Alone { since: now, looked_at: sent_at, settled: false },
        };
        if let Looks::Alone { since, settled: settled @ false, .. } = &mut looks
            && now.since(*since) > counts
        {
            // What others recorded, until they believed nothing any more, went with them.
            *settled = true;
            self.lost(now);
        }
        self.looks.insert(key, looks);
    }

    /// How long a look counts.
    fn counts(&self) -> Duration {
        self.look_interval * Self::LOOKS
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
        let is_alone = self.looks.get(&key).is_some_and(|looks| match looks {
            Looks::Beside => false,
            Looks::Alone { looked_at, settled, .. } => {
                *settled && now.since(*looked_at) <= self.counts()
            }
        });
        if guards.foreign_instance() && !is_alone {
            return Belief::Unknown;
        }
        self.barriers.belief(key, now, guards)
    }
}
