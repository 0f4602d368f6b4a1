//! What shows a promotion, and what a position means across one.
//!
//! The control file and the numbers of two histories look right and are not. Twins are `twins`.

use tidegate_client::{NoticeKind, Reason};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Server, Stop};

use super::desk::{either_soon, replica_now};
use super::stage::{Stage, commit, on_both_majors, shows, write_past};

on_both_majors! {
    an_old_control_file =>
        a_promotion_is_seen_though_the_control_file_names_the_old_timeline_pg15,
        a_promotion_is_seen_though_the_control_file_names_the_old_timeline_pg18;
    old_numbers_in_a_new_log =>
        a_mark_past_the_fork_is_lost_though_every_number_passes_it_pg15,
        a_mark_past_the_fork_is_lost_though_every_number_passes_it_pg18;
}

/// The timeline in the control file: of the last checkpoint that ended.
async fn control_file_timeline(server: &Server) -> i32 {
    let query = "select timeline_id from pg_control_checkpoint()";
    server.value(query).await.expect("every role may read it")
}

/// E4: the control file of a promoted server names the old timeline until a checkpoint ends.
async fn an_old_control_file(major: Major) {
    let stage = Stage::set(major, 2).await;
    let desk = stage.desk().await;
    let first = commit(stage.l(), 1).await;
    let kept = desk.wrote(&first).await;
    desk.until_flushed(&first).await;
    // Pages to be written out, slowly, by the checkpoint that a promotion begins.
    let pages = "create table pages as select n, repeat('x', 500) from generate_series(1, 20000) n";
    stage.l().sql(pages).await.expect("a table of many pages");
    stage.cluster.catch_up().await.expect("standbys follow");
    stage.l().stop(Stop::Fast).await.expect("it ends");
    stage.r1().promote().await.expect("a promotion");
    stage.r2().repoint(stage.r1()).await.expect("r2 follows it");

    desk.until_leads(stage.r1()).await;
    let written = desk.wrote(&commit(stage.r1(), 2).await).await;
    for (session, id) in [(&kept, 1), (&written, 2)] {
        let answer = desk.until_served_by(session, "r2").await;
        assert_eq!(answer.told(), [], "{answer:?}");
        assert!(shows(stage.r2(), id).await);
    }
    let answer = desk.select(&written, &replica_now()).await;
    assert!(answer.selection.epoch.starts_with("2."), "the log names the new one: {answer:?}");
    // By the control files nobody was promoted, on either server.
    for server in [stage.r1(), stage.r2()] {
        assert_eq!(control_file_timeline(server).await, 1, "{}", server.name());
    }
    assert_eq!(stage.r1().timeline().await.expect("it writes"), 2);
}

/// H16: after a failover the numbers of the lost log are used again for other content.
async fn old_numbers_in_a_new_log(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (desk, numbers) = (stage.desk().await, stage.desk_without("leader_first").await);
    let (kept, lost) = stage.part(1, 2).await;
    let (one, other) = (desk.wrote(&kept).await, desk.wrote(&lost).await);
    let fooled = numbers.wrote(&lost).await;
    desk.until_flushed(&kept).await;
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
    numbers.until_leads(stage.r1()).await;
    let wrong = numbers.until_served_by(&fooled, "r2").await;
    assert_eq!((wrong.reason, wrong.told()), (Reason::Covered, vec![]), "by the rule: {wrong:?}");

    desk.until_leads(stage.r1()).await;
    desk.until_unseen(stage.l()).await;
    let answer = desk.until_served_by(&one, "r2").await;
    assert_eq!(answer.told(), [], "{answer:?}");
    let answer = desk.select(&other, &either_soon()).await;
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
