//! What a call is told that finds no node now: how far the best replica is behind, when one is
//! expected to have everything, and when to try again. Predictions; nothing is decided by them.

use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::partition::WaitFor;
use tidegate_core::snapshot::{Lag, Snapshot};
use tidegate_core::trail::Ready;
use tidegate_core::views::NodeId;

/// Nobody is told to stay away for longer: what was predicted may come sooner.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// What is expected of the replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prospect {
    /// How far the best one is behind.
    pub(super) best: Option<Lag>,
    /// When one is expected to have everything; `None`: that cannot be foretold.
    pub(super) eta: Option<Duration>,
    /// Nothing new is seen sooner.
    seen_every: Duration,
}

impl Prospect {
    /// What is expected for `ready`, of `named`, or of one or all of the nodes.
    pub(super) fn of(
        ready: &Ready,
        snapshot: &Snapshot,
        (wait_for, named): (WaitFor, Option<NodeId>),
        now: Instant,
    ) -> Self {
        let best = snapshot.nodes().filter_map(|node| snapshot.lag(node, now));
        let asked = snapshot.nodes().filter(|node| named.is_none_or(|named| named == *node));
        let eta = match wait_for {
            WaitFor::Any => snapshot.eta(asked, &ready.floor, now),
            WaitFor::All => snapshot.eta_of_all(asked, &ready.floor, now),
        };
        Self {
            best: best.min_by_key(|lag| (lag.time, lag.bytes)),
            eta: eta.filter(|_| ready.unprovable.is_none()),
            seen_every: snapshot.settings.idle_interval,
        }
    }

    /// When to try again: once a replica is expected, or the cap has room, whichever is sooner.
    pub(super) fn retry_after(&self, cap_full: Option<Duration>) -> Duration {
        let expected_in = self.eta.map(|eta| eta.min(RETRY_AFTER_MAX).max(self.seen_every));
        [cap_full, expected_in].into_iter().flatten().min().unwrap_or(self.seen_every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tries_again_when_something_is_expected_and_neither_at_once_nor_never() {
        let ms = Duration::from_millis;
        for (eta, cap_full, again) in [
            (None, None, 250),
            (Some(0), None, 250),
            (Some(900), None, 900),
            (Some(86_400_000), None, 10_000),
            (None, Some(20), 20),
            (Some(900), Some(20), 20),
            (Some(900), Some(5_000), 900),
            (Some(0), Some(5_000), 250),
        ] {
            let prospect = Prospect { best: None, eta: eta.map(ms), seen_every: ms(250) };
            assert_eq!(prospect.retry_after(cap_full.map(ms)), ms(again), "{eta:?} {cap_full:?}");
        }
    }
}
