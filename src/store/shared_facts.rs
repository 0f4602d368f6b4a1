//! Facts, and shares of caps, that instances share in their token store. A store in this process
//! shares nothing. It only passes on.

use tidegate_core::leader::Facts;
use tidegate_core::routing::QuotaBook;
use tidegate_core::token::PartitionId;

use super::AnyStore;
use crate::ports::{FactError, QuotaError, QuotaRead};

impl AnyStore {
    /// Whether others have what is kept here.
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Redis(_) => true,
        }
    }

    /// Joins facts into those all instances keep of a partition; returns what is kept then.
    ///
    /// # Errors
    /// [`FactError`] if they are not kept.
    pub async fn exchange_facts(
        &self,
        partition: PartitionId,
        nodes: &[String],
        own: &Facts,
    ) -> Result<Facts, FactError> {
        match self {
            Self::Memory(_) => Ok(own.clone()),
            Self::Redis(store) => store.exchange_facts(partition, nodes, own).await,
        }
    }

    /// Reads the book of a partition's cap.
    ///
    /// # Errors
    /// [`QuotaError`] if it was not read, or nothing is shared.
    pub async fn read_quota(&self, partition: PartitionId) -> Result<QuotaRead, QuotaError> {
        match self {
            Self::Memory(_) => Err(unshared()),
            Self::Redis(store) => store.read_quota(partition).await,
        }
    }

    /// Puts a book in the place of what was read; `false` if that has changed.
    ///
    /// # Errors
    /// [`QuotaError`] if it is not known to be there, or nothing is shared.
    pub async fn write_quota(
        &self,
        partition: PartitionId,
        read: &QuotaRead,
        book: &QuotaBook,
    ) -> Result<bool, QuotaError> {
        match self {
            Self::Memory(_) => Err(unshared()),
            Self::Redis(store) => store.write_quota(partition, read, book).await,
        }
    }
}

fn unshared() -> QuotaError {
    QuotaError { place: "memory".to_owned(), text: "it is shared with nobody".to_owned() }
}
