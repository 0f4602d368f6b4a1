//! `Gate`: whether calls are admitted: once each node was tried and other instances can see this
//! one, and until it shuts down.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::wiring::Looks;
use crate::api::{Gatekeeper, status};
use crate::partitions::PartitionHandle;

/// Whether calls are admitted.
#[derive(Debug)]
pub(super) struct Gate {
    partitions: Vec<Arc<PartitionHandle>>,
    looks: Arc<Looks>,
    stop: CancellationToken,
    opened: watch::Sender<bool>,
}

impl Gate {
    pub(super) fn new(
        partitions: Vec<Arc<PartitionHandle>>,
        looks: Arc<Looks>,
        stop: CancellationToken,
    ) -> Self {
        Self { partitions, looks, stop, opened: watch::Sender::new(false) }
    }

    /// Says why calls should not come.
    pub(super) fn readiness(&self) -> Result<(), String> {
        if self.stop.is_cancelled() {
            return Err("shutting down".to_owned());
        }
        match self.untried() {
            Some(why) => Err(why),
            None if !*self.opened.borrow() => {
                Err("other instances are looked for on the leaders".to_owned())
            }
            None => Ok(()),
        }
    }

    fn untried(&self) -> Option<String> {
        self.partitions.iter().find_map(|partition| {
            let node = partition.first_untried()?;
            Some(format!("node `{node}` of `{}` was not tried yet", partition.info().name))
        })
    }

    /// Waits until each node was tried once, and until others must have seen this instance.
    pub(super) async fn ready(&self) {
        for partition in &self.partitions {
            partition.all_tried().await;
        }
        self.looks.settled(&self.partitions).await;
        self.opened.send_replace(true);
    }
}

impl Gatekeeper for Gate {
    fn admit(&self) -> Result<(), Status> {
        if self.stop.is_cancelled() {
            Err(status::draining())
        } else if *self.opened.borrow() {
            Ok(())
        } else {
            Err(status::not_ready())
        }
    }

    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.stop.clone().cancelled_owned())
    }
}
