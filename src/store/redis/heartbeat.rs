//! Keeps each bucket believed, and carries what the guards want written.
//!
//! A server is believed while it takes our writes: where nobody records anything, the removal of a
//! key that never exists is such a write.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::{Pipeline, Value};

use super::Inner;
use super::client::{CallError, Lane};
use super::guards::{Took, Void};
use super::info::ServerInfo;
use super::keys::Bucket;
use super::lookups::{held, senseless};
use super::record::Held;

/// How soon a generation that is due is written, where nobody says that it is: a fence ends by
/// itself.
const TICK: Duration = Duration::from_millis(50);

/// How many replicas a server needs to take a write, and heard of within how many seconds.
const NEEDS: &str = "min-replicas-to-write";
const NEEDS_LAG: &str = "min-replicas-max-lag";

impl Inner {
    /// Keeps one bucket believed, until it is aborted.
    pub(super) async fn beat(self: Arc<Self>, bucket: Bucket) {
        let mut beaten_at = None;
        loop {
            self.remove_voids().await;
            let now = self.clock.now();
            let is_time = beaten_at.is_none_or(|at| now.since(at) >= self.beliefs.beat());
            // First: what is due may be refused for long, and belief rests on heartbeats.
            if is_time {
                beaten_at = Some(now);
                if let Err(error) = self.beat_once(bucket).await {
                    tracing::debug!(%error, "the token store took no heartbeat");
                }
            }
            if let Some(write) = self.beliefs.due(bucket) {
                let expected = write.expected.map_or(Held::Nothing, Held::Bytes);
                let new = Held::Bytes(write.generation.encode());
                let key = self.layout.generation(bucket);
                if let Err(error) = self.swap(bucket, &key, (&expected, &new), 0).await {
                    tracing::debug!(%error, "a generation is still to be written");
                }
            }
            let next = self.beliefs.beat().min(TICK);
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = self.beliefs.wake.notified() => {}
            }
        }
    }

    async fn beat_once(&self, bucket: Bucket) -> Result<(), CallError> {
        let asks_for_needs = self.beliefs.asks_for_needs();
        let mut asks = Pipeline::with_capacity(4);
        asks.cmd("DEL").arg(self.layout.nothing(bucket));
        asks.cmd("GET").arg(self.layout.generation(bucket));
        if asks_for_needs {
            asks.cmd("CONFIG").arg("GET").arg(NEEDS).arg(NEEDS_LAG);
        }
        asks.cmd("INFO").arg("replication").arg("stats");
        let sent_at = self.clock.now();
        let mut answers = self.client.ask(bucket, Lane::Quick, &asks).await?;
        let needs = (asks_for_needs && answers.len() == 4).then(|| answers.remove(2));
        let Ok([removed, generation, info]) = <[Value; 3]>::try_from(answers) else {
            return Err(senseless());
        };
        let info = ServerInfo::read(&info).ok_or_else(senseless)?;
        if let Some(needs) = needs {
            self.beliefs.needs_replicas(&info, settings(needs));
        }
        let generation = held(generation).ok_or_else(senseless)?;
        let refusal = super::client::refusal(std::slice::from_ref(&removed));
        match &refusal {
            Some(error) => self.refused(bucket, error),
            None => match self.beliefs.took(bucket, &info, sent_at) {
                Took::Behind => self.client.doubt("its replicas do not follow"),
                // What waits is tried again, and shows by itself whether it is taken.
                Took::Counts | Took::Young if self.pending.is_empty() => {
                    self.beliefs.beaten(bucket);
                }
                Took::Counts | Took::Young => {}
            },
        }
        self.judge(bucket, &info, generation);
        refusal.map_or(Ok(()), Err)
    }

    /// Removes generations that are void, so that every instance sees the loss.
    async fn remove_voids(self: &Arc<Self>) {
        let mut voids =
            std::mem::take(&mut *self.voids.lock().unwrap_or_else(PoisonError::into_inner));
        voids.extend(self.beliefs.take_voids());
        for Void { bucket, bytes } in voids {
            let key = self.layout.generation(bucket);
            let void = Held::Bytes(bytes.clone());
            if self.swap(bucket, &key, (&void, &Held::Nothing), 0).await.is_err() {
                let mut voids = self.voids.lock().unwrap_or_else(PoisonError::into_inner);
                voids.push(Void { bucket, bytes });
            }
        }
    }
}

/// The two settings, as `CONFIG GET` shows them; `None` where it may not be asked.
fn settings(answer: Value) -> Option<(u64, u64)> {
    let pairs = redis::from_redis_value::<BTreeMap<String, u64>>(answer).ok()?;
    Some((*pairs.get(NEEDS)?, *pairs.get(NEEDS_LAG)?))
}
