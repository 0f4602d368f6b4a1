//! Makes the rooms of one instance from its configuration and joins them. Serves nothing.

mod hints;
mod looks;
pub(super) mod policies;
mod quota;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_core::guards::Guards;
use tidegate_core::leader::Facts;
use tidegate_core::snapshot::{NodeSettings, Settings};
use tidegate_core::token::ComponentKey;
use tidegate_core::trail::{ClockDrift, Sample};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::gate::Gate;
use crate::clock::Clock;
use crate::config::{self, AsyncCommits, Config, StoreKind, TENANT};
use crate::partitions::handle::Reach;
use crate::partitions::{
    NodeInfo, NodePort, PartitionHandle, PartitionInfo, PartitionTask, Partitions,
};
use crate::ports::{
    Demand, FactSharer, FactStore, LOOK_INTERVAL, LookTaker, PositionSource, QuotaStore,
};
use crate::reads::policies::Policies;
use crate::reads::{CallLimits, Reads};
use crate::seal::{Key, Keyring, SubjectHash};
use crate::sessions::{SessionLimits, Sessions, StoreCondition, StoreStatus, StoreView};
use crate::sources::patroni::PatroniWatch;
use crate::sources::postgres::{PostgresSource, Target};
use crate::store::{AnyStore, FactFiles, Lives, MemoryStore, RedisSettings, SharedStore};
use crate::telemetry::{StoreFigures, Telemetry};
use hints::Hints;
pub(super) use looks::Looks;
use quota::Quotas;
use sharing::Sharing;

/// Facts are stored at most once in this time.
const STORE_INTERVAL: Duration = Duration::from_secs(1);
/// Readings of one partition that may wait for it: a source beyond that waits.
const READINGS_MAX: usize = 1_024;
/// Commands that may wait for one source: rows are written one at a time.
const COMMANDS_MAX: usize = 4;

/// One instance, ready to serve.
pub(super) struct Wired {
    pub(super) reads: Arc<Reads<AnyStore>>,
    pub(super) store: Arc<dyn StoreView>,
    pub(super) partitions: Arc<Partitions>,
    pub(super) gate: Arc<Gate>,
    /// Ended by the stop token.
    pub(super) tasks: Vec<JoinHandle<()>>,
}

/// Starts partitions and sources and joins them with what answers calls.
pub(super) async fn wire(
    config: &Config,
    guards: Guards,
    clock: Clock,
    telemetry: &Telemetry,
    (stop, halt): (&CancellationToken, &CancellationToken),
) -> Result<Wired> {
    let facts = Arc::new(FactFiles::open(&config.store.state_dir)?);
    let sessions = Arc::new(sessions(config, guards, clock).await?);
    let looks = Arc::new(Looks::new(sessions.store().beliefs(), guards, clock));
    let (sharer, quotas) = (Sharing::of(&sessions), Quotas::of(&sessions));
    let (mut handles, mut tasks) = (Vec::new(), Vec::new());
    for partition in &config.partitions {
        let key = ComponentKey::new(partition.id, partition.system_id);
        let (sampled, samples) = watch::channel(None);
        let beside = (&looks, sharer.as_ref(), quotas.as_ref());
        let started =
            start(config, partition, guards, clock, telemetry, &facts, sampled, beside, halt)
                .await?;
        handles.push(started.0);
        tasks.extend(started.1);
        tasks.push(tokio::spawn(forward(Arc::clone(&sessions), key, samples)));
    }
    let gate = Arc::new(Gate::new(handles.clone(), looks, Arc::clone(&sessions), stop.clone()));
    let partitions = Arc::new(Partitions::new(handles));
    let limits = CallLimits {
        wait_max: config.limits.wait_budget_max,
        poll_timeout: config.limits.poll_timeout,
    };
    let store: Arc<dyn StoreView> = Arc::clone(&sessions) as Arc<dyn StoreView>;
    let watched = Arc::downgrade(&store);
    telemetry
        .store(move || watched.upgrade().map_or_else(Default::default, |s| figures(&s.status())));
    let policies = Policies::new(policies::named(&config.policies));
    let reads = Reads::new(sessions, Arc::clone(&partitions), policies, limits, clock);
    Ok(Wired { reads: Arc::new(reads), store, partitions, gate, tasks })
}

async fn sessions(config: &Config, guards: Guards, clock: Clock) -> Result<Sessions<AnyStore>> {
    let cluster = config.cluster.name.as_str();
    let no_randomness = "the system gave no randomness for a key";
    let keyring = if config.token.keys.is_empty() {
        tracing::warn!(
            "no token keys are configured: tokens of this process are unknown after a restart; \
             make one with `tidegate token keygen` and name it in `token.keys`"
        );
        Keyring::generated(cluster, TENANT, config::TOKEN_CHARS).context(no_randomness)?
    } else {
        Keyring::load(cluster, TENANT, &config.token.keys, config::TOKEN_CHARS)?
    };
    let secret = match &config.store.secret_file {
        Some(file) => Key::load(file)?,
        None => Key::generate().context(no_randomness)?,
    };
    let keys = config.partitions.iter();
    let keys = keys.map(|partition| ComponentKey::new(partition.id, partition.system_id));
    let keys: Vec<_> = keys.collect();
    let subjects = SubjectHash::new(&secret);
    let store = store(config, &subjects, &keys, guards, clock).await?;
    let session_limits = SessionLimits {
        subject_bytes: config::SUBJECT_BYTES,
        tokens_per_request: config::TOKENS_PER_REQUEST,
        tokens_chars: config::TOKENS_CHARS_PER_REQUEST,
        token_chars_written: config::TOKEN_CHARS_WRITTEN,
        token_chars: config::TOKEN_CHARS,
    };
    Ok(Sessions::new(store, &keyring, subjects, TENANT, keys, session_limits, guards, clock))
}

/// Opens the store that the configuration names; one that cannot be reached is looked for in the
/// background.
async fn store(
    config: &Config,
    subjects: &SubjectHash,
    keys: &[ComponentKey],
    guards: Guards,
    clock: Clock,
) -> Result<AnyStore> {
    let limits = &config.limits;
    Ok(match &config.store.kind {
        StoreKind::Memory => {
            let lives = Lives { records: limits.token_lifetime, barriers: limits.d_max };
            AnyStore::Memory(MemoryStore::new(limits.subjects, lives, Some(LOOK_INTERVAL), clock))
        }
        StoreKind::Redis(redis) => {
            let settings = RedisSettings::of(config, redis);
            // No subject has this tenant.
            let tag = subjects.key("", "the secret of this store");
            AnyStore::Redis(SharedStore::open(settings, tag, keys, guards, clock).await?)
        }
    })
}

/// What metrics show of a store.
fn figures(status: &StoreStatus) -> StoreFigures {
    let counts = &status.counts;
    let condition = status.condition;
    StoreFigures {
        reachable: condition < StoreCondition::Unreachable,
        takes_writes: condition < StoreCondition::Unreachable && !status.refuses,
        lost_parts: u64::try_from(status.lost_parts.0).unwrap_or(u64::MAX),
        pending: status.pending.0,
        lookups: counts.lookups,
        updates: counts.updates,
        round_trips: counts.round_trips,
        retries: counts.retries,
        losses: counts.losses,
        malformed: counts.malformed,
        unreachable_seconds: Duration::from_millis(counts.unreachable_millis).as_secs_f64(),
    }
}

/// Tells the sessions of leader samples, for the barrier after a loss of the store.
async fn forward(
    sessions: Arc<Sessions<AnyStore>>,
    key: ComponentKey,
    mut samples: watch::Receiver<Option<Sample>>,
) {
    while samples.changed().await.is_ok() {
        let sample = *samples.borrow_and_update();
        if let Some(sample) = sample {
            sessions.sampled(key, sample);
        }
    }
}

/// What is known of a partition, by what others know: before any leader is seen, so that none is
/// placed by less than what is known of the one before it.
async fn with_others(
    own: Facts,
    sharer: Option<&Arc<dyn FactSharer>>,
    partition: &config::Partition,
    names: &[String],
) -> Facts {
    let Some(sharer) = sharer else { return own };
    match sharer.exchange(partition.id, names, &own).await {
        Ok(all) => all,
        Err(error) => {
            let partition = partition.name.as_str();
            tracing::warn!(partition, %error, "what other instances know is not known yet");
            own
        }
    }
}

/// How a partition knows of other instances.
type Beside<'a> =
    (&'a Arc<Looks>, Option<&'a Arc<dyn FactSharer>>, Option<&'a Arc<dyn QuotaStore>>);

#[expect(clippy::too_many_arguments, reason = "the one place where a partition is wired")]
async fn start(
    config: &Config,
    partition: &config::Partition,
    guards: Guards,
    clock: Clock,
    telemetry: &Telemetry,
    facts: &Arc<FactFiles>,
    sampled: watch::Sender<Option<Sample>>,
    (looks, sharer, quotas): Beside<'_>,
    stop: &CancellationToken,
) -> Result<(Arc<PartitionHandle>, Vec<JoinHandle<()>>)> {
    let info = info(partition);
    let names: Vec<String> = info.nodes.iter().map(|node| node.name.clone()).collect();
    let kept = facts.load(partition.id, &names).await?;
    let kept = with_others(kept, sharer, partition, &names).await;
    let limits = &config.limits;
    for major in partition.untested_majors() {
        tracing::warn!(
            partition = partition.name.as_str(),
            major,
            "sessions are served from an untested PostgreSQL: `accepted_majors` says so"
        );
    }
    let settings = Arc::new(settings(config, partition, guards));
    let share = quota::share(limits, quotas.is_some(), clock);
    let (readings_in, readings) = mpsc::channel(READINGS_MAX);
    let (mut ports, mut tasks) = (Vec::new(), Vec::new());
    for target in Target::of(config, partition, looks.tag(), guards) {
        let demand = Demand { interval: limits.idle_poll, sample_after: None };
        let (demand_in, demand) = watch::channel(demand);
        let (commands_in, commands) = mpsc::channel(COMMANDS_MAX);
        ports.push(NodePort { demand: demand_in, commands: commands_in });
        let source = PostgresSource::new(target, clock);
        tasks.push(tokio::spawn(source.run(demand, commands, readings_in.clone(), stop.clone())));
    }
    let (task, handle) = PartitionTask::new(
        info,
        settings,
        kept,
        share,
        readings,
        ports,
        Arc::clone(facts),
        sampled,
        telemetry.partition(partition.name.as_str()),
        clock,
    );
    let taker: Arc<dyn LookTaker> = looks.clone();
    let task = match sharer {
        Some(sharer) => task.looking(taker).sharing(Arc::clone(sharer)),
        None => task.looking(taker),
    };
    let task = match quotas {
        Some(quotas) => task.sharing_cap(Arc::clone(quotas)),
        None => task,
    };
    tasks.push(tokio::spawn(task.run(stop.clone())));
    if !partition.patroni.is_empty() {
        let (name, addresses) = (partition.name.as_str().to_owned(), partition.patroni.clone());
        let pace = (limits.idle_poll, limits.poll_timeout);
        let hints = Hints::new(Arc::clone(&handle));
        let watch = PatroniWatch::new(name, addresses, pace, hints, clock);
        tasks.push(tokio::spawn(watch.run(stop.clone())));
    }
    Ok((handle, tasks))
}

fn info(partition: &config::Partition) -> PartitionInfo {
    let node = |node: &config::Node| NodeInfo {
        name: node.name.as_str().to_owned(),
        addresses: node.addresses().iter().map(ToString::to_string).collect(),
        reach: match node.reach {
            config::Reach::Direct => Reach::Direct,
            config::Reach::Pooled => Reach::Pooled,
            config::Reach::Shared => Reach::Shared,
        },
        zone: node.zone.as_ref().map_or_else(String::new, |zone| zone.as_str().to_owned()),
    };
    PartitionInfo {
        name: partition.name.as_str().to_owned(),
        id: partition.id,
        system: partition.system_id,
        upgraded_from: partition.upgraded_from.map(|system| system.tag()),
        async_commits_never: partition.async_commits == AsyncCommits::Never,
        nodes: partition.nodes.iter().map(node).collect(),
    }
}

fn settings(config: &Config, partition: &config::Partition, guards: Guards) -> Settings {
    let limits = &config.limits;
    let zone = |node: &config::Node| node.zone.as_ref().map(|zone| zone.as_str().to_owned());
    let nodes = partition.nodes.iter();
    Settings {
        nodes: nodes.map(|node| NodeSettings { zone: zone(node) }).collect(),
        view_max_age: limits.view_max_age,
        gate: limits.d_max,
        clock_drift: ClockDrift::parts_per_million(limits.clock_drift),
        idle_interval: limits.idle_poll,
        busy_interval: limits.busy_poll,
        store_interval: STORE_INTERVAL,
        waits_max: limits.parked_waits,
        async_commits_never: partition.async_commits == AsyncCommits::Never,
        accepted_majors: partition.accepted_majors.clone(),
        upgraded_from: partition.upgraded_from.map(|system| system.tag()),
        guards,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_lost_something_may_refuse_writes_as_well() {
        let lost = StoreStatus { condition: StoreCondition::Lost, ..StoreStatus::memory() };
        assert!(figures(&lost).takes_writes);
        assert!(!figures(&StoreStatus { refuses: true, ..lost }).takes_writes);
    }
}
