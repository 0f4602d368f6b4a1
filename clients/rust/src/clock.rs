//! The only place of this crate that reads a clock.
//!
//! Instants count the time since boot, suspended time included: how long an answer holds must not
//! stop while the machine sleeps. They mean nothing to another process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point of the boot-time clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Instant(Duration);

impl Instant {
    /// Reads the clock. Never goes back.
    pub(crate) fn now() -> Self {
        let read = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(read.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(read.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    /// The time since this instant.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// The time until this instant; zero once it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// The instant `span` later.
    pub(crate) fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}
