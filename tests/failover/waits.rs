//! Waits that are parked while the leader changes: each ends by itself, with what became of what
//! it waits for.
//!
//! None runs to its budget, and none is woken by a number of another history.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_client::{Session, WaitOutcome, WaitTarget, Waited};
use tidegate_core::instant::Instant;
use tidegate_lab::install::Major;
use tidegate_lab::metrics::gauge;
use tidegate_lab::postgres::Stop;
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::DrainNodeRequest;
use tokio::task::JoinHandle;

use super::desk::Desk;
use super::stage::{Stage, commit, on_both_majors, shows, write_past};

on_both_majors! {
    parked_over_a_failover =>
        parked_waits_end_with_what_became_of_their_writes_pg15,
        parked_waits_end_with_what_became_of_their_writes_pg18;
}

/// Longer than any wait may go on.
const BUDGET: Duration = Duration::from_secs(25);
/// How long the end of a wait may take once its cause is known: some polls.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A wait under way.
struct Parked {
    what: &'static str,
    task: JoinHandle<(Waited, Instant)>,
}

/// Begins a wait for a session.
fn park(what: &'static str, session: &Session, target: WaitTarget) -> Parked {
    let session = session.clone();
    let task = tokio::spawn(async move {
        let waited = session.wait(target, BUDGET).await.expect("an end of the wait");
        (waited, Clock::new().now())
    });
    Parked { what, task }
}

impl Parked {
    /// How it ended, at the latest shortly after `known`.
    async fn ended(self, known: Instant, stage: &Stage) -> WaitOutcome {
        let ended = tokio::time::timeout(LIMIT, self.task).await.expect("it ends");
        let (waited, at) = ended.expect("the task goes on");
        let took = at.since(known);
        assert!(took <= stage.stall.allow(AT_ONCE), "{} took {took:?}: {waited:?}", self.what);
        waited.outcome
    }
}

fn node(name: &str) -> WaitTarget {
    WaitTarget::Node(name.to_owned())
}

/// H25: one waits for what survives, others for what is lost, others on a node that is drained.
async fn parked_over_a_failover(major: Major) {
    let stage = Stage::set(major, 3).await;
    let (desk, numbers) = (stage.desk().await, stage.desk_without("leader_first").await);
    let (r1, r2, r3) = (stage.r1(), stage.r2(), stage.cluster.standby(2));
    for behind in [r2, r3] {
        behind.cut_reception().await.expect("reception ends");
    }
    let kept = commit(stage.l(), 1).await;
    r1.catch_up_with(stage.l()).await.expect("r1 alone has it");
    r1.cut_reception().await.expect("reception ends");
    let lost = commit(stage.l(), 2).await;
    let (one, other, fooled) =
        (desk.wrote(&kept).await, desk.wrote(&lost).await, numbers.wrote(&lost).await);
    let survives = park("for what survives", &one, node("r2"));
    let all_lost = [
        park("for what is lost, on one", &other, node("r2")),
        park("for what is lost, on any", &other, WaitTarget::Any),
        park("for what is lost, on all", &other, WaitTarget::All),
    ];
    let drained = park("on a drained node", &one, node("r3"));
    let wrong = park("without the rule", &fooled, node("r2"));
    desk.until_flushed(&kept).await;
    desk.until_waits(5).await;
    numbers.until_waits(1).await;

    // While the old leader was seen so lately, no loss is called certain.
    stage.l().stop(Stop::Immediate).await.expect("it dies");
    desk.until_unseen(stage.l()).await;
    r1.promote().await.expect("a promotion");
    let drain =
        DrainNodeRequest { partition: PARTITION.to_owned(), node: "r3".to_owned(), undrain: false };
    desk.admin().await.drain_node(drain).await.expect("it is drained");
    assert_eq!(drained.ended(Clock::new().now(), &stage).await, WaitOutcome::Gone);
    desk.until_leads(r1).await;
    let known = Clock::new().now();
    for wait in all_lost {
        let what = wait.what;
        assert_eq!(wait.ended(known, &stage).await, WaitOutcome::Lost, "{what}");
    }
    assert!(!shows(r1, lost.id).await, "and lost it is");
    assert!(!survives.task.is_finished(), "nobody has it yet");

    r2.repoint(r1).await.expect("r2 follows it");
    write_past(r1, lost.position(), 100).await;
    r2.catch_up_with(r1).await.expect("r2 has it all");
    let ended = survives.ended(Clock::new().now(), &stage).await;
    assert!(matches!(&ended, WaitOutcome::Fresh(served) if served.node.name == "r2"), "{ended:?}");
    assert!(shows(r2, kept.id).await, "what survives is there");
    let ended = wrong.ended(Clock::new().now(), &stage).await;
    assert!(matches!(ended, WaitOutcome::Fresh(_)), "a number of another history: {ended:?}");
    assert!(!shows(r2, lost.id).await, "and the row is not there");
    assert_eq!(one.take_notices(), [], "nothing of it was lost");
    assert!(!other.take_notices().is_empty(), "it was told");
}

impl Desk {
    /// Waits until so many waits are parked.
    async fn until_waits(&self, count: u64) {
        let admin = self.service.admin_address();
        let parked = || async { Ok(gauge(admin, "parked_waits", &[]).await? == count) };
        until("waits are parked", LIMIT, parked).await.expect("they are");
    }
}
