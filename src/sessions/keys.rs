//! `TokenKeys`: the keys of a running instance. They may change while calls use them; a call seals
//! and opens with those it met.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::instant::Instant;

use crate::seal::{Keyring, KeysRefused};

/// The keys tokens are sealed and opened with now.
#[derive(Debug)]
pub struct TokenKeys(ArcSwap<Keyring>);

impl TokenKeys {
    /// These keys, accepted from `now` on.
    pub(super) fn new(keyring: &Keyring, now: Instant) -> Self {
        Self(ArcSwap::from_pointee(keyring.accepted_from(now)))
    }

    /// Those of now, for one call.
    pub(super) fn current(&self) -> arc_swap::Guard<Arc<Keyring>> {
        self.0.load()
    }

    /// What the keys become if `loaded` follow those of now; `None`: they are the same.
    ///
    /// # Errors
    /// [`KeysRefused`] if that may not be now, where tokens are good for `lifetime`.
    pub fn followed_by(
        &self,
        loaded: &Keyring,
        lifetime: Duration,
        now: Instant,
    ) -> Result<Option<Keyring>, KeysRefused> {
        self.0.load().followed_by(loaded, lifetime, now)
    }

    /// From now on tokens are sealed and opened with `next`, as [`Self::followed_by`] gave it.
    pub fn replace(&self, next: Keyring) {
        self.0.store(Arc::new(next));
    }
}
