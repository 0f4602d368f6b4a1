//! How old what a node shows is: rows committed one after another, and when each was acknowledged.
//!
//! The judge of the scenarios with a bound. It asks the named node itself for its newest row, and
//! uses no position, no lag and no clock of a database.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_core::instant::Instant;
use tidegate_proto::v1;
use tidegate_proto::v1::select_replica_response::Outcome;
use tokio::task::JoinHandle;

use crate::bench::{Bench, name_of, wire};
use crate::session::Session;

/// Between two rows.
const ROW_PAUSE: Duration = Duration::from_millis(20);

/// Commits rows 1, 2, ... on the leader until it is dropped or the leader is gone.
pub(crate) struct Writer {
    /// When each row was acknowledged, in their order.
    acknowledged: Arc<Mutex<Vec<Instant>>>,
    task: JoinHandle<()>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Writer {
    /// Starts writing.
    pub(crate) async fn start(bench: &Bench) -> Self {
        let leader = bench.leader_connection().await;
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let (kept, clock) = (Arc::clone(&acknowledged), Clock::new());
        let task = tokio::spawn(async move {
            for id in 1_i64.. {
                if leader.execute("insert into t values ($1, 'written')", &[&id]).await.is_err() {
                    return;
                }
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(clock.now());
                tokio::time::sleep(ROW_PAUSE).await;
            }
        });
        Self { acknowledged, task }
    }

    /// The newest row that was acknowledged before an instant; 0: none was.
    pub(crate) fn newest_before(&self, instant: Instant) -> i64 {
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        i64::try_from(acknowledged.partition_point(|at| *at < instant)).expect("few rows")
    }
}

/// One answer to a read with a bound.
#[derive(Debug)]
pub(crate) struct Bounded {
    pub(crate) asked_at: Instant,
    /// The node named; `None`: the read was refused.
    pub(crate) node: Option<String>,
    pub(crate) reason: v1::Reason,
    /// How long it waited for a node.
    pub(crate) waited: Duration,
}

impl Bounded {
    /// It names this node.
    pub(crate) fn names(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }
}

/// A policy that accepts no state older than this.
pub(crate) fn within(bound: Duration, wait_budget: Duration) -> v1::Policy {
    v1::Policy {
        level: v1::Level::Bounded.into(),
        bound: Some(wire(bound)),
        wait_budget: Some(wire(wait_budget)),
        ..v1::Policy::default()
    }
}

/// Asks with a bound and holds the answer against the rows: whatever node is named has all that
/// was acknowledged a bound before the call. A leader that is down cannot be asked.
pub(crate) async fn asked(
    bench: &Bench,
    writer: Option<&Writer>,
    policy: &v1::Policy,
    bound: Duration,
) -> Bounded {
    let asked_at = bench.clock.now();
    let answer = bench.select(&mut Session::tokenless(), policy.clone()).await;
    let reason = answer.reason();
    let served = match &answer.outcome {
        Some(Outcome::Served(served)) => served,
        Some(Outcome::Refused(refused)) => {
            assert!(refused.retry_after.is_some(), "{answer:?}");
            return Bounded { asked_at, node: None, reason, waited: Duration::ZERO };
        }
        None => panic!("no outcome: {answer:?}"),
    };
    assert!(served.stale.is_none(), "nobody asked for stale answers: {answer:?}");
    let is_promised = answer.met.contains(&v1::Guarantee::Bounded.into());
    assert!(is_promised || reason == v1::Reason::NotProvable, "{answer:?}");
    let is_down = served.leader.is_some() && !bench.cluster.leader().is_running();
    if let Some(writer) = writer
        && !is_down
    {
        let must = writer.newest_before(asked_at - bound);
        let shown = bench.newest(served).await;
        assert!(shown >= must, "row {shown} is the newest there, {must} is due: {answer:?}");
    }
    let waited = served.waited.and_then(|waited| waited.try_into().ok()).unwrap_or_default();
    Bounded { asked_at, node: Some(name_of(served).to_owned()), reason, waited }
}
