//! `QuotaStore`: keeps the book of who may use how much of a partition's fallback cap.
//!
//! It compares and swaps; what a book means is the core's affair.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use thiserror::Error;
use tidegate_core::routing::QuotaBook;
use tidegate_core::token::PartitionId;

/// The book was not read or not written.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{place}: {text}")]
pub struct QuotaError {
    /// What holds it.
    pub place: String,
    /// What happened and what to do.
    pub text: String,
}

/// What holds the book of a partition, as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaRead {
    /// The book; `None`: there is none, or it is older than what was lost with it.
    pub book: Option<QuotaBook>,
    /// What was there, to be compared with.
    pub held: Option<Vec<u8>>,
    /// Which server had it.
    pub server: String,
}

/// What a call will have brought.
pub type Quotas<'a, T> = Pin<Box<dyn Future<Output = Result<T, QuotaError>> + Send + 'a>>;

/// Keeps one book for each partition, for all instances.
pub trait QuotaStore: fmt::Debug + Send + Sync + 'static {
    /// Reads the book of a partition.
    fn read(&self, partition: PartitionId) -> Quotas<'_, QuotaRead>;

    /// Puts `book` in the place of what was `read`; `false` if that has changed meanwhile. After an
    /// error it may be there or not, and may still get there.
    fn write<'a>(
        &'a self,
        partition: PartitionId,
        read: &'a QuotaRead,
        book: &'a QuotaBook,
    ) -> Quotas<'a, bool>;
}
