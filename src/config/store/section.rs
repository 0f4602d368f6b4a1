//! `[store]` as it is written, and what its settings demand of each other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::Deserializer;

use super::{Redis, RedisUrl, Redundancy, STORE_URLS, Store, StoreKind, StoreTls, Topology};
use crate::config::Password;
use crate::config::limits::OutOfRange;
use crate::config::values::{Secret, duration};

/// Replicas a record may be waited for on: more than any store has.
const WAIT_REPLICAS: u32 = 16;
/// Bytes of a user or of a primary's name: no server has longer ones in practice.
const NAME_BYTES: usize = 128;

/// `[store]`, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct StoreSection {
    /// What keeps the records of subjects.
    kind: Kind,
    /// The file with the secret subjects are hashed under.
    secret_file: Option<PathBuf>,
    /// The folder of facts.
    state_dir: PathBuf,
    /// Its servers, or its sentinels.
    #[serde(default)]
    urls: Vec<RedisUrl>,
    /// How its primary is found. `single` where nothing is said.
    topology: Option<Found>,
    /// What sentinels call it.
    sentinel_master: Option<String>,
    /// Whom Tidegate logs in as.
    username: Option<String>,
    /// The file with that user's password; a line end after it is not part of it.
    password_file: Option<PathBuf>,
    /// That password. From the environment only.
    password: Option<Secret>,
    /// The certificates that sign the servers', in PEM. Needed by `rediss://`.
    ca_file: Option<PathBuf>,
    /// The certificate Tidegate shows, in PEM.
    cert_file: Option<PathBuf>,
    /// Its key, in PEM.
    key_file: Option<PathBuf>,
    /// What keeps a deposed primary from being believed.
    redundancy: Option<Redundancy>,
    /// How long nothing is believed after a loss.
    #[serde(default, deserialize_with = "some_duration")]
    fence: Option<Duration>,
    /// The servers' `min-replicas-max-lag`, where they may not be asked.
    #[serde(default, deserialize_with = "some_duration")]
    max_lag: Option<Duration>,
    /// Time one operation may take. 100 ms: ten times what a busy store needs, and little of what a
    /// reader has.
    #[serde(default, deserialize_with = "some_duration")]
    timeout: Option<Duration>,
    /// Replicas that a record is waited for on. 0: a write is answered as soon as the primary has
    /// it, and says so.
    wait_replicas: Option<u32>,
    /// How long they are waited for. 50 ms: half of what an operation may take.
    #[serde(default, deserialize_with = "some_duration")]
    wait: Option<Duration>,
}

/// The default of `store.timeout`.
const TIMEOUT: Duration = Duration::from_millis(100);
/// The default of `store.wait`.
const WAIT: Duration = Duration::from_millis(50);

fn some_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
enum Kind {
    Memory,
    Redis,
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "memory" => Ok(Self::Memory),
            "redis" => Ok(Self::Redis),
            _ => Err(format!("`{text}` is no kind of store; use `memory` or `redis`")),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
enum Found {
    Single,
    Sentinel,
    Cluster,
}

impl TryFrom<String> for Found {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "single" => Ok(Self::Single),
            "sentinel" => Ok(Self::Sentinel),
            "cluster" => Ok(Self::Cluster),
            _ => Err(format!("`{text}` is no topology; use `single`, `sentinel` or `cluster`")),
        }
    }
}

impl StoreSection {
    /// The store, if its settings fit together; `password_given` by the environment.
    ///
    /// # Errors
    /// Every setting that does not fit, and what to do.
    pub(in crate::config) fn checked(self, password_given: bool) -> Result<Store, Vec<OutOfRange>> {
        let mut wrong = Vec::new();
        let kind = match self.kind {
            Kind::Memory => {
                self.only_memory(&mut wrong);
                StoreKind::Memory
            }
            Kind::Redis => {
                self.addresses(&mut wrong);
                self.secrets(password_given, &mut wrong);
                self.certificates(&mut wrong);
                self.ranges(&mut wrong);
                StoreKind::Redis(Box::new(self.redis()))
            }
        };
        let Self { secret_file, state_dir, .. } = self;
        if wrong.is_empty() { Ok(Store { kind, secret_file, state_dir }) } else { Err(wrong) }
    }

    /// What it says of Redis. Only whole where nothing is wrong.
    fn redis(&self) -> Redis {
        let topology = match self.topology {
            None | Some(Found::Single) => Topology::Single,
            Some(Found::Cluster) => Topology::Cluster,
            Some(Found::Sentinel) => {
                Topology::Sentinel { master: self.sentinel_master.clone().unwrap_or_default() }
            }
        };
        // The environment is nearer to the operator than the file is.
        let password = match (&self.password, &self.password_file) {
            (Some(secret), _) => Password::Text(secret.clone()),
            (None, Some(file)) => Password::File(file.clone()),
            (None, None) => Password::None,
        };
        let identity = self.cert_file.clone().zip(self.key_file.clone());
        Redis {
            urls: self.urls.clone(),
            topology,
            username: self.username.clone(),
            password,
            tls: self.ca_file.clone().map(|ca_file| StoreTls { ca_file, identity }),
            redundancy: self.redundancy,
            fence: self.fence,
            max_lag: self.max_lag,
            timeout: self.timeout.unwrap_or(TIMEOUT),
            wait_replicas: self.wait_replicas.unwrap_or(0),
            wait: self.wait.unwrap_or(WAIT),
        }
    }

    /// Refuses what a memory store would ignore.
    fn only_memory(&self, wrong: &mut Vec<OutOfRange>) {
        let set = [
            ("urls", !self.urls.is_empty()),
            ("topology", self.topology.is_some()),
            ("sentinel_master", self.sentinel_master.is_some()),
            ("username", self.username.is_some()),
            ("password_file", self.password_file.is_some()),
            ("password", self.password.is_some()),
            ("ca_file", self.ca_file.is_some()),
            ("cert_file", self.cert_file.is_some()),
            ("key_file", self.key_file.is_some()),
            ("redundancy", self.redundancy.is_some()),
            ("fence", self.fence.is_some()),
            ("max_lag", self.max_lag.is_some()),
            ("timeout", self.timeout.is_some()),
            ("wait_replicas", self.wait_replicas.is_some()),
            ("wait", self.wait.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            let text = "a memory store does not use it; remove it, or set `kind` to \"redis\"";
            wrong.push((key, text.to_owned()));
        }
    }

    fn addresses(&self, wrong: &mut Vec<OutOfRange>) {
        if self.urls.is_empty() {
            let text = "name the servers of the store, as in [\"redis://127.0.0.1:6379\"]";
            wrong.push(("urls", text.to_owned()));
        }
        if self.urls.len() > STORE_URLS {
            wrong.push(("urls", format!("name at most {STORE_URLS} servers")));
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = self.urls.iter().find(|url| !known.insert(url.host_port())) {
            let text = format!("`{twice}` is named twice; name each server once");
            wrong.push(("urls", text));
        }
        let with_tls = self.urls.iter().filter(|url| url.has_tls()).count();
        if with_tls != 0 && with_tls != self.urls.len() {
            let text = "some have TLS and some do not; write `rediss://` for all or none";
            wrong.push(("urls", text.to_owned()));
        }
        let fits = |name: &str| {
            (1..=NAME_BYTES).contains(&name.len()) && !name.contains(|c: char| c.is_control())
        };
        match (self.topology, &self.sentinel_master) {
            (Some(Found::Sentinel), None) => {
                let text = "set it to what the sentinels call the primary, as in `sentinel \
                            monitor NAME`";
                wrong.push(("sentinel_master", text.to_owned()));
            }
            (Some(Found::Sentinel), Some(name)) if !fits(name) => {
                wrong.push(("sentinel_master", format!("use 1 to {NAME_BYTES} bytes")));
            }
            (Some(Found::Sentinel), Some(_)) | (_, None) => {}
            (None | Some(Found::Single | Found::Cluster), Some(_)) => {
                let text = "remove it, or set `topology` to \"sentinel\"";
                wrong.push(("sentinel_master", text.to_owned()));
            }
        }
        if self.username.as_deref().is_some_and(|name| !fits(name) || name.contains(' ')) {
            wrong.push(("username", format!("use 1 to {NAME_BYTES} bytes without spaces")));
        }
    }

    fn secrets(&self, password_given: bool, wrong: &mut Vec<OutOfRange>) {
        if self.secret_file.is_none() {
            let text = "instances that share a store must hash subjects alike; set it to one file \
                        for all, as `tidegate token keygen --out FILE` writes one";
            wrong.push(("secret_file", text.to_owned()));
        }
        if self.password.is_some() && !password_given {
            let text = "a password does not belong into this file; name a file with \
                        `password_file`, or set the environment variable TIDEGATE_STORE__PASSWORD";
            wrong.push(("password", text.to_owned()));
        }
    }

    fn certificates(&self, wrong: &mut Vec<OutOfRange>) {
        let has_tls = self.urls.iter().any(RedisUrl::has_tls);
        if has_tls && self.ca_file.is_none() {
            let text = "`rediss://` needs the certificates that sign the servers'; for those the \
                        system trusts, /etc/ssl/certs/ca-certificates.crt";
            wrong.push(("ca_file", text.to_owned()));
        }
        let files = [
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
        ];
        for (key, _) in files.into_iter().filter(|(_, file)| file.is_some() && !has_tls) {
            let text = "it is used with TLS alone; remove it, or write `rediss://` in `urls`";
            wrong.push((key, text.to_owned()));
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => wrong.push(("key_file", "set it to the key of `cert_file`".into())),
            (None, Some(_)) => {
                wrong.push(("cert_file", "set it to the certificate of `key_file`".into()));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn ranges(&self, wrong: &mut Vec<OutOfRange>) {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let shown = humantime::format_duration;
        let mut span = |key, value: Option<Duration>, least: Duration, most: Duration| {
            if value.is_some_and(|value| value < least || value > most) {
                let (least, most) = (shown(least), shown(most));
                wrong.push((key, format!("set it to between {least} and {most}")));
            }
        };
        span("fence", self.fence, Duration::ZERO, seconds(3600));
        span("max_lag", self.max_lag, seconds(1), seconds(300));
        span("timeout", self.timeout, millis(5), seconds(10));
        span("wait", self.wait, millis(1), seconds(10));
        if self.wait_replicas.is_some_and(|count| count > WAIT_REPLICAS) {
            wrong.push(("wait_replicas", format!("set it to between 0 and {WAIT_REPLICAS}")));
        }
        let timeout = self.timeout.unwrap_or(TIMEOUT);
        if self.wait.unwrap_or(WAIT) >= timeout && self.wait_replicas.is_some_and(|n| n > 0) {
            let most = shown(timeout);
            wrong.push(("wait", format!("lower it below `timeout`, which is {most}")));
        }
        if self.redundancy == Some(Redundancy::Single) && self.wait_replicas.unwrap_or(0) > 0 {
            let text = "a store that is `single` has no replica to wait for; set it to 0";
            wrong.push(("wait_replicas", text.to_owned()));
        }
        let promotes = self.topology == Some(Found::Sentinel);
        if self.redundancy == Some(Redundancy::Single) && promotes {
            let text = "sentinels promote a replica; set it to \"fenced\" or \"async\", or \
                        remove it";
            wrong.push(("redundancy", text.to_owned()));
        }
        let lag = self.max_lag.filter(|lag| lag.subsec_nanos() != 0);
        if lag.is_some() {
            let text = "use whole seconds, as `min-replicas-max-lag` of the servers";
            wrong.push(("max_lag", text.to_owned()));
        }
    }
}
