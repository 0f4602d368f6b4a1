//! Facts that instances share in their token store. A store in this process shares nothing. It only
//! passes on.

use tidegate_core::leader::Facts;
use tidegate_core::token::PartitionId;

use super::AnyStore;
use crate::ports::FactError;

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
}
