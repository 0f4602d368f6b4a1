//! `Looks`: brings what servers say of other instances to a store in memory, and holds the start up
//! until they have seen this one. With a store that instances share nobody looks.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::store_guard::EmbeddedGuard;
use tidegate_core::token::ComponentKey;

use crate::clock::Clock;
use crate::partitions::PartitionHandle;
use crate::ports::{LOOK_INTERVAL, Look, LookTaker};
use crate::sources::postgres::Tag;
use crate::store::MemoryBeliefs;

/// How long a start waits, once each node was tried, for a leader to connect to and for others to
/// be gone: a predecessor's connections end within less. Nobody is helped by one that waits longer
/// for a leader that it cannot reach: it believes no record, and serves whoever carries a token.
const WAIT_MOST: Duration =
    LOOK_INTERVAL.saturating_mul(EmbeddedGuard::LOOKS + 2 * EmbeddedGuard::LOOKS_GONE);
/// How often a start looks whether it may go on.
const STEP: Duration = Duration::from_millis(10);

/// Brings looks at servers to a store in memory.
#[derive(Debug)]
pub(in crate::server) struct Looks {
    /// `None`: the store is shared.
    store: Option<MemoryBeliefs>,
    tag: Tag,
    guards: Guards,
    clock: Clock,
}

impl Looks {
    pub(super) fn new(store: Option<MemoryBeliefs>, guards: Guards, clock: Clock) -> Self {
        Self { store, tag: Tag::random(), guards, clock }
    }

    /// What tells this instance from all others, if it looks for them.
    pub(super) fn tag(&self) -> Option<Tag> {
        self.store.is_some().then_some(self.tag)
    }

    /// Waits until this instance may take its first call.
    pub(in crate::server) async fn settled(&self, partitions: &[Arc<PartitionHandle>]) {
        let Some(store) = &self.store else { return };
        let keys = || partitions.iter().map(|partition| partition.key());
        let waited_at = self.clock.now() + WAIT_MOST;
        while !store.may_start(keys(), self.clock.now() >= waited_at) {
            if store.wants_sample(keys()) {
                partitions.iter().for_each(|partition| partition.hurry());
            }
            self.clock.sleep_until(self.clock.now() + STEP).await;
        }
    }
}

impl LookTaker for Looks {
    fn looked(&self, key: ComponentKey, look: &Look, leads: bool) -> bool {
        let store = self.store.as_ref();
        store.is_some_and(|store| store.looked(key, look, leads, &self.guards))
    }
}
