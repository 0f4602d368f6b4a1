//! Two instances share one fallback cap: what they send to the leader together in any second, also
//! while their Redis is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::clock::{Clock, Instant};
use tidegate_lab::metrics::gauge;
use tidegate_lab::redis::{Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::token_store::Condition;
use tidegate_proto::v1::{self, Reason};
use tonic::transport::Channel;

use super::stage::{ALICE, Instance, Stage, carrying, named, subject};

/// Reads per second that both may send to the leader, and the promise in any second.
const CAP: usize = 100;
const MOST: usize = 110;
const LEAST: usize = 80;
/// Callers of each instance, and how long each pauses between two reads.
const CALLERS: usize = 10;
const PAUSE: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// A read that was sent to the leader, from before it was asked until it was answered.
type Fallback = (Instant, Instant);

/// Reads that find no standby, until told to stop; those that went to the leader, and how many did
/// not.
async fn flood(
    mut client: RoutingServiceClient<Channel>,
    session: v1::Session,
    stop: Arc<AtomicBool>,
) -> (Vec<Fallback>, usize) {
    let clock = Clock::new();
    let kind = v1::above_cap_step::Kind::Refuse.into();
    let refuse = v1::AboveCapStep { kind, ..v1::AboveCapStep::default() };
    let policy = v1::Policy {
        level: v1::Level::Session.into(),
        wait_budget: Some(prost_types::Duration::default()),
        above_cap: vec![refuse],
        ..v1::Policy::default()
    };
    let (mut fallbacks, mut refused) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let request = v1::SelectReplicaRequest {
            session: Some(session.clone()),
            partition: tidegate_lab::service::PARTITION.to_owned(),
            policy: Some(policy.clone()),
            ..v1::SelectReplicaRequest::default()
        };
        let sent_at = clock.now();
        let answer = client.select_replica(request).await.expect("a decision").into_inner();
        match (named(&answer), answer.reason()) {
            ("l", Reason::LeaderFallback) => fallbacks.push((sent_at, clock.now())),
            ("", Reason::CapExhausted) => refused += 1,
            _ => panic!("it is behind on the standby: {answer:?}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    (fallbacks, refused)
}

/// The most fallbacks that lie within one second, whenever each was admitted.
fn busiest(fallbacks: &[Fallback]) -> usize {
    let mut most = 0;
    for (begins, _) in fallbacks {
        let ends = *begins + SECOND;
        let within = fallbacks.iter().filter(|(sent, came)| sent >= begins && *came < ends);
        most = most.max(within.count());
    }
    most
}

/// How many were answered per second between two instants.
fn rate(fallbacks: &[Fallback], (since, until): (Instant, Instant)) -> usize {
    let between = |(_, came): &&Fallback| *came >= since && *came < until;
    let count = u128::try_from(fallbacks.iter().filter(between).count()).unwrap_or(0);
    usize::try_from(count * SECOND.as_nanos() / until.since(since).as_nanos()).unwrap_or(0)
}

/// Waits until both instances together have most of the cap, from their store or without it.
async fn until_shared(pair: [&Instance; 2], is_static: u64) -> Vec<u64> {
    let show = async |instance: &Instance, name: &str| {
        gauge(instance.service.admin_address(), name, &[]).await
    };
    until("the cap is shared", LIMIT, || async {
        let mut sum = 0;
        for instance in pair {
            if show(instance, "fallback_share_static").await? != is_static {
                return Ok(false);
            }
            sum += show(instance, "fallback_share_reads_per_second").await?;
        }
        Ok(sum >= 90)
    })
    .await
    .expect("it is");
    let mut shares = Vec::new();
    for instance in pair {
        shares.push(show(instance, "fallback_share_reads_per_second").await.expect("a share"));
    }
    shares
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_stay_below_one_cap_in_every_second_and_use_it_with_and_without_a_redis() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    let mut pair = Vec::new();
    for _ in 0..2 {
        let options = stage.options(&redis, "").await;
        let options = options.limit("fallback_reads", &CAP.to_string());
        pair.push(Instance::start(options.limit("fallback_instances", "2")).await);
    }
    let [a, b] = [&pair[0], &pair[1]];
    for instance in [a, b] {
        instance.until_store(Condition::Well).await;
    }
    stage.hold().await;
    let token = a.record(subject(ALICE), stage.write(1).await).await.token;
    let stop = Arc::new(AtomicBool::new(false));
    let flooding = pair.iter().flat_map(|instance| (0..CALLERS).map(move |_| instance.routing()));
    let flooding = flooding.map(|client| flood(client, carrying(&token), Arc::clone(&stop)));
    let flooding: Vec<_> = flooding.map(tokio::spawn).collect();

    let clock = Clock::new();
    let shared = async |is_static| {
        let shares = until_shared([a, b], is_static).await;
        let since = clock.now();
        clock.sleep_until(since + SECOND * 3).await;
        (shares, (since, clock.now()))
    };
    let before = shared(0).await;
    redis.kill().await.expect("it ends");
    let without = shared(1).await;
    redis.start_again().await.expect("it starts");
    let after = shared(0).await;
    stop.store(true, Ordering::Relaxed);
    let (mut fallbacks, mut refused) = (Vec::new(), 0);
    for ended in flooding {
        let (own, others) = ended.await.expect("no panic");
        fallbacks.extend(own);
        refused += others;
    }
    stage.release().await;
    fallbacks.sort_unstable();

    let asked = fallbacks.len() + refused;
    let most = busiest(&fallbacks);
    say(&format!("{} of {asked} reads went to the leader, {most} in one second", fallbacks.len()));
    assert!(most <= MOST, "{most} fallbacks in one second, the cap is {CAP}");
    for (when, (shares, span)) in [("before", before), ("without", without), ("after", after)] {
        let used = rate(&fallbacks, span);
        say(&format!("{when}: shares {shares:?}, {used} a second"));
        assert!(
            used >= LEAST,
            "{when}: {used} fallbacks a second of {CAP}, {asked} were asked for"
        );
    }
}

#[expect(clippy::print_stdout, reason = "figures are what a run is read for")]
fn say(text: &str) {
    println!("{text}");
}
