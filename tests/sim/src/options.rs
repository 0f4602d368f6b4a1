//! What one seed makes of a world: sizes, latencies, rates and the mix of what happens.
//!
//! Everything else follows from these and from the schedule. Printed with each failure.

use std::time::Duration;

use tidegate_core::guards::Guards;

pub use crate::profile::Profile;
use crate::random::Random;
use crate::store::StoreOptions;

pub(crate) const MILLI: u64 = 1_000_000;
const MILLION: u64 = 1_000_000;
/// The largest drift a config may name.
const DRIFT_MAX: u32 = 10_000;

/// How much is done in one world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// At least 100 actions.
    Test,
    /// At least 500 session operations.
    Prove,
}

/// What one seed makes of a world.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// What the world is made to show.
    pub profile: Profile,
    /// How much is done.
    pub scale: Scale,
    /// The guard that is switched off.
    pub without: Option<&'static str>,
    /// Servers, the leader included.
    pub servers: usize,
    /// Devices, each with tokens of its own.
    pub devices: usize,
    /// Users; several devices may be one user's.
    pub subjects: usize,
    /// The slowest ordinary answer of a node to a poll.
    pub poll_latency_max: u64,
    /// The slowest call from a client to the service, one way.
    pub call_latency_max: u64,
    /// Polls lost, of a thousand.
    pub poll_loss: usize,
    /// Answers overtaken by later ones, of a thousand.
    pub overtaken: usize,
    /// The longest a lineage row is under way.
    pub row_latency_max: u64,
    /// Row inserts that fail, of a hundred.
    pub row_failures: usize,
    /// How often the WAL writer works.
    pub flush_interval: u64,
    /// From flush to apply on a calm standby, at most.
    pub delay_max: u64,
    /// Commits that do not wait for their flush, of a hundred.
    pub asynchronous: usize,
    /// Devices behind a pooler, of a hundred.
    pub pooled: usize,
    /// Reads recorded by their incarnation alone, of a hundred.
    pub unsampled: usize,
    /// Instances of the service.
    pub instances: usize,
    /// What keeps the records.
    pub store: StoreOptions,
    /// The gate.
    pub gate: Duration,
    /// By how much the rate of a clock may be off, in parts per million.
    pub drift: u32,
    /// Freshness fallbacks a second.
    pub cap: u32,
    /// Whether the role may read history files.
    pub reads_history: bool,
    /// Actions in the schedule.
    pub actions: usize,
    /// From the first action to the last.
    pub span: u64,
}

impl Options {
    /// Expands a seed.
    pub fn of(seed: u64, profile: Profile, scale: Scale, without: Option<&'static str>) -> Self {
        let mut random = Random::new(seed ^ 0x0071_0065);
        let mut options = Self {
            seed,
            profile,
            scale,
            without,
            servers: random.within(3, 5),
            devices: random.within(4, 8),
            subjects: random.within(2, 4),
            poll_latency_max: random.within(2, 20) as u64 * MILLI,
            call_latency_max: random.within(1, 5) as u64 * MILLI,
            poll_loss: random.within(0, 30),
            overtaken: random.within(0, 20),
            row_latency_max: random.within(5, 60) as u64 * MILLI,
            row_failures: random.within(0, 10),
            flush_interval: random.within(5, 120) as u64 * MILLI,
            delay_max: random.within(2, 60) as u64 * MILLI,
            asynchronous: random.within(10, 60),
            pooled: random.within(0, 40),
            unsampled: random.within(5, 30),
            instances: 2,
            store: StoreOptions::told(),
            gate: Duration::from_millis(random.within(1_500, 3_000) as u64),
            // As far off as may be said, where bounds are short.
            drift: if matches!(profile, Profile::Drift) { DRIFT_MAX } else { 500 },
            cap: 200,
            reads_history: seed.is_multiple_of(3),
            actions: match scale {
                Scale::Test => random.within(100, 130),
                Scale::Prove => random.within(150, 190),
            },
            span: 0,
        };
        options.lean(&mut random);
        options.span = options.actions as u64 * 60 * MILLI;
        options.keep();
        options
    }

    /// Leans towards what the profile is to show.
    fn lean(&mut self, random: &mut Random) {
        match self.profile {
            Profile::General
            | Profile::Shared
            | Profile::Hidden
            | Profile::Pages
            | Profile::Restarts => {}
            Profile::Async => {
                self.asynchronous = 80;
                self.flush_interval = random.within(100, 400) as u64 * MILLI;
            }
            Profile::SlowLeader => {
                self.asynchronous = 80;
                self.flush_interval = random.within(40, 150) as u64 * MILLI;
                self.delay_max = 6 * MILLI;
            }
            Profile::Failover => self.delay_max = 120 * MILLI,
            Profile::Undead => {
                self.delay_max = 400 * MILLI;
                self.flush_interval = 5 * MILLI;
            }
            Profile::LateRows => (self.row_latency_max, self.row_failures) = (400 * MILLI, 40),
            Profile::Reused => (self.servers, self.row_failures) = (4, 0),
            Profile::Twins | Profile::Moved | Profile::Attached => {
                self.servers = 5;
                (self.poll_loss, self.overtaken) = (0, 0);
                self.row_failures = 0;
                self.row_latency_max = 10 * MILLI;
            }
            Profile::LateAnswers => self.overtaken = 60,
            // Seldom enough used for records to vanish.
            Profile::Expiry => {
                (self.devices, self.subjects) = (14, 14);
                self.gate = Duration::from_millis(250);
            }
            Profile::Expiring => {
                (self.devices, self.subjects) = (14, 14);
                self.gate = Duration::from_millis(400);
            }
            // Behind for longer than it takes to believe a server.
            Profile::StoreFailover => self.delay_max = 900 * MILLI,
            Profile::StoreSplit => {
                // What one of a user's devices records makes up for what another one lost.
                (self.devices, self.subjects) = (6, 6);
                self.delay_max = 900 * MILLI;
            }
            Profile::Forgets
            | Profile::StoreLoss
            | Profile::Evicting
            | Profile::Skewed
            | Profile::Foreign => self.delay_max = 250 * MILLI,
            Profile::Narrow => self.delay_max = 200 * MILLI,
            Profile::Drift => (self.pooled, self.flush_interval) = (0, 5 * MILLI),
            Profile::Storm => (self.cap, self.delay_max) = (5, 400 * MILLI),
            Profile::Pooled => self.pooled = 90,
            Profile::Reverted | Profile::Copied | Profile::Swapped => {
                (self.poll_loss, self.overtaken) = (0, 0);
            }
            Profile::Sober | Profile::Switchovers => {
                (self.asynchronous, self.poll_loss, self.overtaken) = (0, 0, 0);
                (self.pooled, self.row_failures) = (0, 0);
            }
            Profile::Crashes | Profile::Restored => {
                self.asynchronous = 60;
                self.flush_interval = random.within(20, 150) as u64 * MILLI;
            }
            Profile::DeadTwins => {
                self.servers = 4;
                (self.poll_loss, self.overtaken) = (0, 0);
            }
            Profile::Cluster | Profile::CrashLoops | Profile::Gaps | Profile::Operators => {
                self.delay_max = 100 * MILLI;
            }
        }
    }

    /// Says what keeps the records, and how many instances use it; drawn apart, so that worlds of
    /// other profiles stay what they were.
    fn keep(&mut self) {
        let mut random = Random::new(self.seed ^ 0x0570_7E00);
        let gate = u64::try_from(self.gate.as_nanos()).unwrap_or(u64::MAX);
        self.store = StoreOptions::of(self.profile, gate, self.without, &mut random);
        if self.store.kind != crate::store::StoreKind::Told {
            self.instances = random.within(2, 3);
        }
    }

    /// The rules in force.
    pub fn guards(&self) -> Guards {
        #[cfg(feature = "unsafe-guards")]
        if let Some(guards) = self.without.and_then(Guards::without) {
            return guards;
        }
        Guards::on()
    }

    /// Says whether a rule of the client is in force.
    pub(crate) fn holds(&self, guard: &str) -> bool {
        self.without != Some(guard)
    }
}

impl Options {
    /// Records of one size: the ends of two logs meet, as they may by chance.
    pub(crate) const fn evens_out(&self) -> bool {
        matches!(self.profile, Profile::Moved | Profile::Attached)
    }

    /// Whether the clocks of the instances run as slowly as they may, and those of the clients.
    const fn slow_clocks(&self) -> (bool, bool) {
        let drifts = matches!(self.profile, Profile::Drift);
        (drifts && self.seed.is_multiple_of(2), drifts)
    }

    /// What the clocks of the instances show of a real span.
    pub(crate) fn instances_show(&self, real: u64) -> u64 {
        let (slow, _) = self.slow_clocks();
        if slow { real - real / MILLION * u64::from(self.drift) } else { real }
    }

    /// When a client's clock has shown `shown`, by the clocks of the instances.
    pub(crate) fn client_shows_at(&self, shown: u64) -> u64 {
        let (instances, clients) = self.slow_clocks();
        if instances == clients {
            return shown;
        }
        shown.saturating_add(shown / (MILLION - u64::from(self.drift)) * u64::from(self.drift))
    }

    /// Every write is told with what was before.
    pub(crate) const fn tells_all(&self) -> bool {
        matches!(self.profile, Profile::Sober)
    }

    /// Every lineage row is the first change of its page.
    pub(crate) const fn images(&self) -> bool {
        matches!(self.profile, Profile::Attached)
    }
}

impl Options {
    /// Whatever happens here needs no operator to say who leads.
    pub(crate) const fn is_ordinary(&self) -> bool {
        !matches!(
            self.profile,
            Profile::Twins
                | Profile::Moved
                | Profile::Attached
                | Profile::Reused
                | Profile::Copied
                | Profile::Reverted
                | Profile::Restored
                | Profile::DeadTwins
                | Profile::Operators
                | Profile::Swapped
        )
    }
}
