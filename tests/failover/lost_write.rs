//! The recipe of S10 to S12: a survives a failover and b does not, and what is asked afterwards.
//!
//! b's row was acknowledged by a leader that died before any standby received it.

use std::time::Duration;

use tidegate::clock::{Clock, Instant};
use tidegate_client::{Level, Outcome, Policy, Served, Session, WaitOutcome};
use tidegate_lab::install::Major;
use tidegate_lab::metrics;
use tidegate_lab::postgres::{Lsn, Server};

use super::desk::{Answer, Desk};
use super::stage::{Commit, Stage, life, shows, write_past};

/// When something happened.
pub(crate) const CLOCK: Clock = Clock::new();

/// How often an idle service asks a node.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The first row that only the new history has.
pub(crate) const NEW: i64 = 1_000;

/// Rows that follow a promotion, so that the new log passes every position of the old one.
const NEW_ROWS: i64 = 400;

/// Servers, a service and one that lacks a rule, and two sessions with one row each.
pub(crate) struct LostWrite {
    pub(crate) stage: Stage,
    pub(crate) desk: Desk,
    pub(crate) unruled: Desk,
    /// a's row, which all standbys have.
    pub(crate) kept: Commit,
    /// b's row, which none has.
    pub(crate) lost: Commit,
    pub(crate) a: Session,
    pub(crate) b: Session,
    /// b, as the service without the rule knows it.
    pub(crate) unruled_b: Session,
}

impl LostWrite {
    /// Up to the moment before the leader dies; `off` is the rule that the other service lacks.
    pub(crate) async fn written(major: Major, off: &str) -> Self {
        let stage = Stage::set(major, 2).await;
        let (desk, unruled) = (stage.desk().await, stage.desk_without(off).await);
        let (kept, lost) = stage.part(1, 2).await;
        let (a, b) = (desk.wrote(&kept).await, desk.wrote(&lost).await);
        let unruled_b = unruled.wrote(&lost).await;
        Self { stage, desk, unruled, kept, lost, a, b, unruled_b }
    }

    /// The leader dies, r1 is promoted, r2 follows it; returns when r1 was promoted.
    pub(crate) async fn fail_over(&self) -> Instant {
        let (r1, r2) = (self.stage.r1(), self.stage.r2());
        let fork = self.stage.succeed(r1).await;
        let promoted_at = CLOCK.now();
        assert!(self.kept.position() <= fork && fork < self.lost.position(), "the fork: {fork}");
        r2.repoint(r1).await.expect("r2 follows it");
        promoted_at
    }

    /// The new log passes the position of the lost row; where it stands then.
    pub(crate) async fn write_on(&self) -> Lsn {
        let r1 = self.stage.r1();
        let last = NEW + NEW_ROWS - 1;
        let rows = format!("insert into notes select generate_series({NEW}, {last})");
        r1.sql(&rows).await.expect("rows on the new leader");
        write_past(r1, self.lost.position(), last + 1).await;
        r1.insert_lsn().await.expect("r1 answers")
    }

    /// Whether the node of an answer shows a row: a server of the cluster, in a life it holds for.
    pub(crate) async fn reads(&self, served: &Served, id: i64) -> bool {
        let server = self.stage.cluster.server(&served.node.name).expect("a server");
        assert_eq!(served.node.addresses, [server.address().to_string()]);
        assert!(served.acceptable_incarnations.contains(&life(server).await), "{served:?}");
        shows(server, id).await
    }

    /// Another device with the token that b had at first.
    pub(crate) fn like_b(&self) -> Session {
        self.desk.carrying(&self.b.tokens())
    }
}

/// A read that waits for what it takes, a leader sample on a busy machine among it.
pub(crate) fn patient() -> Policy {
    Policy::new(Level::Session).wait_budget(Duration::from_secs(2))
}

/// The node of an answer, which there must be.
pub(crate) fn served(answer: &Answer) -> &Served {
    match &answer.selection.outcome {
        Outcome::Served(served) => served,
        Outcome::Refused(_) => panic!("no node was named: {answer:?}"),
    }
}

/// Whether a wait ended with a loss, or in an epoch of which nobody can say.
pub(crate) const fn is_told(outcome: &WaitOutcome) -> bool {
    matches!(outcome, WaitOutcome::Lost | WaitOutcome::Unknown)
}

/// A counter of a service.
pub(crate) async fn counter(desk: &Desk, name: &str, labels: &[(&str, &str)]) -> u64 {
    metrics::counter(desk.service.admin_address(), name, labels).await.expect("metrics")
}

/// A gauge of a service.
pub(crate) async fn gauge(desk: &Desk, name: &str, labels: &[(&str, &str)]) -> u64 {
    metrics::gauge(desk.service.admin_address(), name, labels).await.expect("metrics")
}

/// Waits that ended in this way.
pub(crate) async fn waits_ended(desk: &Desk, end: &str) -> u64 {
    gauge(desk, "wait_duration_seconds_count", &[("end", end)]).await
}

/// Whether a service sees a server writable beside the leader.
pub(crate) async fn is_beside_leader(desk: &Desk, server: &Server) -> bool {
    gauge(desk, "node_beside_leader", &[("node", server.name())]).await == 1
}
