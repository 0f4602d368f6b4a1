//! How long this machine stood still during a test, so that upper limits on time can be fair.
//!
//! Does not loosen any limit by itself, and says nothing about lower limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);

/// A thread that asks to be woken every millisecond and remembers its largest oversleep.
#[derive(Debug)]
pub struct Stall {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    largest_nanos: AtomicU64,
}

impl Stall {
    /// Starts watching.
    ///
    /// # Errors
    /// When the machine gives no thread.
    pub fn watch() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = thread::Builder::new().name("lab-stall".to_owned()).spawn(move || {
            while !seen.ended.load(Ordering::Relaxed) {
                let asked_at = Instant::now();
                thread::sleep(TICK);
                let late = asked_at.elapsed().saturating_sub(TICK);
                let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
                seen.largest_nanos.fetch_max(nanos, Ordering::Relaxed);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The largest stall since the start or the last [`Stall::forget`].
    #[must_use]
    pub fn largest(&self) -> Duration {
        Duration::from_nanos(self.shared.largest_nanos.load(Ordering::Relaxed))
    }

    /// Starts a new measurement, for the next part of a run.
    pub fn forget(&self) {
        self.shared.largest_nanos.store(0, Ordering::Relaxed);
    }

    /// An upper limit on time as a loaded machine may be held to it: plus three stalls.
    #[must_use]
    pub fn allow(&self, limit: Duration) -> Duration {
        limit + self.largest() * 3
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A ticker that panicked has nothing more to tell.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upper_limit_grows_by_three_stalls() -> std::io::Result<()> {
        let stall = Stall::watch()?;
        while stall.largest() == Duration::ZERO {
            thread::yield_now();
        }
        let least = stall.largest() * 3;
        assert!(stall.allow(Duration::from_secs(1)) >= Duration::from_secs(1) + least);
        Ok(())
    }
}
