//! A session of the soak: it writes on one device and reads on another, at either instance, known
//! by its name alone; or it carries its tokens.
//!
//! Remembers what a read lacked that had promised to show it.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_client::{
    Guarantee, Level, Policy, Raise, Read, ReadError, Reason, Role, Session, SessionOptions,
    Stored, WriteError,
};
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Transaction};

use super::memory::{Due, Memory};
use super::place::{INSTANCES, Place};
use super::tally::Tally;
use crate::service::{DATABASE, PARTITION};
use crate::soak::say;

/// An application's patience with its database, and with one request.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// How long a person does nothing between two requests, in milliseconds.
const PAUSE_MILLIS: std::ops::Range<u64> = 300..1300;
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Of so many writes one is looked for on the late standby.
const PROBED: u64 = 4;
/// Of so many people one carries tokens.
const CARRIES: i32 = 7;

/// One session with everything it does.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) id: i32,
    /// The session that carries tokens, of those who do.
    carrying: Option<Session>,
    /// Whether its reads raise its record: then a lost record comes back by the next read.
    raises: bool,
    connection: Option<Client>,
    rng: Rng,
    memory: Memory,
    /// What reads lacked, for people.
    pub(super) stale: Vec<String>,
    pub(super) tally: Tally,
}

impl Person {
    pub(super) fn new(id: i32, seed: u64, place: &Place) -> Self {
        let instance = (id.unsigned_abs() as usize / 2) % INSTANCES;
        let session = || place.clients[instance].session(SessionOptions::new(PARTITION));
        Self {
            id,
            carrying: (id % CARRIES == 0).then(session),
            raises: id % 3 == 0,
            connection: None,
            rng: Rng::with_seed(seed ^ u64::from(id.unsigned_abs())),
            memory: Memory::default(),
            stale: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Lives until it is told that the round is over.
    pub(super) async fn live(mut self, place: &Place) -> Self {
        while !place.is_over() {
            let began_at = Instant::now();
            self.turn(place).await;
            place.turned();
            // On a busy machine all are slower, so that the service is not pushed aside.
            let pause = Duration::from_millis(self.rng.u64(PAUSE_MILLIS)) + began_at.elapsed();
            tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        }
        self
    }

    async fn turn(&mut self, place: &Place) {
        let at = self.rng.usize(0..INSTANCES);
        let is_quiet = self.id % 2 == 1 && place.is_hushed();
        if is_quiet || self.rng.u32(0..10) >= 6 {
            return self.read(place, at).await;
        }
        let row = self.write(place, at).await;
        self.read(place, (at + 1) % INSTANCES).await;
        if let Some(row) = row.filter(|_| self.rng.u64(..).is_multiple_of(PROBED)) {
            self.tally.probes += 1;
            self.tally.lacking += u64::from(place.late_lacks(row).await);
        }
    }

    /// Looks once more, when all is settled, at every instance.
    pub(super) async fn last_look(&mut self, place: &Place) {
        for instance in 0..INSTANCES {
            self.read(place, instance).await;
        }
    }

    /// A device of this person: the one that carries tokens, or any that knows the name.
    fn device(&self, place: &Place, instance: usize) -> Session {
        let named = || place.device(instance, &format!("person-{}", self.id));
        self.carrying.clone().unwrap_or_else(named)
    }

    async fn connect(&mut self, place: &Place) -> Option<&mut Client> {
        if self.connection.as_ref().is_none_or(Client::is_closed) {
            let connecting = place.leader().connect("postgres", DATABASE);
            self.connection = Some(timeout(CONNECT_LIMIT, connecting).await.ok()?.ok()?);
        }
        self.connection.as_mut()
    }

    /// Writes a row; returns it if the commit was acknowledged and recorded.
    async fn write(&mut self, place: &Place, instance: usize) -> Option<i64> {
        let (row, device) = (place.next_row(), self.device(place, instance));
        let insert = format!("insert into soak values ({row}, {})", self.id);
        let (carries, settled) = (self.carrying.is_some(), place.settled());
        let (restarts, run) = (place.restarts(instance), place.all_run());
        let Some(connection) = self.connect(place).await else {
            self.tally.unwritten += 1;
            return None;
        };
        let before = place.belief(instance);
        let writing = device.write(connection, async |transaction: &Transaction<'_>| {
            transaction.batch_execute(&insert).await
        });
        let written = timeout(REQUEST_LIMIT, Box::pin(writing)).await;
        let believed = before.is_some() && place.belief(instance) == before;
        let stored = match written {
            Ok(Ok(written)) => written.stored,
            Ok(Err(WriteError::Unrecorded { evidence: Some(_), cause, .. })) => {
                self.tally.unrecorded += 1;
                // Whoever carries tokens carries what was not recorded, too.
                if carries {
                    self.memory.wrote(row, Due::AtOnce);
                    self.failed(place, run, &cause);
                }
                return None;
            }
            Ok(Err(_)) | Err(_) => {
                self.tally.unwritten += 1;
                self.connection = None;
                return None;
            }
        };
        self.tally.writes += 1;
        let due = if carries {
            Due::AtOnce
        } else if stored == Stored::Memory {
            self.tally.in_memory += 1;
            Due::Settled { settled, kept_by: Some((instance, restarts)) }
        } else if !believed {
            self.tally.in_window += 1;
            Due::Settled { settled, kept_by: None }
        } else {
            Due::AtOnce
        };
        self.memory.wrote(row, due);
        Some(row)
    }

    /// Reads its rows where an instance says.
    async fn read(&mut self, place: &Place, instance: usize) {
        let device = self.device(place, instance);
        let raise = if self.raises || self.carrying.is_some() { Raise::All } else { Raise::None };
        let budget = Duration::from_millis([50, 50, 300][self.rng.usize(0..3)]);
        let policy = Policy::new(Level::Session).wait_budget(budget).raise(raise);
        let due = self.memory.due(place.settled(), |instance| place.restarts(instance));
        let fair = place.fair();
        if place.is_outage() {
            let began_at = Instant::now();
            let run = place.all_run();
            let selected = device.select(&policy).await;
            let carries = self.carrying.is_some();
            self.tally.took[usize::from(!carries)].push(began_at.elapsed());
            if let Err(error) = selected {
                self.failed(place, run, &error);
            }
        }
        let read = self.ask(place, &device, &policy).await;
        let fair = fair.is_some() && place.fair() == fair;
        self.tally.fair += u64::from(fair);
        if let Some(read) = read {
            self.judge(&read, &due, fair, instance);
        }
    }

    async fn ask(
        &mut self,
        place: &Place,
        device: &Session,
        policy: &Policy,
    ) -> Option<Read<Vec<i64>>> {
        let (id, oldest, run) = (self.id, self.memory.oldest(), place.all_run());
        let query = format!("select id from soak where session = {id} and id >= {oldest}");
        let reading = device.read(&place.pool, policy, async |client: &Client| {
            let answer = client.simple_query(&query).await?;
            let rows = answer.iter().filter_map(|message| {
                let SimpleQueryMessage::Row(row) = message else { return None };
                row.get(0).and_then(|id| id.parse().ok())
            });
            Ok(rows.collect())
        });
        let read: Result<Result<_, ReadError<_, Error>>, _> =
            timeout(REQUEST_LIMIT, Box::pin(reading)).await;
        let why = match read {
            Ok(Ok(read)) => return Some(read),
            // No sample of the leader came within the budget: of no concern to a store.
            Ok(Err(ReadError::Refused { reason: Reason::NotProvable, .. })) => {
                self.tally.refused += 1;
                self.tally.carried_late += u64::from(self.carrying.is_some());
                return None;
            }
            Ok(Err(error)) => {
                let is_refused = matches!(error, ReadError::Refused { .. });
                self.tally.refused += u64::from(is_refused);
                self.tally.broken += u64::from(!is_refused);
                format!("{error:?}")
            }
            Err(_) => {
                self.tally.broken += 1;
                format!("no answer within {REQUEST_LIMIT:?}")
            }
        };
        self.failed(place, run, &why);
        None
    }

    /// Notes a call that failed; one of who carries tokens must not, while all instances run.
    fn failed(&mut self, place: &Place, run: Option<u64>, why: &dyn std::fmt::Debug) {
        if self.carrying.is_some() && run.is_some() && place.all_run() == run {
            self.tally.carried_failed += 1;
            say(format_args!("    person-{} carries tokens and failed: {why:?}", self.id));
        }
    }

    fn judge(&mut self, read: &Read<Vec<i64>>, due: &[i64], fair: bool, instance: usize) {
        let tally = &mut self.tally;
        if read.stale.is_some() || !read.met.contains(&Guarantee::ReadYourWrites) {
            tally.flagged += 1;
            return;
        }
        let is_plain = matches!(read.reason, Reason::Covered | Reason::Waited);
        tally.unknown += u64::from(!is_plain);
        tally.fair_by_replica += u64::from(fair && is_plain && read.node.role == Role::Replica);
        let carries = self.carrying.is_some();
        *(if carries { &mut tally.carried } else { &mut tally.judged }) += 1;
        tally.rows += due.len() as u64;
        let lacking: Vec<&i64> = due.iter().filter(|row| !read.value.contains(row)).collect();
        if !lacking.is_empty() {
            let (id, node, reason) = (self.id, &read.node.name, read.reason);
            let who = if carries { "token" } else { "name" };
            self.stale.push(format!(
                "person {id} by its {who} at instance {instance} read {node} ({reason:?}) and \
                 lacked {lacking:?}"
            ));
        }
    }
}
