//! `Client`: calls to the primaries of a store, each within its time.
//!
//! A store that does not answer is down: calls fail at once, and a probe in the background finds
//! out when it is back. It knows no records, and what an answer may be believed is not its affair.

mod probe;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use redis::cluster_routing::Slot;
use redis::{ErrorKind, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::check::{self, CheckError};
use super::dial::{Dial, Link};
use super::events::{Announcer, StoreCounters, StoreEvent};
use super::keys::{Bucket, Layout};
use super::settings::RedisSettings;
use crate::clock::Clock;
use crate::ports::StoreError;

/// Why a call has no answer that can be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum CallError {
    /// No answer came in time, or nobody is asked because none would.
    #[error("{0}")]
    Unreachable(String),
    /// The server answered with an error.
    #[error("the server refused: {code} {text}")]
    Refused {
        /// Its first word, as `NOREPLICAS`.
        code: String,
        /// The rest.
        text: String,
    },
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

impl CallError {
    fn refused(error: &ServerError) -> Self {
        let text = error.details().unwrap_or_default().to_owned();
        Self::Refused { code: error.code().to_owned(), text }
    }
}

/// A script, known to servers by its hash.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    /// A script of this source.
    pub(super) fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }
}

/// What a script answered.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Ran {
    /// Its answer, and those of the commands behind it.
    pub(super) answers: Vec<Value>,
    /// The server did not have the script.
    pub(super) was_missing: bool,
}

/// Whether a call may hold up those behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// It is answered at once.
    Quick,
    /// It waits for replicas.
    Waiting,
}

/// Calls to the primaries of a store, each within its time.
#[derive(Debug)]
pub(super) struct Client {
    shared: Arc<Shared>,
    probe: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    dial: Dial,
    settings: RedisSettings,
    layout: Layout,
    links: ArcSwapOption<Links>,
    /// By bucket.
    parts: Vec<Part>,
    wake: Notify,
    doubted: ArcSwapOption<String>,
    /// Why the server that was found last must not be used.
    unfit: ArcSwapOption<String>,
    announcer: Arc<Announcer>,
    counters: Arc<StoreCounters>,
    clock: Clock,
}

/// The connections of now.
struct Links {
    quick: Link,
    /// The same, where nothing is waited for.
    waiting: Link,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Links(..)")
    }
}

#[derive(Debug)]
struct Part {
    slot: Slot,
    /// Why its calls fail at once.
    down: ArcSwapOption<String>,
}

impl Client {
    /// Connects to a store.
    ///
    /// # Errors
    /// [`CheckError`] if it cannot be reached or used; then nothing goes on in the background.
    pub(super) async fn connect(
        settings: &RedisSettings,
        layout: &Layout,
        announcer: &Arc<Announcer>,
        counters: &Arc<StoreCounters>,
        clock: Clock,
    ) -> Result<Self, CheckError> {
        let parts = layout.buckets().map(|bucket| {
            let down = ArcSwapOption::empty();
            Part { slot: layout.slot(bucket), down }
        });
        let shared = Shared {
            dial: Dial::new(settings.clone()),
            settings: settings.clone(),
            layout: layout.clone(),
            links: ArcSwapOption::empty(),
            parts: parts.collect(),
            wake: Notify::new(),
            doubted: ArcSwapOption::empty(),
            unfit: ArcSwapOption::empty(),
            announcer: Arc::clone(announcer),
            counters: Arc::clone(counters),
            clock,
        };
        let shared = Arc::new(shared);
        shared.links.store(Some(Arc::new(shared.dial().await?)));
        let probe = tokio::spawn(probe::run(Arc::clone(&shared)));
        Ok(Self { shared, probe })
    }

    /// Sends commands to the primary of a bucket, one behind the other.
    ///
    /// Its answers may be errors of single commands: [`refusal`] finds them.
    ///
    /// # Errors
    /// [`CallError::Unreachable`], at once while the store is down.
    pub(super) async fn ask(
        &self,
        bucket: Bucket,
        lane: Lane,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, CallError> {
        self.shared.ask(bucket, lane, commands).await
    }

    /// Runs a script on the primary of a bucket, `more` behind it; loads it where it is missing.
    ///
    /// # Errors
    /// [`CallError`] if the store is down or refuses the script or any command behind it.
    pub(super) async fn run(
        &self,
        bucket: Bucket,
        lane: Lane,
        script: &Script,
        (keys, arguments): (&[&str], &[&[u8]]),
        more: &[redis::Cmd],
    ) -> Result<Ran, CallError> {
        let call = |command: &str, script: &str| {
            let mut commands = Pipeline::with_capacity(1 + more.len());
            commands.cmd(command).arg(script).arg(keys.len());
            commands.arg(keys).arg(arguments);
            for command in more {
                commands.add_command(command.clone());
            }
            commands
        };
        let answers = self.ask(bucket, lane, &call("EVALSHA", &script.hash)).await?;
        if !is_missing(&answers) {
            return whole(answers).map(|answers| Ran { answers, was_missing: false });
        }
        // Loaded by itself, it stays: one that is only run may be dropped for newer ones.
        let mut load = Pipeline::new();
        load.cmd("SCRIPT").arg("LOAD").arg(script.source);
        whole(self.ask(bucket, lane, &load).await?)?;
        let answers = self.ask(bucket, lane, &call("EVAL", script.source)).await?;
        whole(answers).map(|answers| Ran { answers, was_missing: true })
    }

    /// Notes that the server of a bucket may not be its primary any more: another one is looked
    /// for, and this one is asked until then.
    pub(super) fn doubt(&self, why: &str) {
        if self.shared.dial.finds_others() {
            self.shared.doubted.store(Some(Arc::new(why.to_owned())));
            self.shared.wake.notify_one();
        }
    }

    /// Why the server that was found last must not be used, and is not.
    pub(super) fn unfit(&self) -> Option<String> {
        self.shared.unfit.load().as_deref().cloned()
    }

    /// Why calls to some bucket fail at once; `None`: they do not.
    pub(super) fn down(&self) -> Option<String> {
        let down = self.shared.parts.iter().find_map(|part| part.down.load_full());
        down.map(|why| why.as_ref().clone())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.probe.abort();
    }
}

impl Shared {
    /// Takes the server to use anew; one that must not be used is told of, once for each reason.
    async fn dial_again(&self) {
        let unfit = match self.dial().await {
            Ok(links) => {
                self.links.store(Some(Arc::new(links)));
                None
            }
            Err(error @ CheckError::Refused { .. }) => Some(error.to_string()),
            Err(error @ CheckError::Unreachable { .. }) => {
                tracing::debug!(%error, "the token store is still down");
                None
            }
        };
        let before = self.unfit.load_full();
        if let Some(why) = &unfit
            && before.as_deref() != Some(why)
        {
            self.announcer.tell(StoreEvent::Unfit, why);
        }
        self.unfit.store(unfit.map(Arc::new));
    }

    /// Connects anew, to a server that is as the first one was.
    async fn dial(&self) -> Result<Links, CheckError> {
        let link = || async {
            let at = || self.settings.shown();
            let linked = self.dial.link().await;
            linked.map_err(|error| CheckError::Unreachable { at: at(), text: error.to_string() })
        };
        let quick = link().await?;
        if self.parts.len() == 1 {
            // A server that was promoted has settings of its own.
            check::check(&quick, &self.settings).await?;
        }
        // In a cluster one server may be gone, and the others must not wait for it; nor is a link
        // dialled anew for each promotion. What keeps a deposed primary from being believed is read
        // with the heartbeats, of every server before anything it says counts.
        let waiting = match self.settings.wait_replicas {
            0 => quick.clone(),
            _ => link().await?,
        };
        Ok(Links { quick, waiting })
    }

    async fn ask(
        &self,
        bucket: Bucket,
        lane: Lane,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, CallError> {
        let Some(part) = self.parts.get(bucket.index()) else {
            return Err(CallError::Unreachable("there is no such bucket".to_owned()));
        };
        if let Some(why) = part.down.load().as_deref() {
            return Err(CallError::Unreachable(why.clone()));
        }
        self.ask_up(part, lane, commands).await
    }

    /// As [`Self::ask`], whether or not it is down.
    async fn ask_up(
        &self,
        part: &Part,
        lane: Lane,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, CallError> {
        let Some(links) = self.links.load_full() else {
            return Err(self.fails(part, None, "it is not connected".to_owned()));
        };
        let RedisSettings { timeout, wait, .. } = self.settings;
        let (link, timeout) = match lane {
            Lane::Quick => (&links.quick, timeout),
            Lane::Waiting => (&links.waiting, timeout + wait),
        };
        let asked = self.clock.until(self.clock.now() + timeout, link.ask(part.slot, commands));
        match asked.await {
            Ok(Ok(answers)) => match answers.iter().find_map(is_no_service) {
                Some(error) => Err(self.fails(part, Some(&links), error.to_string())),
                None => Ok(answers),
            },
            Ok(Err(error)) => Err(self.failed(part, &links, error)),
            Err(_) => {
                let why = format!("no answer within {} ms", timeout.as_millis());
                Err(match lane {
                    Lane::Quick => self.fails(part, Some(&links), why),
                    // It stands behind others that wait for a replica; a new link has none.
                    Lane::Waiting => {
                        self.doubted.store(Some(Arc::new(why.clone())));
                        self.wake.notify_one();
                        CallError::Unreachable(why)
                    }
                })
            }
        }
    }

    fn failed(&self, part: &Part, links: &Arc<Links>, error: RedisError) -> CallError {
        let text = error.to_string();
        let ErrorKind::Server(_) = error.kind() else {
            return self.fails(part, Some(links), text);
        };
        // What a cluster still says after all redirections of one call.
        match error.into_server_errors().as_deref() {
            Some([(_, error), ..]) if is_of_one_key(error) => CallError::refused(error),
            Some(_) | None => self.fails(part, Some(links), text),
        }
    }

    /// Notes that the server of a bucket does not answer over `links`; others are not to blame.
    fn fails(&self, part: &Part, links: Option<&Arc<Links>>, why: String) -> CallError {
        let current = self.links.load();
        let same = match (links, current.as_ref()) {
            (Some(links), Some(current)) => Arc::ptr_eq(links, current),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if same && part.down.load().is_none() {
            let was_up = self.parts.iter().all(|part| part.down.load().is_none());
            part.down.store(Some(Arc::new(why.clone())));
            if was_up {
                self.announcer.tell(StoreEvent::Unreachable, &why);
            }
            self.wake.notify_one();
        }
        CallError::Unreachable(why)
    }
}

/// The first error among the answers of single commands.
pub(super) fn refusal(answers: &[Value]) -> Option<CallError> {
    answers.iter().find_map(|answer| {
        let Value::ServerError(error) = answer else { return None };
        Some(CallError::refused(error))
    })
}

fn whole(answers: Vec<Value>) -> Result<Vec<Value>, CallError> {
    refusal(&answers).map_or(Ok(answers), Err)
}

fn is_missing(answers: &[Value]) -> bool {
    let Some(Value::ServerError(error)) = answers.first() else { return false };
    error.kind() == Some(ServerErrorKind::NoScript)
}

/// An error that no command to this server escapes for now.
fn is_no_service(answer: &Value) -> Option<&ServerError> {
    let Value::ServerError(error) = answer else { return None };
    let down = matches!(
        error.kind(),
        Some(
            ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
        )
    );
    down.then_some(error)
}

/// Whether an error speaks of the keys of one call, and others may do better.
fn is_of_one_key(error: &ServerError) -> bool {
    is_no_service(&Value::ServerError(error.clone())).is_none()
}
