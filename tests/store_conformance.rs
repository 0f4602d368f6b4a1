//! Every token store passes one suite: the claims of `store_conformance/suite.rs`.
//!
//! A store is listed here once; what holds for one kind only is tested beside its code.

#![expect(clippy::expect_used, reason = "a store that does not answer is a failed test")]

#[path = "store_conformance/suite.rs"]
mod suite;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::ports::{Kept, Looked, StoreError, Stored, SubjectKey, TokenStore};
use tidegate::store::{Lives, MemoryStore};
use tidegate_core::store_guard::{Unbelieved, Worth};
use tidegate_core::token::{Change, ComponentKey, SessionToken};
use tidegate_core::trail::Sample;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_store_conforms() {
    let a_day = Duration::from_secs(24 * 3600);
    let lives = Lives { records: a_day, barriers: a_day / 2 };
    suite::conforms(|| MemoryStore::new(1000, lives, None, Clock::new())).await;
}

/// A store that reads, changes and writes in steps between which others may write.
#[derive(Default)]
struct Stepwise(Mutex<BTreeMap<SubjectKey, SessionToken>>);

impl TokenStore for Stepwise {
    async fn lookup(&self, key: SubjectKey) -> Result<Looked, StoreError> {
        let record = self.0.lock().expect("nobody panicked").get(&key).cloned();
        Ok(Looked { record, worth: Worth::Unknown(Unbelieved::Lost) })
    }

    async fn update(&self, key: SubjectKey, change: &Change) -> Result<Kept, StoreError> {
        let mut record = self.lookup(key).await?.record.unwrap_or_default();
        tokio::task::yield_now().await;
        if change.apply(&mut record) {
            self.0.lock().expect("nobody panicked").insert(key, record.clone());
        }
        let worth = Worth::Unknown(Unbelieved::Lost);
        Ok(Kept { record, stored: Stored::Memory, worth })
    }

    fn sampled(&self, _: ComponentKey, _: Sample) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[should_panic(expected = "seed 0")]
async fn a_store_whose_updates_are_not_atomic_does_not_conform() {
    suite::conforms(Stepwise::default).await;
}
