//! Reads that must see everything anybody has written: they share what the leader is asked.

use std::collections::BTreeSet;

use tidegate_lab::install::Major;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::{self, Level};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::polls::{counting, polls};
use super::stage::{named, read, session, span};

const READS: u64 = 1_000;
/// The leader is asked at most so often for all of them, whatever else asks it meanwhile.
const ASKED_MAX: f64 = 20.0;
/// Beside other tests the reads may arrive one by one: one time of these they come at once.
const ROUNDS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn a_thousand_global_reads_at_once_see_a_write_and_share_a_few_queries() {
    let stage = counting(Major::V15, 2).await;
    let (service, mut client) = stage.serve().await;
    let (asks, frames) = mpsc::channel(1_024);
    let answers = client.route(ReceiverStream::new(frames)).await.expect("a stream");
    let mut answers = answers.into_inner();
    let mut request = read(session(""), Level::Global);
    let policy = request.policy.get_or_insert_default();
    (policy.fallback, policy.wait_budget) = (Some(false), span(tidegate_lab::wait::LIMIT));

    let mut fewest = f64::INFINITY;
    for round in 1..=ROUNDS {
        // Another session writes; nobody tells the service.
        let insert = format!("insert into notes values ({round})");
        stage.cluster.leader().sql(&insert).await.expect("it is written");
        let asked = polls(&service, "l").await;
        let begun = stage.clock.now();
        for of in 0..READS {
            let (correlation, frame) = (round * READS + of, Some(Ask::Select(request.clone())));
            asks.send(v1::RouteRequest { correlation, frame }).await.expect("an open stream");
        }
        let (mut seen_on, mut answered) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..READS {
            let answer = answers.message().await.expect("it holds").expect("and goes on");
            let Some(Answer::Select(selected)) = answer.frame else { panic!("{answer:?}") };
            assert!(answered.insert(answer.correlation), "no answer is repeated");
            assert!(selected.met().any(|met| met == v1::Guarantee::Global), "{selected:?}");
            // Whoever has it once keeps it.
            let node = named(&selected).to_owned();
            if !seen_on.contains(&node) {
                let row = i64::try_from(round).expect("a small number");
                assert!(stage.shows(&node, row).await, "{node} was named and lacks the row");
                seen_on.insert(node);
            }
        }
        let took = stage.clock.now().since(begun);
        let asked = polls(&service, "l").await - asked;
        println!(
            "{READS} global reads in {took:.1?}: {asked} queries of the leader, on {seen_on:?}"
        );
        fewest = fewest.min(asked);
        if fewest <= ASKED_MAX {
            return;
        }
    }
    panic!("{fewest} queries for {READS} reads at once, {ASKED_MAX} allowed");
}
