//! Waits by prediction, on servers that apply late or not at all.

use std::time::Duration;

use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::above_cap_step::Kind;
use tidegate_proto::v1::select_replica_response::Outcome;
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tidegate_proto::v1::{self, Level, Session};

use super::stage::{Client, Stage, named, read, select, session, span, wait};

/// How late the standbys apply.
const DELAY: Duration = Duration::from_secs(1);
/// A wait of which nobody hopes anything at such a lag.
const SHORT: Duration = Duration::from_millis(200);
/// Commits before anything is asked.
const COMMITS: i64 = 26;
const APART: Duration = Duration::from_millis(100);

/// A read that waits, and then is refused.
fn patient(carried: &Session, budget: Duration) -> v1::SelectReplicaRequest {
    let mut request = read(carried.clone(), Level::Session);
    let policy = request.policy.get_or_insert_default();
    policy.wait_budget = span(budget);
    policy.fallback = Some(false);
    policy.above_cap = vec![v1::AboveCapStep { kind: Kind::Refuse.into(), wait_budget: None }];
    request
}

fn refused(answer: &v1::SelectReplicaResponse) -> &v1::Refused {
    match &answer.outcome {
        Some(Outcome::Refused(refused)) => refused,
        Some(Outcome::Served(_)) | None => panic!("not refused: {answer:?}"),
    }
}

fn seconds(span: Option<&prost_types::Duration>) -> Option<f64> {
    span.map(|span| span.seconds as f64 + f64::from(span.nanos) / 1e9)
}

/// The write of a session after a while of writes that the standbys apply late.
async fn late_writes(stage: &Stage, client: &mut Client) -> Session {
    for standby in stage.cluster.standbys() {
        standby.apply_delay(DELAY).await.expect("it applies late");
    }
    write_steadily(stage, COMMITS).await;
    session(&stage.write(client, "", COMMITS).await)
}

/// Commits so many rows, one after the other.
async fn write_steadily(stage: &Stage, rows: i64) {
    let mut pace = tokio::time::interval(APART);
    for id in 0..rows {
        pace.tick().await;
        let insert = format!("insert into notes values ({id})");
        stage.cluster.leader().sql(&insert).await.expect("it is written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn a_hopeless_wait_is_skipped_and_the_eta_is_told() {
    let stage = Stage::set(2).await;
    let (_service, mut client) = stage.serve().await;
    let carried = late_writes(&stage, &mut client).await;
    let written_at = stage.clock.now();
    let answer = select(&mut client, patient(&carried, SHORT)).await;
    let asked = stage.clock.now().since(written_at);
    let refused = refused(&answer);
    let eta = seconds(refused.eta.as_ref()).expect("it can be foretold");
    let retry_after = seconds(refused.retry_after.as_ref()).expect("when to try again");
    assert!(asked < SHORT, "{asked:?} of a wait of {SHORT:?}: {answer:?}");
    let timed_out = wait(carried.clone(), Duration::from_millis(20));
    let timed_out = client.wait_until_fresh(timed_out).await.expect("a decision").into_inner();
    assert_eq!(timed_out.outcome(), Ended::TimedOut, "{timed_out:?}");
    let wait_eta = seconds(timed_out.eta.as_ref()).expect("it can be foretold too");
    // The right way round: a wait that is long enough is not skipped, and ends when foretold.
    let answer = select(&mut client, patient(&carried, LIMIT)).await;
    let took = stage.clock.now().since(written_at);
    let node = named(&answer);
    assert!(stage.shows(node, COMMITS).await, "{node} was named and lacks the row");
    println!(
        "applied {DELAY:?} late: asked after {asked:.1?}, refused with an ETA of {eta:.2} s (retry \
         after {retry_after:.2} s), a wait with {wait_eta:.2} s, fresh after {took:.2?}"
    );
    let late = DELAY.as_secs_f64();
    assert!(eta > late * 0.3 && eta <= late + 0.3, "predicted {eta} s, took {took:?}");
    assert!((retry_after - eta).abs() < 0.01, "{retry_after} s, predicted {eta} s");
    assert!(wait_eta <= late + 0.3, "predicted {wait_eta} s, took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_that_stand_still_are_no_longer_waited_for_until_they_go_on() {
    let stage = Stage::set(1).await;
    let (_service, mut client) = stage.serve().await;
    write_steadily(&stage, 12).await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 12).await);
    let said = std::cell::RefCell::new(Vec::new());
    until("a short wait is skipped", LIMIT, || async {
        let mut client = client.clone();
        let begun = stage.clock.now();
        let answer = select(&mut client, patient(&carried, SHORT)).await;
        let took = stage.clock.now().since(begun);
        said.borrow_mut().push((took, refused(&answer).eta));
        Ok(took < SHORT && refused(&answer).eta.is_none())
    })
    .await
    .expect("it is");
    let first = said.borrow().first().map(|(took, _)| *took);
    assert!(first >= Some(SHORT), "at first it is waited for: {said:?}");
    stage.release().await;
    let answer = select(&mut client, patient(&carried, LIMIT)).await;
    assert!(stage.shows(named(&answer), 12).await, "{answer:?}");
}
