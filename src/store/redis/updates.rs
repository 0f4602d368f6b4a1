//! Changes records: compare and set, until nobody else was faster.
//!
//! One write per subject is under way in an instance; what comes meanwhile goes into the next one.
//! The join is the core's own. A change that changes nothing is not written.

use std::sync::Arc;
use std::time::Duration;

use dashmap::{DashMap, Entry};
use tidegate_core::store_guard::{Unbelieved, Worth};
use tidegate_core::token::{Change, SessionToken};
use tokio::sync::oneshot;

use super::Inner;
use super::client::CallError;
use super::events::{StoreCount, StoreEvent};
use super::record::{Held, Read};
use super::swap::Swapped;
use crate::ports::{Kept, StoreError, Stored, SubjectKey};

/// Writes of one change that may come behind others: each time another instance got further.
const TRIES_MAX: usize = 64;
/// Changes of one subject that go into one write.
const CHANGES_MAX: usize = 256;
/// Changes of one subject that may wait.
const WAITING_MAX: usize = 16 * 1024;
/// The longest pause before what the store refused is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Subjects that are written side by side when the store is back.
const FLUSHED_AT_ONCE: usize = 64;

type Answer = Result<Kept, CallError>;

/// Changes that wait for the write before them, by subject.
#[derive(Debug, Default)]
pub(super) struct Updates {
    waiting: DashMap<SubjectKey, Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    change: Change,
    tell: oneshot::Sender<Answer>,
}

impl Inner {
    /// Changes a record; where the store does not take that, it is kept here until it does.
    pub(super) async fn update(
        self: &Arc<Self>,
        subject: SubjectKey,
        change: &Change,
    ) -> Result<Kept, StoreError> {
        self.counters.add(StoreCount::Updates, 1);
        match self.write(subject, change.clone()).await {
            Ok(kept) => Ok(kept),
            Err(error) => self.put_off(subject, change, &error),
        }
    }

    fn put_off(
        &self,
        subject: SubjectKey,
        change: &Change,
        error: &CallError,
    ) -> Result<Kept, StoreError> {
        let all = self.pending.add(subject, change).map_err(|full| {
            StoreError::Unreachable(format!(
                "{error}; {} subjects wait for it already, see `limits.pending_records`",
                full.limit
            ))
        })?;
        let mut record = SessionToken::new();
        all.apply(&mut record);
        let worth = Worth::Unknown(Unbelieved::Lost);
        Ok(Kept { record, stored: Stored::Memory, worth })
    }

    /// Writes a change, behind those of the same subject.
    async fn write(self: &Arc<Self>, subject: SubjectKey, change: Change) -> Answer {
        let (tell, told) = oneshot::channel();
        let waiting = Waiting { change, tell };
        match self.updates.waiting.entry(subject) {
            Entry::Occupied(mut entry) => {
                if entry.get().len() >= WAITING_MAX {
                    let why = "too many changes of one subject wait for it";
                    return Err(CallError::Unreachable(why.to_owned()));
                }
                entry.get_mut().push(waiting);
            }
            Entry::Vacant(entry) => {
                entry.insert(vec![waiting]);
                self.tasks.spawn(Arc::clone(self).write_all(subject));
            }
        }
        told.await.unwrap_or_else(|_| Err(CallError::Unreachable("it is stopping".to_owned())))
    }

    /// Writes what waits for one subject, until nothing does.
    async fn write_all(self: Arc<Self>, subject: SubjectKey) {
        loop {
            let batch: Vec<Waiting> = match self.updates.waiting.entry(subject) {
                Entry::Occupied(mut entry) if !entry.get().is_empty() => {
                    let most = entry.get().len().min(CHANGES_MAX);
                    entry.get_mut().drain(..most).collect()
                }
                Entry::Occupied(entry) => {
                    entry.remove();
                    return;
                }
                Entry::Vacant(_) => return,
            };
            let changes: Vec<&Change> = batch.iter().map(|waiting| &waiting.change).collect();
            let answer = self.join(subject, &changes).await;
            for waiting in batch {
                // Whoever asked may have gone.
                let _ = waiting.tell.send(answer.clone());
            }
        }
    }

    /// Applies changes to what the store holds, and writes that.
    async fn join(self: &Arc<Self>, subject: SubjectKey, changes: &[&Change]) -> Answer {
        let bucket = self.layout.bucket(subject);
        let (key, lasts) = (self.layout.record(subject), self.lasts_millis);
        // What was seen earlier is a guess; what the store says now can answer a change of nothing.
        let (mut held, mut said) = match self.known.take(subject) {
            Some(held) => (held, None),
            None => {
                let found = self.find(subject).await?;
                (found.held, Some(found.worth))
            }
        };
        for _ in 0..TRIES_MAX {
            let (mut record, mut changed) = match held.read() {
                Read::Nothing => (SessionToken::new(), false),
                Read::Token(token) => (token, false),
                Read::Malformed(unknown) => {
                    self.announce_malformed(&held);
                    (unknown, true)
                }
            };
            for change in changes {
                changed |= change.apply(&mut record);
            }
            if !changed {
                if let Some(worth) = said {
                    self.known.note(subject, held);
                    return match worth {
                        // It holds it already, and may be no primary any more.
                        Worth::Unknown(Unbelieved::Deposed | Unbelieved::Replica) => {
                            Err(CallError::Unreachable("it may be deposed".to_owned()))
                        }
                        Worth::Unknown(Unbelieved::Lost)
                        | Worth::Believed(_)
                        | Worth::Embedded(_) => {
                            Ok(Kept { record, stored: Stored::PrimaryOnly, worth })
                        }
                    };
                }
                let found = self.find(subject).await?;
                (held, said) = (found.held, Some(found.worth));
                continue;
            }
            let new = Held::of(&record);
            match self.swap(bucket, &key, (&held, &new), lasts).await? {
                Swapped::Set(stored, worth) => {
                    self.known.note(subject, new);
                    return Ok(Kept { record, stored, worth });
                }
                Swapped::Differs(now, worth) => {
                    self.counters.add(StoreCount::Retries, 1);
                    (held, said) = (now, Some(worth));
                }
            }
        }
        Err(CallError::Unreachable(format!("others changed a record {TRIES_MAX} times meanwhile")))
    }

    /// Writes what waits for the store, whenever it takes it.
    pub(super) async fn flush(self: Arc<Self>) {
        loop {
            if self.pending.is_empty() {
                self.pending.wake.notified().await;
            }
            let next = self.pending.next(FLUSHED_AT_ONCE).into_iter();
            let writes = next.map(|(subject, change, version)| {
                let this = &self;
                async move {
                    let written = this.write(subject, change).await.is_ok();
                    this.pending.done(subject, version, written);
                    written
                }
            });
            let written = futures::future::join_all(writes).await;
            if !written.contains(&true) {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The token of a record, and announces one that is none.
    pub(super) fn read(&self, held: &Held) -> Option<SessionToken> {
        match held.read() {
            Read::Nothing => None,
            Read::Token(token) => Some(token),
            Read::Malformed(unknown) => {
                self.announce_malformed(held);
                Some(unknown)
            }
        }
    }

    fn announce_malformed(&self, held: &Held) {
        self.counters.add(StoreCount::Malformed, 1);
        let why = format!("{} bytes that are no token", held.bytes().len());
        self.announcer.tell(StoreEvent::RecordMalformed, &why);
    }
}
