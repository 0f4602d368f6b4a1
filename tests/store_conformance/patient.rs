//! A client that waits out a failover: it asks until it is answered, and until a record is kept.
//!
//! So the suite's claims hold over a failover as they do without. What a caller without patience
//! sees is in `tests/store_redis`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use tidegate::ports::{Kept, Looked, StoreError, Stored, SubjectKey, TokenStore};
use tidegate::store::{RedisSettings, RedisStore, StoreCount};
use tidegate_core::token::{Change, ComponentKey};
use tidegate_core::trail::Sample;
use tidegate_lab::wait::until;

use crate::stage;

/// The longest that a failover and the return of the dead server may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a store, once it is there.
pub(crate) async fn open(settings: &RedisSettings) -> Result<RedisStore> {
    let opened = Mutex::new(None);
    let opens = || async {
        let store = stage::open(settings.clone()).await;
        let is_open = store.is_ok();
        *opened.lock().expect("nobody panicked") = Some(store);
        Ok(is_open)
    };
    until("the store opens", PATIENCE, opens).await?;
    opened.into_inner().expect("nobody panicked").expect("it was tried")
}

/// A store behind a client that waits, with subjects of its own: a store that is opened anew must
/// first take writes for a while, so all share one.
pub(crate) struct Patient {
    store: Arc<RedisStore>,
    number: u16,
    writes: Arc<AtomicU64>,
}

impl Patient {
    pub(crate) const fn new(store: Arc<RedisStore>, number: u16, writes: Arc<AtomicU64>) -> Self {
        Self { store, number, writes }
    }

    /// The subject that only this one calls so, in the same bucket.
    fn own(&self, key: SubjectKey) -> SubjectKey {
        let mut bytes = *key.as_bytes();
        for (byte, number) in bytes.iter_mut().rev().zip(self.number.to_le_bytes()) {
            *byte ^= number;
        }
        SubjectKey::new(bytes)
    }
}

impl TokenStore for Patient {
    async fn lookup(&self, key: SubjectKey) -> Result<Looked, StoreError> {
        let (key, answer) = (self.own(key), Mutex::new(None));
        let answered = || async {
            let looked = self.store.lookup(key).await;
            let is_answer = looked.is_ok();
            *answer.lock().expect("nobody panicked") = Some(looked);
            Ok(is_answer)
        };
        until("the store answers", PATIENCE, answered).await.expect("the store is back");
        answer.into_inner().expect("nobody panicked").expect("it was asked")
    }

    async fn update(&self, key: SubjectKey, change: &Change) -> Result<Kept, StoreError> {
        let kept = self.store.update(self.own(key), change).await?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        if kept.stored != Stored::Memory {
            return Ok(kept);
        }
        let counters = self.store.counters();
        let written = || async { Ok(counters.get(StoreCount::Pending) == 0) };
        until("what waits is written", PATIENCE, written).await.expect("the store is back");
        let looked = self.lookup(key).await?;
        let (record, worth) = (looked.record.unwrap_or_default(), looked.worth);
        Ok(Kept { record, stored: Stored::PrimaryOnly, worth })
    }

    fn sampled(&self, key: ComponentKey, sample: Sample) {
        self.store.sampled(key, sample);
    }
}
