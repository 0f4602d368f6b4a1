//! `SharedStore`: a `RedisStore` that is opened as soon as its servers are there.
//!
//! A service whose store cannot be reached at the start is of use to whoever carries a token. Until
//! the store is opened no lookup is answered, and changes wait here; then they are written. Servers
//! that must not be used are refused at the start; later they are an alarm, and asked again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::{Pipeline, Value};
use tidegate_core::guards::Guards;
use tidegate_core::leader::Facts;
use tidegate_core::routing::QuotaBook;
use tidegate_core::store_guard::{Unbelieved, Worth};
use tidegate_core::token::{Change, ComponentKey, PartitionId, SessionToken};
use tidegate_core::trail::Sample;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::client::Lane;
use super::events::Told;
use super::keys::Bucket;
use super::pending::Pending;
use super::{CheckError, RedisSettings, RedisStore, StoreCount, StoreCounters, StoreEvent};
use crate::clock::Clock;
use crate::config::Redundancy;
use crate::ports::{
    FactError, Kept, Looked, QuotaError, QuotaRead, StoreCondition, StoreCounts, StoreError,
    StoreFeed, StoreHappened, StoreHappening, StoreStatus, Stored, SubjectKey, TokenStore,
};

/// The first pause before servers that were not there are looked for again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest: an operator who has put a server right waits no longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often a start looks whether it may go on, and for how much longer than its servers need.
const STEP: Duration = Duration::from_millis(20);
const SETTLES_LATE: Duration = Duration::from_secs(2);
/// Changes that are handed over to a store that was opened, at once.
const HANDED_OVER: usize = 64;

/// A store in Redis, or what waits for it.
#[derive(Debug)]
pub struct SharedStore {
    shared: Arc<Shared>,
    /// Ended with the store.
    keeper: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    settings: RedisSettings,
    /// What the name of this subject, which nobody has, is under the secret of this instance.
    secret_tag: SubjectKey,
    keys: Vec<ComponentKey>,
    guards: Guards,
    opened: OnceLock<RedisStore>,
    /// What came before it was opened.
    early: Pending,
    early_counts: Arc<StoreCounters>,
    /// Why it is not open, or not believed.
    problem: Mutex<Option<CheckError>>,
    /// Other instances hash subjects under another secret: what is not there may be under theirs.
    is_foreign: AtomicBool,
    feed: StoreFeed,
    clock: Clock,
}

impl SharedStore {
    /// Opens a store for the partitions of `keys`, now or when its servers are there.
    ///
    /// `secret_tag` is equal in instances that hash subjects under the same secret, else different.
    ///
    /// # Errors
    /// [`CheckError::Refused`] if something must be changed first.
    pub async fn open(
        settings: RedisSettings,
        secret_tag: SubjectKey,
        keys: &[ComponentKey],
        guards: Guards,
        clock: Clock,
    ) -> Result<Self, CheckError> {
        let early_counts = Arc::default();
        let shared = Arc::new(Shared {
            early: Pending::new(settings.pending_records, &early_counts),
            early_counts,
            settings,
            secret_tag,
            keys: keys.to_vec(),
            guards,
            opened: OnceLock::new(),
            problem: Mutex::default(),
            is_foreign: AtomicBool::new(false),
            feed: StoreFeed::default(),
            clock,
        });
        let events = match shared.try_open().await {
            Ok(events) => Some(events),
            Err(error @ CheckError::Refused { .. }) => return Err(error),
            Err(error @ CheckError::Unreachable { .. }) => {
                tracing::warn!(
                    %error,
                    "tokens that are carried work, sessions known by their subject alone are \
                     unknown until it is there"
                );
                shared.note(error);
                None
            }
        };
        let keeper = tokio::spawn(Arc::clone(&shared).keep(events));
        Ok(Self { shared, keeper })
    }
}

impl SharedStore {
    /// As [`RedisStore::exchange_facts`].
    ///
    /// # Errors
    /// As there, and as long as it is not open.
    pub async fn exchange_facts(
        &self,
        partition: PartitionId,
        nodes: &[String],
        own: &Facts,
    ) -> Result<Facts, FactError> {
        let Some(store) = self.shared.opened.get() else {
            let place = self.shared.settings.shown();
            return Err(FactError { place, text: self.shared.closed().to_string() });
        };
        store.exchange_facts(partition, nodes, own).await
    }

    /// As [`RedisStore::read_quota`].
    ///
    /// # Errors
    /// As there, and as long as it is not open.
    pub async fn read_quota(&self, partition: PartitionId) -> Result<QuotaRead, QuotaError> {
        self.quota_store()?.read_quota(partition).await
    }

    /// As [`RedisStore::write_quota`].
    ///
    /// # Errors
    /// As there, and as long as it is not open.
    pub async fn write_quota(
        &self,
        partition: PartitionId,
        read: &QuotaRead,
        book: &QuotaBook,
    ) -> Result<bool, QuotaError> {
        self.quota_store()?.write_quota(partition, read, book).await
    }

    fn quota_store(&self) -> Result<&RedisStore, QuotaError> {
        self.shared.opened.get().ok_or_else(|| {
            let place = self.shared.settings.shown();
            QuotaError { place, text: self.shared.closed().to_string() }
        })
    }

    /// Waits until what is recorded may be promised to everybody, where nothing but time is missing
    /// for that: its servers must have taken writes of this instance for a while. Bounded; a store
    /// that does not answer, has lost something, or refuses is not waited for.
    pub async fn settled(&self) {
        let (opened, clock) = (&self.shared.opened, self.shared.clock);
        let Some(RedisStore { inner, .. }) = opened.get() else { return };
        let waited_at = clock.now() + inner.beliefs.settles_within() + SETTLES_LATE;
        let is_young = || inner.client.down().is_none() && inner.beliefs.are_young();
        while is_young() && clock.now() < waited_at {
            clock.sleep_until(clock.now() + STEP).await;
        }
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Shared {
    /// Opens it; returns what befalls it from then on.
    async fn try_open(&self) -> Result<broadcast::Receiver<Told>, CheckError> {
        let settings = self.settings.clone();
        let store = RedisStore::open(settings, &self.keys, self.guards, self.clock).await?;
        let events = store.inner.announcer.listen_closely();
        self.agree(&store).await?;
        let checked = store.checked();
        tracing::info!(
            servers = self.settings.shown(),
            version = checked.version,
            redundancy = %checked.redundancy,
            fence = ?checked.fence,
            "the token store is open"
        );
        // Opened once, by whoever keeps it.
        _ = self.opened.set(store);
        *self.problem() = None;
        Ok(events)
    }

    /// Says under which secret subjects are hashed here, unless somebody has.
    ///
    /// # Errors
    /// [`CheckError::Refused`] if it is another one.
    async fn agree(&self, store: &RedisStore) -> Result<(), CheckError> {
        let key = format!("{}s", self.settings.prefix(0));
        let tag = self.secret_tag.as_bytes().as_slice();
        let mut asks = Pipeline::with_capacity(2);
        asks.cmd("SET").arg(&key).arg(tag).arg("NX");
        asks.cmd("GET").arg(&key);
        let unreachable =
            |text: String| CheckError::Unreachable { at: self.settings.shown(), text };
        let answers = store.inner.client.ask(Bucket::nth(0), Lane::Quick, &asks).await;
        let answers = answers.map_err(|error| unreachable(error.to_string()))?;
        match answers.last() {
            Some(Value::BulkString(held)) if held == tag => Ok(()),
            Some(Value::BulkString(_)) => Err(CheckError::Refused {
                setting: "store.secret_file",
                text: format!(
                    "other instances of `{}` hash subjects under another secret; set it to their \
                     file, or stop them all and remove `{}*` from the store",
                    self.settings.cluster,
                    self.settings.prefix('*')
                ),
            }),
            // A server that takes no writes now has none: it is asked again.
            Some(_) | None => Err(unreachable("it takes no writes".to_owned())),
        }
    }

    /// Says it anew after a loss, before a stranger does.
    async fn agree_again(&self, store: &RedisStore) {
        if let Err(error @ CheckError::Refused { .. }) = self.agree(store).await {
            self.is_foreign.store(true, Ordering::Release);
            self.note(error);
        }
    }

    fn problem(&self) -> MutexGuard<'_, Option<CheckError>> {
        // It is whole at any time.
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why it is not open; says so where that is news.
    fn note(&self, error: CheckError) {
        let mut problem = self.problem();
        if problem.as_ref() == Some(&error) {
            return;
        }
        if let CheckError::Refused { .. } = &error {
            tracing::error!(%error, "the token store must not be used as it is");
            self.tell(StoreHappening::Unfit, error.to_string());
        }
        *problem = Some(error);
    }

    fn tell(&self, what: StoreHappening, why: String) {
        self.feed.tell(StoreHappened { at_seconds: self.clock.wall_seconds(), what, why });
    }

    /// Opens it where it is not, then hands over what waited and tells what befalls it.
    async fn keep(self: Arc<Self>, events: Option<broadcast::Receiver<Told>>) {
        let events = match events {
            Some(events) => events,
            None => {
                let events = self.wait_for_it().await;
                self.tell(StoreHappening::Reachable, "it was opened".to_owned());
                events
            }
        };
        tokio::join!(self.pass_on_all(events), self.hand_over());
    }

    async fn wait_for_it(&self) -> broadcast::Receiver<Told> {
        let mut pause = FIRST_PAUSE;
        loop {
            self.clock.sleep_until(self.clock.now() + pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match self.try_open().await {
                Ok(events) => return events,
                Err(error) => self.note(error),
            }
        }
    }

    /// Hands over what came before it was open, and what came in the moment of that.
    async fn hand_over(&self) {
        let Some(store) = self.opened.get() else { return };
        loop {
            for (subject, change, version) in self.early.next(HANDED_OVER) {
                // Where the servers do not take it, it waits there.
                let taken = store.update(subject, &change).await.is_ok();
                self.early.done(subject, version, taken);
                if !taken {
                    self.clock.sleep_until(self.clock.now() + FIRST_PAUSE).await;
                }
            }
            if self.early.is_empty() {
                self.early.wake.notified().await;
            }
        }
    }

    async fn pass_on_all(&self, mut events: broadcast::Receiver<Told>) {
        loop {
            match events.recv().await {
                Ok((event, why)) => {
                    self.pass_on(event, why);
                    if let (StoreEvent::Lost(_), Some(store)) = (event, self.opened.get()) {
                        self.agree_again(store).await;
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn pass_on(&self, event: StoreEvent, why: String) {
        let what = match event {
            StoreEvent::Lost(cause) => StoreHappening::Lost(cause),
            StoreEvent::Stands => StoreHappening::Stands,
            StoreEvent::Unreachable => StoreHappening::Unreachable,
            StoreEvent::Reachable => StoreHappening::Reachable,
            StoreEvent::Refuses => StoreHappening::Refuses,
            StoreEvent::Takes => StoreHappening::Takes,
            StoreEvent::RecordMalformed => StoreHappening::RecordMalformed,
            StoreEvent::Unfit => StoreHappening::Unfit,
        };
        self.tell(what, why);
    }

    /// Why there is no answer before it is open.
    fn closed(&self) -> StoreError {
        let problem = self.problem();
        let why = problem.as_ref().map_or_else(|| "it is not open".to_owned(), ToString::to_string);
        StoreError::Unreachable(why)
    }

    fn status(&self) -> StoreStatus {
        let limit = u64::try_from(self.settings.pending_records).unwrap_or(u64::MAX);
        let waiting = self.early_counts.get(StoreCount::Pending);
        let status = StoreStatus {
            kind: "redis",
            servers: self.settings.shown(),
            pending: (waiting, limit),
            ..StoreStatus::memory()
        };
        let Some(store) = self.opened.get() else {
            let problem = self.problem();
            let condition = match problem.as_ref() {
                Some(CheckError::Refused { .. }) => StoreCondition::Unfit,
                Some(CheckError::Unreachable { .. }) | None => StoreCondition::Unreachable,
            };
            let problem = problem.as_ref().map_or_else(String::new, ToString::to_string);
            return StoreStatus { condition, problem, lost_parts: (1, 1), ..status };
        };
        let (checked, counters) = (store.checked(), store.counters());
        let standing = store.inner.beliefs.standing();
        let down = store.inner.client.down();
        let foreign = self.is_foreign.load(Ordering::Acquire).then(|| self.closed().to_string());
        let unfit = store.unfit();
        let condition = match &down {
            _ if foreign.is_some() || unfit.is_some() => StoreCondition::Unfit,
            Some(_) => StoreCondition::Unreachable,
            None if standing.lost > 0 => StoreCondition::Lost,
            None if standing.refuses.is_some() => StoreCondition::Refuses,
            None if store.inner.beliefs.are_young() => StoreCondition::Unsettled,
            None => StoreCondition::Well,
        };
        StoreStatus {
            refuses: standing.refuses.is_some(),
            version: checked.version.clone(),
            redundancy: checked.redundancy.to_string(),
            condition,
            problem: [foreign, unfit, down, standing.refuses]
                .into_iter()
                .flatten()
                .next()
                .unwrap_or_default(),
            fenced_until: standing.fenced_until,
            lost_parts: (standing.lost, store.inner.layout.buckets().count()),
            pending: (waiting + counters.get(StoreCount::Pending), limit),
            counts: StoreCounts {
                lookups: counters.get(StoreCount::Lookups),
                updates: counters.get(StoreCount::Updates),
                round_trips: counters.get(StoreCount::RoundTrips),
                retries: counters.get(StoreCount::Retries),
                losses: counters.get(StoreCount::Losses),
                malformed: counters.get(StoreCount::Malformed),
                unreachable_millis: counters.get(StoreCount::UnreachableMillis),
            },
            hints: checked.hints.clone(),
            ..status
        }
    }
}

impl TokenStore for SharedStore {
    async fn lookup(&self, key: SubjectKey) -> Result<Looked, StoreError> {
        let shared = &self.shared;
        let Some(store) = shared.opened.get() else { return Err(shared.closed()) };
        if shared.is_foreign.load(Ordering::Acquire) {
            return Err(shared.closed());
        }
        // Asked before: what is handed over meanwhile is in one of the two.
        let early = shared.early.of(key);
        let mut looked = store.lookup(key).await?;
        if let Some(change) = early {
            change.apply(looked.record.get_or_insert_default());
            looked.worth = Worth::Unknown(Unbelieved::Lost);
        }
        Ok(looked)
    }

    async fn update(&self, key: SubjectKey, change: &Change) -> Result<Kept, StoreError> {
        let shared = &self.shared;
        if let Some(store) = shared.opened.get() {
            return store.update(key, change).await;
        }
        let all = shared.early.add(key, change).map_err(|full| {
            StoreError::Unreachable(format!(
                "{} subjects wait for it already, see `limits.pending_records`",
                full.limit
            ))
        })?;
        let mut record = SessionToken::new();
        all.apply(&mut record);
        Ok(Kept { record, stored: Stored::Memory, worth: Worth::Unknown(Unbelieved::Lost) })
    }

    fn is_async(&self) -> bool {
        let opened = self.shared.opened.get();
        opened.is_some_and(|store| store.checked().redundancy == Redundancy::Async)
    }

    fn status(&self) -> StoreStatus {
        self.shared.status()
    }

    fn watch(&self) -> broadcast::Receiver<StoreHappened> {
        self.shared.feed.watch()
    }

    fn sampled(&self, key: ComponentKey, sample: Sample) {
        if let Some(store) = self.shared.opened.get() {
            store.sampled(key, sample);
        }
    }
}
