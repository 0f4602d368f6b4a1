//! A session of the soak: it writes, reads on its devices, waits and hands jobs on, and remembers
//! what it must find.
//!
//! Judges nothing: what it did not find is held against the servers later.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_client::{
    Guarantee, Level, Policy, Raise, Read, ReadError, Role, Session, SessionOptions, WaitOutcome,
    WaitTarget, WriteError,
};
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Transaction};

use super::marks::{self, Marked};
use super::memory::Memory;
use super::place::Place;
use super::tally::Tally;
use super::truth::epoch_in;
use crate::service::{DATABASE, PARTITION};

/// An application's patience with its database, and with one request.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// What a wait may take beyond its budget before it counts as one that never ended.
const WAIT_GRACE: Duration = Duration::from_secs(3);
/// How long a person does nothing between two requests, in milliseconds.
const PAUSE_MILLIS: std::ops::Range<u64> = 60..600;
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Times a person asks at most when all is well again, and the pause in between.
const LAST_LOOKS: u32 = 50;
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Notices that the service lets one request acknowledge.
const ACKNOWLEDGED_MAX: usize = 16;
/// Of so many writes one is looked for on the standbys.
const PROBED: u64 = 4;

/// What a person's requests are known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The tokens that one device carries.
    Carried,
    /// A name, on any device.
    Named,
    /// Both: one device carries tokens, others know the name.
    Both,
    /// Tokens that are also handed on with jobs.
    Jobs,
}

/// One session with everything it does.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) id: i32,
    way: Way,
    /// Whether `before()` is sent with each commit.
    pub(super) sends_before: bool,
    /// Whether its commits wait for the disk.
    pub(super) is_synchronous: bool,
    main: Session,
    connection: Option<(usize, Client)>,
    rng: Rng,
    unacknowledged: Vec<String>,
    pub(super) memory: Memory,
    /// Notices with the marks that were carried when they came.
    pub(super) marked: Vec<Marked>,
    pub(super) tally: Tally,
}

impl Person {
    pub(super) fn new(id: i32, seed: u64, place: &Place) -> Self {
        let way =
            [Way::Carried, Way::Named, Way::Both, Way::Jobs][(id % 4).unsigned_abs() as usize];
        let sends_before = id / 4 % 3 != 0;
        let options = SessionOptions::new(PARTITION).before(sends_before);
        let main = place.client.session(match way {
            Way::Carried | Way::Jobs => options,
            Way::Named | Way::Both => options.subject(name(id)),
        });
        Self {
            id,
            way,
            sends_before,
            is_synchronous: id / 12 % 3 != 0,
            main,
            connection: None,
            rng: Rng::with_seed(seed ^ u64::from(id.unsigned_abs())),
            unacknowledged: Vec::new(),
            memory: Memory::default(),
            marked: Vec::new(),
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
        if !self.unacknowledged.is_empty() && self.rng.bool() {
            let told = self.main.acknowledge(&self.unacknowledged).await;
            if told.is_ok() {
                self.unacknowledged.clear();
            }
        }
        match self.rng.u32(0..10) {
            0..5 => {
                let row = self.write(place).await;
                self.look(place).await;
                if let Some(row) = row.filter(|_| self.rng.u64(..).is_multiple_of(PROBED)) {
                    self.tally.probes += 1;
                    self.tally.lacking += u64::from(place.some_standby_lacks(row).await);
                }
            }
            5..8 => self.look(place).await,
            8 => {
                self.write(place).await;
                self.wait(place).await;
            }
            _ if self.way == Way::Jobs => self.job(place).await,
            _ => self.wait(place).await,
        }
    }

    /// Looks once more, when all is well again, on every device it has. Whoever is refused, as on
    /// a machine that others keep busy, asks again: nobody can be told without an answer.
    pub(super) async fn last_look(&mut self, place: &Place) {
        let main = self.main.clone();
        for _ in 0..LAST_LOOKS {
            if self.read(place, &main, false).await {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        if let Some(other) = self.other_device(place) {
            self.read(place, &other, true).await;
        }
    }

    /// Who it is, for people.
    pub(super) fn words(&self) -> String {
        let before = if self.sends_before { "with" } else { "without" };
        let waits = if self.is_synchronous { "synchronous" } else { "asynchronous" };
        format!("{:?} {} ({waits}, {before} before)", self.way, self.id)
    }

    async fn look(&mut self, place: &Place) {
        match self.other_device(place).filter(|_| self.rng.u32(0..3) == 0) {
            Some(other) => {
                self.read(place, &other, true).await;
            }
            None => {
                let main = self.main.clone();
                self.read(place, &main, false).await;
            }
        }
    }

    /// A device that knows the person's name and nothing else.
    fn other_device(&self, place: &Place) -> Option<Session> {
        let options = SessionOptions::new(PARTITION);
        match self.way {
            Way::Carried | Way::Jobs => None,
            Way::Named | Way::Both => Some(place.client.session(options.subject(name(self.id)))),
        }
    }

    /// Connects to where applications write, unless it is connected.
    async fn connect(&mut self, place: &Place) -> Option<&mut Client> {
        let leads = place.leads(self.id % 2 == 1);
        let known = self.connection.as_ref();
        if known.is_none_or(|(number, client)| *number != leads || client.is_closed()) {
            self.connection = None;
            let connecting = place.servers[leads].connect("postgres", DATABASE);
            let client = timeout(CONNECT_LIMIT, connecting).await.ok()?.ok()?;
            self.connection = Some((leads, client));
        }
        self.connection.as_mut().map(|(_, client)| client)
    }

    /// Writes a row; returns it if the commit was acknowledged.
    async fn write(&mut self, place: &Place) -> Option<i64> {
        let (row, main) = (place.next_row(), self.main.clone());
        let insert = format!("insert into soak values ({row}, {})", self.id);
        let off = if self.is_synchronous { "" } else { "set local synchronous_commit = off; " };
        let statements = format!("{off}{insert}");
        self.memory.turns();
        let Some(connection) = self.connect(place).await else {
            self.tally.unwritten += 1;
            return None;
        };
        let writing = main.write(connection, async |transaction: &Transaction<'_>| {
            transaction.batch_execute(&statements).await
        });
        let written = timeout(REQUEST_LIMIT, Box::pin(writing)).await;
        let capture = match written {
            Ok(Ok(written)) => Some((written.capture, true)),
            Ok(Err(WriteError::Unrecorded { evidence: Some(capture), .. })) => {
                Some((capture, false))
            }
            // Acknowledged by nobody: it may be there or not.
            Ok(Err(_)) | Err(_) => None,
        };
        // What came with the answer may be about this very write.
        if let Some((capture, recorded)) = &capture {
            self.memory.wrote(row, epoch_in(capture), *recorded);
            self.tally.writes += 1;
            self.tally.unrecorded += u64::from(!recorded);
        } else {
            self.tally.unwritten += 1;
            self.connection = None;
        }
        self.hears(main.take_notices(), &[]);
        capture.map(|_| row)
    }

    /// Reads its rows and its partner's where the service says; says whether it was answered.
    async fn read(&mut self, place: &Place, session: &Session, elsewhere: bool) -> bool {
        let policy = Policy::new(Level::Session).wait_budget(self.budget());
        let policy = match self.way {
            Way::Carried | Way::Jobs => policy,
            // No device may read behind another one.
            Way::Named | Way::Both => policy.raise(Raise::All),
        };
        let carried = match self.way {
            Way::Carried => marks::of(&session.tokens()),
            Way::Named | Way::Both | Way::Jobs => Vec::new(),
        };
        self.memory.turns();
        let fair = place.weather.fair();
        let read = self.ask(place, session, &policy).await;
        let notices = session.take_notices();
        self.hears(notices, &carried);
        let Some(read) = read else { return false };
        if !elsewhere {
            self.memory.recorded();
        }
        let fair = fair.filter(|_| place.weather.fair() == fair);
        self.judge(&read, fair.is_some(), elsewhere);
        true
    }

    async fn ask(
        &mut self,
        place: &Place,
        session: &Session,
        policy: &Policy,
    ) -> Option<Read<BTreeSet<i64>>> {
        let (own, partner) = (self.id, self.id ^ 1);
        let oldest = self.memory.oldest().unwrap_or_default();
        let query =
            format!("select id from soak where session in ({own}, {partner}) and id >= {oldest}");
        let reading = session.read(&place.pool, policy, async |client: &Client| {
            let answer = client.simple_query(&query).await?;
            let rows = answer.iter().filter_map(|message| {
                let SimpleQueryMessage::Row(row) = message else { return None };
                row.get(0).and_then(|id| id.parse().ok())
            });
            Ok(rows.collect())
        });
        let read: Result<Result<_, ReadError<_, Error>>, _> =
            timeout(REQUEST_LIMIT, Box::pin(reading)).await;
        match read {
            Ok(Ok(read)) => Some(read),
            Ok(Err(ReadError::Refused { .. })) => {
                self.tally.refused += 1;
                None
            }
            Ok(Err(_)) | Err(_) => {
                self.tally.broken += 1;
                None
            }
        }
    }

    fn judge(&mut self, read: &Read<BTreeSet<i64>>, fair: bool, elsewhere: bool) {
        let tally = &mut self.tally;
        tally.reads += 1;
        tally.fair += u64::from(fair);
        if read.stale.is_some() || !read.met.contains(&Guarantee::ReadYourWrites) {
            tally.flagged += 1;
            return;
        }
        if read.node.role == Role::Leader {
            tally.by_leader += 1;
        } else {
            tally.by_replica += 1;
            tally.fair_by_replica += u64::from(fair);
        }
        let (id, way, node) = (self.id, self.way, &read.node.name);
        let words = || {
            let device = if elsewhere { "another device" } else { "its device" };
            format!("{way:?} {id} on {device} read {node} ({:?}, {})", read.reason, read.epoch)
        };
        self.memory.found(&read.value, elsewhere, &read.epoch, words);
    }

    /// Waits until a node has everything.
    async fn wait(&mut self, place: &Place) {
        let target = match self.rng.usize(0..4) {
            3 => WaitTarget::Any,
            number => WaitTarget::Node(place.servers[number].name().to_owned()),
        };
        let budget = Duration::from_millis(self.rng.u64(50..1500));
        self.memory.turns();
        let (main, began_at) = (self.main.clone(), Instant::now());
        self.tally.waits += 1;
        let limit = place.stall.allow(budget + WAIT_GRACE);
        let waited = timeout(limit, Box::pin(main.wait(target, budget))).await;
        self.tally.longest_wait = self.tally.longest_wait.max(began_at.elapsed());
        self.hears(main.take_notices(), &[]);
        let Ok(waited) = waited else { return self.tally.waits_open += 1 };
        match waited.map(|waited| waited.outcome) {
            Ok(WaitOutcome::Fresh(_)) => self.tally.waits_fresh += 1,
            Ok(WaitOutcome::TimedOut) => self.tally.waits_timed_out += 1,
            Ok(WaitOutcome::Lost) => self.tally.waits_lost += 1,
            Ok(_) => self.tally.waits_unknown += 1,
            Err(_) => self.tally.waits_failed += 1,
        }
    }

    /// Hands its token on; the job must find what the person must find, or be told itself.
    async fn job(&mut self, place: &Place) {
        let Ok(Ok(Some(token))) = timeout(REQUEST_LIMIT, self.main.token()).await else { return };
        self.hears(self.main.take_notices(), &[]);
        let job = place.client.session(SessionOptions::new(PARTITION).token(token));
        let (told, marked) = (self.memory.clone(), self.marked.len());
        let unacknowledged = self.unacknowledged.clone();
        self.tally.jobs += 1;
        self.memory.recorded();
        self.read(place, &job, true).await;
        // What only the job was told, its person was not.
        let missing = std::mem::replace(&mut self.memory, told).into_missing();
        self.memory.missing = missing;
        self.marked.truncate(marked);
        self.unacknowledged = unacknowledged;
    }

    fn hears(&mut self, notices: Vec<tidegate_client::Notice>, carried: &[marks::Carried]) {
        self.marked.extend(marks::marked(&notices, carried));
        self.unacknowledged.extend(notices.iter().map(|notice| notice.id.clone()));
        // What was told again is acknowledged once, and no request acknowledges more than that.
        self.unacknowledged.sort_unstable();
        self.unacknowledged.dedup();
        self.unacknowledged.truncate(ACKNOWLEDGED_MAX);
        self.memory.hears(notices);
    }

    fn budget(&mut self) -> Duration {
        Duration::from_millis([0, 50, 50, 300][self.rng.usize(0..4)])
    }
}

fn name(id: i32) -> String {
    format!("person-{id}")
}
