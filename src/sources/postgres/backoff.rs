//! `Backoff`: how long to wait before the next attempt. It does not wait itself.

use std::time::Duration;

/// Pauses that double from one failure to the next, up to a limit, each shortened by chance.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    most: Duration,
}

/// The first pause: about what a server's own restart takes at least.
const FIRST: Duration = Duration::from_millis(50);

impl Backoff {
    /// Pauses of at most `most`.
    pub(super) fn new(most: Duration) -> Self {
        Self { next: FIRST.min(most), most }
    }

    /// The pause after one more failure: between half of the current step and all of it, so that
    /// instances that lost one server at the same moment do not come back at the same moment.
    pub(super) fn pause(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.most);
        step.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Starts over after a success.
    pub(super) fn reset(&mut self) {
        self.next = FIRST.min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_start_over_after_a_success() {
        let most = Duration::from_secs(1);
        let mut backoff = Backoff::new(most);
        assert!(backoff.pause() <= FIRST);
        let later: Vec<Duration> = (0..20).map(|_| backoff.pause()).collect();
        assert!(later.iter().all(|pause| *pause >= FIRST && *pause <= most), "{later:?}");
        assert!(later.iter().skip(5).all(|pause| *pause >= most / 2), "{later:?}");
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }

    #[test]
    fn a_limit_below_the_first_pause_holds() {
        let most = Duration::from_millis(10);
        let mut backoff = Backoff::new(most);
        assert!((0..5).all(|_| backoff.pause() <= most));
    }
}
