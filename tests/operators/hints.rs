//! Hints: what is wrong changes nothing, nobody is held up, and watchers are bounded.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_lab::stall::Stall;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::watch_events_response::Event;
use tonic::Code;
use tonic::transport::Endpoint;

use super::stage::{Stage, Watcher, run};

const GOOD: [&str; 6] = ["failover-notify", "--patroni", "--", "on_start", "replica", "demo"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_with_wrong_arguments_changes_nothing_and_says_what_is_expected() {
    let stage = Stage::set().await;
    let mut watcher = stage.watch().await;
    let time = "2026-11-30 12:00:00+00";
    for args in [
        &["--patroni", "--"][..],
        &["--patroni", "--", "on_role_change", "leader", "demo"],
        &["--patroni", "--", "primary", "on_role_change", "demo"],
        &["--repmgr", "--", "standby_promote", "1", time],
        &["--repmgr", "--", "%n", "%e", "%s", "%t", "%d"],
        &["--orchestrator"],
        &["--orchestrator", "--", "{failureType}", "shop", "a", "b"],
    ] {
        let ran = stage.runs(&[&["failover-notify"], args].concat()).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains("expected: ") && ran.err.contains("nothing was announced"));
    }
    // Names that are not there, well said.
    for (flags, what) in [
        (&["--partition", "orders"][..], "this instance serves main"),
        (&["--partition", "main", "--node", "r9"], "it has l, r1, r2"),
    ] {
        let said = ["failover-notify", "--patroni"];
        let said = [&said[..], flags, &["--", "on_start", "primary", "demo"]].concat();
        let ran = stage.runs(&said).await;
        assert_eq!(ran.code, 2, "{said:?}: {ran:?}");
        assert!(ran.err.contains(what), "{ran:?}");
    }
    let nothing = ["failover-notify", "--patroni", "--", "on_reload", "primary", "demo"];
    assert!(stage.shows(&nothing).await.starts_with("nothing to poll for"));
    for (args, source) in [
        (&GOOD[1..], "patroni on_start replica demo"),
        (
            &["--repmgr", "--", "2", "standby_promote", "1", time, ""],
            "repmgr node 2 standby_promote done 2026-11-30 12:00:00+00",
        ),
        (
            &["--orchestrator", "--", "DeadMaster", "shop", "a", "{successorHost}"],
            "orchestrator DeadMaster of shop from a",
        ),
    ] {
        let said = stage.shows(&[&["failover-notify"], args].concat()).await;
        assert!(said.starts_with("main: l leads in epoch "), "{said}");
        // The first thing that happened since: nothing wrong was announced before it.
        let next = watcher.next().await;
        let Event::FailoverAnnounced(next) = &next else { panic!("{next:?}") };
        assert_eq!(next.source, source);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_not_the_admin_one_is_named_as_such() {
    let stage = Stage::set().await;
    let data = stage.service.endpoint();
    let postgres = format!("http://127.0.0.1:{}", stage.l().port());
    for url in [&data, &postgres] {
        for args in [&["epochs"][..], &["events"], &["events", "--follow"], &GOOD] {
            let ran = run(url, args).await;
            assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{url} {args:?}: {ran:?}");
            assert!(ran.err.contains("is not the admin listener of tidegate"), "{ran:?}");
            assert!(ran.err.contains(url) && ran.err.contains("port 7401"), "{ran:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_listener_that_does_not_answer_holds_no_failover_up() {
    let (clock, stall) = (Clock::new(), Stall::watch().expect("a thread"));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = format!("http://{}", closed.local_addr().expect("an address"));
    // Connections are taken by the kernel, and nobody ever answers on them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mute = format!("http://{}", silent.local_addr().expect("an address"));
    drop(closed);
    for (url, what) in [(&nobody, "cannot be reached"), (&mute, "no answer from")] {
        let begun = clock.now();
        let ran = run(url, &GOOD).await;
        let (took, limit) = (clock.now().since(begun), stall.allow(Duration::from_secs(3)));
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains(what) && ran.err.contains(url), "{ran:?}");
        assert!(took <= limit, "{took:?} of {limit:?}");
    }
    let follow = run(&mute, &["events", "--follow"]).await;
    assert_eq!((follow.code, follow.out.as_str()), (1, ""), "{follow:?}");
    assert!(follow.err.contains("no answer from"), "{follow:?}");
    for url in ["nonsense", "http://127.0.0.1", "ftp://127.0.0.1:1"] {
        let ran = run(url, &GOOD).await;
        assert_eq!(ran.code, 2, "{url}: {ran:?}");
        assert!(ran.err.contains("write http://HOST:PORT"), "{ran:?}");
    }
}

/// A watcher on a connection that holds little of what is not read.
async fn narrow(stage: &Stage) -> Watcher {
    let endpoint = Endpoint::from_shared(stage.service.admin_endpoint()).expect("a URL");
    let endpoint =
        endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let channel = endpoint.connect().await.expect("it listens");
    let request = v1::WatchEventsRequest { partition: PARTITION.to_owned() };
    let events = AdminServiceClient::new(channel).watch_events(request).await.expect("a stream");
    Watcher { events: events.into_inner() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_watcher_is_told_what_it_missed_and_each_that_the_instance_ends() {
    let cluster = Cluster::start(ClusterOptions::new(Major::V15)).await.expect("a server");
    let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
    let service = Service::start(options).await.expect("a service starts");
    let stage = Stage { cluster, service };
    let mut slow = narrow(&stage).await;
    let admin = stage.admin().await;
    for _ in 0..30 {
        let said = (0..50).map(|_| {
            let mut admin = admin.clone();
            let request = v1::AnnounceFailoverRequest {
                partition: PARTITION.to_owned(),
                // Four bytes each.
                source: "🛟".repeat(256),
                ..v1::AnnounceFailoverRequest::default()
            };
            async move { admin.announce_failover(request).await }
        });
        futures::future::try_join_all(said).await.expect("announced");
    }
    let seen = slow.up_to(|event| matches!(event, Event::Missed(_))).await;
    let Some(Event::Missed(missed)) = seen.last() else { panic!("{seen:?}") };
    assert!(missed.event_count > 0 && missed.event_count < 1_500, "{missed:?}");
    assert!(matches!(slow.next().await, Event::Current(_)), "the state of now comes again");

    let (service, mut events) = (stage.service, slow.events);
    let ended = async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    };
    let (stopped, ended) = tokio::join!(service.stop(), ended);
    stopped.expect("it ends");
    let why = ended.expect_err("it is told why");
    assert_eq!(why.code(), Code::Unavailable, "{why:?}");
    assert!(why.message().contains("shutting down"), "{why:?}");
}
