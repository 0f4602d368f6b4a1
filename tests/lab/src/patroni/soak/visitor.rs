//! One session: it writes rows and reads them again, and remembers what it was told.
//!
//! It knows rows, not positions. A row is due from its acknowledged commit on, unless a notice that
//! came later excuses it; whether it was really lost is judged later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use tidegate_client::{
    Guarantee, Level, NoticeKind, Policy, Read, ReadError, Role, Session, SessionOptions,
    WriteError,
};
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Transaction};

use super::place::Place;
use crate::service::PARTITION;

const PAUSE_MILLIS: std::ops::Range<u64> = 20..100;
/// What one request may take: a server that died can leave a connection silent.
const REQUEST_LIMIT: Duration = Duration::from_secs(3);
const LAST_LOOK_LIMIT: Duration = Duration::from_secs(30);
/// One row in so many is looked for on every standby.
const PROBED: u32 = 4;
/// Rows that stay due over a phase.
const KEPT: usize = 20;

/// A row that a read called fresh did not find.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) row: i64,
    /// The session was told by then that it may be lost.
    pub(super) told: bool,
    pub(super) node: String,
}

/// What it did and what was answered, in one phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) writes: u64,
    pub(super) unwritten: u64,
    pub(super) unflagged: u64,
    pub(super) on_replicas: u64,
    pub(super) flagged: u64,
    pub(super) unanswered: u64,
    pub(super) probes: u64,
    pub(super) lacking: u64,
}

/// One session.
#[derive(Debug)]
pub(super) struct Visitor {
    id: i64,
    session: Session,
    connection: Option<(usize, Client)>,
    rng: Rng,
    /// Rows it must find; true: a notice came after it was written.
    due: BTreeMap<i64, bool>,
    missing: Vec<Missing>,
    notices: Vec<String>,
    unacknowledged: Vec<String>,
    tally: Tally,
}

impl Visitor {
    /// Known by name, or by the tokens it carries; every other one sends `before()`.
    pub(super) fn new(id: i64, seed: u64, place: &Place) -> Self {
        let options = SessionOptions::new(PARTITION).before(id % 4 < 2);
        let options = if id % 2 == 0 { options.subject(format!("visitor-{id}")) } else { options };
        Self {
            id,
            session: place.client.session(options),
            connection: None,
            rng: Rng::with_seed(seed ^ id.unsigned_abs()),
            due: BTreeMap::new(),
            missing: Vec::new(),
            notices: Vec::new(),
            unacknowledged: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Writes and reads until the phase is over.
    pub(super) async fn live(mut self, place: &Place) -> Self {
        while !place.is_over() {
            if self.rng.bool() {
                self.write(place).await;
            }
            self.look(place).await;
            tokio::time::sleep(Duration::from_millis(self.rng.u64(PAUSE_MILLIS))).await;
        }
        self
    }

    /// Reads until an answer is called fresh, when all is well again.
    pub(super) async fn last_look(&mut self, place: &Place) -> Result<()> {
        let unflagged = self.tally.unflagged;
        let what = format!("{} is answered", self.words());
        let started_at = std::time::Instant::now();
        while self.tally.unflagged == unflagged {
            if started_at.elapsed() > LAST_LOOK_LIMIT {
                anyhow::bail!("waited {LAST_LOOK_LIMIT:?} in vain until {what}");
            }
            self.look(place).await;
            tokio::time::sleep(Duration::from_millis(PAUSE_MILLIS.start)).await;
        }
        Ok(())
    }

    /// Acknowledges what it was told, and forgets what is lost and what is long ago.
    pub(super) async fn next_phase(&mut self, truth: &BTreeSet<i64>) -> Result<()> {
        if !self.unacknowledged.is_empty() {
            let told = self.session.acknowledge(&self.unacknowledged).await;
            told.context("notices are acknowledged")?;
            self.unacknowledged.clear();
        }
        let kept: Vec<i64> =
            self.due.keys().rev().copied().filter(|row| truth.contains(row)).collect();
        self.due = kept.into_iter().take(KEPT).map(|row| (row, false)).collect();
        (self.missing, self.notices, self.tally) = Default::default();
        Ok(())
    }

    /// The rows whose commit was acknowledged.
    pub(super) fn written(&self) -> impl Iterator<Item = i64> + '_ {
        self.due.keys().copied()
    }

    pub(super) fn was_told_of(&self, row: i64) -> bool {
        self.due.get(&row).copied().unwrap_or(false)
    }

    pub(super) fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// What it was told in this phase, for people.
    pub(super) fn notices(&self) -> &[String] {
        &self.notices
    }

    pub(super) const fn tally(&self) -> Tally {
        self.tally
    }

    /// Who it is, for people.
    pub(super) fn words(&self) -> String {
        let way = if self.id % 2 == 0 { "named" } else { "carrying" };
        let before = if self.id % 4 < 2 { "with" } else { "without" };
        format!("visitor {} ({way}, {before} before)", self.id)
    }

    async fn write(&mut self, place: &Place) {
        let row = place.next_row();
        let insert = format!("insert into soak values ({row}, {})", self.id);
        let session = self.session.clone();
        let Some(connection) = self.connect(place).await else {
            self.tally.unwritten += 1;
            return;
        };
        let writing = session.write(connection, async |transaction: &Transaction<'_>| {
            transaction.batch_execute(&insert).await
        });
        let is_acknowledged = match timeout(REQUEST_LIMIT, Box::pin(writing)).await {
            Ok(Ok(_)) => true,
            // The capture is kept and brought with the session's next call.
            Ok(Err(WriteError::Unrecorded { .. })) => true,
            // Acknowledged by nobody: it may be there or not.
            Ok(Err(_)) | Err(_) => false,
        };
        if is_acknowledged {
            self.tally.writes += 1;
            self.due.insert(row, false);
            if self.rng.u32(0..PROBED) == 0 {
                self.tally.probes += 1;
                self.tally.lacking += u64::from(place.some_standby_lacks(row).await);
            }
        } else {
            self.tally.unwritten += 1;
            self.connection = None;
        }
        self.hear();
    }

    /// Connects to where applications write, unless it is connected.
    async fn connect(&mut self, place: &Place) -> Option<&mut Client> {
        let (leads, node) = place.leads();
        let known = self.connection.as_ref();
        if known.is_none_or(|(number, client)| *number != leads || client.is_closed()) {
            self.connection = None;
            let client = timeout(REQUEST_LIMIT, node.connect()).await.ok()?.ok()?;
            self.connection = Some((leads, client));
        }
        self.connection.as_mut().map(|(_, client)| client)
    }

    async fn look(&mut self, place: &Place) {
        let oldest = self.due.keys().next().copied().unwrap_or_default();
        let query = format!("select id from soak where session = {} and id >= {oldest}", self.id);
        let rows = async |client: &Client| {
            let answer = client.simple_query(&query).await?;
            let rows = answer.iter().filter_map(|message| {
                let SimpleQueryMessage::Row(row) = message else { return None };
                row.get(0).and_then(|id| id.parse().ok())
            });
            Ok(rows.collect::<BTreeSet<i64>>())
        };
        let policy = Policy::new(Level::Session);
        let reading = self.session.read(&place.pool, &policy, rows);
        let read: Result<Result<Read<_>, ReadError<_, Error>>, _> =
            timeout(REQUEST_LIMIT, Box::pin(reading)).await;
        // What came with the answer is about what it shows.
        self.hear();
        let Ok(Ok(read)) = read else {
            self.tally.unanswered += 1;
            return;
        };
        if read.stale.is_some() || !read.met.contains(&Guarantee::ReadYourWrites) {
            self.tally.flagged += 1;
            return;
        }
        self.tally.unflagged += 1;
        self.tally.on_replicas += u64::from(read.node.role != Role::Leader);
        let lacking = self.due.iter().filter(|(row, _)| !read.value.contains(row));
        let missing = lacking.map(|(row, told)| Missing {
            row: *row,
            told: *told,
            node: read.node.name.clone(),
        });
        self.missing.extend(missing);
    }

    fn hear(&mut self) {
        for notice in self.session.take_notices() {
            if !self.unacknowledged.contains(&notice.id) {
                let (kind, lost, epoch) = (notice.kind, &notice.lost_epoch, &notice.epoch);
                self.notices.push(format!("{kind:?} of {lost} in {epoch}"));
                self.unacknowledged.push(notice.id);
            }
            if notice.kind != NoticeKind::ObservedStateLost {
                self.due.values_mut().for_each(|told| *told = true);
            }
        }
    }
}
