//! Which rows there really are, and who writes, as the servers themselves say.
//!
//! A task asks all servers all the time while a round is played: which of them can be written to,
//! in which epoch, and which rows it has. Applications learn from it where to write, as from a
//! cluster manager; the rows are for the judge. Nobody asks Tidegate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::time::timeout;

use super::place::Place;
use crate::postgres::Server;

const PAUSE: Duration = Duration::from_millis(40);
/// A server that does not answer within this is not written to.
const ASK_LIMIT: Duration = Duration::from_millis(700);

/// The rows of the final line, and of every line while its leader could be asked.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Older rows are of no interest any more.
    oldest: i64,
    lines: Mutex<BTreeMap<String, BTreeSet<i64>>>,
    last: BTreeSet<i64>,
}

/// A server that can be written to.
struct Writable {
    timeline: u32,
    start: i64,
    number: usize,
}

impl Truth {
    /// Of rows from this one on.
    pub(super) fn since(oldest: i64) -> Self {
        Self { oldest, ..Self::default() }
    }

    /// Asks all servers until the round is over, and tells applications where to write.
    pub(super) async fn watch(&self, place: &Place) {
        while !place.is_over() {
            let asked = (0..place.servers.len()).map(|number| self.ask(place, number));
            let writable: Vec<Writable> =
                futures::future::join_all(asked).await.into_iter().flatten().collect();
            let newest = writable.iter().max_by_key(|one| (one.timeline, one.start));
            if let Some(newest) = newest {
                let old = place.leads(true);
                let old_writes = writable.iter().any(|one| one.number == old);
                place.now_leads(newest.number, !old_writes);
            }
            tokio::time::sleep(PAUSE).await;
        }
        place.now_leads(place.leads(false), true);
    }

    async fn ask(&self, place: &Place, number: usize) -> Option<Writable> {
        let server = &place.servers[number];
        if !server.is_running() {
            return None;
        }
        let (epoch, rows) = timeout(ASK_LIMIT, shown(server, self.oldest)).await.ok()?.ok()??;
        let mut parts = epoch.split('.');
        let timeline = parts.next()?.parse().ok()?;
        let start = parts.next()?.parse().ok()?;
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).insert(epoch, rows);
        Some(Writable { timeline, start, number })
    }

    /// The rows of the leader that all others follow in the end.
    pub(super) async fn settle(&mut self, leader: &Server) -> Result<()> {
        if let Some((_, rows)) = shown(leader, self.oldest).await? {
            self.last = rows;
        }
        Ok(())
    }

    /// Says whether a row survived.
    pub(super) fn survives(&self, row: i64) -> bool {
        self.last.contains(&row)
    }

    /// Says whether a row was on the line of an epoch, as far as that could be asked; else whether
    /// it survived.
    pub(super) fn was_on(&self, epoch: &str, row: i64) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.get(epoch).unwrap_or(&self.last).contains(&row)
    }
}

/// The epoch a server writes in and the rows it has; none in recovery.
async fn shown(server: &Server, oldest: i64) -> Result<Option<(String, BTreeSet<i64>)>> {
    let question = format!(
        "select case when not pg_is_in_recovery() then tidegate.capture() end, \
         coalesce(array_agg(id), '{{}}') from soak where id >= {oldest}"
    );
    let row = server.row(&question).await?;
    let capture: Option<String> = row.try_get(0)?;
    let rows: Vec<i64> = row.try_get(1)?;
    Ok(capture.map(|capture| (epoch_in(&capture), rows.into_iter().collect())))
}

/// The epoch that a capture names.
pub(super) fn epoch_in(capture: &str) -> String {
    capture.split('|').skip(4).take(3).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_names_its_epoch() {
        let capture = "tge1|capture|150018|7321|3|1730|1731|0|0/5|0/5|||1.1.1|16777216|on";
        assert_eq!(epoch_in(capture), "3.1730.1731");
    }

    #[test]
    fn a_line_that_ended_is_remembered_beside_the_last_one() {
        let lines = BTreeMap::from([("1.1.1".to_owned(), BTreeSet::from([1, 2]))]);
        let truth = Truth { oldest: 0, last: BTreeSet::from([1]), lines: Mutex::new(lines) };
        assert!(truth.survives(1) && !truth.survives(2));
        assert!(truth.was_on("1.1.1", 2) && !truth.was_on("2.1.1", 2));
    }
}
