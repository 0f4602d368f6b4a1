//! Failovers that happen while nobody looks: timeline 1, 2, 3, and only then the service starts.
//!
//! What was lost on the way cannot be told from what was not; a number does not tell it either.

use std::path::Path;

use tidegate::seal::Key;
use tidegate_client::{NoticeKind, Reason, Session};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Stop;

use super::desk::{Desk, either_soon};
use super::stage::{Commit, Stage, commit, on_both_majors, rule_off, shows, write_past};

on_both_majors! {
    history_unreadable =>
        two_unseen_failovers_leave_no_token_to_be_met_by_a_number_pg15,
        two_unseen_failovers_leave_no_token_to_be_met_by_a_number_pg18;
    history_readable =>
        the_history_file_tells_what_survived_two_unseen_failovers_pg15,
        the_history_file_tells_what_survived_two_unseen_failovers_pg18;
}

/// What was committed in which history, and what became of it.
struct Written {
    /// On timeline 1, and on every server.
    kept: Commit,
    /// On timeline 1, lost in the first failover.
    lost: Commit,
    /// On timeline 2, and on every server that was left.
    later_kept: Commit,
    /// On timeline 2, lost in the second failover.
    later_lost: Commit,
}

/// Two failovers, one after the other, from `l` to r1 to r2, which r3 follows.
async fn fail_over_twice(stage: &Stage, kept: Commit, lost: Commit) -> Written {
    let (r1, r2, r3) = (stage.r1(), stage.r2(), stage.cluster.standby(2));
    stage.succeed(r1).await;
    for standby in [r2, r3] {
        standby.repoint(r1).await.expect("it follows r1");
    }
    write_past(r1, lost.position(), 100).await;
    let later_kept = commit(r1, 3).await;
    for standby in [r2, r3] {
        standby.catch_up_with(r1).await.expect("it has it");
        standby.cut_reception().await.expect("reception ends");
    }
    let later_lost = commit(r1, 4).await;
    r1.stop(Stop::Immediate).await.expect("it dies");
    r2.promote().await.expect("a promotion");
    r3.repoint(r2).await.expect("it follows r2");
    write_past(r2, later_lost.position(), 200).await;
    r3.catch_up_with(r2).await.expect("it has it all");
    Written { kept, lost, later_kept, later_lost }
}

/// A leader with three standbys, and services that accept each other's tokens.
async fn set(major: Major, folder: &Path) -> Stage {
    let mut stage = Stage::set(major, 3).await;
    let (file, key) = (folder.join("token.key"), Key::generate().expect("randomness"));
    std::fs::write(&file, key.to_hex()).expect("a key file");
    stage.options = stage.options.token_key(&file);
    stage
}

/// H18: the history file may not be read, so nothing says where timeline 1 ended.
async fn history_unreadable(major: Major) {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = set(major, folder.path()).await;
    let mut desk = stage.desk().await;
    let (kept, lost) = stage.part(1, 2).await;
    let tokens = [desk.wrote(&kept).await.tokens(), desk.wrote(&lost).await.tokens()];
    desk.service.halt().await.expect("it ends");
    let written = fail_over_twice(&stage, kept, lost).await;

    // By the numbers r3 has all four.
    let (r2, r3) = (stage.r2(), stage.cluster.standby(2));
    let replayed = r3.replay_lsn().await.expect("it answers");
    for (commit, is_there) in [
        (&written.kept, true),
        (&written.lost, false),
        (&written.later_kept, true),
        (&written.later_lost, false),
    ] {
        assert!(replayed >= commit.position(), "{commit:?}");
        assert_eq!(shows(r3, commit.id).await, is_there, "{commit:?}");
    }

    // One that kept its facts and one that lost them: neither needs an operator.
    desk.restart().await;
    for (desk, id) in [(desk, 1000), (Desk::launch(stage.options.clone()).await, 1001)] {
        goes_on(&stage, &desk, id).await;
        for tokens in &tokens {
            told_once(&desk, &desk.carrying(tokens)).await;
        }
        for later in [&written.later_kept, &written.later_lost] {
            told_once(&desk, &desk.wrote(later).await).await;
        }
    }
    for rule in ["fork_interval", "unknown_upward"] {
        let wrong = Desk::launch(stage.options.clone().guards(rule_off(rule))).await;
        wrong.until_leads(r2).await;
        let session = match rule {
            "fork_interval" => wrong.carrying(&tokens[1]),
            _ => wrong.wrote(&written.later_lost).await,
        };
        let answer = wrong.until_served_by(&session, "r3").await;
        let judged = (answer.reason, answer.told());
        assert_eq!(judged, (Reason::Covered, vec![]), "without {rule}: {answer:?}");
    }
}

/// Where the history file may be read, what was flushed before the fork in it is known to be there.
async fn history_readable(major: Major) {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = set(major, folder.path()).await;
    let grant = "grant execute on function pg_read_file(text) to tidegate";
    stage.l().sql(grant).await.expect("it is granted");
    let mut desk = stage.desk().await;
    let kept = commit(stage.l(), 1).await;
    let survivor = desk.wrote(&kept).await;
    // So it was seen to be flushed.
    desk.until_served_by(&survivor, "r3").await;
    let (_, lost) = stage.part(10, 2).await;
    let tokens = [survivor.tokens(), desk.wrote(&lost).await.tokens()];
    desk.service.halt().await.expect("it ends");
    let written = fail_over_twice(&stage, kept, lost).await;

    desk.restart().await;
    goes_on(&stage, &desk, 1000).await;
    let answer = desk.until_served_by(&desk.carrying(&tokens[0]), "r3").await;
    assert_eq!(answer.told(), [], "{answer:?}");
    told_once(&desk, &desk.carrying(&tokens[1])).await;
    told_once(&desk, &desk.wrote(&written.later_lost).await).await;
    assert!(!shows(stage.r2(), written.lost.id).await, "and lost it was");

    // What a leader was seen to flush is a fact, and without it the file alone proves nothing.
    let forgetful = Desk::launch(stage.options.clone()).await;
    goes_on(&stage, &forgetful, 1001).await;
    let answer = forgetful.select(&forgetful.carrying(&tokens[1]), &either_soon()).await;
    assert_eq!(answer.told(), [NoticeKind::PossiblyLost], "{answer:?}");
}

/// r2 leads, r3 serves what is written to it, and nobody had to be asked.
async fn goes_on(stage: &Stage, desk: &Desk, id: i64) {
    desk.until_leads(stage.r2()).await;
    let fresh = desk.wrote(&commit(stage.r2(), id).await).await;
    let answer = desk.until_served_by(&fresh, "r3").await;
    assert_eq!(answer.told(), [], "{answer:?}");
}

/// What nobody can tell is replaced by what the leader has now, with a notice, and then served.
async fn told_once(desk: &Desk, session: &Session) {
    let answer = desk.select(session, &either_soon()).await;
    assert_eq!(answer.told(), [NoticeKind::PossiblyLost], "{answer:?}");
    let ids = [answer.notices[0].id.clone()];
    session.acknowledge(&ids).await.expect("it is acknowledged");
    let answer = desk.until_served_by(session, "r3").await;
    assert_eq!(answer.told(), [], "{answer:?}");
}
