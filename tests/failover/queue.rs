//! A queue whose messages carry tokens, over a failover: what is lost is put aside, what cannot be
//! known yet is tried again, and nothing stays in the queue for ever.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_client::{ClientError, ErrorReason, OnLost, Outcome, Policy, Reason};
use tidegate_lab::install::Major;
use tidegate_lab::wait::LIMIT;
use tonic::Code;

use super::desk::{Desk, replica_within};
use super::stage::{Stage, on_both_majors, shows, write_past};

on_both_majors! {
    messages_over_a_failover =>
        a_lost_message_is_put_aside_and_the_others_are_tried_again_pg15,
        a_lost_message_is_put_aside_and_the_others_are_tried_again_pg18;
}

/// How long a consumer lets one message wait.
const BUDGET: Duration = Duration::from_millis(100);

/// A message: the row it is about, and the session of its sender.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Message {
    row: i64,
    tokens: Vec<String>,
}

/// What a consumer does with a message.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Handled {
    /// It read the row on this node.
    Done(String),
    /// It is put back.
    Later(Reason),
    /// It never can be read, and is put aside.
    DeadLetter,
}

/// One attempt, by a consumer that rather fails than misses a write.
async fn handle(desk: &Desk, message: &Message) -> Handled {
    let policy: Policy = replica_within(BUDGET).on_lost(OnLost::Error);
    let session = desk.carrying(&message.tokens);
    match session.select(&policy).await {
        Ok(selection) => match selection.outcome {
            Outcome::Served(served) => Handled::Done(served.node.name),
            Outcome::Refused(refused) => {
                assert!(refused.retry_after > Duration::ZERO, "{refused:?}");
                Handled::Later(selection.reason)
            }
        },
        Err(ClientError::Service(error)) => {
            let terminal = (error.code, error.reason, error.retry_after);
            assert_eq!(terminal, (Code::FailedPrecondition, ErrorReason::LostWrite, None));
            Handled::DeadLetter
        }
        Err(error) => panic!("{error}"),
    }
}

/// H26: three messages: of a write that survives, of one that is lost, of a leader nobody has seen.
async fn messages_over_a_failover(major: Major) {
    let stage = Stage::set(major, 2).await;
    let desk = stage.desk().await;
    let (kept, lost) = stage.part(1, 2).await;
    let message = async |commit| Message {
        row: commit_id(commit),
        tokens: desk.wrote(commit).await.tokens(),
    };
    let (of_kept, of_lost) = (message(&kept).await, message(&lost).await);
    desk.until_flushed(&kept).await;
    assert_eq!(handle(&desk, &of_lost).await, Handled::Later(Reason::NotCovered), "it may come");
    stage.l().stop(tidegate_lab::postgres::Stop::Immediate).await.expect("it dies");
    desk.until_unseen(stage.l()).await;
    assert_eq!(handle(&desk, &of_lost).await, Handled::Later(Reason::NotCovered), "still it may");

    stage.r1().promote().await.expect("a promotion");
    stage.r2().repoint(stage.r1()).await.expect("r2 follows it");
    write_past(stage.r1(), lost.position(), 100).await;
    desk.until_leads(stage.r1()).await;
    let later = super::stage::commit(stage.r1(), 3).await;
    let of_later = message(&later).await;

    // By the numbers the lost message is as good as the others.
    stage.r2().catch_up_with(stage.r1()).await.expect("r2 has it all");
    assert!(stage.r2().replay_lsn().await.expect("it answers") >= lost.position());
    assert!(!shows(stage.r2(), lost.id).await);

    let mut queue = VecDeque::from([of_lost.clone(), of_kept, of_later]);
    let (mut done, mut dead) = (Vec::new(), Vec::new());
    let drained = tokio::time::timeout(LIMIT, async {
        while let Some(message) = queue.pop_front() {
            match handle(&desk, &message).await {
                Handled::Done(node) => {
                    assert!(shows(stage.cluster.server(&node).expect("a node"), message.row).await);
                    done.push(message.row);
                }
                Handled::Later(_) => queue.push_back(message),
                Handled::DeadLetter => dead.push(message.row),
            }
        }
    });
    drained.await.expect("the queue is empty in the end");
    assert_eq!(dead, [2]);
    done.sort_unstable();
    assert_eq!(done, [1, 3]);
    assert_eq!(handle(&desk, &of_lost).await, Handled::DeadLetter, "however often it is tried");
}

fn commit_id(commit: &super::stage::Commit) -> i64 {
    commit.id
}
