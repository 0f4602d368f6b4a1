//! S10: an acknowledged write that a failover lost is told to its session, and never served as
//! fresh; one that survived is served as before.

use std::time::Duration;

use tidegate_client::{ClientError, ErrorReason, NoticeKind, OnLost, Reason};
use tidegate_lab::install::Major;

use super::lost_write::{CLOCK, LostWrite, counter, is_told, patient, served};
use super::stage::on_both_majors;

on_both_majors! {
    lost_write =>
        s10_failover_tells_a_lost_write_pg15,
        s10_failover_tells_a_lost_write_pg18;
}

/// From the promotion until b has been told.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

async fn lost_write(major: Major) {
    let scene = LostWrite::written(major, "leader_first").await;
    let (desk, unruled, stage) = (&scene.desk, &scene.unruled, &scene.stage);
    let epoch = desk.partition().await.epoch;
    stage.stall.forget();
    let (at_once, waits, later) = (scene.like_b(), scene.like_b(), scene.like_b());

    let promoted_at = scene.fail_over().await;
    scene.write_on().await;
    desk.until_leads(stage.r1()).await;
    // While the old leader was seen a moment ago it may come back: then nobody says "lost".
    let answer = desk.select(&at_once, &patient()).await;
    let told = CLOCK.now().since(promoted_at);
    let [NoticeKind::PossiblyLost | NoticeKind::WriteLost] = answer.told()[..] else {
        panic!("b is told nothing: {answer:?}")
    };
    let waited = waits.wait(tidegate_client::WaitTarget::Any, Duration::from_secs(1)).await;
    let waited = waited.expect("an end of the wait");
    assert!(is_told(&waited.outcome), "{waited:?}");
    assert!(told <= stage.stall.allow(TOLD_WITHIN), "told {told:?} after the promotion");

    desk.until_unseen(stage.l()).await;
    let error = later.select(&patient().on_lost(OnLost::Error)).await;
    let reason = error.as_ref().err().and_then(ClientError::reason);
    assert_eq!(reason, Some(ErrorReason::LostWrite), "{error:?}");
    let lost = desk.select(&scene.b, &patient()).await;
    let told_for_sure = CLOCK.now().since(promoted_at);
    assert_eq!(lost.told(), [NoticeKind::WriteLost], "{lost:?}");
    // It is told until b acknowledges it; the row is on no node b is given.
    let again = desk.select(&scene.b, &patient()).await;
    assert_eq!(again.told(), [NoticeKind::WriteLost], "{again:?}");
    for answer in [&answer, &lost, &again] {
        assert_ne!(answer.selection.epoch, epoch, "the epoch has changed: {answer:?}");
        assert!(!scene.reads(served(answer), scene.lost.id).await, "{answer:?}");
    }
    scene.b.acknowledge(&[again.notices[0].id.clone()]).await.expect("it is acknowledged");
    assert_eq!(desk.select(&scene.b, &patient()).await.told(), []);

    let kept = desk.select(&scene.a, &patient()).await;
    assert_eq!(kept.told(), [], "{kept:?}");
    assert!(scene.reads(served(&kept), scene.kept.id).await, "{kept:?}");
    let losses = counter(desk, "losses", &[]).await;
    let sure = counter(desk, "losses", &[("kind", "write_lost")]).await;
    assert!(losses >= 4 && sure >= 2, "{losses} losses, {sure} for sure");
    assert_eq!(counter(desk, "crossed_answers", &[]).await, 0);

    // The wrong way: nobody judges the position by the new line, whose numbers have passed it.
    let fresh = unruled.select(&scene.unruled_b, &patient()).await;
    assert_eq!((fresh.told(), fresh.reason), (Vec::new(), Reason::Covered), "{fresh:?}");
    assert!(!scene.reads(served(&fresh), scene.lost.id).await, "{fresh:?}");
    assert!(counter(unruled, "crossed_answers", &[]).await > 0);
    println!(
        "S10 {major:?}: told {told:?} after the promotion, for sure {told_for_sure:?}; without \
         the rule the lost row is \"fresh\""
    );
}
