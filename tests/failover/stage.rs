//! Where failovers happen: a leader with standbys, a table of notes, and commits with what was
//! captured of them.
//!
//! It decides nothing: which server leads is the test's doing, and services before the servers are
//! `desk`.

use std::time::Duration;

use tidegate_client::Observed;
use tidegate_core::evidence::Evidence;
use tidegate_core::guards::Guards;
use tidegate_core::position::Position;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Lsn, Server, Stop};
use tidegate_lab::service::{DATABASE, ServiceOptions};
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};
use tokio_postgres::Client;

use super::desk::Desk;

/// How long what was seen of a node counts.
pub(crate) const SEEN: Duration = Duration::from_secs(1);

/// Makes one test per PostgreSQL version that every failover is tried on.
macro_rules! on_both_majors {
    ($($scene:ident => $pg15:ident, $pg18:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg15() {
            Box::pin($scene(tidegate_lab::install::Major::V15)).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg18() {
            Box::pin($scene(tidegate_lab::install::Major::V18)).await;
        }
    )*};
}
pub(crate) use on_both_majors;

/// Servers with an empty table `notes`, and services not started yet.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) options: ServiceOptions,
    pub(crate) stall: Stall,
}

/// A commit that was acknowledged, and what its connection was told.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) id: i64,
    pub(crate) before: String,
    pub(crate) capture: String,
}

impl Stage {
    /// A leader `l` with standbys `r1`, `r2`, ... that have caught up. Nobody else writes to it.
    pub(crate) async fn set(major: Major, standbys: usize) -> Self {
        Self::of(ClusterOptions::new(major).standbys(standbys)).await
    }

    /// The same with servers as these options have them.
    pub(crate) async fn of(options: ClusterOptions) -> Self {
        // Autovacuum commits, and would move a fork away from the last commit.
        let cluster = Cluster::start(options.setting("autovacuum", "off")).await;
        let cluster = cluster.expect("a cluster starts");
        let table = "create table notes (id bigint primary key)";
        cluster.leader().sql(table).await.expect("a table is made");
        let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
        cluster.catch_up().await.expect("standbys follow");
        // While a deposed leader was seen so lately, no loss is called certain.
        let options = options.limit("view_max_age", &format!("\"{}ms\"", SEEN.as_millis()));
        let stall = Stall::watch().expect("a thread");
        Self { cluster, options, stall }
    }

    /// A service with every rule in force.
    pub(crate) async fn desk(&self) -> Desk {
        Desk::open(self.options.clone()).await
    }

    /// A service that lacks one rule, before the same servers.
    pub(crate) async fn desk_without(&self, guard: &str) -> Desk {
        Desk::open(self.options.clone().guards(rule_off(guard))).await
    }

    /// The first leader.
    pub(crate) fn l(&self) -> &Server {
        self.cluster.leader()
    }

    pub(crate) fn r1(&self) -> &Server {
        self.cluster.standby(0)
    }

    pub(crate) fn r2(&self) -> &Server {
        self.cluster.standby(1)
    }

    /// Commits a row that all standbys have, and one that none has: reception is cut between them.
    pub(crate) async fn part(&self, kept: i64, lost: i64) -> (Commit, Commit) {
        let kept = commit(self.l(), kept).await;
        self.cluster.catch_up().await.expect("standbys follow");
        for standby in self.cluster.standbys() {
            standby.cut_reception().await.expect("reception ends");
        }
        (kept, commit(self.l(), lost).await)
    }

    /// The leader dies and this standby is promoted; where its old history ends.
    pub(crate) async fn succeed(&self, standby: &Server) -> Lsn {
        self.l().stop(Stop::Immediate).await.expect("it dies");
        standby.promote().await.expect("a promotion")
    }
}

/// Every rule but one.
pub(crate) fn rule_off(guard: &str) -> Guards {
    Guards::without(guard).expect("a guard of that name")
}

impl Commit {
    /// What a writer tells of it.
    pub(crate) fn observed(&self) -> Observed {
        let (capture, before) = (self.capture.clone(), self.before.clone());
        Observed::CaptureWithBefore { capture, before }
    }

    /// The position captured after it.
    pub(crate) fn position(&self) -> Lsn {
        position_in(&self.capture).scalar().into()
    }
}

/// Commits a row on a server that leads.
pub(crate) async fn commit(leader: &Server, id: i64) -> Commit {
    commit_with(leader, id, "on").await
}

/// Commits a row that nobody waits for to be safe.
pub(crate) async fn commit_unflushed(leader: &Server, id: i64) -> Commit {
    commit_with(leader, id, "off").await
}

async fn commit_with(leader: &Server, id: i64, synchronous: &str) -> Commit {
    let client = connection(leader).await;
    let write = format!(
        "begin; set local synchronous_commit = {synchronous}; insert into notes values ({id})"
    );
    client.batch_execute(&write).await.expect("a row");
    let before = text(&client, "select tidegate.before()").await;
    client.batch_execute("commit").await.expect("it is acknowledged");
    let capture = text(&client, "select tidegate.capture()").await;
    Commit { id, before, capture }
}

/// An application's connection to a server.
pub(crate) async fn connection(server: &Server) -> Client {
    server.connect("postgres", DATABASE).await.expect("the server is there")
}

/// What one statement by itself returns.
pub(crate) async fn text(client: &Client, statement: &str) -> String {
    client.query_one(statement, &[]).await.expect("an answer").get(0)
}

/// Whether a server shows a row to a statement that begins now.
pub(crate) async fn shows(server: &Server, id: i64) -> bool {
    let question = format!("select exists (select from notes where id = {id})");
    server.value(&question).await.expect("a read")
}

/// The life a server is in.
pub(crate) async fn life(server: &Server) -> String {
    server.value("select tidegate.incarnation()").await.expect("it answers")
}

/// The position that evidence names, page headers taken off.
pub(crate) fn position_in(evidence: &str) -> Position {
    let evidence = Evidence::parse(evidence, &Guards::on()).expect("evidence");
    evidence.position().expect("a position")
}

/// Commits rows, numbered from `id`, until a leader's log has passed a position.
pub(crate) async fn write_past(leader: &Server, position: Lsn, id: i64) {
    let mut ids = id..;
    until("the new log passes the old position", LIMIT, || {
        let id = ids.next();
        async move {
            commit(leader, id.expect("a number")).await;
            Ok(leader.insert_lsn().await? > position)
        }
    })
    .await
    .expect("it does");
}
