//! `RedisStore`: records in Redis or Valkey, shared by any number of instances.
//!
//! - `settings`: which servers, how they are reached, how long what counts
//! - `dial`, `client`: connections to primaries, and calls with a time
//! - `check`: whether servers may keep records at all, and under which rules
//! - `keys`, `info`, `record`: which keys there are, what servers and records say
//! - `lookups`, `updates`, `swap`: records read, many at once, and changed by compare-and-set
//! - `bytes`, `pending`: what was seen last, and what the store did not take yet
//! - `guards`, `heartbeat`: the core's guards, told of every answer, and what they want written
//! - `facts`: the facts of partitions, for all instances
//! - `quota`: the books of fallback caps, for all instances
//! - `shared`: [`SharedStore`], which opens it once its servers are there
//! - `events`: what befalls the store, for operators
//!
//! It joins nothing by rules of its own and judges no position. A record expires a lifetime after
//! it was last written.

mod bytes;
mod check;
mod client;
mod dial;
mod events;
mod facts;
mod guards;
mod heartbeat;
mod info;
mod keys;
mod lookups;
mod pending;
mod quota;
mod record;
mod settings;
mod shared;
mod swap;
mod updates;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::store_guard::{SharedRules, Unbelieved, Worth};
use tidegate_core::token::{Change, ComponentKey};
use tidegate_core::trail::Sample;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::ports::{Kept, Looked, StoreError, SubjectKey, TokenStore};

pub use check::{CheckError, Checked, survey};
pub use events::{StoreCount, StoreCounters, StoreEvent};
pub use settings::RedisSettings;
pub use shared::SharedStore;

/// After a fence, leaders that give no sample are waited for so long: longer than an ordinary
/// failover takes, and nobody else waits for it.
const GRACE: Duration = Duration::from_secs(5);
/// A server counts its replicas in whole seconds, and once a second.
const RECOUNT: Duration = Duration::from_secs(2);

/// Keeps the records of subjects in Redis or Valkey, for any number of instances.
#[derive(Debug)]
pub struct RedisStore {
    inner: Arc<Inner>,
    checked: Checked,
    /// Ended with the store.
    works: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    client: client::Client,
    layout: keys::Layout,
    script: client::Script,
    beliefs: guards::Beliefs,
    lookups: lookups::Lookups,
    updates: updates::Updates,
    known: bytes::KnownBytes,
    pending: pending::Pending,
    /// Generations that are void and still there.
    voids: Mutex<Vec<guards::Void>>,
    lasts_millis: u64,
    wait_replicas: u32,
    wait: Duration,
    announcer: Arc<events::Announcer>,
    counters: Arc<StoreCounters>,
    /// What was started for single calls: each ends by itself.
    tasks: TaskTracker,
    clock: Clock,
}

impl RedisStore {
    /// Checks and opens a store for the partitions of `keys`.
    ///
    /// # Errors
    /// [`CheckError`] if it cannot be reached or used.
    pub async fn open(
        settings: RedisSettings,
        keys: &[ComponentKey],
        guards: Guards,
        clock: Clock,
    ) -> Result<Self, CheckError> {
        let checked = survey(&settings).await?;
        checked.hints.iter().for_each(|hint| tracing::warn!(hint, "the token store"));
        // A server that takes the place of this one must allow no less.
        let settings = RedisSettings { redundancy: Some(checked.redundancy), ..settings };
        let rules = SharedRules {
            d_max: settings.d_max,
            fence: checked.fence,
            believed_for: checked.believed_for,
            recount: RECOUNT,
            grace: GRACE,
        };
        let (announcer, counters) = (Arc::new(events::Announcer::new()), Arc::default());
        let layout = keys::Layout::of(&settings);
        let dialled = client::Client::connect(&settings, &layout, &announcer, &counters, clock);
        let client = dialled.await?;
        let buckets = layout.buckets().count();
        let told = (&announcer, &counters);
        let inner = Inner {
            client,
            script: swap::script(),
            beliefs: guards::Beliefs::new(buckets, (rules, keys), (guards, &checked), told, clock),
            lookups: lookups::Lookups::new(buckets),
            updates: updates::Updates::default(),
            known: bytes::KnownBytes::default(),
            pending: pending::Pending::new(settings.pending_records, &counters),
            voids: Mutex::default(),
            lasts_millis: u64::try_from(settings.lifetime.as_millis()).unwrap_or(u64::MAX),
            wait_replicas: settings.wait_replicas,
            wait: settings.wait,
            announcer,
            counters,
            tasks: TaskTracker::new(),
            clock,
            layout,
        };
        let inner = Arc::new(inner);
        let mut works = vec![tokio::spawn(Arc::clone(&inner).flush())];
        for bucket in inner.layout.buckets() {
            works.push(tokio::spawn(Arc::clone(&inner).beat(bucket)));
        }
        Ok(Self { inner, checked, works })
    }

    /// What its servers allowed to conclude when it was opened.
    pub const fn checked(&self) -> &Checked {
        &self.checked
    }

    /// Why its servers must not be used as they are.
    fn unfit(&self) -> Option<String> {
        let standing = self.inner.beliefs.standing();
        // One that was found and not taken matters while the one that is used is of no use.
        let is_useless = self.inner.client.down().is_some() || standing.refuses.is_some();
        let found = self.inner.client.unfit().filter(|_| is_useless);
        found.or(standing.unfit)
    }

    /// What befalls it from now on.
    pub fn events(&self) -> broadcast::Receiver<StoreEvent> {
        self.inner.announcer.listen()
    }

    /// Its counts.
    pub fn counters(&self) -> &Arc<StoreCounters> {
        &self.inner.counters
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.works.iter().for_each(JoinHandle::abort);
    }
}

impl TokenStore for RedisStore {
    async fn lookup(&self, key: SubjectKey) -> Result<Looked, StoreError> {
        let inner = &self.inner;
        inner.counters.add(StoreCount::Lookups, 1);
        // Before and after: what was written in between is in the answer or in one of these.
        let waited = inner.pending.of(key);
        let found = inner.find(key).await?;
        let mut record = inner.read(&found.held);
        let mut worth = found.worth;
        for change in [waited, inner.pending.of(key)].into_iter().flatten() {
            change.apply(record.get_or_insert_default());
            worth = Worth::Unknown(Unbelieved::Lost);
        }
        Ok(Looked { record, worth })
    }

    async fn update(&self, key: SubjectKey, change: &Change) -> Result<Kept, StoreError> {
        self.inner.update(key, change).await
    }

    fn sampled(&self, key: ComponentKey, sample: Sample) {
        self.inner.beliefs.sampled(key, sample);
    }
}
