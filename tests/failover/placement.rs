//! Standbys placed by what their connections and control files say: rules that need no lineage row.
//!
//! Each is applied to what the servers really show, and names a node that lacks the row. Twins and
//! clones under an old number are `placement_twins`.

use tidegate_client::NoticeKind;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{ClusterOptions, Server, Stop};

use super::desk::replica_now;
use super::experiments_sight::Sight;
use super::stage::{Stage, commit, commit_unflushed, on_both_majors, shows, write_past};

on_both_majors! {
    a_sender_that_crashed => a_receiver_still_names_a_leader_that_crashed_pg15,
        a_receiver_still_names_a_leader_that_crashed_pg18;
    a_control_file_of_the_parent => a_sibling_shares_the_checkpoint_of_a_new_leader_pg15,
        a_sibling_shares_the_checkpoint_of_a_new_leader_pg18;
}

/// Whether a standby streams this timeline from this server, by its receiver.
pub(crate) async fn streams_from(standby: &Server, sender: &Server, timeline: u32) -> bool {
    let query = format!(
        "select exists (select from pg_stat_wal_receiver where status = 'streaming' \
         and sender_port = {} and received_tli = {timeline})",
        sender.port()
    );
    standby.value(&query).await.expect("it answers")
}

/// A standby is polled after its leader crashed, the leader is not.
async fn a_sender_that_crashed(major: Major) {
    let options = ClusterOptions::new(major).standbys(1).setting("wal_writer_delay", "10s");
    let stage = Stage::of(options).await;
    let (l, r1) = (stage.l(), stage.r1());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "durability").await;
    right.lose_one(l).await;
    wrong.lose_one(l).await;
    let lost = commit_unflushed(l, 1).await;
    let sessions = [right.desk.wrote(&lost).await, wrong.desk.wrote(&lost).await];
    l.kill_backend().await.expect("a crash");
    write_past(l, lost.position(), 100).await;
    r1.await_streaming().await.expect("it follows again");
    r1.catch_up_with(l).await.expect("r1 has it all");

    // The rule: it streams from the leader, on its timeline, and has replayed more than that.
    assert!(streams_from(r1, l, 1).await);
    assert!(r1.replay_lsn().await.expect("it answers") >= lost.position(), "so r1 is fresh");
    assert!(!shows(r1, lost.id).await && !shows(l, lost.id).await, "and the row is gone");

    right.until_applied(r1, lost.position()).await;
    let answer = right.desk.select(&sessions[0], &replica_now()).await;
    assert_eq!(answer.node, "", "{answer:?}");
    wrong.until_applied(r1, lost.position()).await;
    let answer = wrong.desk.select(&sessions[1], &replica_now()).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("r1", vec![]), "{answer:?}");

    right.regain().await;
    right.desk.until_leads(l).await;
    let answer = right.answer(&sessions[0]).await;
    // Certain where nothing past its recovery had been written before it began.
    let told = answer.told();
    assert!(matches!(told[..], [NoticeKind::WriteLost | NoticeKind::PossiblyLost]), "{answer:?}");
    assert_eq!(right.desk.node("l").await.quarantine_reason, "");
}

/// The last checkpoint in a control file.
async fn checkpoint_of(server: &Server) -> String {
    let query = "select concat_ws(' ', checkpoint_lsn, redo_lsn, timeline_id, next_xid, \
                 checkpoint_time) from pg_control_checkpoint()";
    server.value(query).await.expect("every role may read it")
}

/// r1 is promoted and has not written a checkpoint yet; r2 has what r1 never received.
async fn a_control_file_of_the_parent(major: Major) {
    let stage = Stage::set(major, 2).await;
    let (l, r1, r2) = (stage.l(), stage.r1(), stage.r2());
    let right = Sight::open(&stage).await;
    let wrong = Sight::without(&stage, "diverged").await;
    l.sql("checkpoint").await.expect("a checkpoint");
    stage.cluster.catch_up().await.expect("standbys have it");
    for standby in [r1, r2] {
        standby.sql("checkpoint").await.expect("a restartpoint at it");
    }
    r1.cut_reception().await.expect("r1 falls behind");
    // More than a leader writes by itself, page images of what it reads.
    l.sql("insert into notes select generate_series(10000, 30000)").await.expect("rows");
    let gone = commit(l, 1).await;
    right.until_applied(r2, gone.position()).await;
    wrong.until_applied(r2, gone.position()).await;
    l.stop(Stop::Immediate).await.expect("it dies");
    r1.signal_process("checkpointer", "STOP").await.expect("no checkpoint ends by itself");
    r1.promote().await.expect("a promotion");
    let written = commit(r1, 2).await;

    // The rule: who shows a checkpoint that the leader shows is on the leader's line.
    assert_eq!(checkpoint_of(r1).await, checkpoint_of(r2).await);
    assert!(r2.replay_lsn().await.expect("it answers") >= written.position(), "so r2 is fresh");
    assert!(!shows(r2, written.id).await, "and lacks the row");
    assert!(shows(r2, gone.id).await && !shows(r1, gone.id).await, "it is of another line");

    right.desk.until_leads(r1).await;
    let session = right.desk.wrote(&written).await;
    let answer = right.desk.select(&session, &replica_now()).await;
    assert_eq!(answer.node, "", "{answer:?}");
    let answer = right.answer(&session).await;
    assert_eq!((answer.node.as_str(), answer.told()), ("r1", vec![]), "{answer:?}");
    let answer = right.desk.select(&right.desk.session(), &replica_now()).await;
    assert_eq!(answer.node, "", "nobody is sent to what is not the leader's: {answer:?}");

    wrong.desk.until_leads(r1).await;
    let answer = wrong.desk.select(&wrong.desk.session(), &replica_now()).await;
    assert_eq!(answer.node, "r2", "{answer:?}");
    r1.signal_process("checkpointer", "CONT").await.expect("it may go on");
}
