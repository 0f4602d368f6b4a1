//! S06: a worker that takes a job from a queue sees what the job is about, by the token in it.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_client::{Policy, SessionOptions, WaitOutcome, WaitTarget};
use tidegate_lab::install::Major;
use tidegate_lab::service::PARTITION;
use tokio::sync::mpsc;

use crate::bench::Bench;
use crate::on_both_versions;

on_both_versions! {
    token_in_message =>
        s06_queue_message_carries_the_token_pg15,
        s06_queue_message_carries_the_token_pg18;
}

const DELAY: Duration = Duration::from_secs(2);
const BUDGET: Duration = Duration::from_secs(5);

async fn token_in_message(major: Major) {
    let bench = Bench::start(major).await;
    bench.delay_replay(DELAY).await;
    bench.stall.forget();
    let (queue, mut jobs) = mpsc::channel::<String>(1);

    let (tidegate, _) = bench.client().await;
    let producer = tidegate.session(SessionOptions::new(PARTITION));
    let mut leader = bench.leader_connection().await;
    let insert = "insert into t values (1, 'written')";
    let written = producer.write(&mut leader, async |tx| tx.execute(insert, &[]).await);
    written.await.expect("a recorded row");
    let committed_at = bench.clock.now();
    let token = producer.token().await.expect("a service").expect("it wrote");
    queue.send(json!({"row": 1, "tidegate": token}).to_string()).await.expect("a queue");

    // Nothing but the message reaches the worker.
    let job: Value = serde_json::from_str(&jobs.recv().await.expect("a job")).expect("its text");
    let row = job["row"].as_i64().expect("a row");
    let (tidegate, pool) = bench.client().await;
    let before = Counters::read(&bench).await;

    // The wrong way: the same worker without the token.
    let unaware = tidegate.session(SessionOptions::new(PARTITION));
    let question = "select exists (select from t where id = $1)";
    let policy = Policy::default();
    let read = unaware.read(&pool, &policy, async |db| {
        db.query_one(question, &[&row]).await?.try_get::<_, bool>(0)
    });
    let read = read.await.expect("a read");
    let late = bench.clock.now().since(committed_at);
    assert!(!read.value, "no standby has the row yet, {late:?} after the commit: {read:?}");

    let token = job["tidegate"].as_str().expect("a token");
    let worker = tidegate.session(SessionOptions::new(PARTITION).token(token));
    let ended = worker.wait(WaitTarget::Any, BUDGET).await.expect("an end of the wait");
    let took = bench.clock.now().since(committed_at);
    let WaitOutcome::Fresh(served) = &ended.outcome else { panic!("{ended:?}") };
    let truth = bench.truth_at(&served.node.addresses[0], row).await;
    assert!(truth.found && truth.in_recovery, "{served:?}");
    assert!(served.acceptable_incarnations.contains(&truth.incarnation), "{served:?}");
    assert!(took >= Duration::from_millis(1_500), "{took:?}");
    assert!(took <= bench.stall.allow(Duration::from_secs(3)), "{took:?}: {served:?}");
    assert_eq!(before.growth(&bench).await, (1, 1), "reads with a token, and without");
    println!("S06 {major:?}: the worker waited until {took:?} after the commit");
}

/// Decisions by what the worker brought.
struct Counters {
    present: u64,
    absent: u64,
}

impl Counters {
    async fn read(bench: &Bench) -> Self {
        let present = bench.counter("read_sessions", &[("session", "token")]).await;
        Self { present, absent: bench.counter("read_sessions", &[("session", "none")]).await }
    }

    async fn growth(&self, bench: &Bench) -> (u64, u64) {
        let now = Self::read(bench).await;
        (now.present - self.present, now.absent - self.absent)
    }
}
