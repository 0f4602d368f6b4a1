//! Sessions that write and read their own writes by a named policy, until they are told to stop.
//!
//! Each read is held against the row on the server that was named. Whatever is not fresh, not
//! served or served for a reason of distress fails the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_client::{Policy, Reason, Session};
use tidegate_lab::service::DATABASE;
use tidegate_lab::wait::{LIMIT, until};
use tokio::task::JoinHandle;

use super::stage::{Stage, pool};

/// Sessions at once.
const SESSIONS: usize = 4;
/// Ids of one session's rows lie this far from the next one's.
const ROWS: i64 = 1_000_000;

/// What a load did so far.
#[derive(Debug, Default)]
struct Done {
    stop: AtomicBool,
    rounds: [AtomicU64; SESSIONS],
}

/// The sessions of a load.
pub(crate) struct Load {
    done: Arc<Done>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the sessions; all read by `policy`.
    pub(crate) async fn start(stage: &Stage, policy: &str) -> Self {
        let done = Arc::new(Done::default());
        let mut tasks = Vec::new();
        for (index, first) in (0..SESSIONS).zip((0..).step_by(1_000_000)) {
            let leader = stage.cluster.leader().connect("postgres", DATABASE).await;
            let leader = leader.expect("the leader is there");
            let (session, policy) = (stage.session(), Policy::named(policy));
            tasks.push(tokio::spawn(rounds(
                Arc::clone(&done),
                index,
                first,
                session,
                leader,
                policy,
            )));
        }
        Self { done, tasks }
    }

    fn rounds(&self) -> Vec<u64> {
        self.done.rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed)).collect()
    }

    /// Waits until each session has gone on for so many rounds from now.
    pub(crate) async fn goes_on(&self, more: u64) {
        let before = self.rounds();
        let moved = || async {
            let is_over = self.tasks.iter().any(JoinHandle::is_finished);
            let all = self.rounds().iter().zip(&before).all(|(now, then)| *now >= then + more);
            Ok(is_over || all)
        };
        until("every session goes on", LIMIT, moved).await.expect("they do");
    }

    /// Ends it; how many reads it made. Fails where one of them did.
    pub(crate) async fn end(self) -> u64 {
        self.done.stop.store(true, Ordering::Relaxed);
        let total = self.rounds().iter().sum();
        for task in self.tasks {
            task.await.expect("every read was served, and fresh");
        }
        total
    }
}

async fn rounds(
    done: Arc<Done>,
    index: usize,
    first: i64,
    session: Session,
    mut leader: tokio_postgres::Client,
    policy: Policy,
) {
    let pool = pool();
    for n in first..first + ROWS {
        if done.stop.load(Ordering::Relaxed) {
            return;
        }
        let insert = "insert into t values ($1)";
        let written = session.write(&mut leader, async |tx| tx.execute(insert, &[&n]).await).await;
        written.expect("it is written and recorded");
        let row = async |db: &tokio_postgres::Client| {
            let count = "select count(*) from t where n = $1";
            db.query_one(count, &[&n]).await?.try_get::<_, i64>(0)
        };
        let read = session.read(&pool, &policy, row).await;
        let read = read.unwrap_or_else(|error| panic!("row {n}: {error:?}"));
        assert_eq!(read.value, 1, "a stale read: {read:?}");
        let reasons = [Reason::Covered, Reason::Waited, Reason::LeaderByPolicy];
        assert!(reasons.contains(&read.reason), "{read:?}");
        done.rounds[index].fetch_add(1, Ordering::Relaxed);
    }
}
