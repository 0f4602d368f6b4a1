//! Shares what is known of a partition with other instances, and learns what they know.
//!
//! One exchange at a time, each answering all who asked for it meanwhile. What facts prove is the
//! core's affair; a store that does not answer keeps nobody from anything.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::partition::Event;
use tidegate_core::snapshot::Snapshot;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tracing::{info, warn};

use super::PartitionInfo;
use super::handle::Ask;
use crate::clock::Clock;
use crate::ports::{FactSharer, StoreHappened, StoreHappening};

/// What others learned is known here after this time at most, whoever asks.
const INTERVAL: Duration = Duration::from_secs(3);
/// Who asks for an exchange gets one that began this long ago at most: epochs that nobody knows
/// cost the store ten calls a second.
const APART: Duration = Duration::from_millis(100);
/// Calls that may wait for one exchange; one more goes on without it.
pub(super) const LEARNERS_MAX: usize = 1_024;

/// Who waits for an exchange.
pub(super) type Learner = oneshot::Sender<()>;

/// Exchanges the facts of one partition.
pub(super) struct Sharing {
    pub(super) sharer: Arc<dyn FactSharer>,
    pub(super) info: PartitionInfo,
    /// Weak: it keeps no partition alive.
    pub(super) asks: mpsc::WeakSender<Ask>,
    pub(super) learners: mpsc::Receiver<Learner>,
    pub(super) newest: watch::Receiver<Option<Arc<Facts>>>,
    pub(super) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(super) clock: Clock,
}

/// Why an exchange is due.
enum Due {
    /// Somebody waits for it.
    Asked(Learner),
    /// Time passed, or there is something to tell.
    Here,
    /// The partition has ended.
    Never,
}

impl Sharing {
    pub(super) async fn run(mut self) {
        let names: Vec<String> = self.info.nodes.iter().map(|node| node.name.clone()).collect();
        let mut events = Some(self.sharer.watch());
        let (mut began_at, mut trouble) = (None, None);
        loop {
            let mut waiting = Vec::new();
            match self.due(began_at, &mut events).await {
                Due::Asked(learner) => waiting.push(learner),
                Due::Here => {}
                Due::Never => return,
            }
            let now = self.clock.now();
            let is_fresh = began_at.is_some_and(|began_at: Instant| now.since(began_at) < APART);
            if waiting.is_empty() || !is_fresh {
                began_at = Some(now);
                let error = self.exchange(&names).await.err();
                self.note(&mut trouble, error);
                while let Ok(learner) = self.learners.try_recv() {
                    waiting.push(learner);
                }
            }
            for learner in waiting {
                // Whoever has given up hears nothing.
                _ = learner.send(());
            }
        }
    }

    async fn due(
        &mut self,
        began_at: Option<Instant>,
        events: &mut Option<broadcast::Receiver<StoreHappened>>,
    ) -> Due {
        let next_at = began_at.map_or_else(Instant::default, |at| at + INTERVAL);
        loop {
            let befell = async {
                match events {
                    Some(events) => events.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                learner = self.learners.recv() => return learner.map_or(Due::Never, Due::Asked),
                changed = self.newest.changed() => {
                    return if changed.is_ok() { Due::Here } else { Due::Never };
                }
                befell = befell => match befell {
                    Ok(happened) if puts_back(&happened.what) => return Due::Here,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => *events = None,
                },
                () = self.clock.sleep_until(next_at) => return Due::Here,
            }
        }
    }

    /// Puts what is known here into the store, and takes in what others put there.
    async fn exchange(&self, names: &[String]) -> Result<(), String> {
        let own = Arc::clone(&self.snapshot.load().facts);
        let kept = self.sharer.exchange(self.info.id, names, &own).await;
        let kept = kept.map_err(|error| error.to_string())?;
        let is_news = Facts::clone(&own).merge(&kept);
        if let Some(asks) = self.asks.upgrade().filter(|_| is_news) {
            let (done, counts) = oneshot::channel();
            let event = Event::Learned(Arc::new(kept));
            if asks.send(Ask::Order(event, done)).await.is_ok() {
                // Ended in between, nobody needs it.
                _ = counts.await;
            }
        }
        Ok(())
    }

    /// Logs what keeps facts from being shared when it changes.
    fn note(&self, known: &mut Option<String>, error: Option<String>) {
        if *known == error {
            return;
        }
        let partition = self.info.name.as_str();
        match &error {
            Some(error) => warn!(partition, error, "facts are not shared"),
            None => info!(partition, "facts are shared"),
        }
        *known = error;
    }
}

/// Whether the store may have lost what is known here.
const fn puts_back(what: &StoreHappening) -> bool {
    match what {
        StoreHappening::Lost(_) | StoreHappening::Stands | StoreHappening::Reachable => true,
        StoreHappening::Unreachable
        | StoreHappening::Refuses
        | StoreHappening::Takes
        | StoreHappening::RecordMalformed
        | StoreHappening::Unfit => false,
    }
}
