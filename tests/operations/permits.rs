//! Waits for one node that leads, or comes to: the cap counts them as fallbacks.

use std::time::Duration;

use tidegate_lab::postgres::Stop;
use tidegate_lab::service::Service;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::wait_until_fresh_response::Outcome;
use tidegate_proto::v1::{self};

use super::stage::{Client, Stage, connect, metric, node_of, page, session, until_parked, wait};

const ADMITTED: &str = "tidegate_fallbacks_total{partition=\"main\",verdict=\"admitted\"}";

/// Waits for one node by name.
async fn wait_for(
    client: &mut Client,
    node: &str,
    session: v1::Session,
    budget: Duration,
) -> v1::WaitUntilFreshResponse {
    let target = Some(v1::wait_until_fresh_request::Target::Node(node.to_owned()));
    let request = v1::WaitUntilFreshRequest { target, ..wait(session, budget) };
    client.wait_until_fresh(request).await.expect("a decision").into_inner()
}

/// A service that lets so many fallbacks a second come to its leader.
async fn capped(stage: &Stage, reads_per_second: &str) -> (Service, Client) {
    let options = stage.options().await.limit("fallback_reads", reads_per_second);
    let service = Service::start(options).await.expect("a service starts");
    until("r1 may serve", LIMIT, || async {
        let nodes = service.partition().await?.nodes;
        Ok(nodes.iter().any(|node| node.name == "r1" && node.session_eligible))
    })
    .await
    .expect("it may");
    let client = connect(&service).await;
    (service, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_the_leader_needs_a_permit_and_waits_for_one() {
    let stage = Stage::set(1).await;
    let (service, mut client) = capped(&stage, "1").await;
    let carried = session(&stage.write(&mut client, "", 1).await);

    let begun = stage.clock.now();
    let first = wait_for(&mut client, "l", carried.clone(), Duration::ZERO).await;
    assert_eq!((first.outcome(), node_of(first.served.as_ref())), (Outcome::Fresh, "l"));
    let full = wait_for(&mut client, "l", carried.clone(), Duration::from_millis(50)).await;
    assert_eq!(full.outcome(), Outcome::TimedOut, "{full:?}");
    assert_eq!(full.reason(), v1::Reason::CapExhausted, "{full:?}");
    let second = wait_for(&mut client, "l", carried, Duration::from_secs(20)).await;
    assert_eq!(second.outcome(), Outcome::Fresh, "{second:?}");
    assert!(stage.clock.now().since(begun) >= Duration::from_secs(1), "one a second");
    assert!((metric(&service, ADMITTED).await - 2.0).abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_standby_that_is_promoted_meanwhile_needs_a_permit() {
    let stage = Stage::set(1).await;
    let (service, mut client) = capped(&stage, "0").await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    stage.cluster.catch_up().await.expect("r1 has the row");
    stage.hold().await;
    let beyond = session(&stage.write(&mut client, "", 2).await);
    let mut other = client.clone();
    let budget = Duration::from_secs(60);
    let waiting = tokio::spawn(async move { wait_for(&mut other, "r1", beyond, budget).await });
    until_parked(&service, 1).await;
    stage.cluster.leader().stop(Stop::Kill).await.expect("the leader dies");
    stage.cluster.standby(0).promote().await.expect("r1 is promoted");
    let ended = waiting.await.expect("no panic");
    assert_eq!(ended.outcome(), Outcome::TimedOut, "{ended:?}");
    assert_eq!(ended.reason(), v1::Reason::CapExhausted, "no fallback is allowed: {ended:?}");
    let known = wait_for(&mut client, "r1", carried, Duration::ZERO).await;
    assert_eq!(known.reason(), v1::Reason::CapExhausted, "{known:?}");
    assert!(!page(&service, "/metrics").await.contains(ADMITTED), "none was admitted");
}
