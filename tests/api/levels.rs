//! What each level promises, on servers: rows are read where an answer says they can be.

use std::time::Duration;

use tidegate::config::Config;
use tidegate::server;
use tidegate_core::guards::Guards;
use tidegate_lab::service::ServiceOptions;
use tidegate_proto::v1;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;

use super::stage::{alone, beside, carrying, named, of_subject, select, served};

const ROUNDS: usize = 200;

fn tokenless() -> v1::Session {
    of_subject("")
}

fn met(answer: &v1::SelectReplicaResponse) -> Vec<v1::Guarantee> {
    answer.met().collect()
}

#[test]
fn global_reads_see_what_another_session_wrote_before() {
    alone(async |stage| {
        let mut routing = stage.routing().await;
        let mut on_replicas = 0;
        for round in 0..ROUNDS {
            let (id, _) = stage.write().await;
            let request = select(tokenless(), v1::Level::Global);
            let answer = routing.select_replica(request).await.expect("answered").into_inner();
            let node = named(&answer);
            assert!(stage.shows(&node, id).await, "round {round}: {node} lacks the row");
            assert!(met(&answer).contains(&v1::Guarantee::Global));
            on_replicas += usize::from(node != "l");
        }
        assert!(on_replicas > 0, "every read went to the leader: nothing was shown");

        // The wrong way: without the level, a read goes where the row is not.
        stage
            .paused(&["r1", "r2"], async {
                let (id, _) = stage.write().await;
                let request = select(tokenless(), v1::Level::Eventual);
                let answer = routing.select_replica(request).await.expect("answered").into_inner();
                assert!(!stage.shows(&named(&answer), id).await);
            })
            .await;
    });
}

#[test]
fn bounded_reads_say_how_long_they_hold_and_leave_nodes_that_are_too_old() {
    alone(async |stage| {
        let mut routing = stage.routing().await;
        let bound = Duration::from_millis(1500);
        let request = || {
            let mut request = select(tokenless(), v1::Level::Bounded);
            let span = prost_types::Duration::try_from(bound).expect("a duration");
            request.policy.as_mut().expect("set").bound = Some(span);
            request
        };
        let holds = |answer: &v1::SelectReplicaResponse| {
            assert!(met(answer).contains(&v1::Guarantee::Bounded), "{answer:?}");
            let valid_for = answer.valid_for.expect("time limits it");
            assert!(Duration::try_from(valid_for).expect("positive") <= bound);
        };
        let answer = routing.select_replica(request()).await.expect("answered").into_inner();
        assert_ne!(named(&answer), "l");
        holds(&answer);
        stage
            .paused(&["r1", "r2"], async {
                // Something to lag behind.
                stage.write().await;
                let left = tidegate_lab::wait::until("reads leave", bound * 20, || async {
                    let answer = routing.clone().select_replica(request()).await?.into_inner();
                    holds(&answer);
                    Ok(named(&answer) == "l")
                });
                left.await.expect("nodes older than the bound are left");
            })
            .await;
    });
}

#[test]
fn leader_reads_name_the_leader_and_what_to_check() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let request = select(tokenless(), v1::Level::Leader);
        let answer = routing.select_replica(request).await.expect("answered").into_inner();
        let served = served(&answer);
        let node = served.node.as_ref().expect("named");
        assert_eq!((node.name.as_str(), node.role()), ("l", v1::Role::Leader));
        assert_eq!(node.addresses, [stage.cluster.leader().address().to_string()]);
        assert_eq!(served.leader, Some(v1::LeaderCheck { timeline: 1 }));
        let incarnation = "select tidegate.incarnation()";
        let incarnation: String = stage.cluster.leader().value(incarnation).await.expect("text");
        assert_eq!(served.acceptable_incarnations, [incarnation]);
        assert_eq!(answer.reason(), v1::Reason::LeaderByPolicy);
        assert!(met(&answer).contains(&v1::Guarantee::Leader));
    });
}

#[test]
fn eventual_reads_promise_nothing() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let request = select(tokenless(), v1::Level::Eventual);
        let answer = routing.select_replica(request).await.expect("answered").into_inner();
        assert_eq!((met(&answer), answer.token.as_str()), (vec![], ""));
        assert_eq!(answer.valid_for, None);
    });
}

#[test]
fn a_shadow_says_whether_the_node_was_fresh_and_changes_nothing() {
    alone(async |stage| {
        let mut routing = stage.routing().await;
        stage
            .paused(&["r1"], async {
                let (id, recorded) = stage.written(&mut routing, tokenless()).await;
                stage.server("r2").catch_up_with(stage.cluster.leader()).await.expect("fresh");
                let mut request = select(carrying(&[&recorded.token]), v1::Level::Session);
                request.policy.as_mut().expect("set").fallback = Some(false);
                request.policy.as_mut().expect("set").wait_budget =
                    Some(prost_types::Duration { seconds: 10, nanos: 0 });
                for (shadow, fresh) in [("r1", false), ("r2", true)] {
                    request.shadow_node = shadow.to_owned();
                    let answer = routing.select_replica(request.clone()).await;
                    let answer = answer.expect("answered").into_inner();
                    assert_eq!((named(&answer).as_str(), answer.token.as_str()), ("r2", ""));
                    let said = answer.shadow.expect("asked for");
                    assert_eq!(said.fresh, fresh, "{shadow}: {said:?}");
                    assert_eq!(stage.shows(shadow, id).await, fresh);
                    assert!(said.behind.is_some());
                }
                request.shadow_node = String::new();
                let answer = routing.select_replica(request).await.expect("answered").into_inner();
                assert_eq!(answer.shadow, None);
            })
            .await;
    });
}

#[test]
fn the_previous_node_is_kept_among_equals() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        for previous in ["r1", "r2"] {
            for _ in 0..20 {
                let mut request = select(tokenless(), v1::Level::Eventual);
                request.previous_node = previous.to_owned();
                let answer = routing.select_replica(request).await.expect("answered").into_inner();
                assert_eq!(named(&answer), previous);
            }
        }
        // A node that is gone from the configuration is no error.
        let mut request = select(tokenless(), v1::Level::Eventual);
        request.previous_node = "r9".to_owned();
        routing.select_replica(request).await.expect("an unknown one is ignored");
    });
}

#[test]
fn a_zone_is_preferred_and_the_policy_goes_first() {
    beside(async |stage| {
        let state = tempfile::tempdir().expect("a folder");
        let options = ServiceOptions::of(&stage.cluster).await.expect("the objects stand");
        let mut text = options.toml(state.path()).expect("a configuration");
        for (node, zone) in [("r1", "a"), ("r2", "b")] {
            let name = format!("name = \"{node}\"\n");
            text = text.replace(&name, &format!("{name}zone = \"{zone}\"\n"));
        }
        let config = Config::parse("zones.toml", &text, std::iter::empty()).expect("it is fine");
        let running = server::start(config, Guards::on()).await.expect("it starts");
        let endpoint = format!("http://{}", running.data);
        let mut routing = RoutingServiceClient::connect(endpoint).await.expect("it listens");
        let read = |zone: &str, policy_zone: &str| {
            let mut request = select(tokenless(), v1::Level::Eventual);
            request.zone = zone.to_owned();
            request.policy.as_mut().expect("set").zone = policy_zone.to_owned();
            request
        };
        let ready =
            tidegate_lab::wait::until("nodes are seen", Duration::from_secs(20), || async {
                let answer = routing.clone().select_replica(read("b", "")).await;
                Ok(answer.is_ok_and(|answer| {
                    let outcome = answer.into_inner().outcome;
                    matches!(outcome, Some(v1::select_replica_response::Outcome::Served(served))
                    if served.node.as_ref().is_some_and(|node| node.zone == "b"))
                }))
            });
        ready.await.expect("zone b is preferred");
        for (zone, policy_zone, node) in
            [("a", "", "r1"), ("b", "", "r2"), ("", "a", "r1"), ("b", "a", "r1")]
        {
            for _ in 0..10 {
                let answer = routing.select_replica(read(zone, policy_zone)).await;
                let answer = answer.expect("answered").into_inner();
                assert_eq!(named(&answer), node, "zone {zone:?}, policy zone {policy_zone:?}");
            }
        }
        drop(routing);
        running.shutdown().await.expect("it ends");
    });
}
