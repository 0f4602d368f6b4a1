//! `Gate`: whether calls are admitted: once each node was tried, other instances can see this one
//! and the store takes what is recorded; until it shuts down.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::wiring::Looks;
use crate::api::{Gatekeeper, status};
use crate::partitions::PartitionHandle;
use crate::sessions::Sessions;
use crate::store::AnyStore;

/// Whether calls are admitted.
#[derive(Debug)]
pub(super) struct Gate {
    partitions: Vec<Arc<PartitionHandle>>,
    looks: Arc<Looks>,
    sessions: Arc<Sessions<AnyStore>>,
    stop: CancellationToken,
    waits_for: watch::Sender<Option<&'static str>>,
}

impl Gate {
    pub(super) fn new(
        partitions: Vec<Arc<PartitionHandle>>,
        looks: Arc<Looks>,
        sessions: Arc<Sessions<AnyStore>>,
        stop: CancellationToken,
    ) -> Self {
        let waits_for = watch::Sender::new(Some("nodes are tried"));
        Self { partitions, looks, sessions, stop, waits_for }
    }

    /// Says why calls should not come.
    pub(super) fn readiness(&self) -> Result<(), String> {
        if self.stop.is_cancelled() {
            return Err("shutting down".to_owned());
        }
        match (self.untried(), *self.waits_for.borrow()) {
            (Some(why), _) => Err(why),
            (None, Some(why)) => Err(why.to_owned()),
            (None, None) => Ok(()),
        }
    }

    fn untried(&self) -> Option<String> {
        self.partitions.iter().find_map(|partition| {
            let node = partition.first_untried()?;
            Some(format!("node `{node}` of `{}` was not tried yet", partition.info().name))
        })
    }

    /// Waits until each node was tried once, until others must have seen this instance, and until
    /// its records can be promised to them.
    pub(super) async fn ready(&self) {
        for partition in &self.partitions {
            partition.all_tried().await;
        }
        self.waits_for.send_replace(Some("other instances are looked for on the leaders"));
        self.looks.settled(&self.partitions).await;
        self.waits_for.send_replace(Some("the token store has not taken writes for long enough"));
        self.sessions.store().settled().await;
        self.waits_for.send_replace(None);
    }
}

impl Gatekeeper for Gate {
    fn admit(&self) -> Result<(), Status> {
        if self.stop.is_cancelled() {
            Err(status::draining())
        } else if self.waits_for.borrow().is_none() {
            Ok(())
        } else {
            Err(status::not_ready())
        }
    }

    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.stop.clone().cancelled_owned())
    }
}
