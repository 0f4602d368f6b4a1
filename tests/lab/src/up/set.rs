//! Everything of `deploy/compose.yaml` together: databases, Redis, two instances of Tidegate.
//!
//! Started in the order that the services there depend on each other, and ended the other way.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::databases::{Databases, NAMES};
use super::folder::Folder;
use super::redis::Pair;
use crate::demo::process::ServiceProcess;
use crate::machine;

/// The names of the instances.
pub(super) const INSTANCES: [&str; 2] = ["a", "b"];

/// One `tidegate serve`.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) name: &'static str,
    pub(super) process: ServiceProcess,
}

/// The running set; fields are dropped in their order.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) instances: Vec<Instance>,
    pub(super) redis: Pair,
    pub(super) databases: Databases,
    pub(super) folder: Folder,
}

impl Set {
    /// Starts everything.
    ///
    /// # Errors
    /// When something is missing and cannot be installed, or does not come up.
    pub(super) async fn start() -> Result<Self> {
        let folder = machine::blocking(Folder::fill).await?;
        let databases = Databases::start(&folder).await?;
        let redis = Pair::start(&folder).await?;
        let mut set = Self { instances: Vec::new(), redis, databases, folder };
        for name in INSTANCES {
            let process = set.serve(name).await.with_context(|| format!("instance {name}"))?;
            set.instances.push(Instance { name, process });
        }
        Ok(set)
    }

    async fn serve(&self, name: &str) -> Result<ServiceProcess> {
        let rendered = self.folder.at("tidegate.toml");
        let text = fs::read_to_string(&rendered);
        let text = text.with_context(|| format!("there is no {}", rendered.display()))?;
        let folder = format!("tidegate-{name}");
        ServiceProcess::start_as(&folder, self.folder.root(), |data, admin, state| {
            self.config(&text, name, (data, admin), state)
        })
        .await
    }

    /// The deployed configuration, with the addresses and paths of this machine.
    fn config(
        &self,
        deployed: &str,
        instance: &str,
        (data, admin): (SocketAddr, SocketAddr),
        state: &Path,
    ) -> Result<String> {
        let mut config: Table = deployed.parse()?;
        let secret = |name: &str| self.folder.secret_file(name).display().to_string();
        let mut set = |path: &[&str], value: Value| put(&mut config, path, value);
        set(&["cluster", "instance"], instance.into())?;
        set(&["listen", "data"], data.to_string().into())?;
        set(&["listen", "admin"], admin.to_string().into())?;
        set(&["token", "keys"], vec![secret("token_key")].into())?;
        set(&["store", "urls"], self.redis.urls().into())?;
        set(&["store", "password_file"], secret("redis_tidegate_password").into())?;
        set(&["store", "secret_file"], secret("store_secret").into())?;
        set(&["store", "state_dir"], state.display().to_string().into())?;
        set(&["partition", "main", "password_file"], secret("tidegate_password").into())?;
        for (at, name) in NAMES.iter().enumerate() {
            let address = format!("127.0.0.1:{}", self.databases.port(name)?);
            set(&["partition", "main", "node", &at.to_string(), "poll"], address.into())?;
        }
        Ok(config.to_string())
    }
}

/// Sets one value of a document, below tables and lists that are there.
fn put(document: &mut Table, path: &[&str], value: Value) -> Result<()> {
    let missing = || format!("the deployed configuration has no {}", path.join("."));
    let (last, folders) = path.split_last().with_context(missing)?;
    let (first, folders) = folders.split_first().with_context(missing)?;
    let mut at = document.get_mut(*first).with_context(missing)?;
    for folder in folders {
        at = match folder.parse::<usize>() {
            Ok(index) => at.get_mut(index),
            Err(_) => at.get_mut(*folder),
        }
        .with_context(missing)?;
    }
    at.as_table_mut().with_context(missing)?.insert((*last).to_owned(), value);
    Ok(())
}
