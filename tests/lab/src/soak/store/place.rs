//! Where a round is played: a leader with two standbys, two instances on one store, and what all
//! sessions share.
//!
//! Whether an instance believes its store at the moment is asked through its public answers, by a
//! subject that never wrote.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_client::{Client, ClientOptions, DirectPool, Policy, Reason, Session, SessionOptions};
use tokio::time::timeout;
use tokio_postgres::Config;

use crate::postgres::Server;
use crate::service::PARTITION;
use crate::wait::{LIMIT, until};

/// Client connections to one address.
const CONNECTIONS: usize = 16;
/// Between two questions whether an instance believes its store, and how long one may take.
const ASK_PAUSE: Duration = Duration::from_millis(20);
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Instances that share the store.
pub(super) const INSTANCES: usize = 2;
/// A subject that never writes.
const NOBODY: &str = "nobody";

/// Whether one instance believes its store, as it answered last.
#[derive(Debug, Default)]
struct Belief {
    believes: AtomicBool,
    /// Changes from one to the other.
    changes: AtomicU64,
}

/// What all sessions of one world share.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    pub(super) pool: DirectPool,
    beliefs: [Belief; INSTANCES],
    storms: AtomicU64,
    is_storm: AtomicBool,
    rows: AtomicI64,
    turns: AtomicU64,
    over: AtomicBool,
    /// How often all that was recorded in whatever state has been settled.
    settled: AtomicU64,
    restarts: [AtomicU64; INSTANCES],
    /// Instances that are ended on purpose just now.
    ended: AtomicU64,
    outage: AtomicBool,
    hush: AtomicBool,
}

impl Place {
    /// A world of these servers, the leader first, and of instances at these endpoints.
    pub(super) fn new(servers: Vec<Server>, endpoints: &[String]) -> Result<Self> {
        let lazy = |endpoint: &String| Client::lazy(ClientOptions::new(endpoint.clone()));
        let clients = endpoints.iter().map(lazy).collect::<Result<_, _>>()?;
        let mut config = Config::new();
        config.user("postgres").dbname("postgres").application_name("soak");
        Ok(Self {
            servers,
            clients,
            pool: DirectPool::new(config, CONNECTIONS),
            beliefs: Default::default(),
            storms: AtomicU64::new(0),
            is_storm: AtomicBool::new(false),
            rows: AtomicI64::new(0),
            turns: AtomicU64::new(0),
            over: AtomicBool::new(true),
            settled: AtomicU64::new(0),
            restarts: Default::default(),
            ended: AtomicU64::new(0),
            outage: AtomicBool::new(false),
            hush: AtomicBool::new(false),
        })
    }

    /// A session at one instance that is known by its name alone.
    pub(super) fn device(&self, instance: usize, subject: &str) -> Session {
        self.clients[instance].session(SessionOptions::new(PARTITION).subject(subject))
    }

    /// The server that is written to.
    pub(super) fn leader(&self) -> &Server {
        &self.servers[0]
    }

    /// The standby that replays late, or not at all during a storm.
    pub(super) fn late(&self) -> &Server {
        &self.servers[1]
    }

    /// Asks one instance again and again whether it believes its store.
    pub(super) async fn watch(&self, instance: usize) {
        let policy = Policy::default();
        while !self.is_over() {
            let nobody = self.device(instance, NOBODY);
            let answered = timeout(ASK_LIMIT, nobody.select(&policy)).await;
            let doubts = |reason| matches!(reason, Reason::StoreLost | Reason::UnknownSession);
            let believes = matches!(answered, Ok(Ok(told)) if !doubts(told.reason));
            let belief = &self.beliefs[instance];
            if belief.believes.swap(believes, Ordering::SeqCst) != believes {
                belief.changes.fetch_add(1, Ordering::SeqCst);
            }
            tokio::time::sleep(ASK_PAUSE).await;
        }
    }

    /// A mark that is the same before and after whatever was recorded while an instance believed
    /// its store; none while it does not.
    pub(super) fn belief(&self, instance: usize) -> Option<u64> {
        let belief = &self.beliefs[instance];
        let changes = belief.changes.load(Ordering::SeqCst);
        belief.believes.load(Ordering::SeqCst).then_some(changes)
    }

    /// Waits until an instance believes its store; how long that took.
    pub(super) async fn await_belief(&self, instance: usize) -> Result<Duration> {
        let what = format!("instance {instance} believes its store");
        until(&what, LIMIT, || async { Ok(self.belief(instance).is_some()) }).await
    }

    /// Waits until an instance does not.
    pub(super) async fn await_disbelief(&self, instance: usize) -> Result<()> {
        let what = format!("instance {instance} does not believe its store");
        let until = until(&what, LIMIT, || async { Ok(self.belief(instance).is_none()) });
        until.await.map(drop)
    }

    /// Something goes wrong, or all is well again.
    pub(super) fn storm(&self, begins: bool) {
        self.storms.fetch_add(1, Ordering::SeqCst);
        self.is_storm.store(begins, Ordering::SeqCst);
    }

    /// A mark that is the same before and after whatever happened in fair weather; none in a storm.
    pub(super) fn fair(&self) -> Option<u64> {
        let storms = self.storms.load(Ordering::SeqCst);
        (!self.is_storm.load(Ordering::SeqCst)).then_some(storms)
    }

    /// A row that nobody has written yet.
    pub(super) fn next_row(&self) -> i64 {
        self.rows.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A session has had a turn.
    pub(super) fn turned(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until sessions have had so many more turns.
    pub(super) async fn await_turns(&self, turns: u64) -> Result<()> {
        let goal = self.turns.load(Ordering::SeqCst) + turns;
        until("sessions had their turns", LIMIT, || async {
            Ok(self.turns.load(Ordering::SeqCst) >= goal)
        })
        .await
        .map(drop)
    }

    /// Lets sessions have turns for so long, and so many at least.
    pub(super) async fn let_pass(&self, time: Duration, turns: u64) -> Result<()> {
        let began_at = Instant::now();
        self.await_turns(turns).await?;
        // How long the fault lasts is part of the fault.
        tokio::time::sleep(time.saturating_sub(began_at.elapsed())).await;
        Ok(())
    }

    /// Lets sessions go on, or asks them to come to an end.
    pub(super) fn goes_on(&self, goes_on: bool) {
        self.over.store(!goes_on, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// All that was recorded is in the store, and both instances believe it.
    pub(super) fn settles(&self) {
        self.settled.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    /// An instance is about to be ended: what only it knows is gone.
    pub(super) fn ends(&self, instance: usize) {
        self.restarts[instance].fetch_add(1, Ordering::SeqCst);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// An instance that was ended runs again.
    pub(super) fn runs(&self) {
        self.ended.fetch_sub(1, Ordering::SeqCst);
    }

    /// A mark that is the same before and after whatever happened while no instance was ended on
    /// purpose; none while one is.
    pub(super) fn all_run(&self) -> Option<u64> {
        let restarts = (0..INSTANCES).map(|instance| self.restarts(instance)).sum();
        (self.ended.load(Ordering::SeqCst) == 0).then_some(restarts)
    }

    /// Half of the sessions only read from now on, or all write again: a new record would make up
    /// for one that is lost.
    pub(super) fn hush(&self, begins: bool) {
        self.hush.store(begins, Ordering::SeqCst);
    }

    pub(super) fn is_hushed(&self) -> bool {
        self.hush.load(Ordering::SeqCst)
    }

    /// The store goes away for long, or is back.
    pub(super) fn outage(&self, begins: bool) {
        self.outage.store(begins, Ordering::SeqCst);
    }

    pub(super) fn is_outage(&self) -> bool {
        self.outage.load(Ordering::SeqCst)
    }

    pub(super) fn restarts(&self, instance: usize) -> u64 {
        self.restarts[instance].load(Ordering::SeqCst)
    }

    /// Says whether the late standby lacks a row. One that does not answer says nothing.
    pub(super) async fn late_lacks(&self, row: i64) -> bool {
        let query = format!("select not exists (select from soak where id = {row})");
        self.late().value::<bool>(&query).await.unwrap_or(false)
    }
}
