//! Finds out in the background when a store that was down is back, and looks for a new primary.
//!
//! Calls wait for neither. It counts the time without an answer.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;

use super::super::events::{StoreCount, StoreEvent};
use super::{Lane, Part, Shared};

/// The first pause between two probes; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Probes of a cluster before it is connected to anew: its link repairs itself first.
const PROBES_OF_A_LINK: u32 = 3;
/// A primary that is doubted is looked for at most this often.
const DOUBTS_APART: Duration = Duration::from_secs(1);

/// Works until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut dialled_at = None;
    loop {
        shared.wake.notified().await;
        if shared.doubted.swap(None).is_some() {
            let now = shared.clock.now();
            let lately = dialled_at.is_some_and(|at| now.since(at) < DOUBTS_APART);
            if !lately {
                dialled_at = Some(now);
                shared.dial_again().await;
            }
        }
        if shared.is_any_down() {
            until_all_are_up(&shared).await;
        }
    }
}

async fn until_all_are_up(shared: &Shared) {
    let (mut pause, mut probes) = (FIRST_PAUSE, 0_u32);
    let mut counted_upto = shared.clock.now();
    loop {
        probes += 1;
        // The link of a cluster looks for the new primary by itself; others are made anew.
        if shared.renews_links() || probes.is_multiple_of(PROBES_OF_A_LINK) {
            shared.dial_again().await;
        }
        // Side by side: while a server is gone each of its buckets takes the whole time of a call.
        let down = shared.layout.buckets().zip(&shared.parts);
        let down = down.filter(|(_, part)| part.down.load().is_some());
        let probed = down.map(|(bucket, part)| async move {
            let mut asks = Pipeline::new();
            asks.cmd("GET").arg(shared.layout.generation(bucket));
            if answers(shared, part, &asks).await {
                part.down.store(None);
            }
        });
        futures::future::join_all(probed).await;
        let now = shared.clock.now();
        let millis = u64::try_from(now.since(counted_upto).as_millis()).unwrap_or(u64::MAX);
        shared.counters.add(StoreCount::UnreachableMillis, millis);
        counted_upto = now;
        if !shared.is_any_down() {
            shared.announcer.tell(StoreEvent::Reachable, "a probe was answered");
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the server of a part answers over the links of now.
async fn answers(shared: &Shared, part: &Part, asks: &Pipeline) -> bool {
    let asked = shared.ask_up(part, Lane::Quick, asks).await;
    asked.is_ok_and(|answers| super::refusal(&answers).is_none())
}

impl Shared {
    fn is_any_down(&self) -> bool {
        self.parts.iter().any(|part| part.down.load().is_some())
    }

    fn renews_links(&self) -> bool {
        self.parts.len() == 1
    }
}
