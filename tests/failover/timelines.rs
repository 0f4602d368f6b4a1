//! What shows a promotion, and what a position means across one.
//!
//! The control file and the numbers of two histories look right and are not. Twins are `twins`.

use tidegate_client::NoticeKind;
use tidegate_lab::install::Major;

use super::desk::{either_now, replica_now};
use super::stage::{Stage, commit, on_both_majors, shows, write_past};

on_both_majors! {
    old_numbers_in_a_new_log =>
        a_mark_past_the_fork_is_lost_though_every_number_passes_it_pg15,
        a_mark_past_the_fork_is_lost_though_every_number_passes_it_pg18;
}

/// H16: after a failover the numbers of the lost log are used again for other content.
async fn old_numbers_in_a_new_log(major: Major) {
    let stage = Stage::set(major, 2).await;
    let desk = stage.desk().await;
    let (kept, lost) = stage.part(1, 2).await;
    let (one, other) = (desk.wrote(&kept).await, desk.wrote(&lost).await);
    let fork = stage.succeed(stage.r1()).await;
    stage.r2().repoint(stage.r1()).await.expect("r2 follows it");
    write_past(stage.r1(), lost.position(), 100).await;
    stage.r2().catch_up_with(stage.r1()).await.expect("r2 has it all");

    // By the numbers both are there.
    assert!(kept.position() <= fork && fork < lost.position(), "{fork}: {kept:?} {lost:?}");
    let replayed = stage.r2().replay_lsn().await.expect("it answers");
    assert!(replayed >= lost.position(), "by the numbers r2 has it");
    assert!(!shows(stage.r2(), lost.id).await && !shows(stage.r1(), lost.id).await);
    assert!(shows(stage.r2(), kept.id).await);

    desk.until_leads(stage.r1()).await;
    desk.until_unseen(stage.l()).await;
    let answer = desk.until_served_by(&one, "r2").await;
    assert_eq!(answer.told(), [], "{answer:?}");
    let answer = desk.select(&other, &either_now()).await;
    assert_eq!(answer.told(), [NoticeKind::WriteLost], "{answer:?}");
    let id = answer.notices[0].id.clone();
    let again = desk.select(&other, &replica_now()).await;
    assert_eq!(again.notices.iter().map(|notice| &notice.id).collect::<Vec<_>>(), [&id]);
    other.acknowledge(&[id]).await.expect("it is acknowledged");
    let answer = desk.until_served_by(&other, "r2").await;
    assert_eq!(answer.told(), [], "told once: {answer:?}");
    let written = desk.wrote(&commit(stage.r1(), 3).await).await;
    desk.until_served_by(&written, "r2").await;
}
