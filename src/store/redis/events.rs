//! `StoreEvent` and `StoreCounters`: what befalls a store, for operators and tests.
//!
//! Nothing here decides anything, and no event names a subject.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::store_guard::LossCause;
use tokio::sync::broadcast;

/// Events that a slow listener may be behind before it misses some.
const EVENTS_KEPT: usize = 256;

/// What befell a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreEvent {
    /// It lost something: no lookup is believed until [`StoreEvent::Stands`].
    Lost(LossCause),
    /// A barrier covers all that it lost.
    Stands,
    /// It does not answer; what is recorded meanwhile waits here.
    Unreachable,
    /// It answers again.
    Reachable,
    /// It refuses writes: too few replicas, no memory, a replica that is taken for its primary.
    Refuses,
    /// It takes writes again.
    Takes,
    /// The bytes of a record are none: its session is unknown until it is raised next.
    RecordMalformed,
    /// It takes writes without a replica that may be promoted: nothing it says is believed.
    Unfit,
}

/// Counts of one store since its start.
#[derive(Debug, Default)]
pub struct StoreCounters {
    lookups: AtomicU64,
    batches: AtomicU64,
    updates: AtomicU64,
    round_trips: AtomicU64,
    retries: AtomicU64,
    losses: AtomicU64,
    malformed: AtomicU64,
    unreachable_millis: AtomicU64,
    pending: AtomicU64,
}

/// One of [`StoreCounters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreCount {
    /// Subjects looked up.
    Lookups,
    /// Calls that looked up one or more subjects.
    Batches,
    /// Changes asked for.
    Updates,
    /// Calls to the store for records and generations.
    RoundTrips,
    /// Writes that came behind another one and were tried again.
    Retries,
    /// Losses announced.
    Losses,
    /// Records whose bytes were none.
    Malformed,
    /// Time without an answer.
    UnreachableMillis,
    /// Subjects whose changes wait to be written: a level, not a count.
    Pending,
}

impl StoreCounters {
    const fn of(&self, count: StoreCount) -> &AtomicU64 {
        match count {
            StoreCount::Lookups => &self.lookups,
            StoreCount::Batches => &self.batches,
            StoreCount::Updates => &self.updates,
            StoreCount::RoundTrips => &self.round_trips,
            StoreCount::Retries => &self.retries,
            StoreCount::Losses => &self.losses,
            StoreCount::Malformed => &self.malformed,
            StoreCount::UnreachableMillis => &self.unreachable_millis,
            StoreCount::Pending => &self.pending,
        }
    }

    /// How much it is now.
    pub fn get(&self, count: StoreCount) -> u64 {
        self.of(count).load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: StoreCount, more: u64) {
        self.of(count).fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn set(&self, count: StoreCount, level: u64) {
        self.of(count).store(level, Ordering::Relaxed);
    }
}

/// An event, and why it came about, for people.
pub(super) type Told = (StoreEvent, String);

/// Tells whoever listens.
#[derive(Debug)]
pub(super) struct Announcer {
    events: broadcast::Sender<StoreEvent>,
    told: broadcast::Sender<Told>,
}

impl Announcer {
    pub(super) fn new() -> Self {
        let (events, told) =
            (broadcast::Sender::new(EVENTS_KEPT), broadcast::Sender::new(EVENTS_KEPT));
        Self { events, told }
    }

    /// As [`Self::listen`], with the reasons.
    pub(super) fn listen_closely(&self) -> broadcast::Receiver<Told> {
        self.told.subscribe()
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<StoreEvent> {
        self.events.subscribe()
    }

    /// Logs an event and tells it.
    pub(super) fn tell(&self, event: StoreEvent, why: &str) {
        match event {
            StoreEvent::Lost(cause) => tracing::warn!(
                ?cause,
                why,
                "the token store lost something: sessions known by their subject alone are \
                 unknown until the fence ends and a barrier stands"
            ),
            StoreEvent::Stands => tracing::info!(why, "a barrier covers what the store lost"),
            StoreEvent::Unreachable => tracing::warn!(
                why,
                "the token store cannot be reached: tokens that are carried work, sessions known \
                 by their subject alone are unknown"
            ),
            StoreEvent::Reachable => tracing::info!(why, "the token store answers again"),
            StoreEvent::Refuses => tracing::warn!(why, "the token store refuses writes"),
            StoreEvent::Takes => tracing::info!(why, "the token store takes writes again"),
            StoreEvent::Unfit => {
                tracing::error!(why, "the token store must not be used as it is");
            }
            StoreEvent::RecordMalformed => tracing::error!(
                why,
                "a record of the token store cannot be read; its session is unknown"
            ),
        }
        // Nobody may listen.
        let _ = self.events.send(event);
        let _ = self.told.send((event, why.to_owned()));
    }
}
