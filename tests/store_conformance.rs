//! Every token store passes one suite: the claims of `store_conformance/suite.rs`.
//!
//! A store is listed here once; what holds for one kind only is tested beside its code.

#![expect(clippy::expect_used, reason = "a store that does not answer is a failed test")]

#[path = "store_conformance/patient.rs"]
mod patient;
#[path = "store_redis/stage.rs"]
mod stage;
#[path = "store_conformance/suite.rs"]
mod suite;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use patient::Patient;
use tidegate::clock::Clock;
use tidegate::ports::{Kept, Looked, StoreError, Stored, SubjectKey, TokenStore};
use tidegate::store::{Lives, MemoryStore, RedisSettings};
use tidegate_core::store_guard::{Unbelieved, Worth};
use tidegate_core::token::{Change, ComponentKey, SessionToken};
use tidegate_core::trail::Sample;
use tidegate_lab::redis::{Cluster, Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_store_conforms() {
    let a_day = Duration::from_secs(24 * 3600);
    let lives = Lives { records: a_day, barriers: a_day / 2 };
    suite::conforms(async || MemoryStore::new(1000, lives, None, Clock::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_conforms() -> Result<()> {
    conforms_alone(Kind::Redis).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn valkey_conforms() -> Result<()> {
    conforms_alone(Kind::Valkey).await
}

async fn conforms_alone(kind: Kind) -> Result<()> {
    let server = Server::start(Options::new(kind)).await?;
    let number = AtomicUsize::new(0);
    suite::conforms(async || {
        let settings = stage::single(&server);
        stage::open(empty(settings, &number)).await.expect("the server may keep records")
    })
    .await;
    Ok(())
}

/// Each cluster name has keys of its own: the store of a new one is empty.
fn empty(settings: RedisSettings, number: &AtomicUsize) -> RedisSettings {
    let number = number.fetch_add(1, Ordering::Relaxed);
    RedisSettings { cluster: format!("empty-{number}"), ..settings }
}

/// A key of the bucket in which the suite's ALICE lies.
const ALICES_BUCKET: &str = "tidegate:{44}:any";
/// Writes after which a primary dies: the suite has begun.
const WRITES_BEFORE_THE_FAILOVER: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_cluster_conforms_while_a_primary_dies_and_another_takes_its_place() -> Result<()> {
    let cluster = Cluster::start(Options::new(Kind::Redis).min_replicas(1, 10)).await?;
    let (number, writes) = (AtomicU16::new(0), Arc::new(AtomicU64::new(0)));
    // What a replica has seen is not lost with its primary.
    let settings = RedisSettings {
        wait_replicas: 1,
        wait: Duration::from_secs(1),
        ..stage::cluster(&cluster)
    };
    let store = Arc::new(patient::open(&settings).await?);
    let over = AtomicBool::new(false);
    let fail_over = async {
        let begun = || async { Ok(writes.load(Ordering::Relaxed) > WRITES_BEFORE_THE_FAILOVER) };
        until("the suite writes", LIMIT, begun).await?;
        let primary = cluster.owner(cluster.slot(ALICES_BUCKET).await?).await?;
        let replica = cluster.replica(primary).await?;
        primary.kill().await?;
        let took = cluster.await_failover(replica).await?;
        primary.start_again().await?;
        cluster.await_settled(3).await?;
        over.store(true, Ordering::Relaxed);
        stage::say(&format!("cluster: promoted {} ms after the kill", took.as_millis()));
        anyhow::Ok(writes.load(Ordering::Relaxed))
    };
    let conform = async {
        let mut runs = 0;
        // The last run begins after the failover at the latest.
        while runs == 0 || !over.load(Ordering::Relaxed) {
            suite::conforms(async || {
                let number = number.fetch_add(1, Ordering::Relaxed);
                Patient::new(Arc::clone(&store), number, Arc::clone(&writes))
            })
            .await;
            runs += 1;
        }
        runs
    };
    let (failed_over, runs) = tokio::join!(fail_over, conform);
    let (during, all) = (failed_over?, writes.load(Ordering::Relaxed));
    stage::say(&format!(
        "cluster: {runs} runs, {during} of {all} writes before it was whole again"
    ));
    Ok(())
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
    suite::conforms(async || Stepwise::default()).await;
}
