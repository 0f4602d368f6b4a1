//! Where a round is played: servers of one version, the service before them, and what all sessions
//! share.
//!
//! Which server applications write to is the servers' own word (`truth`): the service is not asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use anyhow::Result;
use tidegate_client::{Client, ClientOptions, DirectPool};
use tidegate_core::guards::Guards;
use tokio_postgres::Config;

use crate::failover::Trio;
use crate::postgres::Server;
use crate::service::{Service, ServiceOptions};
use crate::stall::Stall;
use crate::wait::{LIMIT, until};

/// Client connections to one address.
const CONNECTIONS: usize = 24;
const TABLE: &str = "create table soak (id bigint primary key, session integer not null); \
                     create index on soak (session, id)";

/// Servers of one version and the service before them.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) servers: Vec<Server>,
    pub(super) service: Service,
    pub(super) client: Client,
    pub(super) pool: DirectPool,
    pub(super) weather: Weather,
    pub(super) stall: Arc<Stall>,
    /// Where applications write, and where those write that hear of a change late.
    leads: AtomicUsize,
    led: AtomicUsize,
    rows: AtomicI64,
    turns: AtomicU64,
    over: AtomicBool,
}

/// Whether something is wrong with the servers now.
#[derive(Debug, Default)]
pub(super) struct Weather {
    open: AtomicU64,
    begun: AtomicU64,
}

impl Weather {
    /// Something goes wrong, or all is well again.
    pub(super) fn storm(&self, begins: bool) {
        if begins {
            self.open.fetch_add(1, Ordering::SeqCst);
            self.begun.fetch_add(1, Ordering::SeqCst);
        } else {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A mark that is the same before and after whatever happened in fair weather; none in a storm.
    pub(super) fn fair(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        (self.open.load(Ordering::SeqCst) == 0).then_some(begun)
    }
}

impl Place {
    /// Starts a service before three servers.
    pub(super) async fn open(trio: &Trio, guards: Guards, stall: Arc<Stall>) -> Result<Self> {
        let servers = trio.cluster().servers().to_vec();
        trio.leader().sql(TABLE).await?;
        let mut serving = ServiceOptions::of(trio.cluster()).await?.guards(guards);
        for server in &servers {
            serving = serving.poll_through(server.name(), trio.poll_address(server));
        }
        let service = Service::start(serving).await?;
        let client = Client::connect(guarded(ClientOptions::new(service.endpoint()), guards));
        let client = client.await?;
        let mut config = Config::new();
        config.user("postgres").dbname("postgres").application_name("soak");
        Ok(Self {
            servers,
            service,
            client,
            pool: DirectPool::new(config, CONNECTIONS),
            weather: Weather::default(),
            stall,
            leads: AtomicUsize::new(0),
            led: AtomicUsize::new(0),
            rows: AtomicI64::new(0),
            turns: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// The number of the server that applications write to; `late`: those that hear late.
    pub(super) fn leads(&self, late: bool) -> usize {
        if late { &self.led } else { &self.leads }.load(Ordering::SeqCst)
    }

    /// Tells applications which server to write to.
    pub(super) fn now_leads(&self, number: usize, late_too: bool) {
        self.leads.store(number, Ordering::SeqCst);
        if late_too {
            self.led.store(number, Ordering::SeqCst);
        }
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

    /// Lets sessions go on, or asks them to come to an end.
    pub(super) fn goes_on(&self, goes_on: bool) {
        self.over.store(!goes_on, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Says whether some running standby of now lacks a row. One that does not answer says nothing.
    pub(super) async fn some_standby_lacks(&self, row: i64) -> bool {
        let leader = self.leads(false);
        let query = format!("select not exists (select from soak where id = {row})");
        for (number, server) in self.servers.iter().enumerate() {
            if number != leader
                && server.is_running()
                && server.value::<bool>(&query).await.unwrap_or(false)
            {
                return true;
            }
        }
        false
    }
}

fn guarded(options: ClientOptions, guards: Guards) -> ClientOptions {
    #[cfg(feature = "unsafe-guards")]
    let options = options.guards(guards);
    #[cfg(not(feature = "unsafe-guards"))]
    let _ = guards;
    options
}
