//! The scopes of the Rust client on real servers: what they refuse, keep and check.
//!
//! Freshness itself is told by the scenarios and the rounds; here it is the edges of one call.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "rust_client/commit.rs"]
mod commit;
#[path = "rust_client/seen.rs"]
mod seen;
#[path = "rust_client/tls.rs"]
mod tls;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_client::{
    Client, ClientOptions, DirectPool, Identity, Level, NodeAddress, NodeConnection, NodePool,
    Policy, PoolError, Pooled, ReadError, Reason, Role, Session, SessionOptions, Stored,
    WaitOutcome, WaitTarget, WriteError,
};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Stop};
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::{DATABASE, PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tokio_postgres::{Config, Error, Transaction};

struct Place {
    cluster: Cluster,
    service: Service,
    client: Client,
    pool: DirectPool,
}

impl Place {
    async fn open(standbys: usize) -> Self {
        let options = ClusterOptions::new(Major::V15).standbys(standbys);
        let cluster = Cluster::start(options).await.expect("a cluster starts");
        let table = "create table t (n bigint unique deferrable initially deferred)";
        cluster.leader().sql(table).await.expect("a table is made");
        let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
        let service = Service::start(options).await.expect("the service starts");
        let options = ClientOptions::new(service.endpoint());
        let client = Client::connect(options).await.expect("the service listens");
        Self { cluster, service, client, pool: pool() }
    }

    fn session(&self) -> Session {
        self.client.session(SessionOptions::new(PARTITION))
    }

    async fn leader(&self) -> tokio_postgres::Client {
        self.cluster.leader().connect("postgres", DATABASE).await.expect("the leader is there")
    }

    async fn close(self) {
        self.service.stop().await.expect("the service had not failed");
    }
}

fn pool() -> DirectPool {
    let mut config = Config::new();
    config.user("postgres").dbname(DATABASE);
    DirectPool::new(config, 4)
}

async fn insert(transaction: &Transaction<'_>, n: i64) -> Result<u64, Error> {
    transaction.execute("insert into t values ($1)", &[&n]).await
}

async fn count(client: &tokio_postgres::Client) -> Result<i64, Error> {
    client.query_one("select count(*) from t", &[]).await?.try_get(0)
}

#[tokio::test]
async fn a_write_says_whether_it_was_written_and_recorded() {
    let place = Place::open(0).await;
    let session = place.session();
    let mut leader = place.leader().await;

    let written = session.write(&mut leader, async |tx| insert(tx, 1).await).await;
    let written = written.expect("it is written");
    assert_eq!((written.value, written.stored), (1, Stored::NotAsked));
    assert!(written.capture.starts_with("tge1|capture|15"), "{}", written.capture);
    assert_eq!(session.tokens().len(), 1);

    // Inside an open transaction and inside an aborted one: refused, and nothing is done.
    for spoil in ["begin", "begin; select 1/0"] {
        drop(leader.batch_execute(spoil).await);
        let refused = session.write(&mut leader, async |tx| insert(tx, 2).await).await;
        assert!(matches!(refused, Err(WriteError::OpenTransaction)), "{spoil}: {refused:?}");
        leader.batch_execute("rollback").await.expect("it was still open");
    }
    // The caller's own error: rolled back, and the connection is clean.
    let failed = session.write(&mut leader, async |tx| {
        insert(tx, 3).await.expect("it is inserted");
        Err::<(), _>("changed my mind")
    });
    assert!(matches!(failed.await, Err(WriteError::Body("changed my mind"))));
    // The server refuses the commit.
    let twice = session.write(&mut leader, async |tx| insert(tx, 1).await).await;
    assert!(matches!(twice, Err(WriteError::NotCommitted(_))), "{twice:?}");
    assert_eq!(count(&leader).await.expect("it is there"), 1);

    // The answer to COMMIT is lost: the session reads from the leader what it has by then.
    let other = place.leader().await;
    let lost = session.write(&mut leader, async |tx| {
        let pid: i32 = tx.query_one("select pg_backend_pid()", &[]).await?.try_get(0)?;
        other.execute("select pg_terminate_backend($1, 10000)", &[&pid]).await
    });
    let lost = lost.await;
    assert!(matches!(lost, Err(WriteError::CommitUnknown(_))), "{lost:?}");
    let read = session.read(&place.pool, &Policy::default(), async |db| count(db).await).await;
    assert_eq!(read.expect("the leader serves").value, 1);
    place.close().await;
}

#[tokio::test]
async fn what_could_not_be_recorded_is_said_and_told_with_the_next_call() {
    let place = Place::open(1).await;
    let proxy = Proxy::start(place.service.data_address()).await.expect("a proxy starts");
    let options = ClientOptions::new(format!("http://{}", proxy.address()));
    let client = Client::connect(options).await.expect("the service listens");
    let session = client.session(SessionOptions::new(PARTITION));
    let mut leader = place.leader().await;
    session.write(&mut leader, async |tx| insert(tx, 1).await).await.expect("it is recorded");
    let before = session.tokens();

    proxy.set(Mode::Cut).await.expect("the proxy lives");
    place.cluster.standby(0).pause_replay().await.expect("it pauses");
    let unrecorded = session.write(&mut leader, async |tx| insert(tx, 2).await).await;
    let Err(WriteError::Unrecorded { value: 1, evidence: Some(_), cause }) = unrecorded else {
        panic!("{unrecorded:?}");
    };
    assert!(cause.to_string().contains("cannot be reached"), "{cause}");
    assert_eq!(session.tokens(), before);
    let read = session.read(&place.pool, &Policy::default(), async |db| count(db).await).await;
    assert!(matches!(read, Err(ReadError::Client(_))), "{read:?}");

    proxy.set(Mode::Pass).await.expect("the proxy lives");
    let read = session.read(&place.pool, &Policy::default(), async |db| count(db).await).await;
    let read = read.expect("it is served");
    assert_eq!((read.value, read.node.role), (2, Role::Leader));
    assert_ne!(session.tokens(), before);

    // A token handed on is enough elsewhere; without it the standby's old state is good enough.
    let token = session.token().await.expect("joined").expect("there is one");
    let device = place.client.session(SessionOptions::new(PARTITION).token(token));
    let leader_only = Policy::default().fallback(false).above_cap([]);
    let refused = device.read(&place.pool, &leader_only, async |db| count(db).await).await;
    assert!(matches!(refused, Err(ReadError::Refused { .. })), "{refused:?}");
    // So is the one of a subject, though the session that asks for it carries none.
    let named = || client.session(SessionOptions::new(PARTITION).subject("ann"));
    named().write(&mut leader, async |tx| insert(tx, 3).await).await.expect("it is recorded");
    let token = named().token().await.expect("joined").expect("there is one");
    let job = place.client.session(SessionOptions::new(PARTITION).token(token));
    let refused = job.read(&place.pool, &leader_only, async |db| count(db).await).await;
    assert!(matches!(refused, Err(ReadError::Refused { .. })), "{refused:?}");
    let eventual = Policy::new(Level::Eventual);
    let stale = place.session().read(&place.pool, &eventual, async |db| count(db).await).await;
    let stale = stale.expect("nothing is demanded");
    assert!(stale.node.role == Role::Leader || stale.value == 1, "{stale:?}");

    place.cluster.standby(0).resume_replay().await.expect("it resumes");
    let waited = device.wait(WaitTarget::All, LIMIT).await.expect("it ends");
    assert!(matches!(waited.outcome, WaitOutcome::Fresh(_)), "{waited:?}");
    place.close().await;
}

#[tokio::test]
async fn a_read_checks_its_connection_before_and_raises_its_session_after() {
    let place = Place::open(1).await;
    let session = place.session();
    let mut leader = place.leader().await;
    session.write(&mut leader, async |tx| insert(tx, 1).await).await.expect("it is recorded");
    let replica = Policy::default().fallback(false).wait_budget(LIMIT);
    let read = session.read(&place.pool, &replica, async |db| count(db).await).await;
    let read = read.expect("the standby catches up");
    assert_eq!((read.value, read.node.role, read.selects), (1, Role::Replica, 1));
    assert!(matches!(read.reason, Reason::Covered | Reason::Waited), "{read:?}");

    // One snapshot for all statements, and the session is raised behind it.
    let same = async |tx: &Transaction<'_>| {
        let first: i64 = tx.query_one("select count(*) from t", &[]).await?.try_get(0)?;
        let write = tx.execute("insert into t values (9)", &[]).await.is_err();
        Ok::<_, Error>((first, write))
    };
    let read = session.read_transaction(&place.pool, &Policy::new(Level::Leader), same).await;
    let read = read.map(|read| (read.node.role, read.value.1));
    // The failed statement aborted the transaction, so its COMMIT is a rollback: nothing to tell.
    assert_eq!(read.expect("the leader serves"), (Role::Leader, true));

    // The standby restarts: the old connection is dead, a new one leads to a new incarnation.
    place.cluster.standby(0).restart(Stop::Immediate).await.expect("it comes back");
    let read = session.read(&place.pool, &replica, async |db| count(db).await).await;
    assert_eq!(read.expect("selected until it fits").value, 1);

    // A pool that leads elsewhere is found out before anything is read.
    let astray = Astray::to(place.cluster.leader().address().to_string(), None);
    let read = session.read(&astray, &replica, async |db| count(db).await).await;
    let Err(ReadError::Checkout { selects, problem, .. }) = &read else { panic!("{read:?}") };
    assert!(*selects > 1 && problem.contains("incarnation"), "{read:?}");
    assert_eq!(astray.discarded.load(Ordering::Relaxed), usize::try_from(*selects).expect("few"));

    // A read that is dropped half-way leaves its connection to nobody.
    let astray = Astray::to(String::new(), None);
    let slow = async |db: &tokio_postgres::Client| db.execute("select pg_sleep(60)", &[]).await;
    let mut reading = Box::pin(session.read(&astray, &replica, slow));
    let running = until("the read runs", LIMIT, || async {
        let running = "select count(*) from pg_stat_activity where query ~ '^select pg_sleep'";
        Ok(place.cluster.standby(0).value::<i64>(running).await? > 0)
    });
    tokio::select! {
        ended = &mut reading => panic!("{ended:?}"),
        running = running => drop(running.expect("it begins")),
    }
    drop(reading);
    assert_eq!(astray.discarded.load(Ordering::Relaxed), 1);

    // A pool that hands out open transactions: what was read is not handed out.
    let open = "begin isolation level repeatable read; select 1";
    let astray = Astray::to(String::new(), Some(open));
    let read = session.read(&astray, &replica, async |db| count(db).await).await;
    assert!(matches!(read, Err(ReadError::OpenTransaction)), "{read:?}");
    let read = session.read_transaction(&astray, &replica, same).await;
    assert!(matches!(read, Err(ReadError::OpenTransaction)), "{read:?}");
    assert_eq!(astray.discarded.load(Ordering::Relaxed), 2);
    place.close().await;
}

#[tokio::test]
async fn a_leader_that_was_deposed_is_not_read_as_the_leader() {
    let place = Place::open(1).await;
    let session = place.session();
    let policy = Policy::new(Level::Leader);
    let first = session.read(&place.pool, &policy, async |db| count(db).await).await;
    let first = first.expect("the leader serves").node;
    let promoted = place.cluster.standby(0);
    promoted.promote().await.expect("it is promoted");
    // The old leader still runs and takes connections.
    until("the promoted one leads", LIMIT, || async {
        let selected = session.select(&policy).await?;
        let tidegate_client::Outcome::Served(served) = selected.outcome else { return Ok(false) };
        Ok(served.node.name == promoted.name())
    })
    .await
    .expect("the service sees it");
    let astray = Astray::to(place.cluster.leader().address().to_string(), None);
    let read = session.read(&astray, &policy, async |db| count(db).await).await;
    assert!(matches!(read, Err(ReadError::Checkout { .. })), "{read:?}");
    let read = session.read(&place.pool, &policy, async |db| count(db).await).await;
    assert_ne!(read.expect("the new leader serves").node.name, first.name);
    place.close().await;
}

/// A pool that is wrong: it leads to another address, or hands out connections in a transaction.
struct Astray {
    pool: DirectPool,
    address: String,
    spoil: Option<&'static str>,
    discarded: Arc<AtomicUsize>,
}

struct Spoiled(Pooled);

impl Astray {
    fn to(address: String, spoil: Option<&'static str>) -> Self {
        Self { pool: pool(), address, spoil, discarded: Arc::default() }
    }
}

impl NodePool for Astray {
    type Connection = Spoiled;
    type Error = PoolError;

    async fn checkout(&self, node: &NodeAddress) -> Result<Spoiled, PoolError> {
        let mut node = node.clone();
        if !self.address.is_empty() {
            self.address.clone_into(&mut node.address);
        }
        let connection = self.pool.checkout(&node).await?;
        if let Some(spoil) = self.spoil {
            connection.batch_execute(spoil).await.expect("the server takes it");
        }
        Ok(Spoiled(connection))
    }

    fn discard(&self, connection: &mut Spoiled) {
        self.discarded.fetch_add(1, Ordering::Relaxed);
        self.pool.discard(&mut connection.0);
    }
}

impl Deref for Spoiled {
    type Target = tokio_postgres::Client;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Spoiled {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl NodeConnection for Spoiled {
    fn identity(&self) -> &Identity {
        self.0.identity()
    }
}
