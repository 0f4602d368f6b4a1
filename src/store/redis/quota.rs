//! The book of each partition's fallback cap in the store: read, and changed by compare-and-swap.
//!
//! A book that was written for another server than the one that has it is not believed: it may be
//! older than what was lost. It says nothing of what shares mean.

use redis::{Pipeline, Value};
use tidegate_core::routing::QuotaBook;
use tidegate_core::token::PartitionId;

use super::client::{CallError, Lane, refusal};
use super::events::StoreCount;
use super::info::ServerInfo;
use super::keys::Bucket;
use super::lookups::{held, senseless};
use super::record::Held;
use super::swap::Swapped;
use super::{Inner, RedisStore};
use crate::ports::{QuotaError, QuotaRead};
use crate::store::quota_document::{self, Unread};

/// A book that nobody has written for so long goes: a share is good for seconds.
const LASTS_MILLIS: u64 = 60 * 60 * 1_000;

impl RedisStore {
    /// Reads the book of a partition.
    ///
    /// # Errors
    /// [`QuotaError`] if the store does not answer, or holds what a later version wrote.
    pub async fn read_quota(&self, partition: PartitionId) -> Result<QuotaRead, QuotaError> {
        let key = self.inner.layout.quota(partition);
        let fails = |text: String| QuotaError { place: key.clone(), text };
        let read = self.inner.quota_at(&key).await;
        let (held, server) = read.map_err(|error| fails(error.to_string()))?;
        let Held::Bytes(bytes) = held else {
            return Ok(QuotaRead { book: None, held: None, server });
        };
        let book = match quota_document::read(&bytes, &server) {
            Ok(book) => book,
            Err(Unread::Later(version)) => {
                let text = format!("version {version} is of a later program: it is left alone");
                return Err(fails(text));
            }
            Err(Unread::Malformed(problem)) => {
                tracing::warn!(key, problem, "the shares of a cap cannot be read: begun anew");
                None
            }
        };
        Ok(QuotaRead { book, held: Some(bytes), server })
    }

    /// Puts a book in the place of what was read; `false` if that has changed.
    ///
    /// # Errors
    /// [`QuotaError`] if the store does not take it, or does not say so.
    pub async fn write_quota(
        &self,
        partition: PartitionId,
        read: &QuotaRead,
        book: &QuotaBook,
    ) -> Result<bool, QuotaError> {
        let key = self.inner.layout.quota(partition);
        let fails = |text: String| QuotaError { place: key.clone(), text };
        let text = quota_document::write(book, &read.server).map_err(fails)?;
        let expected = read.held.clone().map_or(Held::Nothing, Held::Bytes);
        let new = Held::Bytes(text.into_bytes());
        let first = Bucket::FIRST;
        let swapped = self.inner.swap(first, &key, (&expected, &new), LASTS_MILLIS).await;
        match swapped.map_err(|error| fails(error.to_string()))? {
            Swapped::Set(..) => Ok(true),
            Swapped::Differs(..) => Ok(false),
        }
    }
}

impl Inner {
    /// What a key holds, and the name of the server that has it.
    async fn quota_at(&self, key: &str) -> Result<(Held, String), CallError> {
        let mut asks = Pipeline::with_capacity(2);
        asks.cmd("GET").arg(key);
        asks.cmd("INFO").arg("replication");
        self.counters.add(StoreCount::RoundTrips, 1);
        let answers = self.client.ask(Bucket::FIRST, Lane::Quick, &asks).await?;
        if let Some(error) = refusal(&answers) {
            return Err(error);
        }
        let Ok([kept, info]) = <[Value; 2]>::try_from(answers) else { return Err(senseless()) };
        let info = ServerInfo::read(&info).ok_or_else(senseless)?;
        if !info.is_primary {
            return Err(CallError::Unreachable("it is a replica".to_owned()));
        }
        Ok((held(kept).ok_or_else(senseless)?, info.server.to_string()))
    }
}
