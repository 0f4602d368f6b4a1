//! A leader that changes between an answer and the read it is for.
//!
//! A replica's answer stays right: a promotion goes on from what the replica had. A leader's does
//! not: at the same address the deposed one may answer by then.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_client::{
    Client, ClientOptions, DirectPool, Guards, Level, NodeAddress, NodePool, Policy, PoolError,
    Pooled, Read, ReadError, Role, SessionOptions,
};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Stop;
use tidegate_lab::service::{DATABASE, PARTITION};
use tidegate_lab::wait::LIMIT;
use tokio::sync::Semaphore;

use super::desk::{Desk, replica_within};
use super::stage::{Stage, commit, life, on_both_majors, rule_off, shows};

on_both_majors! {
    a_replica_is_promoted =>
        a_replica_that_is_promoted_before_the_read_still_has_it_pg15,
        a_replica_that_is_promoted_before_the_read_still_has_it_pg18;
    the_leader_check_guard_keeps_a_deposed_leader_from_being_read =>
        a_leader_that_is_deposed_before_the_read_is_not_read_pg15,
        a_leader_that_is_deposed_before_the_read_is_not_read_pg18;
}

/// A pool that hands out no connection until it may: what happens meanwhile, happens between an
/// answer and its read.
struct Held {
    pool: DirectPool,
    asked: Semaphore,
    open: AtomicBool,
    may_go: Semaphore,
}

impl Held {
    fn new() -> Self {
        let mut config = tokio_postgres::Config::new();
        config.user("postgres").dbname(DATABASE);
        let pool = DirectPool::new(config, 4);
        let (asked, may_go) = (Semaphore::new(0), Semaphore::new(0));
        Self { pool, asked, open: AtomicBool::new(false), may_go }
    }

    /// Waits until a read has its answer and asks for a connection.
    async fn until_asked(&self) {
        let asked = tokio::time::timeout(LIMIT, self.asked.acquire()).await;
        asked.expect("a read is under way").expect("it is never closed").forget();
    }

    fn release(&self) {
        self.open.store(true, Ordering::Release);
        self.may_go.add_permits(1);
    }
}

impl NodePool for Held {
    type Connection = Pooled;
    type Error = PoolError;

    async fn checkout(&self, node: &NodeAddress) -> Result<Pooled, PoolError> {
        if !self.open.load(Ordering::Acquire) {
            self.asked.add_permits(1);
            self.may_go.acquire().await.expect("it is never closed").forget();
        }
        self.pool.checkout(node).await
    }

    fn discard(&self, connection: &mut Pooled) {
        self.pool.discard(connection);
    }
}

/// A client whose reads may take long, under these rules.
async fn client(desk: &Desk, guards: Guards) -> Client {
    let options = ClientOptions::new(desk.service.endpoint()).call_grace(LIMIT).guards(guards);
    Client::connect(options).await.expect("it listens")
}

type Outcome = Result<Read<Vec<i64>>, ReadError<Vec<i64>, tokio_postgres::Error>>;

/// All rows, as a session without a past reads them.
async fn rows(client: &Client, held: &Held, policy: &Policy) -> Outcome {
    let session = client.session(SessionOptions::new(PARTITION));
    let read = session.read(held, policy, async |db| {
        let rows = db.query("select id from notes order by id", &[]).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    });
    read.await
}

/// H19: the replica that was named is promoted before the read: in the same life, with what it had.
async fn a_replica_is_promoted(major: Major) {
    let stage = Stage::set(major, 1).await;
    let desk = stage.desk().await;
    let session = desk.wrote(&commit(stage.l(), 1).await).await;
    desk.until_served_by(&session, "r1").await;
    let before = life(stage.r1()).await;
    let (held, client) = (Held::new(), client(&desk, Guards::on()).await);
    let (policy, promoted) = (replica_within(LIMIT), async {
        held.until_asked().await;
        stage.succeed(stage.r1()).await;
        held.release();
    });
    let (read, ()) = tokio::join!(rows(&client, &held, &policy), promoted);
    let read = read.expect("a read");
    assert_eq!((read.node.name.as_str(), read.node.role), ("r1", Role::Replica), "{read:?}");
    assert_eq!((read.selects, read.value), (1, vec![1]));
    assert_eq!(life(stage.r1()).await, before, "a promotion is no new life");
    assert!(!stage.r1().is_in_recovery().await.expect("it answers"), "and it was promoted");
}

/// H19: the leader that was named is a standby by the time it is read, cut off from the new one.
async fn the_leader_check_guard_keeps_a_deposed_leader_from_being_read(major: Major) {
    let stage = Stage::set(major, 1).await;
    let desk = stage.desk().await;
    commit(stage.l(), 1).await;
    let (named, policy) = (life(stage.l()).await, Policy::new(Level::Leader));
    let rules = [
        Guards::on(),
        rule_off("incarnation"),
        rule_off("leader_check"),
        rule_off("incarnation").and_without("leader_check").expect("a guard of that name"),
    ];
    let mut reads = Vec::new();
    for guards in rules {
        reads.push((client(&desk, guards).await, Held::new()));
    }
    let reading = reads.iter().map(|(client, held)| rows(client, held, &policy));
    let deposed = async {
        for (_, held) in &reads {
            held.until_asked().await;
        }
        stage.l().stop(Stop::Fast).await.expect("it ends");
        stage.r1().promote().await.expect("a promotion");
        stage.l().repoint(stage.r1()).await.expect("next time it is a standby");
        stage.l().cut_reception().await.expect("of nobody");
        stage.l().start().await.expect("it starts");
        commit(stage.r1(), 2).await;
        desk.until_leads(stage.r1()).await;
        reads.iter().for_each(|(_, held)| held.release());
    };
    let (done, ()) = tokio::join!(futures::future::join_all(reading), deposed);

    // At the address of the answer there is a server, it is read without an error, and it is not
    // the leader.
    assert!(!shows(stage.l(), 2).await && shows(stage.r1(), 2).await);
    assert_ne!(life(stage.l()).await, named);
    let mut done = done.into_iter().map(|read| read.expect("a read"));
    for rules in ["all rules", "without incarnation", "without leader_check"] {
        let read = done.next().expect("a read for each");
        assert_eq!((read.node.name.as_str(), read.value), ("r1", vec![1, 2]), "{rules}");
        assert!(read.selects > 1, "{rules}: it was selected again");
    }
    let wrong = done.next().expect("a read for each");
    assert_eq!((wrong.node.name.as_str(), wrong.node.role), ("l", Role::Leader), "{wrong:?}");
    assert_eq!(wrong.value, [1], "without either rule a leader read misses what the leader has");
}
