//! A service that sees no node, only wrong ones, or none with the schema: never called fresh.

use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_lab::ports::Port;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::service::{PARTITION, Service, install};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::record_request::Observed;
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tidegate_proto::v1::{self, Level, Reason, Session};

use super::stage::{
    Client, Stage, connect, named, read, select, session, span, subject, until_tried, wait,
};

/// Every level that promises something of the data, with what it needs.
fn promises(session: &Session) -> Vec<v1::SelectReplicaRequest> {
    let mut bounded = read(session.clone(), Level::Bounded);
    bounded.policy.get_or_insert_default().bound = span(Duration::from_secs(1));
    let others = [Level::Session, Level::Global, Level::Leader];
    let others = others.map(|level| read(session.clone(), level));
    others.into_iter().chain([bounded]).collect()
}

/// Asks everything of a service that can prove nothing; nothing may be called fresh.
async fn proves_nothing(stage: &Stage, client: &mut Client, reasons: &[Reason]) {
    for session in [Session::default(), subject("ann")] {
        for mut request in promises(&session) {
            request.shadow_node = "r1".to_owned();
            let asked_at = stage.clock.now();
            let answer = select(client, request.clone()).await;
            stage.within(&request, asked_at, Duration::from_millis(500));
            assert_eq!(named(&answer), "", "{request:?} was answered with {answer:?}");
            assert!(answer.met.is_empty(), "{answer:?}");
            assert!(reasons.contains(&answer.reason()), "{answer:?}");
            assert!(!answer.shadow.expect("asked for").fresh, "nothing shows that r1 is fresh");
        }
        for node in ["", "r1", "l"] {
            use v1::wait_until_fresh_request::Target;
            let mut request = wait(session.clone(), Duration::from_millis(100));
            if !node.is_empty() {
                request.target = Some(Target::Node(node.to_owned()));
            }
            let asked_at = stage.clock.now();
            let answer = client.wait_until_fresh(request).await.expect("a decision").into_inner();
            stage.within(&answer, asked_at, Duration::from_millis(500));
            assert_ne!(answer.outcome(), Ended::Fresh, "{answer:?}");
            assert_eq!(answer.served, None, "{answer:?}");
        }
    }
    let answer = select(client, read(Session::default(), Level::Eventual)).await;
    assert_eq!(named(&answer), "", "not even EVENTUAL names what was never seen: {answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_reaches_no_node_calls_nothing_fresh() {
    let stage = Stage::set(0).await;
    let (closed, dead) = (Port::reserve().expect("a port"), Port::reserve().expect("a port"));
    let options = stage.options().await.without("l");
    let options = options.node("l", closed.address(), closed.address());
    let options = options.node("r1", dead.address(), dead.address());
    let service = Service::launch(options).await.expect("a service starts");
    until_tried(&service).await;
    let mut client = connect(&service).await;
    proves_nothing(&stage, &mut client, &[Reason::NoNode, Reason::NoLeader]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_before_another_database_calls_nothing_fresh() {
    let stage = Stage::set(0).await;
    let other = ClusterOptions::new(Major::V15).standbys(1);
    let other = Cluster::start(other).await.expect("another database");
    install(other.leader()).await.expect("with the schema");
    let (leader, standby) = (other.leader().address(), other.standby(0).address());
    let options = stage.options().await.without("l").node("l", leader, leader);
    let options = options.node("r1", standby, standby);
    let service = Service::launch(options).await.expect("a service starts");
    until_tried(&service).await;
    let mut client = connect(&service).await;
    proves_nothing(&stage, &mut client, &[Reason::NoNode, Reason::NoLeader]).await;
    until("the wrong database is shown", LIMIT, || async {
        let shown = |node: &v1::NodeState| node.poll_error.contains("system");
        Ok(service.partition().await?.nodes.iter().all(shown))
    })
    .await
    .expect("it is shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_the_schema_serves_sessions_by_its_leader_alone() {
    let stage = Stage::set(2).await;
    let options = stage.options().await;
    stage.cluster.leader().sql("drop schema tidegate cascade").await.expect("no schema");
    stage.cluster.catch_up().await.expect("nowhere");
    let service = Service::launch(options).await.expect("a service starts");
    until_tried(&service).await;
    let led = || async { Ok(service.partition().await?.leader_node == "l") };
    until("the leader is known", LIMIT, led).await.expect("it is known");
    let mut client = connect(&service).await;

    let request = v1::RecordRequest {
        partition: PARTITION.to_owned(),
        observed: Some(Observed::LeaderNow(v1::LeaderNow {})),
        ..v1::RecordRequest::default()
    };
    let token = client.record(request).await.expect("recorded").into_inner().token;
    assert!(!token.is_empty(), "a leader sample needs no schema");
    for carried in [Session::default(), subject("ann"), session(&token)] {
        for request in promises(&carried) {
            let asked_at = stage.clock.now();
            let mut request = request.clone();
            request.policy.get_or_insert_default().wait_budget = span(Duration::from_secs(5));
            let answer = select(&mut client, request.clone()).await;
            assert_eq!(named(&answer), "l", "{request:?} was answered with {answer:?}");
            // Nothing can be hoped for, so nothing is waited for: the poll that samples aside.
            stage.within(&request, asked_at, Duration::from_secs(2));
            let level = request.policy.unwrap_or_default().level();
            if level == Level::Session {
                assert_eq!(answer.reason(), Reason::LineageMissing, "{answer:?}");
            }
        }
        let answer = select(&mut client, read(carried.clone(), Level::Eventual)).await;
        assert!(["r1", "r2"].contains(&named(&answer)), "EVENTUAL is served: {answer:?}");
        let request = wait(carried, Duration::from_millis(20));
        let waited = client.wait_until_fresh(request).await.expect("a decision").into_inner();
        assert_ne!(waited.outcome(), Ended::Fresh, "no second way to tell a line: {waited:?}");
    }

    // Installed late, without a restart.
    install(stage.cluster.leader()).await.expect("the schema");
    let token = token.as_str();
    until("a replica serves the session", LIMIT, || async {
        let answer = select(&mut client.clone(), read(session(token), Level::Session)).await;
        Ok(["r1", "r2"].contains(&named(&answer)))
    })
    .await
    .expect("it heals by itself");
}
