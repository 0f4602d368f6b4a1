//! `Quotas`: the shares of fallback caps in the token store, where instances share that.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::routing::{CapShare, InstanceLife, Quota, QuotaBook, QuotaRules};
use tidegate_core::token::PartitionId;

use crate::clock::Clock;
use crate::config::Limits;
use crate::ports::{QuotaRead, QuotaStore, Quotas as Brought};
use crate::sessions::Sessions;
use crate::store::AnyStore;

/// A share may be used for so long: five exchanges, so that a slow one or two take nobody's.
const LEASE: Duration = Duration::from_secs(1);
/// And is another's after this: clocks drift by far less than a quarter, and a timer may be late.
const RECLAIM: Duration = Duration::from_millis(1_250);
/// What a silent instance may use is left free so long: restarts and short cuts of a network are
/// over by then, and one that is dead for good costs its part of the cap no longer.
const REMEMBER: Duration = Duration::from_secs(60);

/// Shares caps by the store of the sessions.
#[derive(Debug)]
pub(super) struct Quotas(Arc<Sessions<AnyStore>>);

impl Quotas {
    /// Where instances share the store.
    pub(super) fn of(sessions: &Arc<Sessions<AnyStore>>) -> Option<Arc<dyn QuotaStore>> {
        let shares = sessions.store().is_shared();
        shares.then(|| Arc::new(Self(Arc::clone(sessions))) as Arc<dyn QuotaStore>)
    }
}

/// The part of the cap that this instance begins with.
pub(super) fn share(limits: &Limits, is_shared: bool, clock: Clock) -> CapShare {
    let cap = limits.fallback_reads;
    if !is_shared {
        return CapShare::whole(cap, limits.fallback_instances);
    }
    let rules = QuotaRules {
        lease: LEASE,
        reclaim: RECLAIM,
        remember: REMEMBER,
        fallback_instances: limits.fallback_instances,
    };
    let life = InstanceLife::new(fastrand::u64(..));
    CapShare::leased(Quota::new(rules, life, cap), clock.now())
}

impl QuotaStore for Quotas {
    fn read(&self, partition: PartitionId) -> Brought<'_, QuotaRead> {
        Box::pin(self.0.store().read_quota(partition))
    }

    fn write<'a>(
        &'a self,
        partition: PartitionId,
        read: &'a QuotaRead,
        book: &'a QuotaBook,
    ) -> Brought<'a, bool> {
        Box::pin(self.0.store().write_quota(partition, read, book))
    }
}
