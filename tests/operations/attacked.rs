//! Attacks that broke a promise once: a wait answered late, and a budget spent twice.

use std::time::Duration;

use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::Service;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tidegate_proto::v1::{self, Level};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use super::stage::{
    PARKED, Stage, WINDOW, connect, metric, read, session, span, until_parked, wait,
};

/// More answers than a client that does not read them is sent.
const WAITS: u32 = 2_000;
/// Long enough to be woken and to see the standby restart, on a busy machine too.
const BUDGET: Duration = Duration::from_secs(12);

/// Waits are woken by one life of r1 and answered when it lives the next, which lacks the row.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_answered_late_names_no_life_that_lacks_the_row() {
    let stage = Stage::set(1).await;
    let (service, mut client) = stage.serve().await;
    let r1 = stage.cluster.standby(0);
    r1.anchor(stage.cluster.leader()).await.expect("an anchor");
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let endpoint = Endpoint::new(service.endpoint()).expect("an endpoint");
    let narrow = endpoint.initial_stream_window_size(1024).connect().await.expect("it listens");
    let (asks, stream) = tokio::sync::mpsc::channel(WAITS as usize);
    for correlation in 1..=u64::from(WAITS) {
        let frame = Some(Ask::Wait(wait(carried.clone(), BUDGET)));
        asks.send(v1::RouteRequest { correlation, frame }).await.expect("an open stream");
    }
    let route = RoutingServiceClient::new(narrow).route(ReceiverStream::new(stream)).await;
    let mut answers = route.expect("a stream").into_inner();
    until_parked(&service, WAITS).await;
    let old = r1.value::<String>("select tidegate.incarnation()").await.expect("a life");
    stage.release().await;
    until("all waits to be woken", LIMIT, || async { Ok(metric(&service, PARKED).await == 0.0) })
        .await
        .expect("no wait is left parked");
    r1.crash_behind(Duration::from_secs(3600)).await.expect("a restart behind");
    let new = r1.value::<String>("select tidegate.incarnation()").await.expect("a life");
    until("the new life to be seen", LIMIT, || async {
        Ok(service.partition().await?.nodes.iter().any(|node| node.incarnation == new))
    })
    .await
    .expect("polls");
    assert!(!stage.shows("r1", 1).await, "r1 was to come back without the row");
    let (mut before, mut after) = (0, 0);
    for _ in 0..WAITS {
        let answer = answers.message().await.expect("an open stream").expect("an answer to each");
        let Some(Answer::Wait(answer)) = answer.frame else { panic!("{answer:?}") };
        let lives = answer.served.as_ref().map(|served| &served.acceptable_incarnations);
        match answer.outcome() {
            Ended::Fresh => {
                assert_eq!(lives, Some(&vec![old.clone()]), "fresh in a life without the row");
                before += 1;
            }
            Ended::TimedOut => after += 1,
            Ended::Unspecified | Ended::Lost | Ended::Unknown | Ended::Gone => panic!("{answer:?}"),
        }
    }
    assert!(before > 0 && after > 0, "{before} answered before the restart, {after} after it");
    drop(asks);
}

/// A read that first waits for a leader sample has what is left of its budget to wait for a node.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_is_spent_once_though_a_sample_is_waited_for() {
    let stage = Stage::set(1).await;
    let proxy = Proxy::start(stage.cluster.leader().address()).await.expect("a proxy");
    let options = stage.options().await.poll_through("l", proxy.address());
    let service = Service::start(options).await.expect("a service");
    let mut client = connect(&service).await;
    stage.hold().await;
    stage.write(&mut client, "", 1).await;
    proxy.set(Mode::Delay(Duration::from_millis(220))).await.expect("a slow leader");
    let budget = Duration::from_millis(900);
    for _ in 0..6 {
        let mut request = read(v1::Session::default(), Level::Global);
        let policy = request.policy.get_or_insert_default();
        policy.wait_budget = span(budget);
        policy.fallback = Some(false);
        let since = stage.clock.now();
        client.select_replica(request).await.expect("a decision");
        stage.within("a global read of a held standby", since, budget + WINDOW);
    }
}
