//! `WatchEvents`: what happens in some partitions, after the state of now.
//!
//! Its buffer is that of the partitions: a watcher that is slow misses events and is told how many.
//! Losses are told at most once a second, with the counts of then.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt, unfold};
use tidegate_core::instant::Instant;
use tidegate_core::leader::{Contender, Leadership};
use tidegate_core::partition::Notable;
use tidegate_core::token::PartitionId;
use tidegate_proto::v1;
use tidegate_proto::v1::watch_events_response::Event;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tonic::Status;

use super::show::{name, quarantined, state, text, time};
use super::{epochs, store};
use crate::api::status;
use crate::clock::Clock;
use crate::partitions::{Happened, Happening, PartitionHandle};
use crate::sessions::{LossKey, LossLedger, StoreHappened, StoreView, Told};

/// A loss that goes on being told to sessions is an event at most this often.
const LOSSES_APART: Duration = Duration::from_secs(1);

/// What a watcher receives.
pub(super) type Events = BoxStream<'static, Result<v1::WatchEventsResponse, Status>>;

type Read = (usize, Result<Happened, BroadcastStreamRecvError>);
type StoreRead = Result<StoreHappened, BroadcastStreamRecvError>;

/// One watcher.
struct Watcher {
    handles: Vec<Arc<PartitionHandle>>,
    feeds: SelectAll<BoxStream<'static, Read>>,
    store: Arc<dyn StoreView>,
    store_feed: BoxStream<'static, StoreRead>,
    ledger: Arc<LossLedger>,
    changes: watch::Receiver<u64>,
    /// What was told of each loss the ledger has.
    told: BTreeMap<LossKey, Told>,
    losses_due: Instant,
    /// What is to be sent before anything else is read.
    ready: VecDeque<v1::WatchEventsResponse>,
    draining: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
    clock: Clock,
    _place: OwnedSemaphorePermit,
}

/// What comes next.
enum Turn {
    Happened(Read),
    Store(StoreRead),
    Losses,
    Draining,
    Ended,
}

/// Tells of these partitions until the instance shuts down.
pub(super) fn events(
    handles: Vec<Arc<PartitionHandle>>,
    (ledger, store): (Arc<LossLedger>, Arc<dyn StoreView>),
    draining: Pin<Box<dyn Future<Output = ()> + Send>>,
    clock: Clock,
    place: OwnedSemaphorePermit,
) -> Events {
    // Watched before the state is read: what happens in between is told twice, not missed.
    let feeds = handles.iter().enumerate().map(|(index, handle)| {
        BroadcastStream::new(handle.watch()).map(move |read| (index, read)).boxed()
    });
    let feeds = feeds.collect();
    // A store of which nothing is told does not end the stream.
    let nothing_more = futures::stream::pending();
    let store_feed = BroadcastStream::new(store.watch()).chain(nothing_more).boxed();
    let mut changes = ledger.changes();
    changes.mark_changed();
    let mut watcher = Watcher {
        feeds,
        store,
        store_feed,
        changes,
        ledger,
        told: BTreeMap::new(),
        losses_due: clock.now(),
        ready: VecDeque::new(),
        draining,
        ended: false,
        clock,
        handles,
        _place: place,
    };
    for index in 0..watcher.handles.len() {
        watcher.show(index);
    }
    unfold(watcher, |mut watcher| async move {
        let next = watcher.next().await?;
        Some((next, watcher))
    })
    .boxed()
}

impl Watcher {
    async fn next(&mut self) -> Option<Result<v1::WatchEventsResponse, Status>> {
        while !self.ended {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.turn().await {
                Turn::Happened((index, Ok(happened))) => self.happened(index, happened),
                Turn::Happened((index, Err(BroadcastStreamRecvError::Lagged(count)))) => {
                    let missed = v1::EventsMissed { event_count: count };
                    self.push(index, self.clock.wall_seconds(), Event::Missed(missed));
                    self.show(index);
                }
                Turn::Store(Ok(happened)) => self.ready.push_back(store::event(&happened)),
                Turn::Store(Err(BroadcastStreamRecvError::Lagged(count))) => {
                    self.ready.push_back(v1::WatchEventsResponse {
                        time: Some(time(self.clock.wall_seconds())),
                        partition: String::new(),
                        event: Some(Event::Missed(v1::EventsMissed { event_count: count })),
                    });
                }
                Turn::Losses => self.losses(),
                Turn::Draining => {
                    self.ended = true;
                    return Some(Err(status::draining()));
                }
                Turn::Ended => self.ended = true,
            }
        }
        None
    }

    async fn turn(&mut self) -> Turn {
        let losses = async {
            self.clock.sleep_until(self.losses_due).await;
            if self.changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = &mut self.draining => Turn::Draining,
            read = self.feeds.next() => read.map_or(Turn::Ended, Turn::Happened),
            read = self.store_feed.next() => read.map_or(Turn::Ended, Turn::Store),
            () = losses => Turn::Losses,
        }
    }

    fn push(&mut self, index: usize, at_seconds: u64, event: Event) {
        let Some(handle) = self.handles.get(index) else { return };
        self.ready.push_back(v1::WatchEventsResponse {
            time: Some(time(at_seconds)),
            partition: handle.info().name.clone(),
            event: Some(event),
        });
    }

    /// Shows the state of now.
    fn show(&mut self, index: usize) {
        let Some(handle) = self.handles.get(index) else { return };
        let current = super::show::partition(handle, self.clock.now());
        let current = store::with_alarm(current, &self.store.status());
        self.push(index, self.clock.wall_seconds(), Event::Current(current));
    }

    fn happened(&mut self, index: usize, Happened { at_seconds, what }: Happened) {
        let Some(handle) = self.handles.get(index).map(Arc::clone) else { return };
        self.push(index, at_seconds, event(&handle, what));
    }

    /// Tells of losses of which more sessions were told since.
    fn losses(&mut self) {
        self.losses_due = self.clock.now() + LOSSES_APART;
        for index in 0..self.handles.len() {
            let Some(handle) = self.handles.get(index).map(Arc::clone) else { continue };
            let partition = handle.info().id;
            let losses = self.ledger.in_partition(partition);
            for (key, told) in news(&mut self.told, partition, losses) {
                let loss = epochs::loss_of(&handle, key, told);
                self.push(index, told.last_seconds, Event::LossesTold(loss));
            }
        }
    }
}

/// Those losses of a partition that were not told so, noted as told; what is no more is forgotten.
fn news(
    told: &mut BTreeMap<LossKey, Told>,
    partition: PartitionId,
    losses: Vec<(LossKey, Told)>,
) -> Vec<(LossKey, Told)> {
    let is_news = |(key, now): &(LossKey, Told)| told.get(key) != Some(now);
    let news = losses.iter().copied().filter(is_news).collect();
    told.retain(|key, _| key.partition != partition);
    told.extend(losses);
    news
}

fn event(handle: &PartitionHandle, what: Happening) -> Event {
    match what {
        Happening::Noted(notable) => noted(handle, notable),
        Happening::Deposed { epoch, position } => Event::DeposedWrite(v1::DeposedWrite {
            epoch: epoch.to_string(),
            position: position.to_string(),
        }),
        Happening::Announced(said) => Event::FailoverAnnounced(v1::FailoverAnnounced {
            source: said.source,
            node: said.node.map_or_else(String::new, |node| name(handle, node)),
            new_leader_node: said.new_leader.map_or_else(String::new, |node| name(handle, node)),
        }),
        Happening::OtherInstances(connections) => {
            Event::OtherInstances(v1::OtherInstances { connections })
        }
    }
}

fn noted(handle: &PartitionHandle, notable: Notable) -> Event {
    match notable {
        Notable::Leadership(leadership) => leadership_event(handle, &leadership),
        Notable::NewEpoch { row, unknown: _ } => Event::EpochPlaced(v1::EpochPlaced {
            epoch: row.epoch.to_string(),
            parent: text(row.parent),
            fork: row.parent.map(|_| epochs::fork(row.fork)),
        }),
        Notable::Quarantined(node, why) => Event::NodeQuarantined(v1::NodeQuarantined {
            node: name(handle, node),
            reason: quarantined(why),
        }),
        Notable::Resumed(node) => Event::NodeResumed(v1::NodeResumed { node: name(handle, node) }),
        Notable::Verdict(winner, aside) => Event::VerdictGiven(v1::VerdictGiven {
            epoch: winner.to_string(),
            aside_epochs: aside.iter().map(ToString::to_string).collect(),
        }),
        Notable::Restored(node, epoch) => Event::NodeRestored(v1::NodeRestored {
            node: name(handle, node),
            epoch: epoch.to_string(),
        }),
        Notable::RowConflict(epoch) => {
            Event::RowConflict(v1::RowConflict { epoch: epoch.to_string() })
        }
        Notable::RowUnwritable(epoch) => {
            Event::RowUnwritable(v1::RowUnwritable { epoch: epoch.to_string() })
        }
        Notable::ForeignSystem(node) => {
            Event::ForeignSystem(v1::ForeignSystem { node: name(handle, node) })
        }
    }
}

fn leadership_event(handle: &PartitionHandle, leadership: &Leadership) -> Event {
    let snapshot = handle.snapshot();
    let contender = |contender: &Contender| {
        let view = snapshot.view(contender.node);
        let life = contender.epoch.incarnation(handle.info().system);
        let seen = view.is_some_and(|view| view.incarnation == life);
        v1::Contender {
            node: name(handle, contender.node),
            incarnation: if seen { life.to_string() } else { String::new() },
            epoch: contender.epoch.to_string(),
        }
    };
    match leadership {
        Leadership::Split(heads) => {
            Event::SplitBegun(v1::SplitBegun { contenders: heads.iter().map(contender).collect() })
        }
        Leadership::Leader(leader) => Event::LeadershipChanged(v1::LeadershipChanged {
            state: state(leadership).into(),
            node: name(handle, leader.node),
            epoch: leader.epoch.to_string(),
        }),
        Leadership::Last(epoch) => Event::LeadershipChanged(v1::LeadershipChanged {
            state: state(leadership).into(),
            node: String::new(),
            epoch: epoch.to_string(),
        }),
        Leadership::Nobody => Event::LeadershipChanged(v1::LeadershipChanged {
            state: state(leadership).into(),
            node: String::new(),
            epoch: String::new(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::lineage::{Epoch, Life};

    fn loss(partition: u32, lost: i64, write_lost: u64) -> (LossKey, Told) {
        let epoch = |life| Epoch::new(1, Life { start: life, reset: life });
        let partition = PartitionId::new(partition);
        let key = LossKey { partition, lost: epoch(lost), child: epoch(lost + 1) };
        (key, Told { write_lost, ..Told::default() })
    }

    #[test]
    fn a_watcher_remembers_no_loss_that_the_ledger_forgot() {
        let (one, other) = (PartitionId::new(1), PartitionId::new(2));
        let mut told = BTreeMap::new();
        assert_eq!(news(&mut told, other, vec![loss(2, 1, 1)]), [loss(2, 1, 1)]);
        assert_eq!(news(&mut told, one, vec![loss(1, 1, 1)]), [loss(1, 1, 1)]);
        let grown = vec![loss(1, 1, 2), loss(1, 3, 1)];
        assert_eq!(news(&mut told, one, grown.clone()), grown);
        assert_eq!(news(&mut told, one, vec![loss(1, 3, 1)]), [], "it was told");
        let kept: Vec<_> = told.into_iter().collect();
        assert_eq!(kept, [loss(1, 3, 1), loss(2, 1, 1)], "the other partition's stay");
    }
}
