//! The metrics of the token store: as it says itself whenever somebody asks for them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// What the store says of itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct StoreFigures {
    /// It answers, and may be used as it is.
    pub reachable: bool,
    /// It takes writes.
    pub takes_writes: bool,
    /// Parts of it that lost something no barrier covers yet.
    pub lost_parts: u64,
    /// Subjects whose changes wait to be written.
    pub pending: u64,
    /// Subjects looked up.
    pub lookups: u64,
    /// Changes asked for.
    pub updates: u64,
    /// Calls to its servers.
    pub round_trips: u64,
    /// Writes that came behind another one and were tried again.
    pub retries: u64,
    /// Losses announced.
    pub losses: u64,
    /// Records whose bytes were none.
    pub malformed: u64,
    /// Seconds without an answer.
    pub unreachable_seconds: f64,
}

type Source = Box<dyn Fn() -> StoreFigures + Send + Sync>;

/// The metrics of the token store.
#[derive(Default)]
pub(super) struct StoreMetrics {
    source: Mutex<Option<Source>>,
    reachable: Gauge,
    takes_writes: Gauge,
    lost_parts: Gauge,
    pending: Gauge,
    lookups: Counter,
    updates: Counter,
    round_trips: Counter,
    retries: Counter,
    losses: Counter,
    malformed: Counter,
    unreachable: Counter<f64, AtomicU64>,
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreMetrics(..)")
    }
}

impl StoreMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        let gauges = [
            (
                "reachable",
                "Whether the token store answers and may be used: 1, else 0",
                &all.reachable,
            ),
            ("takes_writes", "Whether the token store takes writes: 1, else 0", &all.takes_writes),
            (
                "lost_parts",
                "Parts of the token store that lost records no barrier covers yet",
                &all.lost_parts,
            ),
            ("pending_records", "Records that wait to be written to the token store", &all.pending),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("store_{name}"), help, gauge.clone());
        }
        let counters = [
            ("lookups", "Records looked up in the token store", &all.lookups),
            ("updates", "Changes of records asked of the token store", &all.updates),
            ("round_trips", "Calls to the servers of the token store", &all.round_trips),
            (
                "retries",
                "Writes of records that met another one and were tried again",
                &all.retries,
            ),
            ("losses", "Losses of the token store, each announced", &all.losses),
            ("malformed_records", "Records that could not be read", &all.malformed),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("store_{name}"), help, counter.clone());
        }
        registry.register_with_unit(
            "store_unreachable",
            "Time the token store gave no answer",
            Unit::Seconds,
            all.unreachable.clone(),
        );
        all
    }

    /// Asks `source` whenever somebody asks for metrics.
    pub(super) fn read_from(&self, source: Source) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = Some(source);
    }

    /// Takes over what the store says now.
    pub(super) fn report(&self) {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(figures) = source.as_ref().map(|source| source()) else { return };
        let level = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.reachable.set(figures.reachable.into());
        self.takes_writes.set(figures.takes_writes.into());
        self.lost_parts.set(level(figures.lost_parts));
        self.pending.set(level(figures.pending));
        // It counts itself: what it says is what was counted, not more of it.
        for (counter, count) in [
            (&self.lookups, figures.lookups),
            (&self.updates, figures.updates),
            (&self.round_trips, figures.round_trips),
            (&self.retries, figures.retries),
            (&self.losses, figures.losses),
            (&self.malformed, figures.malformed),
        ] {
            counter.inner().store(count, Ordering::Relaxed);
        }
        self.unreachable.inner().store(figures.unreachable_seconds.to_bits(), Ordering::Relaxed);
    }
}
