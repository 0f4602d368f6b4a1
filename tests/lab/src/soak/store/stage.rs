//! The servers and instances of one world, and what can be done to them.
//!
//! Each instance reaches its store through an address of its own, which leads to whichever server
//! the round says: so one can be left on a primary that was deposed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_core::guards::Guards;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;

use super::chain::Chain;
use super::place::INSTANCES;
use crate::flip::Flip;
use crate::install::Major;
use crate::ports::Port;
use crate::postgres::{Cluster, ClusterOptions};
use crate::redis::Kind;
use crate::service::{Service, ServiceOptions};
use crate::wait::{LIMIT, until};

const TABLE: &str = "create table soak (id bigint primary key, session integer not null); \
                     create index on soak (session, id)";
/// Twice the maximum lag of the store's servers and two seconds: the least a fence may be.
const FENCE: &str = "4s";
/// A busy machine is slower than a store may be by default.
const TIMEOUT: &str = "300ms";
/// Nobody is refused for want of it: what the leader bears is not what is tried here.
const FALLBACKS: &str = "100000";
/// What subjects are hashed under: one secret for all instances.
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// What tokens are sealed with: each instance reads what the others wrote. Keys that instances draw
/// have one id in 256 runs, and then each calls the other's tokens changed.
const TOKEN_KEY: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// Servers of one version, a store, and two instances that share it.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) chain: Chain,
    flips: Vec<Flip>,
    services: Vec<Service>,
    /// Where the instances listen; they keep that over a restart.
    ports: Vec<(Port, Port)>,
    options: ServiceOptions,
    secret: tempfile::NamedTempFile,
    _token_key: tempfile::NamedTempFile,
}

impl Stage {
    /// Starts everything, the instances under these safety rules.
    pub(super) async fn open(major: Major, kind: Kind, guards: Guards) -> Result<Self> {
        let (cluster, chain) = tokio::try_join!(
            Cluster::start(ClusterOptions::new(major).standbys(2)),
            Chain::start(kind)
        )?;
        cluster.leader().sql(TABLE).await?;
        let token_key = tempfile::NamedTempFile::new()?;
        std::fs::write(token_key.path(), TOKEN_KEY)?;
        let options = ServiceOptions::of(&cluster).await?.guards(guards);
        let options = options.limit("fallback_reads", FALLBACKS).token_key(token_key.path());
        cluster.catch_up().await?;
        let secret = tempfile::NamedTempFile::new()?;
        std::fs::write(secret.path(), SECRET)?;
        let mut stage = Self {
            cluster,
            chain,
            flips: Vec::new(),
            services: Vec::new(),
            ports: Vec::new(),
            options,
            secret,
            _token_key: token_key,
        };
        for _ in 0..INSTANCES {
            stage.flips.push(Flip::to(stage.chain.primary().address()).await?);
            stage.ports.push((Port::reserve()?, Port::reserve()?));
            let service = stage.instance(stage.services.len(), |options| options).await?;
            stage.services.push(service);
        }
        Ok(stage)
    }

    /// An instance that reaches the store as the one of this number does.
    async fn instance(
        &self,
        number: usize,
        change: impl FnOnce(ServiceOptions) -> ServiceOptions,
    ) -> Result<Service> {
        let lines = format!(
            "kind = \"redis\"\nurls = [\"redis://{}\"]\nredundancy = \"fenced\"\n\
             timeout = \"{TIMEOUT}\"\n\
             fence = \"{FENCE}\"\nsecret_file = \"{}\"",
            self.flips[number].address(),
            self.secret.path().display()
        );
        let mut options = self.options.clone().store(&lines);
        if let Some((data, admin)) = self.ports.get(number) {
            options = options.listen(data.address(), admin.address());
        }
        Service::start(change(options)).await
    }

    /// One more instance beside the two, with these limits, on ports of its own.
    pub(super) async fn another(&self, number: usize, limits: &[(&str, &str)]) -> Result<Service> {
        self.instance(number, |options| {
            let free = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let options = options.listen(free, free);
            limits.iter().fold(options, |options, (name, value)| options.limit(name, value))
        })
        .await
    }

    /// Where the instances are asked.
    pub(super) fn endpoints(&self) -> Vec<String> {
        self.services.iter().map(Service::endpoint).collect()
    }

    /// Leads an instance to the primary of now, and cuts its connections.
    pub(super) fn follow_primary(&self, instance: usize) {
        self.flips[instance].move_to(self.chain.primary().address());
    }

    /// Ends an instance.
    pub(super) async fn halt(&mut self, instance: usize) -> Result<()> {
        self.services[instance].halt().await
    }

    /// Starts an instance that was ended.
    pub(super) async fn start(&mut self, instance: usize) -> Result<()> {
        self.services[instance].restart().await
    }

    /// How many losses of the store an instance has announced since its start.
    pub(super) async fn announced(&self, instance: usize) -> Result<u64> {
        Ok(shown(&self.services[instance]).await?.loss_count)
    }

    /// The same, once no loss is open: what goes while one is belongs to that one.
    pub(super) async fn announced_and_over(&self, instance: usize) -> Result<u64> {
        let losses = Mutex::new(0);
        until("no loss of the store is open", LIMIT, || async {
            let shown = shown(&self.services[instance]).await?;
            *losses.lock().unwrap_or_else(PoisonError::into_inner) = shown.loss_count;
            Ok(shown.lost_part_count == 0)
        })
        .await?;
        Ok(losses.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// How an instance says that its store is, for people.
    pub(super) async fn told(&self, instance: usize) -> String {
        let shown = shown(&self.services[instance]).await;
        shown.map_or_else(|error| format!("{error:#}"), |shown| format!("{shown:?}"))
    }

    /// Waits until no instance has anything left to write into the store.
    pub(super) async fn await_written(&self) -> Result<()> {
        for service in &self.services {
            until("all that waited for the store is written", LIMIT, || async {
                Ok(shown(service).await?.pending_count == 0)
            })
            .await?;
        }
        Ok(())
    }

    /// Lets the late standby replay again, and waits until it has everything.
    pub(super) async fn catch_up(&self) -> Result<()> {
        let late = self.cluster.standby(0);
        late.resume_replay().await?;
        late.apply_delay(Duration::ZERO).await?;
        self.cluster.catch_up().await.context("the late standby comes back")
    }

    /// Ends both instances.
    pub(super) async fn close(self) -> Result<()> {
        for service in self.services {
            service.stop().await?;
        }
        Ok(())
    }
}

/// The store as an instance sees it.
async fn shown(service: &Service) -> Result<v1::TokenStore> {
    let mut admin = AdminServiceClient::connect(service.admin_endpoint()).await?;
    let answer = admin.get_store(v1::GetStoreRequest {}).await?.into_inner();
    answer.store.context("an instance shows its store")
}
