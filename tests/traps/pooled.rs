//! A pooler between the application and its replica: a client connection that moves to another
//! life of the server without an error, and what a read does about it.
//!
//! Captures that move are in `pooled_capture`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_client::{
    Client, ClientOptions, DirectPool, Guarantee, Level, NodeAddress, NodePool, Policy, PoolError,
    Pooled, Read, ReadError, Role, SessionOptions, WriteError,
};
use tidegate_lab::install::Major;
use tidegate_lab::pgbouncer::{Pgbouncer, PgbouncerOptions, PoolMode};
use tidegate_lab::postgres::{Cluster, ClusterOptions, Server};
use tidegate_lab::service::{DATABASE, PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tokio_postgres::{Config, Error, SimpleQueryMessage, Transaction};

use super::stage::on_both_majors;

on_both_majors! {
    the_pooled_check_guard_keeps_a_moved_connection_from_serving =>
        trap_pooled_connection_moves_to_a_restarted_standby_pg15,
        trap_pooled_connection_moves_to_a_restarted_standby_pg18;
    a_pooler_is_found_though_its_node_is_declared_direct =>
        trap_pooler_before_a_node_declared_direct_pg15,
        trap_pooler_before_a_node_declared_direct_pg18;
    statement_pooling_is_refused =>
        trap_pooler_that_knows_no_transactions_pg15, trap_pooler_that_knows_no_transactions_pg18;
    a_read_that_waits_in_the_pooler_is_not_older_than_its_bound =>
        trap_pooled_read_that_waits_for_a_server_pg15,
        trap_pooled_read_that_waits_for_a_server_pg18;
    a_pooled_read_stays_in_its_transaction =>
        trap_pooled_read_that_leaves_its_transaction_pg15,
        trap_pooled_read_that_leaves_its_transaction_pg18;
}

/// Longer than any test: a commit hidden for so long is hidden until the test says otherwise.
const HIDDEN: Duration = Duration::from_secs(3600);

/// A leader, a standby behind a pooler, and a service that tells clients to use it.
struct Place {
    service: Service,
    pooler: Pgbouncer,
    leader: tokio_postgres::Client,
    // Ends after its pooler.
    cluster: Cluster,
}

impl Place {
    async fn open(major: Major, mode: PoolMode, reach: &'static str) -> Self {
        Self::behind(major, PgbouncerOptions::new().mode(mode), reach).await
    }

    async fn behind(major: Major, pooling: PgbouncerOptions, reach: &'static str) -> Self {
        let cluster = Cluster::start(ClusterOptions::new(major).standbys(1)).await;
        let cluster = cluster.expect("a cluster starts");
        let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
        let table = "create table t (n bigint); create table noise (at timestamptz)";
        cluster.leader().sql(table).await.expect("tables are made");
        cluster.standby(0).anchor(cluster.leader()).await.expect("a restartpoint");
        let pooler = Pgbouncer::start(pooling, cluster.standby(0)).await;
        let pooler = pooler.expect("a pooler starts");
        let options = options.reach_through("r1", pooler.address(), reach);
        let service = Service::start(options).await.expect("the service starts");
        let leader = cluster.leader().connect("postgres", DATABASE).await;
        let leader = leader.expect("the leader is there");
        Self { service, pooler, leader, cluster }
    }

    async fn client(&self) -> Client {
        let options = ClientOptions::new(self.service.endpoint());
        Client::connect(options).await.expect("the service listens")
    }

    /// A client that lacks the check; none in builds that lack no rule.
    #[cfg(feature = "unsafe-guards")]
    async fn unchecked(&self) -> Option<Client> {
        let guards = tidegate_client::Guards::without("pooled_check").expect("a guard");
        let options = ClientOptions::new(self.service.endpoint()).guards(guards);
        Some(Client::connect(options).await.expect("the service listens"))
    }

    #[cfg(not(feature = "unsafe-guards"))]
    async fn unchecked(&self) -> Option<Client> {
        None
    }

    fn pool(&self) -> Crashing {
        let mut config = Config::new();
        config.user("postgres").dbname(DATABASE);
        let victim = self.cluster.standby(0).clone();
        let (pool, armed) = (DirectPool::new(config, 1), AtomicBool::new(false));
        Crashing { pool, victim, armed, asked: Mutex::default() }
    }

    /// A session writes and reads on the replica; then the replica restarts behind what it showed,
    /// between the service's answer and the read, and the session reads again.
    async fn moved(&mut self, client: &Client) -> (Read<i64>, i64) {
        let session = client.session(SessionOptions::new(PARTITION));
        let written = session.write(&mut self.leader, insert).await;
        written.expect("it is written and recorded");
        let pool = self.pool();
        let replica = Policy::default().fallback(false).wait_budget(LIMIT);
        let first = session.read(&pool, &replica, count).await.expect("the standby catches up");
        assert_eq!((first.node.role, first.selects), (Role::Replica, 1), "{first:?}");
        // A connection of nobody's, to see what the pooler does with it.
        let plain = self.pooler.connect(DATABASE).await.expect("it takes connections");
        let before = count_simply(&plain).await.expect("it is read");
        self.cluster.leader().sql("insert into noise values (now())").await.expect("a commit");
        self.cluster.catch_up().await.expect("the standby shows it");
        pool.armed.store(true, Ordering::Relaxed);
        let second = session.read(&pool, &Policy::default(), count).await;
        let after = count_simply(&plain).await.expect("the same connection, without an error");
        assert!(before >= first.value && after < before, "it had {before} and has {after}");
        self.mended().await;
        (second.expect("it is served"), first.value)
    }

    /// Lets the standby show everything again, and waits until the service has seen it.
    async fn mended(&self) {
        self.cluster.standby(0).apply_delay(Duration::ZERO).await.expect("it goes on");
        self.cluster.standby(0).await_streaming().await.expect("it streams");
        self.cluster.catch_up().await.expect("it has everything");
        until("the standby may serve again", LIMIT, || async {
            let partition = self.service.partition().await?;
            Ok(partition.nodes.iter().all(|node| node.name != "r1" || node.session_eligible))
        })
        .await
        .expect("it is seen");
    }
}

async fn insert(transaction: &Transaction<'_>) -> Result<u64, Error> {
    transaction.execute("insert into t values (1)", &[]).await
}

async fn count(client: &tokio_postgres::Client) -> Result<i64, Error> {
    client.query_one("select count(*) from t", &[]).await?.try_get(0)
}

/// As [`count`], with nothing left to be sent behind the answer.
async fn count_simply(client: &tokio_postgres::Client) -> Result<i64, Error> {
    let answer = client.simple_query("select count(*) from t").await?;
    let shown = answer.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0)?.parse().ok()
    });
    Ok(shown.expect("one row with a number"))
}

/// Called fresh, and without what the session saw before.
fn assert_wrong((read, promised): &(Read<i64>, i64)) {
    assert!(read.value < *promised, "nothing was missing: {read:?}");
    assert_eq!((read.node.role, read.stale), (Role::Replica, None), "{read:?}");
    assert!(read.met.contains(&Guarantee::ReadYourWrites), "{read:?}");
}

/// The moved connection was noticed, and the read served elsewhere or later.
fn assert_right((read, promised): &(Read<i64>, i64)) {
    assert_eq!(read.value, *promised, "{read:?}");
    assert!(read.selects > 1, "nothing had moved: {read:?}");
}

async fn the_pooled_check_guard_keeps_a_moved_connection_from_serving(major: Major) {
    let mut place = Place::open(major, PoolMode::Transaction, "pooled").await;
    if let Some(client) = place.unchecked().await {
        assert_wrong(&place.moved(&client).await);
    }
    let client = place.client().await;
    assert_right(&place.moved(&client).await);
    place.service.stop().await.expect("the service had not failed");
}

async fn a_pooler_is_found_though_its_node_is_declared_direct(major: Major) {
    let mut place = Place::open(major, PoolMode::Transaction, "direct").await;
    if let Some(client) = place.unchecked().await {
        assert_wrong(&place.moved(&client).await);
    }

    let said = Said::default();
    let sink = said.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone()).finish();
    let listening = tracing::subscriber::set_default(subscriber);
    let client = place.client().await;
    assert_right(&place.moved(&client).await);
    let session = client.session(SessionOptions::new(PARTITION));
    for _ in 0..3 {
        session.read(&place.pool(), &Policy::default(), count).await.expect("it is served");
    }
    drop(listening);
    let said = said.text();
    assert_eq!(said.matches("a pooler is before this node").count(), 1, "once, not: {said}");
    assert!(said.contains("node=\"r1\"") && said.contains("pooled"), "{said}");
    place.service.stop().await.expect("the service had not failed");
}

async fn statement_pooling_is_refused(major: Major) {
    let mut place = Place::open(major, PoolMode::Statement, "direct").await;
    if let Some(client) = place.unchecked().await {
        assert_wrong(&place.moved(&client).await);
    }

    let client = place.client().await;
    let session = client.session(SessionOptions::new(PARTITION));
    let replica = Policy::default().fallback(false).wait_budget(LIMIT);
    let read = session.read(&place.pool(), &replica, count).await;
    let Err(error @ ReadError::StatementPooling(_)) = read else { panic!("{read:?}") };
    assert!(error.to_string().contains("pool_mode = transaction"), "{error}");
    let same = async |tx: &Transaction<'_>| insert(tx).await;
    let read = session.read_transaction(&place.pool(), &replica, same).await;
    assert!(matches!(read, Err(ReadError::StatementPooling(_))), "{read:?}");

    let options = PgbouncerOptions::new().mode(PoolMode::Statement);
    let pooler = Pgbouncer::start(options, place.cluster.leader()).await.expect("a pooler starts");
    let before = count(&place.leader).await.expect("it is read");
    let mut leader = pooler.connect(DATABASE).await.expect("it takes connections");
    let written = session.write(&mut leader, insert).await;
    let Err(error @ WriteError::StatementPooling(_)) = written else { panic!("{written:?}") };
    assert!(error.to_string().contains("pool_mode = transaction"), "{error}");
    assert_eq!(count(&place.leader).await.expect("it is read"), before);
    place.service.stop().await.expect("the service had not failed");

    // A session has transactions.
    let mut place = Place::open(major, PoolMode::Session, "direct").await;
    let client = place.client().await;
    let session = client.session(SessionOptions::new(PARTITION));
    session.write(&mut place.leader, insert).await.expect("it is written");
    let read = session.read(&place.pool(), &replica, count).await.expect("it is served");
    assert_eq!((read.value, read.node.role, read.selects), (1, Role::Replica, 1));
    place.service.stop().await.expect("the service had not failed");
}

/// The answer is for a state of this age at most when the read begins; by the time the pooler has
/// a server for it, that may be long ago.
async fn a_read_that_waits_in_the_pooler_is_not_older_than_its_bound(major: Major) {
    const BOUND: Duration = Duration::from_millis(1_500);
    let pooling = PgbouncerOptions::new().server_connections(1);
    let place = Place::behind(major, pooling, "pooled").await;
    let held = place.pooler.connect(DATABASE).await.expect("it takes connections");
    held.batch_execute("begin").await.expect("it has the only server connection");
    let client = place.client().await;
    let session = client.session(SessionOptions::new(PARTITION));
    let policy = Policy::new(Level::Bounded(BOUND)).fallback(false).wait_budget(LIMIT);
    let pool = place.pool();
    let read = session.read(&pool, &policy, count);
    let release = async {
        let waits = || async { Ok(place.pooler.waiting().await? > 0) };
        until("the read waits in the pooler", LIMIT, waits).await.expect("it waits");
        let (clock, since) = (Clock::new(), Clock::new().now());
        let is_over = || async { Ok(clock.now().since(since) > BOUND) };
        until("its answer has expired", LIMIT, is_over).await.expect("time passes");
        held.batch_execute("commit").await.expect("it gives the server connection back");
    };
    let (read, ()) = tokio::join!(read, release);
    let read = read.expect("it is selected again");
    assert_eq!(read.node.role, Role::Replica, "{read:?}");
    assert!(read.selects > 1, "an answer that had expired was used: {read:?}");
    place.service.stop().await.expect("the service had not failed");
}

async fn a_pooled_read_stays_in_its_transaction(major: Major) {
    let mut place = Place::open(major, PoolMode::Transaction, "shared").await;
    let client = place.client().await;
    let session = client.session(SessionOptions::new(PARTITION));
    session.write(&mut place.leader, insert).await.expect("it is written");
    let pool = place.pool();
    let replica = Policy::default().fallback(false).wait_budget(LIMIT);

    // The wrong way: half of what is read comes from outside the transaction that was checked.
    let left = async |db: &tokio_postgres::Client| {
        db.batch_execute("commit").await?;
        count(db).await
    };
    let read = session.read(&pool, &replica, left).await;
    assert!(matches!(read, Err(ReadError::TransactionLeft)), "{read:?}");
    let again = async |db: &tokio_postgres::Client| {
        db.batch_execute("commit; begin").await?;
        count(db).await
    };
    let read = session.read(&pool, &replica, again).await;
    assert!(matches!(read, Err(ReadError::TransactionLeft)), "{read:?}");
    let swallowed = async |db: &tokio_postgres::Client| {
        let read = count(db).await?;
        drop(db.batch_execute("select 1/0").await);
        Ok::<_, Error>(read)
    };
    let read = session.read(&pool, &replica, swallowed).await;
    assert!(matches!(read, Err(ReadError::Transaction(_))), "{read:?}");

    // The right ways, on the same connections; an error of the body leaves no transaction open.
    let failed = session.read(&pool, &replica, async |_| Err::<(), _>("changed my mind")).await;
    assert!(matches!(failed, Err(ReadError::Body("changed my mind"))), "{failed:?}");
    let read = session.read(&pool, &replica, count).await.expect("it is served");
    assert_eq!((read.value, read.node.role, read.selects), (1, Role::Replica, 1));
    let same = async |tx: &Transaction<'_>| {
        let first: i64 = tx.query_one("select count(*) from t", &[]).await?.try_get(0)?;
        let second: i64 = tx.query_one("select count(*) from t", &[]).await?.try_get(0)?;
        Ok::<_, Error>((first, second))
    };
    let read = session.read_transaction(&pool, &replica, same).await.expect("it is served");
    assert_eq!((read.value, read.node.role, read.selects), ((1, 1), Role::Replica, 1));

    // A connection that is inside a transaction already may see what is long gone.
    let open = pool.last().await;
    open.batch_execute("begin isolation level repeatable read; select 1").await.expect("it opens");
    drop(open);
    let read = session.read(&pool, &replica, count).await;
    assert!(matches!(read, Err(ReadError::OpenTransaction)), "{read:?}");
    place.service.stop().await.expect("the service had not failed");
}

/// A pool of one connection whose server, once armed, restarts behind what it had shown while the
/// connection is handed out: behind the answer, before the read.
struct Crashing {
    pool: DirectPool,
    victim: Server,
    armed: AtomicBool,
    asked: Mutex<Option<NodeAddress>>,
}

impl Crashing {
    /// The connection that was handed out last.
    async fn last(&self) -> Pooled {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.pool.checkout(&asked.expect("it was asked")).await.expect("it is free")
    }
}

impl NodePool for Crashing {
    type Connection = Pooled;
    type Error = PoolError;

    async fn checkout(&self, node: &NodeAddress) -> Result<Pooled, PoolError> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
        let connection = self.pool.checkout(node).await?;
        if node.node == self.victim.name() && self.armed.swap(false, Ordering::Relaxed) {
            self.victim.crash_behind(HIDDEN).await.expect("it comes back behind");
        }
        Ok(connection)
    }

    fn discard(&self, connection: &mut Pooled) {
        self.pool.discard(connection);
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
