//! The facts of partitions in the store: joined by the core's own join, for all instances.
//!
//! They are the JSON of the files, under one key for each partition. What a later version wrote is
//! left alone; what cannot be read at all counts as lost, and is put back by who holds it. It says
//! nothing of what facts prove.

use redis::{Pipeline, Value};
use tidegate_core::leader::Facts;
use tidegate_core::token::PartitionId;

use super::client::{CallError, Lane};
use super::keys::Bucket;
use super::lookups::{held, senseless};
use super::record::Held;
use super::swap::Swapped;
use super::{Inner, RedisStore};
use crate::ports::FactError;
use crate::store::fact_document::{self, Unread};

/// Writes of others that one exchange comes behind; the next one goes on.
const TRIES: usize = 8;

impl RedisStore {
    /// Joins facts into those all instances keep of a partition; returns what is kept then.
    ///
    /// # Errors
    /// [`FactError`] if the store does not answer, or holds what a later version wrote.
    pub async fn exchange_facts(
        &self,
        partition: PartitionId,
        nodes: &[String],
        own: &Facts,
    ) -> Result<Facts, FactError> {
        let key = self.inner.layout.facts(partition);
        let fails = |text: String| FactError { place: key.clone(), text };
        let refused = |error: CallError| fails(error.to_string());
        let mut kept = self.inner.facts_at(&key).await.map_err(refused)?;
        for _ in 0..TRIES {
            let mut facts = match read(&kept, partition, nodes) {
                Ok(facts) => facts,
                Err(Unread::Later(version)) => {
                    let text = format!("version {version} is of a later program: it is left alone");
                    return Err(fails(text));
                }
                Err(Unread::Malformed(problem)) => {
                    tracing::warn!(key, problem, "facts in the store cannot be read: put back");
                    Facts::new()
                }
            };
            if !facts.merge(own) {
                return Ok(facts);
            }
            let text = fact_document::write(partition, nodes, &facts).map_err(fails)?;
            let new = Held::Bytes(text.into_bytes());
            let first = Bucket::FIRST;
            match self.inner.swap(first, &key, (&kept, &new), 0).await.map_err(refused)? {
                Swapped::Set(..) => return Ok(facts),
                Swapped::Differs(now, _) => kept = now,
            }
        }
        Err(fails(format!("others wrote it {TRIES} times meanwhile")))
    }
}

fn read(kept: &Held, partition: PartitionId, nodes: &[String]) -> Result<Facts, Unread> {
    let Held::Bytes(bytes) = kept else { return Ok(Facts::new()) };
    let text = std::str::from_utf8(bytes).map_err(|error| Unread::Malformed(error.to_string()))?;
    fact_document::read(text, partition, nodes)
}

impl Inner {
    async fn facts_at(&self, key: &str) -> Result<Held, CallError> {
        let mut ask = Pipeline::with_capacity(1);
        ask.cmd("GET").arg(key);
        let answers = self.client.ask(Bucket::FIRST, Lane::Quick, &ask).await?;
        match answers.into_iter().next() {
            Some(Value::ServerError(error)) => Err(CallError::Refused {
                code: error.code().to_owned(),
                text: error.details().unwrap_or_default().to_owned(),
            }),
            Some(answer) => held(answer).ok_or_else(senseless),
            None => Err(senseless()),
        }
    }
}
