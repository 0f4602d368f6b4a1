//! `Sharing`: the facts of partitions in the token store, where instances share that.

use std::sync::Arc;

use tidegate_core::leader::Facts;
use tidegate_core::token::PartitionId;
use tokio::sync::broadcast;

use crate::ports::{Exchanged, FactSharer, StoreHappened, TokenStore};
use crate::sessions::Sessions;
use crate::store::AnyStore;

/// Shares facts by the store of the sessions.
#[derive(Debug)]
pub(super) struct Sharing(Arc<Sessions<AnyStore>>);

impl Sharing {
    /// Where instances share the store.
    pub(super) fn of(sessions: &Arc<Sessions<AnyStore>>) -> Option<Arc<dyn FactSharer>> {
        let shares = sessions.store().is_shared();
        shares.then(|| Arc::new(Self(Arc::clone(sessions))) as Arc<dyn FactSharer>)
    }
}

impl FactSharer for Sharing {
    fn exchange<'a>(
        &'a self,
        partition: PartitionId,
        nodes: &'a [String],
        own: &'a Facts,
    ) -> Exchanged<'a> {
        Box::pin(self.0.store().exchange_facts(partition, nodes, own))
    }

    fn watch(&self) -> broadcast::Receiver<StoreHappened> {
        self.0.store().watch()
    }
}
