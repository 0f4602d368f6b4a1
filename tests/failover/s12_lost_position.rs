//! S12: a wait for a position that a failover lost ends with the failover, and so does every later
//! one: none runs to its budget.

use std::time::Duration;

use tidegate_client::{NoticeKind, WaitOutcome, WaitTarget};
use tidegate_lab::install::Major;
use tidegate_lab::wait::{LIMIT, until};

use super::lost_write::{CLOCK, LostWrite, gauge, is_told, patient, served, waits_ended};
use super::stage::{commit, on_both_majors};

on_both_majors! {
    lost_position =>
        s12_lost_position_ends_every_wait_pg15,
        s12_lost_position_ends_every_wait_pg18;
}

const BUDGET: Duration = Duration::from_secs(10);
const LATER: usize = 100;

/// From the detection to the end of the wait in flight.
const IN_FLIGHT_WITHIN: Duration = Duration::from_secs(3);

/// What a wait takes that cannot come true.
const LATER_WITHIN: Duration = Duration::from_millis(100);

async fn lost_position(major: Major) {
    let scene = LostWrite::written(major, "leader_first").await;
    let (desk, stage) = (&scene.desk, &scene.stage);
    let in_flight = scene.like_b();
    stage.stall.forget();
    let waiting = tokio::spawn(async move {
        let ended = in_flight.wait(WaitTarget::Any, BUDGET).await.expect("an end of the wait");
        (ended, CLOCK.now(), in_flight)
    });
    let parked = || async { Ok(gauge(desk, "parked_waits", &[]).await == 1) };
    until("b's wait is parked", LIMIT, parked).await.expect("it is");

    scene.fail_over().await;
    let led = || async { Ok(desk.partition().await.leader_node == "r1") };
    until("the failover is detected", LIMIT, led).await.expect("it is");
    let detected_at = CLOCK.now();
    let (ended, ended_at, told) = waiting.await.expect("it ends");
    let took = ended_at.since(detected_at);
    assert!(is_told(&ended.outcome), "{ended:?}");
    assert!(took <= stage.stall.allow(IN_FLIGHT_WITHIN), "{took:?} after the detection");
    assert_eq!(told.take_notices().len(), 1, "it is told what it waited for");

    scene.write_on().await;
    let mut times = Vec::new();
    stage.stall.forget();
    for later in 0..LATER {
        let session = scene.like_b();
        let asked_at = CLOCK.now();
        let ended = session.wait(WaitTarget::Any, BUDGET).await.expect("an end of the wait");
        let took = CLOCK.now().since(asked_at);
        assert!(is_told(&ended.outcome), "{later}: {ended:?}");
        times.push(took);
    }
    times.sort_unstable();
    // Beside other tests a few may come late without a fault of the service.
    let (usual, longest) = (times[LATER * 9 / 10 - 1], times[LATER - 1]);
    assert!(usual <= stage.stall.allow(LATER_WITHIN), "{times:?}");
    assert!(longest <= stage.stall.allow(LATER_WITHIN * 10), "{times:?}");

    // Nobody cleans anything: b writes on, and finds what it writes.
    desk.until_leads(stage.r1()).await;
    desk.until_unseen(stage.l()).await;
    assert_eq!(desk.select(&scene.b, &patient()).await.told(), [NoticeKind::WriteLost]);
    let written = commit(stage.r1(), 3).await;
    let raise = tidegate_client::Raise::Unspecified;
    scene.b.record(written.observed(), raise).await.expect("it is recorded");
    let ended = scene.b.wait(WaitTarget::Any, BUDGET).await.expect("an end of the wait");
    let WaitOutcome::Fresh(node) = &ended.outcome else { panic!("{ended:?}") };
    assert!(scene.reads(node, written.id).await, "{ended:?}");
    let answer = desk.select(&scene.b, &patient()).await;
    assert!(scene.reads(served(&answer), written.id).await, "{answer:?}");
    assert_eq!(waits_ended(desk, "timed_out").await, 0, "waits that ran to their budget");

    // The wrong way: the wait "succeeds", for the new log has passed the old position.
    let ended = scene.unruled_b.wait(WaitTarget::Any, BUDGET).await.expect("an end of the wait");
    let WaitOutcome::Fresh(node) = &ended.outcome else { panic!("{ended:?}") };
    assert!(!scene.reads(node, scene.lost.id).await, "{ended:?}");
    println!(
        "S12 {major:?}: the wait in flight ended {took:?} after the detection; {LATER} later ones \
         within {longest:?}, 90 % within {usual:?}; without the rule the wait ends \"fresh\" and \
         the row is not there"
    );
}
