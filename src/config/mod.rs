//! The configuration: a TOML file and the environment, checked as a whole before anything starts.
//!
//! - `document`: the text, overrides of the environment, and where each setting stands;
//! - `sections`: what each section may hold;
//! - `store`: where sessions and facts are remembered;
//! - `policy`: what requests may call by a name;
//! - `limits`: every bound, with its default and reason;
//! - `telemetry`: what is told of the service, and to whom;
//! - `values`: names, addresses, durations, sizes, secrets;
//! - `check`: what settings demand of each other;
//! - `change`: what may change while the service runs;
//! - `error`: what is wrong, where, and what to do.
//!
//! It reads no other file, opens no connection and keeps nothing: key files are read by `seal`,
//! password files by the source that needs them.

mod change;
mod check;
mod document;
mod error;
mod limits;
mod policy;
mod sections;
mod store;
mod telemetry;
mod values;

use std::path::{Path, PathBuf};

use tidegate_core::lineage::SystemId;
use tidegate_core::token::PartitionId;

use document::Document;
use sections::Sections;

pub use error::{ConfigError, Place, Problem};
pub use limits::{
    ACCEPTABLE_MAJORS, ACCEPTED_MAJORS, ADVERTISED_PER_NODE, EVIDENCE_PER_REQUEST, Limits,
    PATRONI_ADDRESSES, POLICIES, SUBJECT_BYTES, TESTED_MAJORS, TOKEN_CHARS, TOKEN_CHARS_WRITTEN,
    TOKEN_KEYS, TOKENS_CHARS_PER_REQUEST, TOKENS_PER_REQUEST,
};
pub use policy::{OnLost, Policy, Raise};
pub use sections::{AsyncCommits, Cluster, Listen, Node, Reach, Token};
pub use store::{Redis, RedisUrl, Redundancy, STORE_URLS, Store, StoreKind, StoreTls, Topology};
pub use telemetry::{LogFormat, RESOURCE_ATTRIBUTES, Telemetry};
pub use values::{HostPort, HttpAddress, Name, Secret};

/// The one tenant there is until identity is built.
pub const TENANT: &str = "default";

/// Bytes of a configuration file that are read: hundreds of partitions fit.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A configuration that fits together.
///
/// Invariant: partitions have different ids and system ids, each has a node, and each limit is in
/// its range.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who this is.
    pub cluster: Cluster,
    /// Where it listens: on loopback only.
    pub listen: Listen,
    /// How tokens are sealed.
    pub token: Token,
    /// Where sessions and facts are remembered.
    pub store: Store,
    /// The replication logs, by name.
    pub partitions: Vec<Partition>,
    /// What requests may call by a name, in the order of the names.
    pub policies: Vec<Policy>,
    /// Every bound.
    pub limits: Limits,
    /// What is told of the service.
    pub telemetry: Telemetry,
    /// The file it was loaded from, which a running service reads again; none: it was not.
    pub file: Option<PathBuf>,
}

/// A configuration that may follow the one that runs, as far as its text tells.
#[derive(Clone, Debug)]
pub struct Successor {
    /// It.
    pub config: Config,
    /// Where its token keys are set.
    keys: Place,
}

impl Successor {
    /// What refuses it for the keys in the files it names.
    pub fn keys_refused(&self, text: impl Into<String>) -> ConfigError {
        let (place, key) = (self.keys.clone(), "token.keys".to_owned());
        ConfigError::Wrong(vec![Problem { place, key, text: text.into() }])
    }
}

/// One replication log, its leader and replicas.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Its name for people and the API.
    pub name: Name,
    /// Its number inside tokens and the store, never 0.
    pub id: PartitionId,
    /// The system id its leader must have.
    pub system_id: SystemId,
    /// The system id before a planned upgrade in which nothing was lost.
    pub upgraded_from: Option<SystemId>,
    /// The home database: the one with the schema `tidegate`.
    pub database: String,
    /// The role that polls.
    pub user: String,
    /// Where that role's password is.
    pub password: Password,
    /// How connections to its servers are secured.
    pub tls: Tls,
    /// Whether commits may be acknowledged before their log is flushed.
    pub async_commits: AsyncCommits,
    /// Server majors that serve sessions, ascending: those tested, and those the operator accepts.
    pub accepted_majors: Vec<u32>,
    /// Where the Patroni of its servers answers, each address once; none: nobody is asked.
    pub patroni: Vec<HttpAddress>,
    /// Its servers, in the order of the file; at least one, of different names.
    pub nodes: Vec<Node>,
}

/// Where a password is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Password {
    /// The server asks for none.
    None,
    /// In a file, read at each connection, so that it can be changed; a line end after it is not
    /// part of it.
    File(PathBuf),
    /// It came from the environment.
    Text(Secret),
}

/// How connections to a database are secured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tls {
    /// Not at all.
    Off,
    /// Encrypted; certificate chain and host name are verified.
    VerifyFull {
        /// The certificates that sign the servers', in PEM.
        ca_file: PathBuf,
    },
}

impl Partition {
    /// The majors that serve sessions by the operator's word alone.
    pub fn untested_majors(&self) -> impl Iterator<Item = u32> {
        self.accepted_majors.iter().copied().filter(|major| !TESTED_MAJORS.contains(major))
    }
}

impl Config {
    /// Loads `file` and applies the overrides of `environment`, as [`environment`] gives it.
    ///
    /// # Errors
    /// [`ConfigError`]: each problem with line, setting and what to do.
    pub fn load(
        file: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let text = text_of(file)?;
        let mut config = Self::parse(&file.display().to_string(), &text, environment)?;
        config.file = Some(file.to_owned());
        Ok(config)
    }

    /// Loads the file of this configuration, which runs, again.
    ///
    /// # Errors
    /// [`ConfigError`], as [`Self::load`] has it; also for each change that needs a restart.
    pub fn reloaded(
        &self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Successor, ConfigError> {
        let file = self.file.as_ref().ok_or(ConfigError::NoFile)?;
        let (name, text) = (file.display().to_string(), text_of(file)?);
        let environment: Vec<_> = environment.into_iter().collect();
        let (document, mut config) = checked(&name, &text, &environment)?;
        let problems = change::needs_restart(self, &config, &document);
        if !problems.is_empty() {
            return Err(ConfigError::Wrong(problems));
        }
        config.file = Some(file.clone());
        let keys = document.problem(&["token", "keys"], "").place;
        Ok(Successor { config, keys })
    }

    /// Reads `text`, which errors call `file`, and applies the overrides of `environment`.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`].
    pub fn parse(
        file: &str,
        text: &str,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let environment: Vec<_> = environment.into_iter().collect();
        Ok(checked(file, text, &environment)?.1)
    }
}

fn checked<'a>(
    file: &'a str,
    text: &'a str,
    environment: &'a [(String, String)],
) -> Result<(Document<'a>, Config), ConfigError> {
    let read = Document::read::<Sections>(file, text, environment);
    let (document, sections) =
        read.map_err(|problem| ConfigError::Wrong(vec![advised(problem)]))?;
    let config = check::check(&document, sections).map_err(ConfigError::Wrong)?;
    Ok((document, config))
}

fn text_of(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { file: file.to_owned(), cause };
    if std::fs::metadata(file).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        let cause = std::io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes"));
        return Err(unreadable(cause));
    }
    std::fs::read_to_string(file).map_err(unreadable)
}

/// The environment of this process. What is not Unicode is replaced, so that it is refused where it
/// matters and ignored where it does not.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    })
}

/// Says of a missing setting where to find its value.
fn advised(mut problem: Problem) -> Problem {
    if problem.text == "missing field `system_id`" {
        problem.text.push_str(
            "; on the leader, `SELECT system_identifier FROM pg_control_system()` shows it",
        );
    } else if problem.text.starts_with("missing field") {
        problem.text.push_str("; docs/tidegate.example.toml explains it");
    }
    problem
}

#[cfg(test)]
mod example_tests;
