//! `AnyStore`: the store that the configuration names. It only passes on.

use tidegate_core::instant::Instant;
use tidegate_core::token::{Change, ComponentKey};
use tidegate_core::trail::Sample;
use tokio::sync::broadcast;

use super::{MemoryBeliefs, MemoryStore, SharedStore};
use crate::ports::{Kept, Looked, StoreError, StoreHappened, StoreStatus, SubjectKey, TokenStore};

/// The store that the configuration names.
#[derive(Debug)]
pub enum AnyStore {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis or Valkey.
    Redis(SharedStore),
}

impl AnyStore {
    /// The belief of a store in memory, to be told of other instances; `None`: they share it.
    pub fn beliefs(&self) -> Option<MemoryBeliefs> {
        match self {
            Self::Memory(store) => Some(store.beliefs()),
            Self::Redis(_) => None,
        }
    }

    /// As [`SharedStore::settled`]; one in this process always is.
    pub async fn settled(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(store) => store.settled().await,
        }
    }
}

impl TokenStore for AnyStore {
    fn lookup_at_once(&self, key: SubjectKey, now: Instant) -> Option<Result<Looked, StoreError>> {
        match self {
            Self::Memory(store) => store.lookup_at_once(key, now),
            Self::Redis(store) => store.lookup_at_once(key, now),
        }
    }

    async fn lookup(&self, key: SubjectKey) -> Result<Looked, StoreError> {
        match self {
            Self::Memory(store) => store.lookup(key).await,
            Self::Redis(store) => store.lookup(key).await,
        }
    }

    async fn update(&self, key: SubjectKey, change: &Change) -> Result<Kept, StoreError> {
        match self {
            Self::Memory(store) => store.update(key, change).await,
            Self::Redis(store) => store.update(key, change).await,
        }
    }

    fn is_async(&self) -> bool {
        match self {
            Self::Memory(store) => store.is_async(),
            Self::Redis(store) => store.is_async(),
        }
    }

    fn status(&self) -> StoreStatus {
        match self {
            Self::Memory(store) => store.status(),
            Self::Redis(store) => store.status(),
        }
    }

    fn watch(&self) -> broadcast::Receiver<StoreHappened> {
        match self {
            Self::Memory(store) => store.watch(),
            Self::Redis(store) => store.watch(),
        }
    }

    fn sampled(&self, key: ComponentKey, sample: Sample) {
        match self {
            Self::Memory(store) => store.sampled(key, sample),
            Self::Redis(store) => store.sampled(key, sample),
        }
    }
}
