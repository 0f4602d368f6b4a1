//! Reads the configuration again while the service runs: all of it is taken over, or nothing.
//!
//! Everything that can refuse is asked before anything is changed. What may change at all, the
//! configuration says; in which order keys may, `seal` does. It watches no file: an operator asks,
//! by `Reload` or SIGHUP.

use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;
use tracing::{error, info};

use super::wiring::policies;
use crate::api::{Reloader, status};
use crate::clock::Clock;
use crate::config::{self, Config, ConfigError, Successor, TENANT};
use crate::partitions::Partitions;
use crate::reads::Reads;
use crate::seal::Keyring;
use crate::store::AnyStore;
use crate::telemetry::{ReloadEnd, Telemetry};

/// Problems told to whoever asked over the network; the log has them all.
const PROBLEMS_TOLD: usize = 8;

/// Takes over a changed configuration, one at a time.
#[derive(Clone, Debug)]
pub(super) struct Reload(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    running: Mutex<Config>,
    reads: Arc<Reads<AnyStore>>,
    partitions: Arc<Partitions>,
    telemetry: Telemetry,
    clock: Clock,
}

/// What nothing refuses any more.
struct Planned {
    config: Config,
    keys: Option<Keyring>,
    /// What it changes, each a sentence.
    changed: Vec<String>,
}

impl Reload {
    /// Changes these rooms, which `config` made.
    pub(super) fn new(
        config: Config,
        reads: Arc<Reads<AnyStore>>,
        partitions: Arc<Partitions>,
        telemetry: Telemetry,
        clock: Clock,
    ) -> Self {
        telemetry.config_loaded(clock.wall_seconds());
        let running = Mutex::new(config);
        Self(Arc::new(Inner { running, reads, partitions, telemetry, clock }))
    }

    /// Reads the configuration again; what came of it is logged.
    ///
    /// # Errors
    /// [`ConfigError`]; then everything stays as it was.
    pub(super) async fn run(&self) -> Result<Vec<String>, Arc<ConfigError>> {
        let inner = Arc::clone(&self.0);
        // Files are read with calls that wait; the runtime has threads for those.
        let run = tokio::task::spawn_blocking(move || inner.run()).await;
        run.unwrap_or_else(|ended| Err(Arc::new(ConfigError::Unfinished(ended.to_string()))))
    }
}

#[tonic::async_trait]
impl Reloader for Reload {
    async fn reload(&self) -> Result<Vec<String>, Status> {
        self.run().await.map_err(|refused| status::config_refused(&told(&refused)))
    }
}

/// The first problems of a configuration, and how many more there are.
fn told(refused: &ConfigError) -> String {
    let text = refused.to_string();
    let mut lines: Vec<&str> = text.lines().take(PROBLEMS_TOLD).collect();
    let more = text.lines().count().saturating_sub(lines.len());
    let rest = format!("and {more} more, which the log of the service shows");
    if more > 0 {
        lines.push(&rest);
    }
    lines.join("\n")
}

impl Inner {
    fn run(&self) -> Result<Vec<String>, Arc<ConfigError>> {
        // Where a reload panicked, nothing of it is in here.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = match self.plan(&running) {
            Ok(planned) => planned,
            Err(refused) => {
                self.telemetry.config_reloaded(ReloadEnd::Refused);
                error!("the configuration was not reloaded, and nothing changed:\n{refused}");
                return Err(Arc::new(refused));
            }
        };
        let Planned { config, keys, changed } = planned;
        self.reads.policies().replace(policies::named(&config.policies));
        if let Some(keys) = keys {
            self.reads.sessions().keys().replace(keys);
        }
        for handle in self.partitions.iter() {
            handle.configure_cap(config.limits.fallback_reads);
        }
        *running = config;
        self.telemetry.config_reloaded(ReloadEnd::Applied);
        self.telemetry.config_loaded(self.clock.wall_seconds());
        info!(changed = changed.join("; "), "the configuration was reloaded");
        Ok(changed)
    }

    fn plan(&self, running: &Config) -> Result<Planned, ConfigError> {
        let next = running.reloaded(config::environment())?;
        let keys = self.keys(&next)?;
        let mut changed = policies_changed(&running.policies, &next.config.policies);
        changed.extend(keys.as_ref().map(keys_in_words));
        let (old, new) = (running.limits.fallback_reads, next.config.limits.fallback_reads);
        if old != new {
            changed.push(format!("limits.fallback_reads: {new}, it was {old}"));
        }
        Ok(Planned { config: next.config, keys, changed })
    }

    /// The keys to follow those of now; `None`: they are the same.
    fn keys(&self, next: &Successor) -> Result<Option<Keyring>, ConfigError> {
        let config = &next.config;
        if config.token.keys.is_empty() {
            // Nor were any named before: the one made at the start stays.
            return Ok(None);
        }
        let cluster = config.cluster.name.as_str();
        let loaded = Keyring::load(cluster, TENANT, &config.token.keys, config::TOKEN_CHARS);
        let loaded = loaded.map_err(|wrong| next.keys_refused(wrong.to_string()))?;
        let keys = self.reads.sessions().keys();
        let lifetime = config.limits.token_lifetime;
        let followed = keys.followed_by(&loaded, lifetime, self.clock.now());
        followed.map_err(|refused| next.keys_refused(refused.to_string()))
    }
}

fn keys_in_words(keys: &Keyring) -> String {
    let ids: Vec<String> = keys.key_ids().map(|id| format!("{id:#04x}")).collect();
    match ids.split_first() {
        Some((seals, [])) => format!("token.keys: {seals} signs, and no other is accepted"),
        Some((seals, older)) => {
            format!("token.keys: {seals} signs, {} is accepted too", older.join(", "))
        }
        None => "token.keys".to_owned(),
    }
}

/// What changed of the policies, in the order of their names.
fn policies_changed(old: &[config::Policy], new: &[config::Policy]) -> Vec<String> {
    let of = |all: &[config::Policy], name| all.iter().find(|policy| policy.name == name).cloned();
    let gone = old.iter().filter(|policy| of(new, policy.name.clone()).is_none());
    let mut changed: Vec<_> = gone.map(|policy| (policy.name.clone(), "removed")).collect();
    for policy in new {
        match of(old, policy.name.clone()) {
            None => changed.push((policy.name.clone(), "added")),
            Some(before) if before != *policy => changed.push((policy.name.clone(), "changed")),
            Some(_) => {}
        }
    }
    changed.sort();
    changed.into_iter().map(|(name, what)| format!("policy.{name}: {what}")).collect()
}
