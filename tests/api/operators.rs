//! `AdminService`: what an operator sees, and what draining a node does to reads and waits.

use std::time::Duration;

use tidegate_lab::metrics::gauge;
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::wait_until_fresh_response::Outcome;

use super::bad_input::{reason_of, says_when_to_retry};
use super::stage::{Stage, alone, beside, carrying, named, of_subject, select};
use super::stream::wait;

#[test]
fn partitions_show_their_nodes_and_who_leads() {
    // Others start services of their own before the same servers, which is an alarm.
    alone(async |stage| {
        until("no other service is there any more", LIMIT, || async {
            Ok(stage.service.partition().await?.alarms.is_empty())
        })
        .await
        .expect("a service that is well has no alarms");
        let request = v1::ListPartitionsRequest { partition: String::new() };
        let answer = stage.admin().await.list_partitions(request).await.expect("listed");
        let partitions = answer.into_inner().partitions;
        let [partition] = partitions.as_slice() else { panic!("{partitions:?}") };
        assert_eq!((partition.name.as_str(), partition.id), (PARTITION, 1));
        assert_eq!(partition.state(), v1::partition::State::Led);
        assert_eq!(partition.leader_node, "l");
        assert!(partition.alarms.is_empty(), "{:?}", partition.alarms);
        let system = "select system_identifier::text from pg_control_system()";
        let system: String = stage.cluster.leader().value(system).await.expect("text");
        assert_eq!(partition.system_id, system);
        let names: Vec<&str> = partition.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["l", "r1", "r2"]);
        for node in &partition.nodes {
            let life = stage.server(&node.name).value::<String>("select tidegate.incarnation()");
            assert_eq!(node.incarnation, life.await.expect("text"));
            assert!(node.session_eligible && node.ineligible_reasons.is_empty(), "{node:?}");
            assert_eq!((node.poll_error.as_str(), node.drained), ("", false));
            assert!(!node.applied.is_empty() && !node.row_epoch.is_empty());
            let leads = node.role() == v1::Role::Leader;
            assert_eq!(leads, node.name == "l");
        }
    });
}

#[test]
fn epochs_show_the_one_life_there_was() {
    beside(async |stage| {
        let request = v1::ListEpochsRequest { partition: PARTITION.to_owned(), limit_count: 0 };
        let answer = stage.admin().await.list_epochs(request).await.expect("listed");
        let epochs = answer.into_inner().epochs;
        let [epoch] = epochs.as_slice() else { panic!("{epochs:?}") };
        assert_eq!((epoch.node.as_str(), epoch.parent.as_str()), ("l", ""));
        assert!(epoch.row_seen && epoch.on_chain && !epoch.ended, "{epoch:?}");
        let partition = stage.service.partition().await.expect("listed");
        assert_eq!(epoch.epoch, partition.epoch);
        assert!(!epoch.flush_seen.is_empty());
    });
}

async fn drain(stage: &Stage, node: &str, undrain: bool) -> v1::NodeState {
    let (partition, node) = (PARTITION.to_owned(), node.to_owned());
    let request = v1::DrainNodeRequest { partition, node, undrain };
    let answer = stage.admin().await.drain_node(request).await.expect("it can be drained");
    answer.into_inner().node.expect("the node")
}

#[test]
fn a_drained_node_is_never_named_and_its_waits_end() {
    alone(async |stage| {
        let mut routing = stage.routing().await;
        stage
            .paused(&["r1"], async {
                let (_, recorded) = stage.written(&mut routing, of_subject("")).await;
                let request = wait(carrying(&[&recorded.token]), "r1", 25_000);
                let mut waiting = stage.routing().await;
                let parked = waiting.wait_until_fresh(request.clone());
                let drained = async {
                    // Parked before it is drained: else it would never have been there.
                    let admin = stage.service.admin_address();
                    until("the wait is parked", LIMIT, || async {
                        Ok(gauge(admin, "parked_waits", &[]).await? > 0)
                    })
                    .await
                    .expect("it parks");
                    drain(stage, "r1", false).await
                };
                let (ended, state) = tokio::join!(parked, drained);
                assert!(state.drained && !state.session_eligible, "{state:?}");
                assert!(state.ineligible_reasons.iter().any(|why| why.contains("drained")));
                let ended = ended.expect("an outcome").into_inner();
                assert_eq!(ended.outcome(), Outcome::Gone);
                let again = routing.wait_until_fresh(request).await.expect("an outcome");
                assert_eq!(again.into_inner().outcome(), Outcome::Gone);
            })
            .await;
        for level in [v1::Level::Eventual, v1::Level::Session, v1::Level::Global] {
            for _ in 0..50 {
                let request = select(of_subject(""), level);
                let answer = routing.select_replica(request).await.expect("answered").into_inner();
                assert_ne!(named(&answer), "r1", "{level:?}");
            }
        }
        let state = drain(stage, "r1", true).await;
        assert!(!state.drained, "{state:?}");
        until("r1 is named again", Duration::from_secs(20), || async {
            let request = select(of_subject(""), v1::Level::Eventual);
            let answer = routing.clone().select_replica(request).await?.into_inner();
            Ok(named(&answer) == "r1")
        })
        .await
        .expect("it serves again");
    });
}

#[test]
fn resuming_a_node_that_is_not_in_quarantine_changes_nothing() {
    beside(async |stage| {
        let request = v1::ResumeNodeRequest { partition: PARTITION.into(), node: "r2".into() };
        for _ in 0..2 {
            let answer = stage.admin().await.resume_node(request.clone()).await.expect("resumed");
            let node = answer.into_inner().node.expect("the node");
            assert_eq!((node.name.as_str(), node.quarantine_reason.as_str()), ("r2", ""));
            assert!(node.session_eligible);
        }
    });
}

#[test]
fn a_hint_is_answered_after_every_node_was_polled() {
    beside(async |stage| {
        for partition in ["", PARTITION] {
            let request = v1::AnnounceFailoverRequest {
                partition: partition.to_owned(),
                source: "a test".to_owned(),
                ..v1::AnnounceFailoverRequest::default()
            };
            let answer = stage.admin().await.announce_failover(request).await.expect("announced");
            let hurried = answer.into_inner().hurried;
            let [hurried] = hurried.as_slice() else { panic!("{hurried:?}") };
            assert_eq!(hurried.answered_nodes, ["l", "r1", "r2"]);
            assert!(hurried.unanswered_nodes.is_empty());
            let partition = hurried.partition.as_ref().expect("its state");
            assert_eq!((partition.name.as_str(), partition.leader_node.as_str()), ("main", "l"));
        }
    });
}

#[test]
fn a_standby_is_not_made_the_leader_by_a_word() {
    beside(async |stage| {
        let life = stage.server("r1").value::<String>("select tidegate.incarnation()").await;
        let incarnation = life.expect("text");
        let request = v1::ResolveSplitRequest { partition: PARTITION.into(), incarnation };
        let refused = stage.admin().await.resolve_split(request).await.expect_err("refused");
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        let text = refused.message();
        assert!(text.contains("in recovery: promote it first"), "{text}");
        for node in ["l lives ", "r1 lives ", "r2 lives "] {
            assert!(text.contains(node), "{text}");
        }
        assert_eq!(stage.service.partition().await.expect("listed").leader_node, "l");
    });
}

#[test]
fn a_watcher_sees_the_state_of_now_and_one_too_many_is_refused() {
    alone(async |stage| {
        use v1::watch_events_response::Event;
        let request = v1::WatchEventsRequest { partition: String::new() };
        let mut watchers = Vec::new();
        let refused = loop {
            match stage.admin().await.watch_events(request.clone()).await {
                Ok(events) => watchers.push(events.into_inner()),
                Err(refused) => break refused,
            }
            assert!(watchers.len() <= 64, "watchers have no limit");
        };
        assert_eq!(watchers.len(), 64);
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(reason_of(&refused), "STREAMS_FULL");
        assert!(says_when_to_retry(&refused));
        for watcher in &mut watchers {
            let first = watcher.message().await.expect("open").expect("the state of now");
            let Some(Event::Current(now)) = first.event else { panic!("{first:?}") };
            assert_eq!((first.partition.as_str(), now.leader_node.as_str()), (PARTITION, "l"));
            assert_eq!(now.nodes.len(), 3);
        }
        drop(watchers);
        until("a place is free again", LIMIT, || async {
            Ok(stage.admin().await.watch_events(request.clone()).await.is_ok())
        })
        .await
        .expect("who leaves makes room");
    });
}
