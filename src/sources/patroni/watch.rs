//! `PatroniWatch`: the task that asks Patroni who leads, and says when that changed.
//!
//! It asks one address as long as that answers, and the next one when it does not. It believes
//! nothing: a change hurries polls, a contradicted fork is an alarm, and a Patroni that is
//! unreachable or talks nonsense is logged once. No answer of it can make anything wait.

use std::collections::VecDeque;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::answer::{self, Leading};
use super::fetch;
use crate::clock::Clock;
use crate::config::HttpAddress;
use crate::ports::{HintTaker, TimelineEnd};

/// Ends of timelines that wait to be compared; of more, the oldest are forgotten.
const ENDS_MAX: usize = 64;
/// Looks after a new timeline in which the end of the old one is asked for: Patroni writes it down
/// some seconds after the promotion.
const HISTORY_LOOKS: u32 = 120;
/// Characters of an error that are logged; the rest is what somebody else wrote.
const ERROR_CHARS: usize = 300;

/// Asks the Patroni of one partition.
#[derive(Debug)]
pub struct PatroniWatch<T> {
    partition: String,
    addresses: Vec<HttpAddress>,
    interval: Duration,
    timeout: Duration,
    taker: T,
    clock: Clock,
    state: State,
}

/// What was learned so far.
#[derive(Debug, Default)]
struct State {
    /// Which address is asked.
    current: usize,
    /// What ails each address, as it was logged.
    troubles: Vec<Option<String>>,
    leading: Option<Leading>,
    /// The timeline it named last.
    timeline: Option<u32>,
    /// The ends of these timelines are still to be read, in so many looks.
    wanted: Option<(std::ops::Range<u32>, u32)>,
    /// What ails its history, as it was logged.
    history_trouble: Option<String>,
    /// Not compared yet: their forks are not placed.
    ends: VecDeque<TimelineEnd>,
}

impl<T: HintTaker> PatroniWatch<T> {
    /// A watch that asks every `interval` and waits for an answer no longer than `timeout`. It does
    /// nothing before it runs.
    pub fn new(
        partition: String,
        addresses: Vec<HttpAddress>,
        (interval, timeout): (Duration, Duration),
        taker: T,
        clock: Clock,
    ) -> Self {
        let state = State { troubles: vec![None; addresses.len()], ..State::default() };
        Self { partition, addresses, interval, timeout, taker, clock, state }
    }

    /// Asks until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.ask_for_ever() => {}
        }
    }

    async fn ask_for_ever(&mut self) {
        loop {
            let due_at = self.clock.now() + self.interval;
            self.look().await;
            self.clock.sleep_until(due_at).await;
        }
    }

    /// Asks addresses, beginning with the current one, until one answers; each at most once.
    async fn look(&mut self) {
        for _ in 0..self.addresses.len() {
            match self.ask("/cluster", answer::leading).await {
                Ok(leading) => {
                    self.note(None);
                    self.saw(leading);
                    self.read_history().await;
                    self.compare();
                    return;
                }
                Err(error) => {
                    self.note(Some(error));
                    self.state.current = (self.state.current + 1) % self.addresses.len();
                }
            }
        }
    }

    async fn ask<A>(
        &self,
        path: &'static str,
        read: impl FnOnce(&[u8]) -> Result<A, String>,
    ) -> Result<A, String> {
        let Some(address) = self.addresses.get(self.state.current) else {
            return Err("no address is named".to_owned());
        };
        let ends_at = self.clock.now() + self.timeout;
        let answer = self.clock.until(ends_at, fetch::get(address, path)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(format!("it does not answer {path} within {:?}", self.timeout))
        })?;
        read(&answer).map_err(|error| format!("its answer to {path} makes no sense: {error}"))
    }

    /// Logs what ails the current address when that changes, not at every look.
    fn note(&mut self, error: Option<String>) {
        let error = error.map(shortened);
        let current = self.state.current;
        let Some(known) = self.state.troubles.get_mut(current) else { return };
        if *known == error {
            return;
        }
        let (partition, address) = (self.partition.as_str(), self.addresses.get(current));
        let address = address.map(ToString::to_string);
        match &error {
            Some(error) => warn!(partition, address, error, "Patroni gives no hints"),
            None => info!(partition, address, "Patroni answers"),
        }
        *known = error;
    }

    fn saw(&mut self, leading: Leading) {
        let state = &mut self.state;
        if let Some(now) = leading.timeline {
            let before = state.timeline.replace(now).unwrap_or(now);
            if now > before {
                let from = state.wanted.take().map_or(before, |(wanted, _)| wanted.start);
                state.wanted = Some((from..now, HISTORY_LOOKS));
            }
        }
        if state.leading.as_ref().is_some_and(|before| *before != leading) {
            let partition = self.partition.as_str();
            let Leading { leader, timeline } = &leading;
            info!(partition, leader, timeline, "Patroni names another leader or timeline");
            self.taker.hurry();
        }
        state.leading = Some(leading);
    }

    /// Reads where the wanted timelines ended, as far as Patroni has written it down.
    async fn read_history(&mut self) {
        let Some((wanted, looks)) = self.state.wanted.take() else { return };
        let ends = self.ask("/history", answer::ends).await;
        let (ends, error) = match ends {
            Ok(ends) => (ends, None),
            Err(error) => (Vec::new(), Some(shortened(error))),
        };
        if let Some(error) = error.as_ref().filter(|_| error != self.state.history_trouble) {
            warn!(partition = self.partition.as_str(), error, "Patroni's history is not compared");
        }
        self.state.history_trouble = error;
        let is_whole = ends.iter().any(|end| end.timeline.checked_add(1) == Some(wanted.end));
        if is_whole {
            let ends = ends.into_iter().filter(|end| wanted.contains(&end.timeline));
            self.state.ends.extend(ends);
            let excess = self.state.ends.len().saturating_sub(ENDS_MAX);
            self.state.ends.drain(..excess);
        } else if let Some(looks) = looks.checked_sub(1) {
            self.state.wanted = Some((wanted, looks));
        }
    }

    /// Compares what Patroni says of ends with the forks that were placed.
    fn compare(&mut self) {
        let (partition, taker) = (self.partition.as_str(), &self.taker);
        self.state.ends.retain(|end| match taker.fits(*end) {
            None => true,
            Some(true) => false,
            Some(false) => {
                let TimelineEnd { timeline, at } = end;
                warn!(
                    partition,
                    timeline,
                    %at,
                    "Patroni's history contradicts the fork read from the servers, which stands: \
                     compare `tidegate epochs` with pg_wal/*.history on the leader"
                );
                false
            }
        });
    }
}

fn shortened(error: String) -> String {
    error.chars().take(ERROR_CHARS).collect()
}
