//! The metrics of the configuration: how often it was read again, and when the one in force was.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::labels::{Label, Word};

/// What became of one reload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReloadEnd {
    /// It is in force, with or without a change.
    Applied,
    /// It was wrong, or changed what needs a restart: the one before stays in force.
    Refused,
}

impl Label for ReloadEnd {
    const ALL: &'static [Self] = &[Self::Applied, Self::Refused];

    fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReloadLabels {
    outcome: Word,
}

/// The metrics of the configuration.
#[derive(Debug)]
pub(super) struct ConfigMetrics {
    reloads: Family<ReloadLabels, Counter>,
    loaded: Gauge,
}

impl ConfigMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self { reloads: Family::default(), loaded: Gauge::default() };
        // An alert must find these before anything is wrong.
        for end in ReloadEnd::ALL {
            all.reloads.get_or_create_owned(&labels(*end));
        }
        registry.register(
            "config_reloads",
            "Times the configuration was read again, by what became of it",
            all.reloads.clone(),
        );
        registry.register_with_unit(
            "config_loaded_timestamp",
            "When the configuration in force was read, in seconds since 1970",
            Unit::Seconds,
            all.loaded.clone(),
        );
        all
    }

    /// Counts one reload.
    pub(super) fn reloaded(&self, end: ReloadEnd) {
        self.reloads.get_or_create_owned(&labels(end)).inc();
    }

    /// The configuration in force was read at `wall_seconds`.
    pub(super) fn loaded(&self, wall_seconds: u64) {
        self.loaded.set(i64::try_from(wall_seconds).unwrap_or(i64::MAX));
    }
}

fn labels(end: ReloadEnd) -> ReloadLabels {
    ReloadLabels { outcome: Word(end.word()) }
}
