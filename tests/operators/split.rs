//! Two nodes lead and neither gives way: what operators see, and what their word does.

use tidegate_lab::postgres::Stop;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::partition::State;
use tidegate_proto::v1::watch_events_response::Event;

use super::stage::Stage;

/// Both standbys of a dead leader are promoted.
async fn split(stage: &Stage) {
    stage.cluster.catch_up().await.expect("standbys follow");
    stage.l().stop(Stop::Immediate).await.expect("it dies");
    for twin in [stage.r1(), stage.r2()] {
        twin.promote().await.expect("a promotion");
    }
    until("the split is known", LIMIT, || async {
        Ok(stage.service.partition().await?.state() == State::Split)
    })
    .await
    .expect("it is");
}

async fn life(stage: &Stage, node: &str) -> String {
    let server = stage.cluster.server(node).expect("a server");
    server.value("select tidegate.incarnation()").await.expect("an incarnation")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_word_ends_a_split_and_resume_takes_the_other_back() {
    let stage = Stage::set().await;
    let mut watcher = stage.watch().await;
    split(&stage).await;
    let (r1, r2) = (life(&stage, "r1").await, life(&stage, "r2").await);
    let seen = watcher.up_to(|event| matches!(event, Event::SplitBegun(_))).await;
    let Some(Event::SplitBegun(begun)) = seen.last() else { panic!("{seen:?}") };
    let lives = |node: &str, life: &str| {
        begun
            .contenders
            .iter()
            .any(|one| (one.node.as_str(), one.incarnation.as_str()) == (node, life))
    };
    assert!(lives("r1", &r1) && lives("r2", &r2), "{begun:?}");
    let now = stage.shows(&["events"]).await;
    assert!(now.contains("several nodes claim to lead; alarm: SPLIT: "), "{now}");
    for claims in [format!("r1 ({r1})"), format!("r2 ({r2})")] {
        assert!(now.contains(&claims), "{now}");
    }
    assert!(now.contains("`tidegate resolve-split main INCARNATION`"), "{now}");
    let twins: Vec<v1::Epoch> = stage.epochs().await;
    let twins = twins.iter().filter(|epoch| epoch.twin_epochs.len() == 1).count();
    assert_eq!(twins, 2, "each is the other's twin");

    refused(&stage, &r1).await;
    let led = stage.shows(&["resolve-split", "main", &r1]).await;
    assert!(led.starts_with("main: r1 leads in epoch 2."), "{led}");
    let seen = watcher.up_to(|event| matches!(event, Event::VerdictGiven(_))).await;
    let Some(Event::VerdictGiven(verdict)) = seen.last() else { panic!("{seen:?}") };
    let partition = stage.service.partition().await.expect("listed");
    assert_eq!((verdict.epoch.as_str(), partition.state()), (&*partition.epoch, State::Led));
    assert_eq!(verdict.aside_epochs.len(), 2, "the dead leader and the twin: {verdict:?}");
    // Said again it changes nothing.
    stage.shows(&["resolve-split", "main", &r1]).await;
    back(&stage, &r2).await;
    let resumed = |event: &Event| matches!(event, Event::NodeResumed(node) if node.node == "r2");
    watcher.up_to(resumed).await;
}

/// A word on what is not there says what is.
async fn refused(stage: &Stage, r1: &str) {
    let malformed = stage.runs(&["resolve-split", "main", "r1"]).await;
    assert_eq!(malformed.code, 2, "{malformed:?}");
    assert!(malformed.err.contains("`r1` is not an incarnation"), "{malformed:?}");
    let nobody = stage.runs(&["resolve-split", "main", "1.2.3"]).await;
    assert_eq!(nobody.code, 2, "{nobody:?}");
    assert!(nobody.err.contains(&format!("r1 lives {r1}, writable, seen 0.")), "{nobody:?}");
    let nowhere = stage.runs(&["resolve-split", "orders", r1]).await;
    assert_eq!(nowhere.code, 2, "{nowhere:?}");
    assert!(nowhere.err.contains("this instance serves main"), "{nowhere:?}");
    let nothing = stage.runs(&["resume", "main", "r9"]).await;
    assert_eq!(nothing.code, 2, "{nothing:?}");
    assert!(nothing.err.contains("it has l, r1, r2"), "{nothing:?}");
    let state = stage.service.partition().await.expect("listed").state();
    assert_eq!(state, State::Split, "what was refused changed nothing");
}

/// The twin set aside is dead, then a clone: neither may lead, and resumed it serves.
async fn back(stage: &Stage, r2: &str) {
    stage.r2().stop(Stop::Immediate).await.expect("it ends");
    stage.forgotten("r2").await;
    let unseen = stage.runs(&["resolve-split", "main", r2]).await;
    assert_eq!(unseen.code, 1, "{unseen:?}");
    assert!(unseen.err.contains("has not answered lately"), "{unseen:?}");
    stage.r2().clone_from(stage.r1()).await.expect("a clone streams");
    let clone = life(stage, "r2").await;
    until("the clone is seen", LIMIT, || async { Ok(stage.node("r2").await.incarnation == clone) })
        .await
        .expect("it is polled");
    let standby = stage.runs(&["resolve-split", "main", &clone]).await;
    assert_eq!(standby.code, 1, "{standby:?}");
    assert!(standby.err.contains("in recovery: promote it first"), "{standby:?}");
    let state = stage.node("r2").await;
    assert!(state.quarantine_reason.contains("it led a line of its own"), "{state:?}");
    let now = stage.shows(&["events"]).await;
    assert!(now.contains("alarm: QUARANTINED: r2 is out: it led a line of its own"), "{now}");
    let resumed = stage.runs(&["resume", "main", "r2"]).await;
    // It may take until its next row before it serves.
    let serves = resumed.out == "r2 of main serves sessions\n";
    assert_eq!(resumed.code, i32::from(!serves), "{resumed:?}");
    assert!(serves || resumed.err.contains("is out of quarantine, but"), "{resumed:?}");
    until("the clone serves", LIMIT, || async { Ok(stage.node("r2").await.session_eligible) })
        .await
        .expect("it does");
    assert_eq!(stage.shows(&["resume", "main", "r2"]).await, "r2 of main serves sessions\n");
}
