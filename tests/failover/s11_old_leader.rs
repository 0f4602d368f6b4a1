//! S11: the old leader comes back writable beside the promoted one: it is reported and never named.

use std::time::Duration;

use tidegate_client::{Level, Policy, Session};
use tidegate_lab::install::Major;
use tidegate_lab::wait::{LIMIT, until};

use super::lost_write::{CLOCK, LostWrite, NEW, POLL_INTERVAL, counter, is_beside_leader, served};
use super::stage::{commit, on_both_majors, shows};

on_both_majors! {
    old_leader_returns =>
        s11_old_leader_that_returns_is_never_named_pg15,
        s11_old_leader_that_returns_is_never_named_pg18;
}

const SELECTS: usize = 500;

/// Answers that must come from the new history.
const NEW_HISTORY: usize = 400;

async fn old_leader_returns(major: Major) {
    let scene = LostWrite::written(major, "who_leads").await;
    let (desk, unruled, stage) = (&scene.desk, &scene.unruled, &scene.stage);
    scene.fail_over().await;
    scene.write_on().await;
    desk.until_leads(stage.r1()).await;
    let epoch = desk.partition().await.epoch;
    let conflict_before = is_beside_leader(desk, stage.l()).await;
    assert!(!conflict_before, "a dead leader is no conflict");

    stage.stall.forget();
    stage.l().start().await.expect("the old leader returns");
    let returned_at = CLOCK.now();
    assert!(!stage.l().is_in_recovery().await.expect("it answers"), "not fenced");
    let seen = until("the conflict is reported", LIMIT, || async {
        Ok(is_beside_leader(desk, stage.l()).await)
    });
    seen.await.expect("it is");
    let reported = CLOCK.now().since(returned_at);
    assert!(reported <= stage.stall.allow(POLL_INTERVAL * 3), "reported after {reported:?}");
    commit(stage.l(), 500_000).await;

    let (mut new_history, mut leader_reads) = (0, 0);
    for at in 0..SELECTS {
        let (session, policy) = asked(&scene, at);
        let answer = desk.select(&session, &policy).await;
        assert_ne!(answer.node, "l", "{answer:?}");
        assert_eq!(answer.selection.epoch, epoch, "the epoch goes back: {answer:?}");
        if answer.node.is_empty() {
            continue;
        }
        let node = served(&answer);
        let shown = scene.reads(node, NEW).await;
        assert!(shown && !scene.reads(node, scene.lost.id).await, "{answer:?}");
        new_history += usize::from(shown);
        leader_reads += usize::from(node.leader_timeline.is_some());
    }
    assert!(new_history >= NEW_HISTORY, "{new_history} of {SELECTS}");
    assert!(leader_reads >= SELECTS / 5, "{leader_reads} strict reads of the leader");
    assert_eq!(desk.partition().await.epoch, epoch);
    assert_eq!(counter(desk, "crossed_answers", &[]).await, 0);
    let state = desk.node("l").await;
    let reason = "writable, but not the leader";
    assert_eq!(
        (state.session_eligible, &state.ineligible_reasons[..]),
        (false, &[reason.into()][..])
    );

    // The wrong way: whoever is writable and comes first leads.
    let strict = Policy::new(Level::Leader);
    let wrong = unruled.select(&unruled.session(), &strict).await;
    assert_eq!(wrong.node, "l", "{wrong:?}");
    assert!(shows(stage.l(), scene.lost.id).await && !shows(stage.l(), NEW).await);
    println!(
        "S11 {major:?}: reported {reported:?} after its return; {new_history} of {SELECTS} from \
         the new history, {leader_reads} of the leader; without the rule a leader read goes to l"
    );
}

/// Who asks what: each kind of session and level in turn.
fn asked(scene: &LostWrite, at: usize) -> (Session, Policy) {
    let session = match at % 3 {
        0 => scene.a.clone(),
        1 => scene.b.clone(),
        _ => scene.desk.session(),
    };
    let policy = match at % 4 {
        0 => Policy::new(Level::Leader),
        1 => Policy::new(Level::Eventual),
        2 => Policy::new(Level::Session),
        _ => Policy::new(Level::Session).bound(Duration::from_secs(1)),
    };
    (session, policy)
}
