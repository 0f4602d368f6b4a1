//! `HistoryFile`: what a promoted server's own history file says, where the role may read it.
//!
//! Reading it is worth nothing but a narrower fork: it comes after the poll that shows the
//! promotion, once for each epoch and connection, in bounded time, and its failure fails no poll.
//! What it says is parsed by the core, and judged there.

use std::time::Duration;

use tidegate_core::evidence::Evidence;
use tidegate_core::lineage::{Epoch, TimelineHistory};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tracing::debug;

use super::statements;
use crate::clock::Clock;
use crate::ports::Fault;

/// The part of a poll's time that reading the file may take.
const PART_OF_POLL: u32 = 4;

/// What one server's history files have said.
#[derive(Debug, Default)]
pub(super) struct HistoryFile {
    /// The role may not read it on this connection.
    denied: bool,
    /// What was read on this connection, for which epoch.
    read: Option<(Epoch, Said)>,
    /// Reading it did not end in time, on whichever connection: it is not tried again.
    slow: Option<Epoch>,
}

#[derive(Clone, Debug)]
enum Said {
    History(TimelineHistory),
    /// There is no such file, or nobody could say.
    Nothing,
    /// It is no history.
    Nonsense,
}

impl HistoryFile {
    /// Forgets what a new connection is to ask again.
    pub(super) fn reconnected(&mut self) {
        (self.denied, self.read) = (false, None);
    }

    /// What the file says to somebody who saw this evidence; reads it the first time.
    ///
    /// Only a server that has left the timeline of its last row has something to tell.
    pub(super) async fn switches(
        &mut self,
        evidence: &Evidence,
        client: &Client,
        (clock, poll): (Clock, Duration),
    ) -> (Option<TimelineHistory>, Option<Fault>) {
        let Some(epoch) = evidence.epoch() else { return (None, None) };
        let is_promoted = evidence.row.is_some_and(|row| row.timeline < epoch.timeline);
        let known = self.read.as_ref().filter(|(of, _)| *of == epoch).map(|(_, said)| said);
        let said = match known {
            Some(said) => said.clone(),
            None if !is_promoted || self.denied || self.slow == Some(epoch) => Said::Nothing,
            None => {
                // Stays if the poll that waits for it is given up.
                self.slow = Some(epoch);
                let limit = poll / PART_OF_POLL;
                let ends_at = clock.now() + limit;
                let said = match clock.until(ends_at, self.read(epoch, client, limit)).await {
                    Ok(said) => {
                        self.slow = None;
                        said
                    }
                    Err(_) => Said::Nothing,
                };
                self.read = Some((epoch, said.clone()));
                said
            }
        };
        match said {
            Said::History(history) => (is_promoted.then_some(history), None),
            Said::Nothing => (None, None),
            Said::Nonsense => (None, Some(Fault::HistoryMalformed { timeline: epoch.timeline })),
        }
    }

    async fn read(&mut self, epoch: Epoch, client: &Client, limit: Duration) -> Said {
        // One round trip; the server gives up by itself, so that the next poll finds it free.
        let (begin, question) = statements::history_file(epoch.timeline, limit);
        let begin = client.batch_execute(&begin);
        let asked = client.simple_query(&question);
        let end = client.batch_execute("rollback");
        let (_, answer, _) = tokio::join!(biased; begin, asked, end);
        let messages = match answer {
            Ok(messages) => messages,
            Err(error) => {
                debug!(%error, timeline = epoch.timeline, "no history file is read");
                return self.failed(error.code());
            }
        };
        let text = messages.iter().find_map(statements::first_text).unwrap_or_default();
        if text.len() > statements::HISTORY_BYTES {
            return Said::Nonsense;
        }
        TimelineHistory::parse(text).map_or_else(
            |error| {
                debug!(%error, timeline = epoch.timeline, "a history file makes no sense");
                Said::Nonsense
            },
            Said::History,
        )
    }

    fn failed(&mut self, code: Option<&SqlState>) -> Said {
        let is = |state: SqlState| code == Some(&state);
        self.denied |= is(SqlState::INSUFFICIENT_PRIVILEGE);
        // Bytes that are no text.
        if is(SqlState::CHARACTER_NOT_IN_REPERTOIRE) { Said::Nonsense } else { Said::Nothing }
    }
}
