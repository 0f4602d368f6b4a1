//! Where the traps of capturing and reading stand: a leader, its standbys, and services before
//! them, one with every rule in force and one with a single rule off.
//!
//! Both services see the same servers at the same time. What a row's absence means is the trap's
//! to say.

use std::time::Duration;

use tidegate_client::{
    AboveCap, ClientOptions, Level, Observed, Outcome, Policy, Raise, Selection, Session,
    SessionOptions, WaitOutcome, WaitTarget,
};
use tidegate_core::evidence::{Evidence, Role};
use tidegate_core::guards::Guards;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Lsn, Server};
use tidegate_lab::service::{DATABASE, PARTITION, Service, ServiceOptions};
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};
use tokio_postgres::Client;

/// How long a wait lasts that is to end in vain. No trap depends on its length.
pub(crate) const IN_VAIN: Duration = Duration::from_millis(200);

/// Makes one test per PostgreSQL version that every trap is tried on.
macro_rules! on_both_majors {
    ($($trap:ident => $pg15:ident, $pg18:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg15() {
            Box::pin($trap(tidegate_lab::install::Major::V15)).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg18() {
            Box::pin($trap(tidegate_lab::install::Major::V18)).await;
        }
    )*};
}
pub(crate) use on_both_majors;

/// A service and a client of it.
pub(crate) struct Front {
    pub(crate) service: Service,
    pub(crate) client: tidegate_client::Client,
}

/// Servers with a table `t (id bigint primary key)`, and the services before them.
pub(crate) struct Stage {
    /// With every rule in force.
    pub(crate) ruled: Front,
    /// With one rule off, in builds that may.
    unruled: Option<Front>,
    pub(crate) stall: Stall,
    // Ends after the services.
    pub(crate) cluster: Cluster,
}

impl Stage {
    /// A leader and standbys that nobody else writes to.
    pub(crate) async fn set(major: Major, standbys: usize) -> Self {
        Self::of(major, standbys, None, |options| options).await
    }

    /// The same with a second service that lacks this rule, both as `change` has them.
    pub(crate) async fn without(
        guard: &str,
        major: Major,
        standbys: usize,
        change: impl Fn(ServiceOptions) -> ServiceOptions,
    ) -> Self {
        Self::of(major, standbys, Some(guard), change).await
    }

    async fn of(
        major: Major,
        standbys: usize,
        guard: Option<&str>,
        change: impl Fn(ServiceOptions) -> ServiceOptions,
    ) -> Self {
        // Autovacuum commits, and would be the commit that a held standby stops at.
        let options = ClusterOptions::new(major).standbys(standbys).setting("autovacuum", "off");
        let cluster = Cluster::start(options).await.expect("a cluster starts");
        let table = "create table t (id bigint primary key)";
        cluster.leader().sql(table).await.expect("a table is made");
        let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
        cluster.catch_up().await.expect("standbys follow");
        let options = change(options);
        let ruled = Front::open(options.clone()).await;
        let unruled = match guard.and_then(rule_off) {
            Some(guards) => Some(Front::open(options.guards(guards)).await),
            None => None,
        };
        // What a start writes, the standbys have before a trap is set.
        cluster.catch_up().await.expect("standbys follow");
        let stall = Stall::watch().expect("a thread");
        Self { ruled, unruled, stall, cluster }
    }

    /// The service that lacks one rule; none in builds that lack no rule.
    pub(crate) fn unruled(&self) -> Option<&Front> {
        self.unruled.as_ref()
    }

    pub(crate) fn leader(&self) -> &Server {
        self.cluster.leader()
    }

    pub(crate) fn r1(&self) -> &Server {
        self.cluster.standby(0)
    }

    pub(crate) fn r2(&self) -> &Server {
        self.cluster.standby(1)
    }

    /// An application's connection to the leader.
    pub(crate) async fn writer(&self) -> Client {
        connection(self.leader()).await
    }

    /// Writes a row and returns what was captured after its commit.
    pub(crate) async fn write(&self, id: i64) -> String {
        self.leader().sql(&format!("insert into t values ({id})")).await.expect("a row");
        self.leader().value("select tidegate.capture()").await.expect("a capture")
    }

    /// Stops or continues a process of the leader, so that nothing happens by itself meanwhile.
    pub(crate) async fn tell_leaders(&self, process: &str, signal: &str) {
        self.leader().signal_process(process, signal).await.expect("such a process runs");
    }
}

/// Every rule but one; none in builds that lack no rule.
#[cfg(feature = "unsafe-guards")]
fn rule_off(guard: &str) -> Option<Guards> {
    Some(Guards::without(guard).expect("a guard of that name"))
}

#[cfg(not(feature = "unsafe-guards"))]
fn rule_off(_: &str) -> Option<Guards> {
    None
}

impl Front {
    async fn open(options: ServiceOptions) -> Self {
        let service = Service::start(options).await.expect("a service starts");
        let options = ClientOptions::new(service.endpoint());
        let client = tidegate_client::Client::connect(options).await.expect("it listens");
        Self { service, client }
    }

    /// A client that lacks one rule; none in builds that lack no rule.
    #[cfg(feature = "unsafe-guards")]
    pub(crate) async fn client_without(&self, guard: &str) -> Option<tidegate_client::Client> {
        let options = ClientOptions::new(self.service.endpoint()).guards(rule_off(guard)?);
        Some(tidegate_client::Client::connect(options).await.expect("it listens"))
    }

    #[cfg(not(feature = "unsafe-guards"))]
    pub(crate) async fn client_without(&self, _: &str) -> Option<tidegate_client::Client> {
        None
    }

    /// A session nothing is known of.
    pub(crate) fn session(&self) -> Session {
        self.client.session(SessionOptions::new(PARTITION))
    }

    /// A session that recorded this and nothing else.
    pub(crate) async fn recorded(&self, evidence: &str) -> Session {
        let session = self.session();
        let observed = Observed::Evidence(evidence.to_owned());
        session.record(observed, Raise::Unspecified).await.expect("it is recorded");
        session
    }
}

/// Whether a node is said to be fresh for a session within a time.
pub(crate) async fn fresh_within(session: &Session, node: &str, budget: Duration) -> bool {
    let waited = session.wait(WaitTarget::Node(node.to_owned()), budget).await;
    let outcome = waited.expect("an end of the wait").outcome;
    if let WaitOutcome::Fresh(served) = &outcome {
        return served.node.name == node;
    }
    assert_eq!(outcome, WaitOutcome::TimedOut, "how a wait for {node} ended");
    false
}

/// Fails unless a node is said to be fresh for a session, however long that takes.
pub(crate) async fn await_fresh(session: &Session, node: &str) {
    assert!(fresh_within(session, node, LIMIT).await, "{node} was never said to be fresh");
}

/// A standby or a refusal: at this level, without the leader, waiting this long.
pub(crate) fn standby_only(level: Level, budget: Duration) -> Policy {
    Policy::new(level).fallback(false).wait_budget(budget).above_cap([AboveCap::Refuse])
}

/// Where a read may go.
pub(crate) async fn select(session: &Session, policy: &Policy) -> Selection {
    session.select(policy).await.expect("a decision")
}

/// The node a decision names; none: it refuses.
pub(crate) fn named(selection: &Selection) -> Option<&str> {
    match &selection.outcome {
        Outcome::Served(served) => Some(&served.node.name),
        Outcome::Refused(_) => None,
    }
}

/// An application's connection to a server.
pub(crate) async fn connection(server: &Server) -> Client {
    server.connect("postgres", DATABASE).await.expect("the server is there")
}

/// Whether a server shows a row to a statement that begins now.
pub(crate) async fn shows(server: &Server, id: i64) -> bool {
    let question = format!("select exists (select from t where id = {id})");
    server.value(&question).await.expect("a read")
}

/// Whether a standby has replayed a position, as a check by hand would have it.
pub(crate) async fn covers(standby: &Server, position: Lsn) -> bool {
    standby.replay_lsn().await.expect("a standby that answers") >= position
}

/// Waits until a standby has received the log up to a position, replayed or not.
pub(crate) async fn await_received(standby: &Server, position: Lsn) {
    let question = format!("select pg_last_wal_receive_lsn() >= '{position}'::pg_lsn");
    let what = format!("{} has received {position}", standby.name());
    until(&what, LIMIT, || async { standby.value(&question).await }).await.expect("it receives");
}

/// Delays replay until the test ends the delay; from now on no commit slips through: replay reads
/// changed settings before each record, and has replayed one that no delay holds.
pub(crate) async fn hold_commits_back(leader: &Server, standby: &Server, delay: Duration) {
    standby.apply_delay(delay).await.expect("replay is delayed");
    let message = "select pg_logical_emit_message(false, 'trap', 'x')::text";
    let end: String = leader.value(message).await.expect("a record that is no commit");
    let question = format!("select pg_last_wal_replay_lsn() >= '{end}'::pg_lsn");
    until("a record is replayed", LIMIT, || async { standby.value(&question).await })
        .await
        .expect("it is");
}

/// Waits until the replay of a standby stands still for this reason.
pub(crate) async fn await_replay_held(standby: &Server, reason: &str) {
    let question = format!(
        "select exists (select from pg_stat_activity \
         where backend_type = 'startup' and wait_event = '{reason}')"
    );
    let what = format!("replay of {} is held by {reason}", standby.name());
    until(&what, LIMIT, || async { standby.value(&question).await }).await.expect("it is held");
}

/// What a server had when it gave evidence, page headers taken off: what it had written, or
/// replayed.
pub(crate) fn position_in(evidence: &str) -> Lsn {
    let evidence = Evidence::parse(evidence, &Guards::on()).expect("evidence");
    evidence.position().expect("a position").scalar().into()
}

/// What a leader had flushed when it gave evidence.
pub(crate) fn flushed_in(evidence: &str) -> Lsn {
    let evidence = Evidence::parse(evidence, &Guards::on()).expect("evidence");
    match evidence.role {
        Role::Writable { flush, .. } => flush.scalar().into(),
        Role::Standby { .. } => panic!("a standby flushes nothing of its own"),
    }
}

/// What one statement by itself returns.
pub(crate) async fn text(client: &Client, statement: &str) -> String {
    client.query_one(statement, &[]).await.expect("an answer").get(0)
}
