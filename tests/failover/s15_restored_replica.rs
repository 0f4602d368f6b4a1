//! S15: a replica whose data folder was replaced by an older copy is believed from there on only.

use std::time::Duration;

use tidegate_client::Session;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Lsn;
use tidegate_lab::service::ServiceOptions;
use tidegate_lab::wait::{LIMIT, until};

use super::desk::{Desk, either_now, replica_now};
use super::lost_write::{CLOCK, POLL_INTERVAL, counter};
use super::stage::{Stage, commit, on_both_majors, rule_off, shows};

on_both_majors! {
    restored_copy =>
        s15_replica_restored_from_an_old_copy_pg15,
        s15_replica_restored_from_an_old_copy_pg18;
}

/// Reads of each session in each state of r2.
const READS: usize = 100;

/// Longer than the test: what is committed meanwhile is hidden until it ends.
const HIDDEN: Duration = Duration::from_secs(3600);

async fn restored_copy(major: Major) {
    let stage = Stage::set(major, 2).await;
    let desk = stage.desk().await;
    let old = commit(stage.l(), 1).await;
    stage.cluster.catch_up().await.expect("standbys follow");
    let copy = stage.r2().copy_data_dir().await.expect("a copy");
    let unruled = Desk::open(naive(&stage)).await;
    let new = commit(stage.l(), 2).await;
    let (of_old, of_new) = (desk.wrote(&old).await, desk.wrote(&new).await);
    let unaware = unruled.wrote(&new).await;
    desk.until_served_by(&of_new, "r2").await;
    unruled.until_served_by(&unaware, "r2").await;
    let before = applied(&desk).await;
    assert!(before >= new.position());
    let regressions = counter(&desk, "node_regressions", &[("node", "r2")]).await;

    stage.r2().cut_reception().await.expect("reception ends");
    stage.r2().restore_data_dir(&copy).await.expect("the copy is put in place");
    stage.stall.forget();
    stage.r2().start().await.expect("r2 starts");
    let started_at = CLOCK.now();
    let lower = || async { Ok(applied(&desk).await < before) };
    until("r2 is shown lower", LIMIT, lower).await.expect("it is");
    let shown_lower = CLOCK.now().since(started_at);
    assert!(shown_lower <= stage.stall.allow(POLL_INTERVAL * 2), "{shown_lower:?}");
    let more = counter(&desk, "node_regressions", &[("node", "r2")]).await - regressions;
    assert_eq!(more, 1, "times r2 went back");
    assert!(!shows(stage.r2(), new.id).await, "the copy is older");

    // The wrong way: what was once seen of r2 is taken for what it has. A record has it asked once.
    unruled.wrote(&new).await;
    unruled.until_lives(stage.r2()).await;
    let on_r2 = || async { Ok(unruled.select(&unaware, &replica_now()).await.node == "r2") };
    until("r2 is named without the row", LIMIT, on_r2).await.expect("it is");
    assert!(!shows(stage.r2(), new.id).await, "and the row is not there");
    let cut = named(&desk, &stage, &of_new, new.id).await;
    assert_eq!(cut, 0, "r2 was named {cut} times while it stood below the row");

    // It receives again, but applies nothing younger than the copy.
    stage.r2().apply_delay(HIDDEN).await.expect("r2 delays");
    stage.r2().restore_reception().await.expect("r2 receives");
    desk.until_served_by(&of_old, "r2").await;
    assert!(shows(stage.r2(), old.id).await && !shows(stage.r2(), new.id).await);
    let behind = named(&desk, &stage, &of_new, new.id).await;
    assert_eq!(behind, 0, "r2 was named {behind} times while it stood below the row");
    let of_both = named(&desk, &stage, &of_old, old.id).await;
    assert!(of_both > 0, "who needs no more than r2 has is still sent there");

    stage.r2().apply_delay(Duration::ZERO).await.expect("r2 applies");
    desk.until_served_by(&of_new, "r2").await;
    assert!(shows(stage.r2(), new.id).await, "r2 was named before it had caught up");
    println!(
        "S15 {major:?}: shown lower {shown_lower:?} after the start; r2 named 0 of {} times below \
         the row, {of_both} of {READS} for an older one; without the rule it is named at once",
        2 * READS
    );
}

/// A service without the rule that looks at nobody twice by itself: at the next look another rule
/// would put r2 out.
fn naive(stage: &Stage) -> ServiceOptions {
    // A position that goes back is noticed at the second poll of the copy.
    let guards = rule_off("incarnation").and_without("regression").expect("a guard");
    let options = stage.options.clone().guards(guards);
    options.limit("idle_poll", "\"20s\"").limit("view_max_age", "\"10m\"")
}

/// The position the service shows of r2.
async fn applied(desk: &Desk) -> Lsn {
    desk.node("r2").await.applied.parse().expect("r2 was seen")
}

/// Reads of a session; how many named r2. Each finds its row.
async fn named(desk: &Desk, stage: &Stage, session: &Session, id: i64) -> usize {
    let mut on_r2 = 0;
    for policy in [replica_now(), either_now()] {
        for _ in 0..READS / 2 {
            let answer = desk.select(session, &policy).await;
            let server = stage.cluster.server(&answer.node).expect("a node is named");
            assert!(shows(server, id).await, "{answer:?}");
            on_r2 += usize::from(answer.node == "r2");
        }
    }
    on_r2
}
