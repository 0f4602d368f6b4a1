//! A cluster, a program before it, its keys, and texts of its configuration.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tidegate::config::{TENANT, TOKEN_CHARS};
use tidegate::seal::{Key, Keyring};
use tidegate_client::{Client, ClientOptions, DirectPool, Session, SessionOptions};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::service::{DATABASE, PARTITION, ServiceOptions};
use tidegate_lab::wait::LIMIT;
use tokio_postgres::Config;

use super::program::Program;

/// The policy of the load: a replica serves it, or nobody.
pub(crate) const FEED: &str = "[policy.feed]\nfallback = false\nwait_budget = \"20s\"\n";

/// A cluster with a program before it.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) program: Program,
    pub(crate) client: Client,
    pub(crate) options: ServiceOptions,
}

/// One configuration, as text.
#[derive(Clone)]
pub(crate) struct Text {
    options: ServiceOptions,
    folder: PathBuf,
    /// Names of key files, the one that seals first.
    pub(crate) keys: Vec<&'static str>,
    pub(crate) policies: String,
}

impl Text {
    /// With one key, the policy of the load, and a cap.
    fn of(options: ServiceOptions, folder: &Path) -> Self {
        let (folder, policies) = (folder.to_owned(), FEED.to_owned());
        Self { options, folder, keys: vec!["old"], policies }
    }

    pub(crate) fn limit(mut self, name: &str, value: &str) -> Self {
        self.options = self.options.limit(name, value);
        self
    }

    pub(crate) fn keys(mut self, keys: &[&'static str]) -> Self {
        self.keys = keys.to_vec();
        self
    }

    pub(crate) fn policies(mut self, policies: &str) -> Self {
        policies.clone_into(&mut self.policies);
        self
    }

    pub(crate) fn toml(&self) -> String {
        let mut text = self.options.toml(&self.folder.join("state")).expect("a configuration");
        let files = self.keys.iter().map(|name| format!("\"{}\"", key_file(&self.folder, name)));
        let files: Vec<String> = files.collect();
        write!(text, "\n[token]\nkeys = [{}]\n\n{}", files.join(", "), self.policies)
            .expect("memory");
        text
    }
}

fn key_file(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// Writes a key whose id is none of `others`.
fn write_key(folder: &Path, name: &str, others: &[u8]) -> u8 {
    loop {
        let key = Key::generate().expect("random");
        if !others.contains(&key.id()) {
            std::fs::write(folder.join(name), key.to_hex()).expect("written");
            return key.id();
        }
    }
}

impl Stage {
    /// Servers, of which all but the last `absent` standbys are configured.
    pub(crate) async fn set(standbys: usize, absent: usize) -> Self {
        let options = ClusterOptions::new(Major::V15).standbys(standbys);
        let cluster = Cluster::start(options).await.expect("a cluster starts");
        cluster.leader().sql("create table t (n bigint primary key)").await.expect("a table");
        cluster.catch_up().await.expect("standbys have it");
        let options = ServiceOptions::of(&cluster).await.expect("the leader answers");
        let configured: Vec<String> = cluster
            .servers()
            .iter()
            .take(cluster.servers().len().saturating_sub(absent))
            .map(|server| server.name().to_owned())
            .collect();
        let absents =
            cluster.servers().iter().filter(|s| !configured.contains(&s.name().to_owned()));
        let present = absents.fold(options, |options, server| options.without(server.name()));
        let mut options = present.clone();
        let program = Program::start(|folder, data, admin| {
            let old = write_key(folder, "old", &[]);
            let new = write_key(folder, "new", &[old]);
            write_key(folder, "third", &[old, new]);
            options = options.clone().listen(data, admin);
            Text::of(options.clone(), folder).toml()
        })
        .await;
        let names: Vec<&str> = configured.iter().map(String::as_str).collect();
        program.until_serving(&names).await;
        let client = ClientOptions::new(program.endpoint()).call_grace(LIMIT);
        let client = Client::connect(client).await.expect("it listens");
        Self { cluster, program, client, options }
    }

    /// The configuration it was started with.
    pub(crate) fn text(&self) -> Text {
        Text::of(self.options.clone(), self.program.folder())
    }

    pub(crate) fn session(&self) -> Session {
        self.client.session(SessionOptions::new(PARTITION))
    }

    /// Tells whether the key of this name sealed the token.
    pub(crate) fn is_sealed_by(&self, token: &str, name: &str) -> bool {
        let file = self.program.folder().join(name);
        let ring = Keyring::load("lab", TENANT, &[file], TOKEN_CHARS).expect("a key");
        ring.open(token).is_ok()
    }
}

/// Connections to whatever node is named.
pub(crate) fn pool() -> DirectPool {
    let mut config = Config::new();
    config.user("postgres").dbname(DATABASE);
    DirectPool::new(config, 4)
}
