//! A service that restarts has forgotten its sessions, and so believes nobody who has none.

use tidegate_core::guards::Guards;
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::Service;
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tidegate_proto::v1::{Guarantee, Level};

use super::stage::{Stage, connect, named, node_of, read, select, subject, until_tried, wait};

const READS: usize = 50;

/// Two standbys that lack a write of `ann`, whose service has forgotten her since.
///
/// With `leader_seen` off the service does not reach the leader any more either.
async fn forgotten(guards: Guards, leader_seen: bool) -> (Stage, Service, Proxy) {
    let stage = Stage::set(2).await;
    let proxy = Proxy::start(stage.cluster.leader().address()).await.expect("a proxy");
    let options = stage.options().await.guards(guards).poll_through("l", proxy.address());
    let mut service = Service::start(options).await.expect("a service starts");
    let mut client = connect(&service).await;
    stage.hold().await;
    stage.write(&mut client, "ann", 1).await;
    let others = select(&mut client, read(subject("bob"), Level::Session)).await;
    assert!(!stage.shows(named(&others), 1).await, "whoever did not write may miss it");
    if !leader_seen {
        proxy.set(Mode::Cut).await.expect("the leader is cut off");
    }
    service.restart_unawaited().await.expect("it starts again");
    until_tried(&service).await;
    if leader_seen {
        service.await_leader().await.expect("it sees all again");
    }
    (stage, service, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_from_before_a_restart_is_never_missed() {
    let (stage, service, _proxy) = forgotten(Guards::on(), true).await;
    let mut client = connect(&service).await;
    for _ in 0..READS {
        let answer = select(&mut client, read(subject("ann"), Level::Session)).await;
        let node = named(&answer);
        assert!(node.is_empty() || stage.shows(node, 1).await, "missed on {node}: {answer:?}");
        assert!(node != "r1" && node != "r2", "what lacks the write was named: {answer:?}");
    }
    let request = wait(subject("ann"), std::time::Duration::from_millis(50));
    let waited = client.wait_until_fresh(request).await.expect("a decision").into_inner();
    assert_eq!(waited.outcome(), Ended::TimedOut, "{waited:?}");
    stage.release().await;
    let request = wait(subject("ann"), std::time::Duration::from_secs(10));
    let waited = client.wait_until_fresh(request).await.expect("a decision").into_inner();
    assert_eq!(waited.outcome(), Ended::Fresh, "{waited:?}");
    assert!(stage.shows(node_of(waited.served.as_ref()), 1).await, "{waited:?}");
}

/// Rows missing in reads of `ann` after a restart that does not reach the leader.
async fn missed_without_leader(guards: Guards) -> usize {
    let (stage, service, _proxy) = forgotten(guards, false).await;
    let mut client = connect(&service).await;
    let mut missed = 0;
    for _ in 0..READS {
        let answer = select(&mut client, read(subject("ann"), Level::Session)).await;
        let node = named(&answer);
        missed += usize::from(!node.is_empty() && !stage.shows(node, 1).await);
        let unflagged = answer.met().any(|met| met == Guarantee::ReadYourWrites);
        assert!(node.is_empty() || !unflagged, "nothing can be promised now: {answer:?}");
    }
    stage.release().await;
    missed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_a_leader_serves_nobody_it_may_have_forgotten() {
    assert_eq!(missed_without_leader(Guards::on()).await, 0);
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("barrier").expect("a guard of that name");
        // Who sees no leader cannot see other instances either, and believes no record for that.
        let off = off.and_without("foreign_instance").expect("a guard of that name");
        let missed = missed_without_leader(off).await;
        assert_eq!(missed, READS, "without the guard the write is missed");
    }
}
