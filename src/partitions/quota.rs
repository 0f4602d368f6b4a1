//! `Cap`: the freshness fallbacks that this instance may send to a partition's leader, and the task
//! that shares them with other instances.
//!
//! One exchange at a time. How much is whose is the core's affair; a store that does not answer
//! keeps nobody from anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::routing::{CapFull, CapShare, QuotaKind};
use tidegate_core::token::PartitionId;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::ports::{QuotaError, QuotaStore};
use crate::telemetry::{Admission, PartitionTelemetry};

/// Between two exchanges: a share follows demand within a few of them.
const INTERVAL: Duration = Duration::from_millis(200);
/// Instances that one exchange comes behind; the next one goes on.
const TRIES: usize = 8;
/// Callers that are refused are asked to come back within so long after there is room: all at once
/// they would fill it, and most would come back again.
const COME_BACK_WITHIN: Duration = Duration::from_secs(1);
/// An instance that stops says so within this time, or not at all.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// The fallbacks of one partition.
#[derive(Debug)]
pub(super) struct Cap {
    share: Mutex<CapShare>,
    telemetry: PartitionTelemetry,
    guards: Guards,
    clock: Clock,
}

impl Cap {
    pub(super) fn new(
        share: CapShare,
        telemetry: PartitionTelemetry,
        guards: Guards,
        clock: Clock,
    ) -> Self {
        let cap = Self { share: Mutex::new(share), telemetry, guards, clock };
        cap.show();
        cap
    }

    fn share(&self) -> MutexGuard<'_, CapShare> {
        // A panic elsewhere leaves it whole: it changes by whole events.
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits one freshness fallback to the leader.
    ///
    /// # Errors
    /// [`CapFull`], with the time until one read fits again.
    pub(super) fn try_admit(&self, now: Instant) -> Result<(), CapFull> {
        let admitted = self.share().try_admit(now, &self.guards);
        let admission = if admitted.is_ok() { Admission::Admitted } else { Admission::Refused };
        self.telemetry.fallback(admission);
        admitted
    }

    /// Admits so many reads per second from now on, over all instances.
    pub(super) fn set(&self, reads_per_second: u32) {
        {
            let mut share = self.share();
            // Read under the lock: the cap wants the instants of its changes in order.
            share.set_cap(reads_per_second, self.clock.now());
        }
        self.show();
    }

    /// Others are there, or are not, that keep records of their own and know nothing of this cap.
    pub(super) fn beside_others(&self, are_there: bool) {
        self.share().beside_others(are_there, self.clock.now());
        self.show();
    }

    /// Reports what is in force; says whether that is a static share.
    fn show(&self) -> bool {
        let mut share = self.share();
        let (rate, kind) = share.in_force(self.clock.now());
        let all = share.reads_per_second();
        drop(share);
        let is_static = kind == QuotaKind::Static;
        self.telemetry.cap_in_force(all);
        self.telemetry.share_in_force(rate, is_static);
        is_static
    }
}

/// A refusal that asks its caller back at a time of its own.
pub(super) fn spread(full: CapFull) -> CapFull {
    let later = COME_BACK_WITHIN.mul_f64(fastrand::f64());
    CapFull { retry_after: full.retry_after.map(|least| least + later) }
}

/// Shares the cap of one partition.
#[derive(Debug)]
pub(super) struct Sharer {
    pub(super) store: Arc<dyn QuotaStore>,
    pub(super) cap: Arc<Cap>,
    pub(super) id: PartitionId,
    pub(super) name: String,
}

impl Sharer {
    /// Exchanges shares until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let (clock, mut trouble) = (self.cap.clock, None);
        loop {
            let began_at = clock.now();
            let error = self.exchange().await.err();
            if error.is_some() {
                self.cap.share().failed(clock.now());
            }
            let is_static = self.cap.show();
            self.note(&mut trouble, error.filter(|_| is_static));
            clock.sleep_until(began_at + INTERVAL).await;
        }
    }

    async fn exchange(&self) -> Result<(), QuotaError> {
        let clock = self.cap.clock;
        for _ in 0..TRIES {
            let asked_at = clock.now();
            let read = self.store.read(self.id).await?;
            let proposed = {
                let mut share = self.cap.share();
                let sent_at = clock.now();
                share.propose(read.book.as_ref(), (asked_at, sent_at)).map(|book| (book, sent_at))
            };
            let Some((book, sent_at)) = proposed else { return Ok(()) };
            if self.store.write(self.id, &read, &book).await? {
                let mut share = self.cap.share();
                share.confirmed(&book, sent_at, clock.now());
                return Ok(());
            }
        }
        let text = format!("others wrote it {TRIES} times meanwhile");
        Err(QuotaError { place: self.name.clone(), text })
    }

    /// Gives the share up: this instance admits nothing any more.
    pub(super) async fn leave(&self) {
        let clock = self.cap.clock;
        let left = clock.until(clock.now() + LEAVE_WITHIN, async {
            for _ in 0..TRIES {
                let Ok(read) = self.store.read(self.id).await else { return };
                let Some(book) = &read.book else { return };
                let Some(book) = self.cap.share().leave(book, clock.now()) else { return };
                if !matches!(self.store.write(self.id, &read, &book).await, Ok(false)) {
                    return;
                }
            }
        });
        // Others find out by themselves, a little later.
        _ = left.await;
    }

    /// Logs what keeps the cap from being shared when it changes.
    fn note(&self, known: &mut Option<QuotaError>, error: Option<QuotaError>) {
        let partition = self.name.as_str();
        match (&known, &error) {
            (None, Some(error)) => warn!(
                partition,
                %error,
                "the fallback cap is not shared: this instance goes by its static share"
            ),
            (Some(_), None) => info!(partition, "the fallback cap is shared"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        *known = error;
    }
}
