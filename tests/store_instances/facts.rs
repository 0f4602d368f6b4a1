//! What instances learn of leaders is kept in the store, for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_lab::postgres::Stop;
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::redis::{Kind, Options, Server};
use tidegate_lab::service::{PARTITION, Service};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::{self, Reason};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::stage::{Instance, Stage, named};

/// Where the facts of the lab's partition are.
const KEY: &str = "tidegate:{0}:lab:f:1";
const SELECTS: usize = 100;

async fn redis() -> Server {
    Server::start(Options::new(Kind::Redis)).await.expect("a Redis starts")
}

/// What the store holds of the partition; empty: nothing.
async fn kept(redis: &Server) -> String {
    let kept: Option<String> = redis.ask(&["GET", KEY]).await.expect("it answers");
    kept.unwrap_or_default()
}

/// Waits until the store holds facts that name this.
async fn until_kept(redis: &Server, part: &str) {
    let what = format!("facts with {part} are in the store");
    let holds = || async { Ok(kept(redis).await.contains(part)) };
    until(&what, LIMIT, holds).await.expect("they are");
}

async fn epoch(instance: &Instance) -> String {
    instance.service.partition().await.expect("it answers").epoch
}

fn carrying(token: &str) -> v1::Session {
    v1::Session { tokens: vec![token.to_owned()], ..v1::Session::default() }
}

/// A read of a session that has time.
async fn select(service: &Service, session: v1::Session) -> v1::SelectReplicaResponse {
    let wait_budget = prost_types::Duration { seconds: 10, nanos: 0 };
    let policy = v1::Policy {
        level: v1::Level::Session.into(),
        wait_budget: Some(wait_budget),
        ..v1::Policy::default()
    };
    let request = v1::SelectReplicaRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        policy: Some(policy),
        ..v1::SelectReplicaRequest::default()
    };
    let client = RoutingServiceClient::connect(service.endpoint()).await;
    let answer = client.expect("it is reached").select_replica(request).await;
    answer.expect("a decision").into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_never_saw_a_leader_judges_its_marks_by_what_others_saw() {
    let (stage, redis) = (Stage::set().await, redis().await);
    let seeing = stage.instance(&redis, "").await;
    let proxy = Proxy::start(stage.cluster.leader().address()).await.expect("a proxy");
    proxy.set(Mode::Cut).await.expect("nobody comes through");
    let options = stage.options(&redis, "").await.poll_through("l", proxy.address());
    let blind = Service::launch(options).await.expect("it starts");
    blind.await_ready().await.expect("it admits calls");

    let before = epoch(&seeing).await;
    stage.hold().await;
    stage.cluster.leader().restart(Stop::Immediate).await.expect("it crashes and is back");
    until("the new life of the leader to be placed", LIMIT, || async {
        let now = epoch(&seeing).await;
        Ok(!now.is_empty() && now != before)
    })
    .await
    .expect("it is");
    until_kept(&redis, &epoch(&seeing).await).await;
    let token = seeing.record(v1::Session::default(), stage.write(1).await).await.token;
    let answer = select(&blind, carrying(&token)).await;
    stage.fresh(&answer, 1).await;
    assert!(answer.notices.is_empty(), "the epoch is known to somebody: {answer:?}");

    stage.release().await;
    until("the blind one to find the replica fresh", LIMIT, || async {
        let answer = select(&blind, carrying(&token)).await;
        stage.fresh(&answer, 1).await;
        Ok(named(&answer) == "r1" && answer.reason() == Reason::Covered)
    })
    .await
    .expect("up to where the leader flushed, others have told it");
    blind.stop().await.expect("it ends");
    seeing.service.stop().await.expect("it ends");
}

/// Counts how often the facts are read from now on.
async fn count_reads(redis: &Server) -> Arc<AtomicUsize> {
    let stream = tokio::net::TcpStream::connect(redis.address()).await.expect("it listens");
    let (from, mut to) = stream.into_split();
    to.write_all(b"MONITOR\r\n").await.expect("it is asked");
    let mut lines = BufReader::new(from).lines();
    assert_eq!(lines.next_line().await.expect("it answers").as_deref(), Some("+OK"));
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    tokio::spawn(async move {
        let _open = to;
        while let Ok(Some(line)) = lines.next_line().await {
            let is_read = line.contains("\"GET\"") && line.contains(KEY) && !line.contains(" lua]");
            counted.fetch_add(usize::from(is_read), Ordering::Relaxed);
        }
    });
    reads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_nobody_knows_is_looked_up_once_for_many_and_nobody_is_stuck() {
    let (stage, redis) = (Stage::set().await, redis().await);
    let instance = Arc::new(stage.instance(&redis, "").await);
    until_kept(&redis, &epoch(&instance).await).await;
    let capture = stage.write(1).await;
    let mut fields: Vec<&str> = capture.split('|').collect();
    // When the server started: a life that nobody saw.
    fields[5] = "1";
    let token = instance.record(v1::Session::default(), fields.join("|")).await.token;
    let reads = count_reads(&redis).await;
    let selects = (0..SELECTS).map(|_| {
        let (instance, token) = (Arc::clone(&instance), token.clone());
        tokio::spawn(async move { select(&instance.service, carrying(&token)).await })
    });
    let answers = futures::future::try_join_all(selects).await.expect("all are answered");
    for answer in &answers {
        stage.fresh(answer, 1).await;
        assert!(!named(answer).is_empty(), "resolved upward: {answer:?}");
        assert_eq!(answer.notices.len(), 1, "and told: {answer:?}");
    }
    let asked = reads.load(Ordering::Relaxed);
    // Besides, the instance reads them every few seconds, and when its own have changed.
    assert!((1..=4).contains(&asked), "{asked} reads for {SELECTS} selects");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_that_are_lost_or_rubbish_are_put_back_and_those_of_a_later_version_left_alone() {
    let (stage, redis) = (Stage::set().await, redis().await);
    redis.tell(&["SET", KEY, "rubbish"]).await.expect("it is set");
    let instance = stage.instance(&redis, "").await;
    let epoch = epoch(&instance).await;
    until_kept(&redis, &epoch).await;
    redis.flush().await.expect("it is empty");
    until_kept(&redis, &epoch).await;

    let later = "{\"version\": 9, \"partition\": 1, \"of\": \"another day\"}";
    redis.tell(&["SET", KEY, later]).await.expect("it is set");
    instance.service.stop().await.expect("it ends");
    // It reads them before it starts.
    let again = stage.instance(&redis, "").await;
    assert_eq!(kept(&redis).await, later);
    again.service.stop().await.expect("it ends");
    assert_eq!(kept(&redis).await, later);
}
