//! What happens in one partition, for whoever watches: a bounded feed, and when each epoch was
//! first known here.
//!
//! It decides nothing and waits for nobody: a watcher that is too slow is told how much it missed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, History};
use tidegate_core::partition::Notable;
use tidegate_core::position::Position;
use tidegate_core::views::NodeId;
use tokio::sync::broadcast;

use super::foreign::{Change, Foreign};
use crate::clock::Clock;

/// Events kept for watchers that have not read them: a failover makes about ten.
const EVENTS_KEPT: usize = 256;
/// How long one write on a deposed leader is an alarm.
const DEPOSED_ALARM: Duration = Duration::from_secs(300);
/// Deposed epochs that were alarmed about; beyond that the one alarmed about first may be again.
const DEPOSED_MAX: usize = 64;

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    /// When, in seconds since 1970.
    pub at_seconds: u64,
    /// What.
    pub what: Happening,
}

/// What can happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    /// What the core finds notable.
    Noted(Notable),
    /// A write on a deposed leader was recorded.
    Deposed {
        /// The epoch it was made in.
        epoch: Epoch,
        /// Where it ended.
        position: Position,
    },
    /// Somebody announced a failover.
    Announced(Announcement),
    /// Other instances are connected, by these names; none: they are gone.
    OtherInstances(Vec<String>),
}

/// What somebody says about a failover. A hint: none of it is believed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Announcement {
    /// Who says it.
    pub source: String,
    /// The node it is about.
    pub node: Option<NodeId>,
    /// The node said to lead.
    pub new_leader: Option<NodeId>,
}

/// The feed of one partition.
#[derive(Debug)]
pub(super) struct Feed {
    events: broadcast::Sender<Happened>,
    /// Of as many epochs as a history keeps.
    first_seen: Mutex<BTreeMap<Epoch, u64>>,
    deposed: Mutex<Deposed>,
    foreign: Foreign,
    clock: Clock,
}

/// Writes on deposed leaders that were recorded.
#[derive(Debug, Default)]
struct Deposed {
    /// Their epochs, as they came.
    alarmed: VecDeque<Epoch>,
    /// The last one, and when.
    last: Option<(Epoch, Instant)>,
}

impl Feed {
    pub(super) fn new(clock: Clock) -> Self {
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        let (first_seen, deposed) = (Mutex::default(), Mutex::default());
        Self { events, first_seen, deposed, foreign: Foreign::default(), clock }
    }

    /// Tells whoever watches.
    pub(super) fn tell(&self, what: Happening) {
        let at_seconds = self.clock.wall_seconds();
        // Nobody may be watching.
        _ = self.events.send(Happened { at_seconds, what });
    }

    /// What happens from now on.
    pub(super) fn watch(&self) -> broadcast::Receiver<Happened> {
        self.events.subscribe()
    }

    /// Notes the epochs that are known now.
    pub(super) fn seen(&self, epochs: impl Iterator<Item = Epoch>) {
        let now = self.clock.wall_seconds();
        let mut first_seen = self.first_seen.lock().unwrap_or_else(PoisonError::into_inner);
        for epoch in epochs {
            first_seen.entry(epoch).or_insert(now);
        }
        while first_seen.len() > History::EPOCHS_MAX {
            first_seen.pop_first();
        }
    }

    /// When an epoch was first known here, in seconds since 1970.
    pub(super) fn first_seen(&self, epoch: Epoch) -> Option<u64> {
        let first_seen = self.first_seen.lock().unwrap_or_else(PoisonError::into_inner);
        first_seen.get(&epoch).copied()
    }

    /// Notes a write on a deposed leader; says whether it is the first of its epoch.
    pub(super) fn deposed(&self, epoch: Epoch, position: Position) -> bool {
        let mut deposed = self.deposed.lock().unwrap_or_else(PoisonError::into_inner);
        deposed.last = Some((epoch, self.clock.now()));
        let is_first = !deposed.alarmed.contains(&epoch);
        if is_first {
            deposed.alarmed.push_back(epoch);
        }
        if deposed.alarmed.len() > DEPOSED_MAX {
            deposed.alarmed.pop_front();
        }
        drop(deposed);
        if is_first {
            self.tell(Happening::Deposed { epoch, position });
        }
        is_first
    }

    /// Notes whether other instances count as being there, and who a look showed; says what that
    /// changes.
    pub(super) fn beside(&self, others: bool, seen: &[String]) -> Option<Change> {
        let change = self.foreign.note(others, seen);
        match &change {
            Some(Change::Came(names)) => self.tell(Happening::OtherInstances(names.clone())),
            Some(Change::Gone) => self.tell(Happening::OtherInstances(Vec::new())),
            None => {}
        }
        change
    }

    /// Other instances that are there, as servers list them.
    pub(super) fn other_instances(&self) -> Vec<String> {
        self.foreign.names()
    }

    /// The epoch of a deposed leader on which a write was recorded lately.
    pub(super) fn deposed_lately(&self) -> Option<Epoch> {
        let deposed = self.deposed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let lately = deposed.last.filter(|(_, at)| now.since(*at) <= DEPOSED_ALARM);
        lately.map(|(epoch, _)| epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::lineage::Life;
    use tokio::sync::broadcast::error::TryRecvError;

    fn epoch(life: i64) -> Epoch {
        Epoch::new(1, Life { start: life, reset: life })
    }

    #[test]
    fn a_slow_watcher_is_told_how_much_it_missed_and_goes_on() {
        let feed = Feed::new(Clock::new());
        let mut slow = feed.watch();
        for life in 0..300 {
            feed.tell(Happening::Noted(Notable::RowConflict(epoch(life))));
        }
        assert_eq!(slow.try_recv(), Err(TryRecvError::Lagged(44)));
        let next = slow.try_recv().map(|happened| happened.what);
        assert_eq!(next, Ok(Happening::Noted(Notable::RowConflict(epoch(44)))));
    }

    #[test]
    fn a_deposed_epoch_is_told_of_once() {
        let feed = Feed::new(Clock::new());
        let mut watcher = feed.watch();
        assert_eq!(feed.deposed_lately(), None);
        assert!(feed.deposed(epoch(1), Position::START));
        assert_eq!(feed.deposed_lately(), Some(epoch(1)));
        assert!(!feed.deposed(epoch(1), Position::START));
        assert!(watcher.try_recv().is_ok());
        assert_eq!(watcher.try_recv(), Err(TryRecvError::Empty));
    }

    #[test]
    fn of_many_deposed_epochs_the_last_is_told_of_once_whichever_it_is() {
        let feed = Feed::new(Clock::new());
        for life in 2..100 {
            assert!(feed.deposed(epoch(life), Position::START));
        }
        assert!(feed.deposed(epoch(1), Position::START));
        assert!(!feed.deposed(epoch(1), Position::START), "the lowest is not the oldest");
    }

    #[test]
    fn the_first_sight_of_an_epoch_stands_and_is_bounded() {
        let feed = Feed::new(Clock::new());
        feed.seen([epoch(1)].into_iter());
        let first = feed.first_seen(epoch(1));
        assert!(first.is_some_and(|at| at > 1_735_689_600));
        feed.seen((2..3_000).map(epoch));
        assert_eq!(feed.first_seen(epoch(2)), None);
        assert!(feed.first_seen(epoch(2_999)).is_some());
    }
}
