//! Looks subjects up: those that wait share one call.
//!
//! A call brings the records and the generation at one moment, and then what the server says of
//! itself. A server that says a name after an answer had it at the answer: it takes a new one with
//! each promotion, and never an old one again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Pipeline, Value};
use tidegate_core::store_guard::Worth;
use tokio::sync::oneshot;

use super::Inner;
use super::client::{CallError, Lane, refusal};
use super::events::StoreCount;
use super::info::ServerInfo;
use super::keys::Bucket;
use super::record::Held;
use crate::ports::SubjectKey;

/// Subjects of one call.
const BATCH_MAX: usize = 64;
/// Calls of one bucket under way: while one is read the next is sent.
const FLIGHTS_MAX: usize = 2;
/// Lookups of one bucket that may wait.
const WAITING_MAX: usize = 64 * 1024;

/// What the store said of one subject.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) held: Held,
    pub(super) worth: Worth,
}

type Answer = Result<Found, CallError>;

/// Lookups that wait, by bucket.
#[derive(Debug)]
pub(super) struct Lookups {
    queues: Vec<Mutex<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(SubjectKey, oneshot::Sender<Answer>)>,
    flights: usize,
}

impl Lookups {
    pub(super) fn new(buckets: usize) -> Self {
        Self { queues: (0..buckets).map(|_| Mutex::default()).collect() }
    }

    fn queue(&self, bucket: Bucket) -> Option<MutexGuard<'_, Queue>> {
        let queue = self.queues.get(bucket.index())?;
        // Waiters come and go one by one.
        Some(queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    /// What the store holds of a subject now.
    pub(super) async fn find(self: &Arc<Self>, subject: SubjectKey) -> Answer {
        let bucket = self.layout.bucket(subject);
        let (tell, told) = oneshot::channel();
        let busy = || CallError::Unreachable("too many lookups wait for it".to_owned());
        {
            let Some(mut queue) = self.lookups.queue(bucket) else { return Err(busy()) };
            if queue.waiting.len() >= WAITING_MAX {
                return Err(busy());
            }
            queue.waiting.push_back((subject, tell));
            if queue.flights < FLIGHTS_MAX {
                queue.flights += 1;
                self.tasks.spawn(Arc::clone(self).fly(bucket));
            }
        }
        told.await.unwrap_or_else(|_| Err(CallError::Unreachable("it is stopping".to_owned())))
    }

    /// Answers those who wait, until nobody does.
    async fn fly(self: Arc<Self>, bucket: Bucket) {
        loop {
            let batch: Vec<_> = {
                let Some(mut queue) = self.lookups.queue(bucket) else { return };
                let most = queue.waiting.len().min(BATCH_MAX);
                if most == 0 {
                    queue.flights -= 1;
                    return;
                }
                queue.waiting.drain(..most).collect()
            };
            let subjects: Vec<SubjectKey> = batch.iter().map(|(subject, _)| *subject).collect();
            match self.look(bucket, &subjects).await {
                Ok((worth, records)) => {
                    for ((subject, tell), held) in batch.into_iter().zip(records) {
                        self.known.note(subject, held.clone());
                        // Whoever asked may have gone.
                        let _ = tell.send(Ok(Found { held, worth: worth.clone() }));
                    }
                }
                Err(error) => {
                    for (_, tell) in batch {
                        let _ = tell.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    async fn look(
        &self,
        bucket: Bucket,
        subjects: &[SubjectKey],
    ) -> Result<(Worth, Vec<Held>), CallError> {
        let mut asks = Pipeline::with_capacity(2);
        asks.cmd("MGET").arg(self.layout.generation(bucket));
        for subject in subjects {
            asks.arg(self.layout.record(*subject));
        }
        asks.cmd("INFO").arg("replication").arg("stats");
        self.counters.add(StoreCount::Batches, 1);
        self.counters.add(StoreCount::RoundTrips, 1);
        let answers = self.client.ask(bucket, Lane::Quick, &asks).await?;
        if let Some(error) = refusal(&answers) {
            return Err(error);
        }
        let (worth, records) = match <[Value; 2]>::try_from(answers) {
            Ok([Value::Array(values), info]) => {
                let mut values = values.into_iter().map(held);
                let generation = values.next().unwrap_or(Some(Held::Nothing));
                let records: Option<Vec<Held>> = values.collect();
                let records = records.filter(|records| records.len() == subjects.len());
                let (Some(generation), Some(records)) = (generation, records) else {
                    return Err(senseless());
                };
                let info = ServerInfo::read(&info).ok_or_else(senseless)?;
                (self.judge(bucket, &info, generation), records)
            }
            Ok(_) | Err(_) => return Err(senseless()),
        };
        Ok((worth, records))
    }

    /// Takes in what vouches for an answer; says what that is worth.
    pub(super) fn judge(&self, bucket: Bucket, info: &ServerInfo, generation: Held) -> Worth {
        if !info.is_primary {
            self.client.doubt("it is a replica");
        }
        let generation = match generation {
            Held::Nothing => None,
            Held::Bytes(bytes) => Some(bytes),
        };
        self.beliefs.replied(bucket, info, generation)
    }
}

/// What a key holds; `None` if that is no answer to `GET`.
pub(super) fn held(value: Value) -> Option<Held> {
    if value == Value::Nil {
        return Some(Held::Nothing);
    }
    let Value::BulkString(bytes) = value else { return None };
    Some(Held::Bytes(bytes))
}

pub(super) fn senseless() -> CallError {
    CallError::Unreachable("its answer makes no sense".to_owned())
}
