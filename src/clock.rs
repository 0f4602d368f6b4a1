//! The only place that reads a clock.
//!
//! Decisions run on the boot-time clock, which no operator sets and which counts suspended time;
//! the wall clock only dates what people read. Nothing here decides anything, and no instant of
//! another process means anything to it.

use std::future::Future;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use thiserror::Error;

pub use tidegate_core::instant::Instant;

/// When a call must have its answer, as an extension of its request. Absent: it named no timeout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(pub Instant);

/// The future was not ready in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not ready by the deadline")]
pub struct DeadlinePassed;

/// The clocks of this machine. Copies read the same ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock(());

impl Clock {
    /// The clocks of this machine.
    pub const fn new() -> Self {
        Self(())
    }

    /// Reads the boot-time clock. Never goes back, and goes on while the machine is suspended.
    pub fn now(&self) -> Instant {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (positive(tv_sec), positive(tv_nsec));
        Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// Reads the wall clock in seconds since 1970, for people and diagnostics only: it may jump.
    pub fn wall_seconds(&self) -> u64 {
        positive(clock_gettime(ClockId::Realtime).tv_sec)
    }

    /// As [`Self::wall_seconds`], in nanoseconds.
    pub fn wall_nanos(&self) -> u64 {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Realtime);
        positive(tv_sec).saturating_mul(1_000_000_000).saturating_add(positive(tv_nsec))
    }

    /// Waits until `at`, inclusive.
    ///
    /// Never ends early. The timer below stops while the machine is suspended, so after a resume it
    /// may end late by what was left of the wait. Needs a tokio runtime; cancelled when dropped.
    pub async fn sleep_until(&self, at: Instant) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Waits for `work` until `at` and drops it then.
    ///
    /// # Errors
    /// [`DeadlinePassed`] if it was not ready by `at`. Work that is ready at once succeeds even
    /// when `at` has passed.
    pub async fn until<F: Future>(
        &self,
        at: Instant,
        work: F,
    ) -> Result<F::Output, DeadlinePassed> {
        let work = std::pin::pin!(work);
        let sleep = std::pin::pin!(self.sleep_until(at));
        tokio::select! {
            biased;
            output = work => Ok(output),
            () = sleep => Err(DeadlinePassed),
        }
    }

    /// The time left until `at`; zero once it has passed.
    pub fn left_until(&self, at: Instant) -> Duration {
        at.since(self.now())
    }
}

/// Clocks before their origin read as the origin.
fn positive(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let clock = Clock::new();
        let mut earlier = clock.now();
        for _ in 0..10_000 {
            let later = clock.now();
            assert!(later >= earlier);
            earlier = later;
        }
    }

    #[test]
    fn it_counts_the_time_since_boot_and_not_since_1970() {
        let uptime = std::fs::read_to_string("/proc/uptime").expect("Linux shows its uptime");
        let seconds: f64 = uptime.split(' ').next().expect("a word").parse().expect("a number");
        let read = Clock::new().now().since(Instant::default()).as_secs_f64();
        assert!((read - seconds).abs() < 5.0, "clock says {read} s, /proc/uptime {seconds} s");
    }

    #[test]
    fn the_wall_clock_is_past_2025() {
        assert!(Clock::new().wall_seconds() > 1_735_689_600);
    }

    #[tokio::test]
    async fn a_sleep_never_ends_early() {
        let clock = Clock::new();
        let at = clock.now() + Duration::from_micros(2_500);
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
    }

    #[tokio::test]
    async fn work_that_is_not_ready_is_dropped_at_its_deadline() {
        let clock = Clock::new();
        let at = clock.now() + Duration::from_millis(2);
        let ended = clock.until(at, std::future::pending::<()>()).await;
        assert_eq!(ended, Err(DeadlinePassed));
        assert!(clock.now() >= at);
        assert!(clock.left_until(at).is_zero());
    }

    #[tokio::test]
    async fn ready_work_succeeds_even_past_its_deadline() {
        let clock = Clock::new();
        assert_eq!(clock.until(Instant::default(), async { 7 }).await, Ok(7));
    }
}
