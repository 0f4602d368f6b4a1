//! S14: what one instance recorded the other one knows a moment later, and no kill takes it back.

use tidegate_lab::install::Major;
use tidegate_proto::v1;
use tidegate_proto::v1::select_replica_response::Outcome;

use crate::bench::{Routing, name_of, served};
use crate::on_both_versions;
use crate::pair::{Pair, selecting};
use crate::session::Session;

on_both_versions! {
    both_instances =>
        s14_record_and_select_with_two_instances_pg15,
        s14_record_and_select_with_two_instances_pg18;
}

const ROUNDS: i64 = 1_000;
/// Half way, the instance that records is killed.
const KILLED_AT: i64 = ROUNDS / 2;
/// Times a select is tried.
const TRIES: u32 = 50;
/// Rounds from before the kill that are looked at after it, through the restarted instance.
const LOOKED_AT: i64 = 50;

async fn both_instances(major: Major) {
    let mut pair = Pair::start(major).await;
    pair.bench.r1().pause_replay().await.expect("r1 pauses");
    let mut records = pair.second.routing().await;
    let mut selects = pair.bench.routing();
    let (mut on_r1, mut by_replica) = (0_u64, 0_u64);
    for round in 1..=ROUNDS {
        if round == KILLED_AT {
            pair.second.kill();
            pair.second.start_again().await;
            records = pair.second.routing().await;
            after_the_kill(&pair, &mut records).await;
        }
        let session = Session::of(&format!("user {round}"));
        let capture = pair.bench.commit(round).await.capture().to_owned();
        // Also by an instance that has just started: ready means that the store takes it.
        let stored = record(&mut records, &session, capture).await;
        let in_store = matches!(stored, v1::Stored::PrimaryOnly | v1::Stored::Replicated);
        assert!(in_store, "round {round}: {stored:?}");
        let answer = select(&mut selects, &session).await;
        let named = served(&answer);
        on_r1 += u64::from(name_of(&named) == "r1");
        by_replica += u64::from(named.leader.is_none());
        assert!(pair.bench.reads(&named, round).await, "round {round}: {answer:?}");
    }
    assert_eq!(on_r1, 0, "of {ROUNDS} rounds");
    // The wrong way: who does not say who he is may be sent to r1.
    let mut strangers_on_r1 = 0_u64;
    for _ in 0..100 {
        let answer = select(&mut selects, &Session::tokenless()).await;
        strangers_on_r1 += u64::from(name_of(&served(&answer)) == "r1");
    }
    assert!(strangers_on_r1 > 0, "r1 may serve whoever wrote nothing");
    println!(
        "S14 {major:?}: 0 of {ROUNDS} rounds named r1, {by_replica} were served by a replica; all \
         were stored at once; {strangers_on_r1} of 100 strangers were on r1"
    );
}

/// Ready means that it knows its nodes: a replica serves its very first read. And what it recorded
/// before is still known.
async fn after_the_kill(pair: &Pair, routing: &mut Routing) {
    let first = select(routing, &Session::tokenless()).await;
    assert_eq!(first.reason(), v1::Reason::Covered, "{first:?}");
    for round in KILLED_AT - LOOKED_AT..KILLED_AT {
        let session = Session::of(&format!("user {round}"));
        let answer = select(routing, &session).await;
        let named = served(&answer);
        assert!(pair.bench.reads(&named, round).await, "after the kill: {answer:?}");
    }
}

/// Records a commit; where it was kept.
async fn record(routing: &mut Routing, session: &Session, capture: String) -> v1::Stored {
    let request = v1::RecordRequest {
        session: Some(session.message()),
        observed: Some(v1::record_request::Observed::Evidence(capture)),
        ..v1::RecordRequest::default()
    };
    routing.record(request).await.expect("a record").into_inner().stored()
}

/// The first answer that names a node: a busy machine may refuse whoever is unknown for want of a
/// leader sample in time.
async fn select(routing: &mut Routing, session: &Session) -> v1::SelectReplicaResponse {
    for _ in 0..TRIES {
        let request = selecting(session, v1::Policy::default());
        let answer = routing.select_replica(request).await.expect("a decision").into_inner();
        if let Some(Outcome::Served(_)) = answer.outcome {
            return answer;
        }
    }
    panic!("{TRIES} times no node was named")
}
