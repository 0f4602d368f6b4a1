//! `HeldKey`: a key of a running instance, and when it was needed last.
//!
//! It reads no clock: instants come in with each use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::instant::Instant;

use super::Key;

const SECOND_NANOS: u64 = 1_000_000_000;

/// A key, since when it is accepted, and when it sealed or opened a token last.
#[derive(Debug)]
pub(super) struct HeldKey {
    pub(super) id: u8,
    pub(super) key: Key,
    accepted_at: Instant,
    /// In seconds since boot, rounded up: written once a second, however many calls use the key.
    used_second: AtomicU64,
}

impl HeldKey {
    /// A key that is accepted from `accepted_at` on.
    pub(super) fn new(key: Key, accepted_at: Instant) -> Self {
        Self { id: key.id(), key, accepted_at, used_second: AtomicU64::new(0) }
    }

    /// Notes that it sealed or opened a token.
    pub(super) fn note_use(&self, now: Instant) {
        let second = now.as_nanos() / SECOND_NANOS + 1;
        if self.used_second.load(Ordering::Relaxed) < second {
            self.used_second.fetch_max(second, Ordering::Relaxed);
        }
    }

    /// The instant from which no token of it can still be good, if it is not used again: it was
    /// neither used nor unknown here for the `lifetime` of a token.
    pub(super) fn free_at(&self, lifetime: Duration) -> Instant {
        let used_second = self.used_second.load(Ordering::Relaxed);
        let used_at = Instant::from_nanos(used_second.saturating_mul(SECOND_NANOS));
        self.accepted_at.max(used_at) + lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_free_a_lifetime_after_its_last_use_and_never_before() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let held = HeldKey::new(Key::generate().expect("random"), at(5_000));
        let lifetime = Duration::from_secs(60);
        assert_eq!(held.free_at(lifetime), at(65_000));
        held.note_use(at(7_200));
        assert_eq!(held.free_at(lifetime), at(68_000), "rounded up");
        held.note_use(at(6_000));
        assert_eq!(held.free_at(lifetime), at(68_000), "an earlier use changes nothing");
    }
}
