//! Stores on servers of the lab, and the marks and samples that tests record.
//!
//! Shared by the suites that need a Redis; not every one uses all of it.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tidegate::clock::Clock;
use tidegate::config::{Password, RedisUrl, Redundancy, Topology};
use tidegate::ports::{Looked, SubjectKey, TokenStore};
use tidegate::store::{RedisSettings, RedisStore};
use tidegate_core::guards::Guards;
use tidegate_core::lineage::{Epoch, Life, SystemId};
use tidegate_core::position::Lsn;
use tidegate_core::store_guard::Belief;
use tidegate_core::token::{Change, Component, ComponentKey, Mark, PartitionId, SessionToken};
use tidegate_core::trail::Sample;
use tidegate_lab::redis::{Cluster, Server};
use tidegate_lab::wait::{LIMIT, until};

pub(crate) const KEY: ComponentKey = ComponentKey::new(PartitionId::new(1), SystemId::new(7));
pub(crate) const EPOCH: Epoch = Epoch::new(1, Life { start: 1_764_000_000_123_456, reset: 9 });
pub(crate) const CLUSTER: &str = "shop";
/// Long enough that a loaded machine takes no store for dead.
const TIMEOUT: Duration = Duration::from_secs(2);
const D_MAX: Duration = Duration::from_secs(3600);

/// The settings of a store on these servers.
pub(crate) fn settings(urls: Vec<String>, topology: Topology) -> RedisSettings {
    let url = |url: String| RedisUrl::try_from(url).unwrap_or_else(|error| panic!("{error}"));
    RedisSettings {
        urls: urls.into_iter().map(url).collect(),
        topology,
        username: None,
        password: Password::None,
        tls: None,
        redundancy: None,
        fence: None,
        max_lag: None,
        timeout: TIMEOUT,
        wait_replicas: 0,
        wait: Duration::from_millis(50),
        cluster: CLUSTER.to_owned(),
        d_max: D_MAX,
        lifetime: D_MAX * 2,
        pending_records: 10_000,
    }
}

/// A store on one server.
pub(crate) fn single(server: &Server) -> RedisSettings {
    settings(vec![server.url()], Topology::Single)
}

/// A store on a cluster.
pub(crate) fn cluster(cluster: &Cluster) -> RedisSettings {
    settings(cluster.urls(), Topology::Cluster)
}

/// A store that says itself what it promises, whatever its servers show.
pub(crate) fn with(redundancy: Redundancy, settings: RedisSettings) -> RedisSettings {
    RedisSettings { redundancy: Some(redundancy), ..settings }
}

pub(crate) async fn open(settings: RedisSettings) -> Result<RedisStore> {
    open_with(settings, Guards::on()).await
}

pub(crate) async fn open_with(settings: RedisSettings, guards: Guards) -> Result<RedisStore> {
    Ok(RedisStore::open(settings, &[KEY], guards, Clock::new()).await?)
}

/// All guards but one.
#[cfg(feature = "unsafe-guards")]
pub(crate) fn without(guard: &str) -> Result<Guards> {
    Guards::without(guard).ok_or_else(|| anyhow::anyhow!("{guard} is no guard"))
}

pub(crate) fn subject(number: u64) -> SubjectKey {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(number.to_be_bytes().into_iter().rev()) {
        *to = from;
    }
    SubjectKey::new(bytes)
}

/// The key of a subject's record in a store without a cluster.
pub(crate) fn record_key(subject: SubjectKey) -> String {
    let hex: String = subject.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("tidegate:{{0}}:{CLUSTER}:r:{hex}")
}

pub(crate) fn saw(position: u64) -> Change {
    let mark = Mark::saw(Lsn::new(position).into());
    Change::joining(SessionToken::of(KEY, Component::of(EPOCH, mark)))
}

pub(crate) fn sample(position: u64) -> Sample {
    Sample { sent_at: Clock::new().now(), epoch: EPOCH, position: Lsn::new(position).into() }
}

pub(crate) fn belief(looked: &Looked) -> Belief {
    looked.worth.belief(KEY, Clock::new().now(), &Guards::on())
}

/// Offers samples of a leader that stands at `position` until lookups are believed; returns what
/// is demanded of everybody.
pub(crate) async fn believed(store: &RedisStore, position: u64) -> Result<Belief> {
    let last = Mutex::new(Belief::Unknown);
    until("lookups are believed", LIMIT, || async {
        store.sampled(KEY, sample(position));
        let Ok(looked) = store.lookup(subject(u64::MAX)).await else { return Ok(false) };
        let belief = belief(&looked);
        *last.lock().unwrap_or_else(PoisonError::into_inner) = belief;
        Ok(belief != Belief::Unknown)
    })
    .await?;
    Ok(last.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The position of the one mark of a record; `None`: there is no record.
pub(crate) fn position(looked: &Looked) -> Option<u64> {
    let record = looked.record.as_ref()?;
    let mark = record.component(KEY)?.mark(EPOCH)?;
    Some(mark.floor.scalar())
}

#[expect(clippy::print_stdout, reason = "figures are what a run is read for")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

pub(crate) fn barrier(position: u64) -> Belief {
    Belief::Barrier(EPOCH, Lsn::new(position).into())
}

pub(crate) fn now() -> tidegate::clock::Instant {
    Clock::new().now()
}

pub(crate) const fn on() -> Guards {
    Guards::on()
}
