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

/// What a server showed of who else is connected to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// When it was asked.
    pub sent_at: Instant,
    /// Since when this instance is connected, and so seen by others.
    pub visible_since: Instant,
    /// Whether others keep records of their own there.
    pub others: bool,
}

/// What may be believed of the token store in this process.
///
/// At most one barrier and one look are kept for each partition.
///
/// An instance takes calls after it was visible for as long as a look counts. So nobody records
/// unseen while looks follow each other that closely. Where they did not, and where others have
/// gone, what was recorded there is lost: it is covered by a barrier sampled when looks have shown
/// nobody for so long that whoever was cut off believes nothing any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmbeddedGuard {
    d_max: Duration,
    lost_at: Instant,
    barriers: Barriers,
    /// How often instances look for each other; `None`: there is no other, says the caller.
    look_interval: Option<Duration>,
    /// The last look at each partition's leader.
    looks: BTreeMap<ComponentKey, Looked>,
    /// Others were seen, and not that they are gone.
    beside_others: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Looked {
    sent_at: Instant,
    visible_since: Instant,
    /// Since when every look showed nobody, and none was missing.
    alone_since: Option<Instant>,
    /// When that had been so for long enough; only what is sampled later covers what is lost.
    settled_at: Option<Instant>,
}

impl EmbeddedGuard {
    /// Intervals that a look counts, and that an instance is seen before it takes a call.
    pub const LOOKS: u32 = 2;
    /// Intervals in which nobody is to be seen before others count as gone: one that merely lost
    /// its connections, as all do when the leader restarts, is back by then.
    pub const LOOKS_GONE: u32 = 4;

    /// The belief in a store that starts `now`, empty: all that was recorded before is lost.
    ///
    /// When `d_max`, the gate's bound, has passed since a barrier was sampled, the gate alone
    /// demands as much.
    pub const fn started(now: Instant, d_max: Duration, look_interval: Option<Duration>) -> Self {
        Self {
            d_max,
            lost_at: now,
            barriers: Barriers::none(),
            look_interval,
            looks: BTreeMap::new(),
            beside_others: false,
        }
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

    /// Notes what a look at the leader of a partition showed, which was answered by `now`.
    pub fn looked(&mut self, key: ComponentKey, look: Look, now: Instant, guards: &Guards) {
        let others = look.others && guards.foreign_instance();
        if others {
            self.saw_others(now);
        }
        let known = self.looks.get(&key).copied();
        let gapless = known.filter(|known| now.since(known.sent_at) <= self.counts_for());
        let (mut alone_since, mut settled_at) =
            gapless.map_or((None, None), |known| (known.alone_since, known.settled_at));
        if alone_since.is_none() {
            // Others may have come and gone while nobody looked.
            self.barriers.remove(key);
        }
        if !others {
            let since = *alone_since.get_or_insert(now);
            let long_enough =
                if self.beside_others { self.gone_after() } else { self.counts_for() };
            if settled_at.is_none() && now.since(since) >= long_enough {
                settled_at = Some(now);
                self.others_are_gone(now);
            }
        }
        let sent_at = known.map_or(look.sent_at, |known| look.sent_at.max(known.sent_at));
        let visible_since = look.visible_since;
        self.looks.insert(key, Looked { sent_at, visible_since, alone_since, settled_at });
    }

    /// Notes that others were seen, on whichever server.
    pub fn saw_others(&mut self, now: Instant) {
        self.beside_others = true;
        for looked in self.looks.values_mut() {
            (looked.alone_since, looked.settled_at) = (None, None);
        }
        self.lost(now);
    }

    /// What they recorded goes with them; when that was, nobody sees.
    fn others_are_gone(&mut self, now: Instant) {
        if self.beside_others {
            self.beside_others = false;
            self.lost(now);
        }
    }

    /// Whether others were seen, and not that they are gone.
    pub const fn is_beside_others(&self) -> bool {
        self.beside_others
    }

    /// Says whether this instance may take its first call as far as the partition of `key` goes.
    ///
    /// `waited` says that those who do not answer were waited for long enough: an instance that
    /// reaches no leader starts, and believes nothing; one beside others does as well.
    pub fn may_start(&self, key: ComponentKey, waited: bool, now: Instant) -> bool {
        let is_visible = |looked: &&Looked| now.since(looked.sent_at) <= self.counts_for();
        match self.looks.get(&key).filter(is_visible) {
            Some(looked) => {
                let is_settled = !self.beside_others && self.barriers.has(key);
                now.since(looked.visible_since) >= self.counts_for() && (waited || is_settled)
            }
            None => waited || self.look_interval.is_none(),
        }
    }

    /// How long a look counts.
    fn counts_for(&self) -> Duration {
        self.look_interval.unwrap_or_default() * Self::LOOKS
    }

    /// How long others are not to be seen before they count as gone.
    fn gone_after(&self) -> Duration {
        self.look_interval.unwrap_or_default() * Self::LOOKS_GONE
    }

    /// Whether looks at the leader of `key` have shown nobody for long enough, and when they had.
    fn settled_at(&self, key: ComponentKey) -> Option<Instant> {
        let settled_at = self.looks.get(&key).and_then(|looked| looked.settled_at);
        if self.look_interval.is_none() { Some(self.lost_at) } else { settled_at }
    }

    /// Offers a sample of the leader of a partition; says whether it became the barrier.
    ///
    /// Only one sent after the loss covers all that was acknowledged before it. The first such
    /// sample to arrive stays: later ones would demand more than was lost.
    pub fn sampled(&mut self, key: ComponentKey, sample: Sample) -> bool {
        let Some(settled_at) = self.settled_at(key) else { return false };
        let becomes = sample.sent_at > self.lost_at.max(settled_at) && !self.barriers.has(key);
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

    /// Whether the next sample of the leader of `key` becomes its barrier.
    pub fn wants_sample(&self, key: ComponentKey) -> bool {
        self.needs_sample(key) && self.settled_at(key).is_some()
    }

    /// What a lookup of a subject is worth in the partition of `key`.
    pub fn belief(&self, key: ComponentKey, now: Instant, guards: &Guards) -> Belief {
        let counts = |looked: &Looked| {
            looked.settled_at.is_some() && now.since(looked.sent_at) <= self.counts_for()
        };
        let alone = self.look_interval.is_none()
            || !self.beside_others && self.looks.get(&key).is_some_and(counts);
        if guards.foreign_instance() && !alone {
            return Belief::Unknown;
        }
        self.barriers.belief(key, now, guards)
    }
}
