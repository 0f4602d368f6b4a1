//! What the servers are asked does not grow with those who wait.

use std::time::Duration;

use tidegate_lab::service::Service;
use tidegate_lab::wait::until;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::{self};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::stage::{Stage, metric, session, until_parked, wait};

/// How long polls are counted.
const SPAN: Duration = Duration::from_secs(2);
/// The pace while somebody waits, and while nobody does.
const PER_SECOND_BUSY: f64 = 1000.0 / 2.0;
const PER_SECOND_IDLE: f64 = 1000.0 / 250.0;
const NODES: [&str; 3] = ["l", "r1", "r2"];

async fn polls(service: &Service, node: &str) -> f64 {
    let labels = format!("{{partition=\"main\",node=\"{node}\",outcome=\"observed\"}}");
    metric(service, &format!("tidegate_polls_total{labels}")).await
}

/// Polls per second of each node.
async fn rates(stage: &Stage, service: &Service) -> [f64; 3] {
    let (mut before, mut rates) = ([0.0; 3], [0.0; 3]);
    for (node, count) in NODES.iter().zip(&mut before) {
        *count = polls(service, node).await;
    }
    let began_at = stage.clock.now();
    let over = || async { Ok(stage.clock.now().since(began_at) >= SPAN) };
    until("polls were counted", SPAN * 2, over).await.expect("time passes");
    for ((node, rate), before) in NODES.iter().zip(&mut rates).zip(before) {
        let took = stage.clock.now().since(began_at).as_secs_f64();
        *rate = (polls(service, node).await - before) / took;
    }
    rates
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn a_thousand_waits_ask_the_servers_no_more_than_one() {
    let stage = Stage::set(2).await;
    let (service, mut client) = stage.serve().await;
    let idle = rates(&stage, &service).await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let (asks, frames) = mpsc::channel(64);
    let answers = client.route(ReceiverStream::new(frames)).await.expect("a stream");
    let mut parked = Vec::new();
    for (first, waits) in [(0, 1_u32), (1, 1_000)] {
        for correlation in first..u64::from(waits) {
            let frame = Some(Ask::Wait(wait(carried.clone(), Duration::from_secs(30))));
            asks.send(v1::RouteRequest { correlation, frame }).await.expect("an open stream");
        }
        until_parked(&service, waits).await;
        parked.push(rates(&stage, &service).await);
    }
    let [one, thousand] = [parked[0], parked[1]];
    println!(
        "polls per second of {NODES:?}: idle {idle:.0?}, 1 wait {one:.0?}, 1,000 {thousand:.0?}"
    );
    for ((idle, one), thousand) in idle.iter().zip(one).zip(thousand) {
        assert!(*idle <= 1.5 * PER_SECOND_IDLE, "an idle partition is left alone: {idle}");
        // However busy the machine is: never more than the pace, and more than nobody needs.
        for busy in [one, thousand] {
            assert!(busy <= 1.05 * PER_SECOND_BUSY, "faster than the pace: {busy}");
            assert!(busy > idle * 2.0, "who waits is answered soon: {busy} after {idle}");
        }
    }
    drop((asks, answers));
    until_parked(&service, 0).await;
    stage.release().await;
}
