//! `PostgresSource`: the task that keeps one node's readings coming.
//!
//! It decides when to ask, as its demand says, and what to do when asking fails: drop the
//! connection, say so, wait a little, try again, for ever. It remembers nothing of what it read.
//! A server that swallows every packet holds up its own task alone.

use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::views::NodeId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::connection::Connection;
use super::failure::timed_out;
use super::history_file::HistoryFile;
use super::target::Target;
use crate::clock::Clock;
use crate::ports::{Command, Demand, PositionSource, Reading, SourceError};

/// Polls are never sent closer than this, whatever interval is demanded.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Samples that are demanded come so far apart: no caller makes a node be polled faster than
/// somebody who waits does.
const SAMPLES_APART: Duration = Duration::from_millis(2);

/// The runtime's timers count in milliseconds: one that nothing disturbs ends at most this late.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// Polls one PostgreSQL server.
#[derive(Debug)]
pub struct PostgresSource {
    target: Target,
    clock: Clock,
}

impl PostgresSource {
    /// A source for one server. It does nothing before it runs.
    pub const fn new(target: Target, clock: Clock) -> Self {
        Self { target, clock }
    }
}

impl PositionSource for PostgresSource {
    async fn run(
        self,
        demand: watch::Receiver<Demand>,
        commands: mpsc::Receiver<Command>,
        readings: mpsc::Sender<(NodeId, Reading)>,
        stop: CancellationToken,
    ) {
        let Self { target, clock } = self;
        let desk = Desk {
            node: target.node,
            clock,
            demand,
            commands,
            readings,
            polled: Polled::default(),
            file: HistoryFile::default(),
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = ask_for_ever(&target, desk) => {}
        }
    }
}

/// Nobody takes the readings any more.
struct Unread;

/// What comes from the partition's task and goes there.
struct Desk {
    node: NodeId,
    clock: Clock,
    demand: watch::Receiver<Demand>,
    commands: mpsc::Receiver<Command>,
    readings: mpsc::Sender<(NodeId, Reading)>,
    polled: Polled,
    file: HistoryFile,
}

/// The last poll on this connection, from which the time of the next one follows.
#[derive(Default)]
struct Polled {
    sent_at: Option<Instant>,
    /// How much later than due its timer ended, as far as that is the timer's doing.
    late: Duration,
}

/// What to do next.
enum Turn {
    Poll,
    Look,
    Do(Command),
}

async fn ask_for_ever(target: &Target, mut desk: Desk) -> Result<(), Unread> {
    let mut backoff = Backoff::new(target.timeouts.backoff_max);
    loop {
        let sent_at = desk.clock.now();
        let opening = Connection::open(target, desk.clock);
        let opened = match desk.clock.until(sent_at + target.timeouts.connect, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(timed_out(&target.address, target.timeouts.connect)),
        };
        let (error, sent_at) = match opened {
            Ok(connection) => {
                ask_until_it_fails(target, connection, &mut desk, &mut backoff).await?
            }
            Err(error) => (error, sent_at),
        };
        let received_at = desk.clock.now();
        desk.tell(Reading::Unreachable { error: error.clone(), sent_at, received_at }).await?;
        desk.refuse_until(received_at + backoff.pause(), &error).await?;
    }
}

/// Serves one connection; returns what ended it, and when that was asked.
async fn ask_until_it_fails(
    target: &Target,
    mut connection: Connection<'_>,
    desk: &mut Desk,
    backoff: &mut Backoff,
) -> Result<(SourceError, Instant), Unread> {
    // A new connection asks at once.
    desk.polled = Polled::default();
    desk.file.reconnected();
    loop {
        let turn = desk.next_turn(connection.look_due_at()).await?;
        let sent_at = desk.clock.now();
        let ends_at = sent_at + target.timeouts.poll;
        let too_late = || timed_out(&target.address, target.timeouts.poll);
        match turn {
            Turn::Poll => {
                let answer = desk.clock.until(ends_at, connection.poll(&mut desk.file)).await;
                match answer.unwrap_or_else(|_| Err(too_late())) {
                    Ok((observation, faults)) => {
                        backoff.reset();
                        desk.polled.sent_at = Some(observation.sent_at);
                        desk.tell(Reading::Observed { observation, faults }).await?;
                    }
                    Err(error) => return Ok((error, sent_at)),
                }
            }
            Turn::Look => match desk.clock.until(ends_at, connection.look()).await {
                Ok(Ok(Some(look))) => desk.tell(Reading::Looked(look)).await?,
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Ok((error, sent_at)),
                Err(_) => return Ok((too_late(), sent_at)),
            },
            Turn::Do(Command::WriteRow { incarnation, row }) => {
                let write = connection.write_row(incarnation, &row);
                let result = desk.clock.until(ends_at, write).await;
                let unanswered = result.is_err();
                let result = result.unwrap_or_else(|_| Err(too_late()));
                let error = result.as_ref().err().cloned();
                desk.tell(Reading::RowWritten { epoch: row.epoch, result }).await?;
                // A row that was merely refused is no reason to stop looking at the node.
                match error {
                    Some(error) if unanswered || connection.is_closed() => {
                        return Ok((error, sent_at));
                    }
                    // What was written is to be seen.
                    Some(_) | None => desk.polled = Polled::default(),
                }
            }
        }
    }
}

impl Polled {
    /// When the next poll is due: an interval after the last one was, so that late timers do not
    /// add up; nearly at once, if a sample is demanded that the last one is too old for. `None`:
    /// there was no poll yet.
    fn next_due(&self, demand: Demand) -> Option<Instant> {
        let sent_at = self.sent_at?;
        match demand.sample_after {
            Some(after) if sent_at < after => Some(sent_at + SAMPLES_APART),
            Some(_) | None => {
                Some(sent_at + demand.interval.saturating_sub(self.late).max(INTERVAL_MIN))
            }
        }
    }
}

impl Desk {
    /// Waits until there is something to do. Two polls never overlap: whoever polls comes back
    /// here only afterwards. A look is due at `look_at`: of the two the one due first comes first,
    /// so that neither keeps the other from a server that answers slowly.
    async fn next_turn(&mut self, look_at: Option<Instant>) -> Result<Turn, Unread> {
        loop {
            let demand = *self.demand.borrow_and_update();
            let due_at = self.polled.next_due(demand);
            let look_at = look_at.filter(|look_at| due_at.is_some_and(|due_at| *look_at < due_at));
            tokio::select! {
                biased;
                () = self.readings.closed() => return Err(Unread),
                Some(command) = self.commands.recv() => return Ok(Turn::Do(command)),
                () = self.clock.sleep_until(look_at.or(due_at).unwrap_or_default()) => {
                    if look_at.is_some() {
                        return Ok(Turn::Look);
                    }
                    self.polled.late = due_at.map_or(Duration::ZERO, |due_at| {
                        self.clock.now().since(due_at).min(TIMER_STEP)
                    });
                    return Ok(Turn::Poll);
                }
                Ok(()) = self.demand.changed() => {}
            }
        }
    }

    /// Waits before the next connection. Commands do not wait with it.
    async fn refuse_until(&mut self, at: Instant, error: &SourceError) -> Result<(), Unread> {
        loop {
            let command = tokio::select! {
                biased;
                () = self.readings.closed() => return Err(Unread),
                () = self.clock.sleep_until(at) => return Ok(()),
                Some(command) = self.commands.recv() => command,
            };
            let Command::WriteRow { row, .. } = command;
            let result = Err(error.clone());
            self.tell(Reading::RowWritten { epoch: row.epoch, result }).await?;
        }
    }

    async fn tell(&self, reading: Reading) -> Result<(), Unread> {
        self.readings.send((self.node, reading)).await.map_err(|_| Unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time that so many polls take whose timers all end `late`.
    fn span(polls: u32, interval: Duration, late: Duration) -> Duration {
        let (demand, began_at) = (Demand { interval, sample_after: None }, Instant::default());
        let mut polled = Polled { sent_at: Some(began_at), late: Duration::ZERO };
        for _ in 0..polls {
            let due_at = polled.next_due(demand).unwrap_or_default();
            polled = Polled { sent_at: Some(due_at + late), late: late.min(TIMER_STEP) };
        }
        polled.sent_at.unwrap_or_default().since(began_at)
    }

    #[test]
    fn timers_that_end_late_do_not_slow_the_pace() {
        let (interval, late) = (Duration::from_millis(2), Duration::from_micros(900));
        assert_eq!(span(500, interval, late), interval * 500 + late);
    }

    #[test]
    fn samples_that_are_demanded_again_and_again_are_no_faster_than_who_waits() {
        let sent_at = Instant::default() + Duration::from_secs(1);
        let polled = Polled { sent_at: Some(sent_at), late: Duration::ZERO };
        let after = Some(sent_at + Duration::from_micros(10));
        let demand = Demand { interval: Duration::from_millis(250), sample_after: after };
        assert_eq!(polled.next_due(demand), Some(sent_at + SAMPLES_APART));
    }

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let (interval, stall) = (Duration::from_millis(2), Duration::from_millis(50));
        assert_eq!(span(1, interval, stall), interval + stall);
        assert_eq!(span(2, interval, stall), interval + stall * 2 + INTERVAL_MIN);
    }

    #[test]
    fn polls_are_never_closer_than_the_least_interval() {
        let late = Duration::from_millis(1);
        assert_eq!(span(100, Duration::from_micros(10), late), (INTERVAL_MIN + late) * 100);
    }
}
