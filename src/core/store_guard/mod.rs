//! What may be believed of the token store after it has, or may have, forgotten.
//!
//! Events in, values out. So far it knows the memory store, whose start is a loss with a barrier
//! and no fence: nobody else can still be recording. It does not talk to a store, does not ask for
//! the samples it needs, and judges no mark: whether a node covers the barrier is for the one
//! relation to say.

use crate::guards::Guards;
use crate::instant::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a lookup of a subject in the token store is worth for one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Belief<B> {
    /// The store may have forgotten, and no barrier stands yet: every lookup is unknown.
    Unknown,
    /// The store may have forgotten: whoever names a subject demands this mark besides its own.
    Barrier(B),
    /// What was forgotten is older than the gate allows any node to be.
    Clear,
}

/// What may be believed of the token store of one instance, for each partition `K`.
///
/// `B` is the mark of a leader sample. At most one barrier is kept for each partition sampled.
#[derive(Clone, Debug)]
pub struct StoreGuard<K, B> {
    lifetime: Duration,
    lost_at: Instant,
    barriers: BTreeMap<K, Sampled<B>>,
}

#[derive(Clone, Debug)]
struct Sampled<B> {
    sent_at: Instant,
    mark: B,
}

impl<K: Ord + Copy, B: Clone> StoreGuard<K, B> {
    /// The belief in a memory store that starts `now`, empty: all that was recorded before is lost.
    ///
    /// `lifetime` is `D_max`, the gate's bound: when that much time has passed since a barrier's
    /// sample was sent, the gate alone demands as much.
    pub const fn started(now: Instant, lifetime: Duration) -> Self {
        Self { lifetime, lost_at: now, barriers: BTreeMap::new() }
    }

    /// Notes that the store forgot, `now` or earlier: every partition needs a new barrier.
    pub fn lost(&mut self, now: Instant) {
        self.lost_at = self.lost_at.max(now);
        self.barriers.clear();
    }

    /// Offers a sample of the partition's leader; says whether it became the barrier.
    ///
    /// Only one sent after the loss covers all that was acknowledged before it. The first such
    /// sample to arrive stays: later ones would demand more than was lost.
    pub fn sampled(&mut self, partition: K, sent_at: Instant, mark: B) -> bool {
        let becomes = sent_at > self.lost_at && !self.barriers.contains_key(&partition);
        if becomes {
            self.barriers.insert(partition, Sampled { sent_at, mark });
        }
        becomes
    }

    /// Whether the partition still needs a sample, sent after [`Self::lost_at`].
    pub fn needs_sample(&self, partition: K) -> bool {
        !self.barriers.contains_key(&partition)
    }

    /// When the store last forgot.
    pub const fn lost_at(&self) -> Instant {
        self.lost_at
    }

    /// What a lookup of a subject is worth for `partition`.
    ///
    /// A barrier stands while its sample was sent less than `lifetime` ago. Without a sample it
    /// stays [`Belief::Unknown`], however long that takes.
    pub fn belief(&self, partition: K, now: Instant, guards: &Guards) -> Belief<B> {
        if !guards.barrier() {
            return Belief::Clear;
        }
        match self.barriers.get(&partition) {
            None => Belief::Unknown,
            Some(sampled) if now.since(sampled.sent_at) >= self.lifetime => Belief::Clear,
            Some(sampled) => Belief::Barrier(sampled.mark.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const LIFETIME: u64 = 100;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// The belief in a store that started at instant 10.
    fn started() -> StoreGuard<char, u64> {
        StoreGuard::started(at(10), Duration::from_nanos(LIFETIME))
    }

    fn belief(store: &StoreGuard<char, u64>, now: u64) -> Belief<u64> {
        store.belief('p', at(now), &Guards::on())
    }

    #[test]
    fn a_store_that_just_started_is_not_believed_however_long_that_lasts() {
        let store = started();
        assert_eq!(belief(&store, 10), Belief::Unknown);
        assert_eq!(belief(&store, u64::MAX), Belief::Unknown);
        assert!(store.needs_sample('p'));
    }

    #[test]
    fn a_sample_sent_before_the_start_or_with_it_is_not_believed() {
        let mut store = started();
        assert!(!store.sampled('p', at(9), 500));
        assert!(!store.sampled('p', at(10), 500));
        assert_eq!(belief(&store, 20), Belief::Unknown);
    }

    #[test]
    fn the_first_sample_sent_after_the_start_is_the_barrier() {
        let mut store = started();
        assert!(store.sampled('p', at(11), 500));
        assert!(!store.sampled('p', at(12), 900), "a later sample demands more than was lost");
        assert_eq!(belief(&store, 20), Belief::Barrier(500));
        assert!(!store.needs_sample('p'));
    }

    #[test]
    fn a_barrier_is_of_one_partition() {
        let mut store = started();
        assert!(store.sampled('q', at(11), 500));
        assert_eq!(belief(&store, 20), Belief::Unknown);
    }

    #[test]
    fn a_barrier_ends_a_lifetime_after_its_sample_was_sent() {
        let mut store = started();
        assert!(store.sampled('p', at(11), 500));
        assert_eq!(belief(&store, 10 + LIFETIME), Belief::Barrier(500));
        assert_eq!(belief(&store, 11 + LIFETIME), Belief::Clear);
    }

    #[test]
    fn a_second_loss_starts_over() {
        let mut store = started();
        assert!(store.sampled('p', at(11), 500));
        store.lost(at(300));
        assert_eq!(belief(&store, 300), Belief::Unknown);
        assert!(!store.sampled('p', at(299), 600), "sent before the loss, received after it");
        assert!(store.sampled('p', at(301), 700));
        assert_eq!(belief(&store, 301), Belief::Barrier(700));
    }

    #[test]
    fn a_loss_told_late_does_not_believe_what_an_earlier_one_ruled_out() {
        let mut store = started();
        store.lost(at(5));
        assert_eq!(store.lost_at(), at(10));
        assert!(!store.sampled('p', at(7), 500));
    }

    /// A session wrote at 500 before the store started; a replica that applied 400 is asked for.
    fn is_sent_to_the_stale_replica(guards: &Guards) -> bool {
        let mut store = started();
        let serves = |store: &StoreGuard<char, u64>| {
            let recorded_floor = 0;
            match store.belief('p', at(50), guards) {
                Belief::Unknown => false,
                Belief::Barrier(mark) => 400 >= mark.max(recorded_floor),
                Belief::Clear => 400 >= recorded_floor,
            }
        };
        let before_the_sample = serves(&store);
        store.sampled('p', at(11), 510);
        before_the_sample || serves(&store)
    }

    #[test]
    fn the_barrier_guard_keeps_a_forgotten_write_from_being_missed() {
        assert!(!is_sent_to_the_stale_replica(&Guards::on()));
        #[cfg(feature = "unsafe-guards")]
        {
            let off = Guards::without("barrier").unwrap_or_default();
            assert!(is_sent_to_the_stale_replica(&off), "without the guard the write is missed");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A sample whose answer takes the given time.
        Sample(u64),
        Lose,
    }

    proptest! {
        /// The leader's position is the time at which it was asked, so that a demand says how much
        /// it covers: all that was acknowledged before the last loss.
        #[test]
        fn what_is_demanded_after_a_loss_covers_all_that_was_acknowledged_before_it(
            steps in vec(
                (1..40_u64, prop_oneof![
                    4 => (0..60_u64).prop_map(Step::Sample),
                    1 => Just(Step::Lose),
                ]),
                0..60,
            ),
        ) {
            let (mut store, mut now, mut lost) = (started(), 10, 10);
            for (passed, step) in steps {
                now += passed;
                match step {
                    Step::Sample(took) => {
                        let sent = now.saturating_sub(took);
                        store.sampled('p', at(sent), sent);
                    }
                    Step::Lose => {
                        store.lost(at(now));
                        lost = now;
                    }
                }
                match belief(&store, now) {
                    Belief::Unknown => {}
                    Belief::Barrier(mark) => prop_assert!(mark > lost),
                    Belief::Clear => prop_assert!(now - LIFETIME > lost),
                }
            }
        }
    }
}
