//! `StoreView`: what operators may see of the store behind the sessions, whichever it is.

use tokio::sync::broadcast;

use super::{Sessions, StoreHappened, StoreStatus, TokenStore};

/// The store of an instance, as operators see it.
pub trait StoreView: std::fmt::Debug + Send + Sync {
    /// What is known of it now.
    fn status(&self) -> StoreStatus;

    /// What befalls it from now on.
    fn watch(&self) -> broadcast::Receiver<StoreHappened>;
}

impl<S: TokenStore + std::fmt::Debug> StoreView for Sessions<S> {
    fn status(&self) -> StoreStatus {
        self.store().status()
    }

    fn watch(&self) -> broadcast::Receiver<StoreHappened> {
        self.store().watch()
    }
}
