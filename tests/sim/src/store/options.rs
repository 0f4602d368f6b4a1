//! What keeps the records of a world, and for how long what counts.

use crate::options::MILLI;
use crate::profile::Profile;
use crate::random::Random;

/// Settings that a world can be lived without, as if an operator had not kept to them.
pub(crate) const LIFETIME: &str = "lifetime";
pub(crate) const MIN_REPLICAS: &str = "min_replicas";

/// Who keeps the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// One memory for all instances, each of which is told at once what it forgets.
    Told,
    /// Servers that replicate, fail over, evict and restart, as Redis does.
    Shared,
    /// Each instance for itself, in its memory.
    Own,
}

/// What keeps the records.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Who.
    pub kind: StoreKind,
    /// Replicas of the primary; one server more is spare, and joins whoever is promoted.
    pub replicas: usize,
    /// Replicas a primary must hear of to take a write.
    pub min_replicas: usize,
    /// How long a replica that is not heard of counts.
    pub max_lag: u64,
    /// How often a primary counts its replicas.
    pub count_interval: u64,
    /// The slowest ordinary answer of a server, one way.
    pub latency_max: u64,
    /// The longest an ordinary write takes to a replica.
    pub delay_max: u64,
    /// A record nobody changed for so long is gone.
    pub lifetime: u64,
    /// How often instances of a store in memory look for each other.
    pub look_interval: u64,
    /// Instances begin as the version before.
    pub skewed: bool,
}

impl StoreOptions {
    pub(crate) const fn told() -> Self {
        Self {
            kind: StoreKind::Told,
            replicas: 0,
            min_replicas: 0,
            max_lag: 0,
            count_interval: 0,
            latency_max: 0,
            delay_max: 0,
            lifetime: 0,
            look_interval: 0,
            skewed: false,
        }
    }

    pub(crate) fn of(
        profile: Profile,
        gate: u64,
        without: Option<&'static str>,
        random: &mut Random,
    ) -> Self {
        let shared = [
            Profile::Shared,
            Profile::StoreFailover,
            Profile::StoreSplit,
            Profile::StoreLoss,
            Profile::Evicting,
            Profile::Expiring,
            Profile::Skewed,
        ];
        let kind = if shared.contains(&profile) {
            StoreKind::Shared
        } else if profile == Profile::Foreign {
            StoreKind::Own
        } else {
            StoreKind::Told
        };
        // Too short a life: gone while a node may still lack what it names.
        let lifetime = if without == Some(LIFETIME) { gate / 3 } else { 2 * gate };
        if kind == StoreKind::Told {
            return Self { lifetime, ..Self::told() };
        }
        // Any promotion must leave the old primary with fewer than it needs: not so with 1 of 2.
        let (replicas, too_few) = (random.within(1, 2), without == Some(MIN_REPLICAS));
        let (replicas, min_replicas) = if too_few { (2, 1) } else { (replicas, replicas) };
        let max_lag = if profile == Profile::Expiring { 60 } else { random.within(100, 250) };
        let max_lag = max_lag as u64 * MILLI;
        Self {
            kind,
            replicas,
            min_replicas,
            max_lag,
            count_interval: max_lag / 8,
            latency_max: random.within(1, 6) as u64 * MILLI,
            delay_max: random.within(2, 80) as u64 * MILLI,
            lifetime,
            look_interval: random.within(20, 80) as u64 * MILLI,
            skewed: profile == Profile::Skewed,
        }
    }

    /// How long a deposed primary may go on taking writes: whole units, and a count that is renewed
    /// once in a while.
    pub(crate) const fn slack(&self) -> u64 {
        2 * self.count_interval
    }

    /// Between a loss and the sample that becomes the barrier.
    pub(crate) const fn fence(&self) -> u64 {
        2 * self.max_lag + self.slack()
    }

    /// How long a call waits for an answer of the store.
    pub(crate) const fn timeout(&self) -> u64 {
        self.max_lag / 2
    }

    /// How often an instance writes something, to know that its server takes writes.
    pub(crate) const fn beat_interval(&self) -> u64 {
        self.max_lag / 4
    }

    /// Beyond the fence, a leader that gives no sample is waited for so long.
    pub(crate) const fn grace(&self) -> u64 {
        2 * self.max_lag
    }
}
