//! A leader that crashes and comes back on its timeline: no failover, and yet acknowledged commits
//! are gone and their positions are used again.
//!
//! A standby that crashes and opens behind is `tests/traps/servers.rs`; a killed backend is there
//! too.

use tidegate_client::{Level, NoticeKind, Policy, Reason};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{ClusterOptions, Stop};

use super::desk::either_soon;
use super::stage::{Commit, Stage, commit, commit_unflushed, on_both_majors, shows, write_past};

on_both_majors! {
    an_unflushed_commit =>
        a_crash_loses_an_unflushed_commit_and_the_session_is_told_pg15,
        a_crash_loses_an_unflushed_commit_and_the_session_is_told_pg18;
    flushed_commits =>
        a_crash_after_flushed_commits_is_told_to_nobody_pg15,
        a_crash_after_flushed_commits_is_told_to_nobody_pg18;
}

/// A leader that writes its log out by itself every ten seconds alone.
async fn set(major: Major) -> Stage {
    let options = ClusterOptions::new(major).standbys(1).setting("wal_writer_delay", "10s");
    Stage::of(options).await
}

/// Commits a row that is acknowledged, hands it to `record`, and crashes before it is flushed.
async fn crash_unflushed(stage: &Stage, record: impl AsyncFn(&Commit)) -> Commit {
    for id in 2..12 {
        let gone = commit_unflushed(stage.l(), id).await;
        record(&gone).await;
        stage.l().restart(Stop::Immediate).await.expect("it comes back");
        if !shows(stage.l(), id).await {
            return gone;
        }
        // Something flushed it in time.
    }
    panic!("no unflushed commit was lost");
}

/// E8, H21: the timeline stays, the acknowledged row is gone, other rows have its position.
async fn an_unflushed_commit(major: Major) {
    let stage = set(major).await;
    let (desk, numbers) = (stage.desk().await, stage.desk_without("leader_first").await);
    let kept = desk.wrote(&commit(stage.l(), 1).await).await;
    desk.until_served_by(&kept, "r1").await;
    let (loser, fooled) = (desk.session(), numbers.session());
    let gone = crash_unflushed(&stage, async |gone| {
        for session in [&loser, &fooled] {
            let recorded = session.record(gone.observed(), tidegate_client::Raise::Unspecified);
            recorded.await.expect("it is recorded");
        }
    });
    let gone = gone.await;
    write_past(stage.l(), gone.position(), 1000).await;
    stage.r1().await_streaming().await.expect("r1 follows again");
    stage.r1().catch_up_with(stage.l()).await.expect("r1 has it all");

    // By timeline and numbers it is there.
    assert_eq!(stage.l().timeline().await.expect("it writes"), 1);
    assert!(stage.r1().replay_lsn().await.expect("it answers") >= gone.position());
    assert!(!shows(stage.l(), gone.id).await && !shows(stage.r1(), gone.id).await);
    numbers.until_leads(stage.l()).await;
    let wrong = numbers.until_served_by(&fooled, "r1").await;
    assert_eq!((wrong.reason, wrong.told()), (Reason::Covered, vec![]), "by the rule: {wrong:?}");

    desk.until_leads(stage.l()).await;
    let answer = desk.select(&loser, &either_soon()).await;
    let told = answer.told();
    assert!(matches!(told[..], [NoticeKind::WriteLost | NoticeKind::PossiblyLost]), "{answer:?}");
    let ids = [answer.notices[0].id.clone()];
    loser.acknowledge(&ids).await.expect("it is acknowledged");
    let answer = desk.until_served_by(&loser, "r1").await;
    assert_eq!(answer.told(), [], "{answer:?}");
    let answer = desk.until_served_by(&kept, "r1").await;
    assert_eq!(answer.told(), [], "what was flushed is there: {answer:?}");
    assert!(shows(stage.r1(), 1).await);
}

/// Without an unflushed commit a crash takes nothing, and nobody is told that it did.
async fn flushed_commits(major: Major) {
    let stage = set(major).await;
    let desk = stage.desk().await;
    let mut sessions = Vec::new();
    for id in 1..=3 {
        let session = desk.wrote(&commit(stage.l(), id).await).await;
        desk.until_served_by(&session, "r1").await;
        sessions.push(session);
    }
    for round in 0..2 {
        stage.l().restart(Stop::Immediate).await.expect("it comes back");
        desk.until_leads(stage.l()).await;
        for session in &sessions {
            let answer = desk.until_served_by(session, "r1").await;
            assert_eq!(answer.told(), [], "crash {round}: {answer:?}");
            let answer = desk.select(session, &Policy::new(Level::Leader)).await;
            assert_eq!((answer.node.as_str(), answer.told()), ("l", vec![]), "{answer:?}");
        }
    }
    for id in 1..=3 {
        assert!(shows(stage.r1(), id).await && shows(stage.l(), id).await);
    }
}
