//! Thousands of waits that end at once, or whose callers leave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tidegate_proto::v1::{self, Session};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::stage::{Client, Stage, connect, node_of, session, until_parked, wait};

const ON_ONE_STREAM: u32 = 10_000;
const ON_ONE_CONNECTION: u32 = 1_000;
const LEAVING: u32 = 1_000;
/// Longer than any of these tests takes.
const BUDGET: Duration = Duration::from_secs(30);

/// The client's end of one `Route` stream.
struct Route {
    asks: mpsc::Sender<v1::RouteRequest>,
    answers: Streaming<v1::RouteResponse>,
}

impl Route {
    async fn open(client: &mut Client) -> Self {
        let (asks, frames) = mpsc::channel(64);
        let answers = client.route(ReceiverStream::new(frames)).await.expect("a stream");
        Self { asks, answers: answers.into_inner() }
    }

    async fn ask(&self, correlation: u32, frame: Ask) {
        let correlation = u64::from(correlation);
        let frame = v1::RouteRequest { correlation, frame: Some(frame) };
        self.asks.send(frame).await.expect("the stream is open");
    }

    async fn park(&self, waits: u32, carried: &Session) {
        for correlation in 0..waits {
            self.ask(correlation, Ask::Wait(wait(carried.clone(), BUDGET))).await;
        }
    }

    async fn answer(&mut self) -> (u64, v1::WaitUntilFreshResponse) {
        let answer = self.answers.message().await.expect("the stream holds").expect("and goes on");
        match answer.frame {
            Some(Answer::Wait(waited)) => (answer.correlation, waited),
            Some(Answer::Select(_) | Answer::Record(_) | Answer::Error(_)) | None => {
                panic!("not the answer to a wait: {answer:?}")
            }
        }
    }
}

/// Counts fresh answers by node and reads the row on each node when it is named first.
#[derive(Default)]
struct Woken {
    by_node: BTreeMap<String, u32>,
}

impl Woken {
    async fn take(&mut self, stage: &Stage, waited: &v1::WaitUntilFreshResponse) {
        assert_eq!(waited.outcome(), Ended::Fresh, "{waited:?}");
        let node = node_of(waited.served.as_ref()).to_owned();
        if !self.by_node.contains_key(&node) {
            assert!(stage.shows(&node, 1).await, "{node} was called fresh and lacks the row");
        }
        *self.by_node.entry(node).or_default() += 1;
    }

    fn total(&self) -> u32 {
        self.by_node.values().sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn ten_thousand_waits_on_one_stream_wake_at_once() {
    let stage = Stage::set(2).await;
    let (service, mut client) = stage.serve().await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let mut route = Route::open(&mut client).await;
    let asked_at = stage.clock.now();
    route.park(ON_ONE_STREAM, &carried).await;
    until_parked(&service, ON_ONE_STREAM).await;
    let parked = stage.clock.now().since(asked_at);
    stage.release().await;
    let released_at = stage.clock.now();
    let (mut woken, mut correlations) = (Woken::default(), BTreeSet::new());
    while woken.total() < ON_ONE_STREAM {
        let (correlation, waited) = route.answer().await;
        assert!(correlations.insert(correlation), "no answer is repeated");
        woken.take(&stage, &waited).await;
    }
    let took = stage.clock.now().since(released_at);
    println!("Route: {ON_ONE_STREAM} parked in {parked:?}, woken in {took:?}: {:?}", woken.by_node);
    until_parked(&service, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn a_thousand_unary_waits_on_one_connection_wake_at_once() {
    let stage = Stage::set(2).await;
    let (service, mut client) = stage.serve().await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..ON_ONE_CONNECTION {
        let (mut client, request) = (client.clone(), wait(carried.clone(), BUDGET));
        waits.spawn(async move { client.wait_until_fresh(request).await });
    }
    until_parked(&service, ON_ONE_CONNECTION).await;
    stage.release().await;
    let released_at = stage.clock.now();
    let mut woken = Woken::default();
    while let Some(ended) = waits.join_next().await {
        let waited = ended.expect("no panic").expect("none fails").into_inner();
        woken.take(&stage, &waited).await;
    }
    let took = stage.clock.now().since(released_at);
    println!("unary: {ON_ONE_CONNECTION} woken in {took:?}: {:?}", woken.by_node);
    assert_eq!(woken.total(), ON_ONE_CONNECTION);
    until_parked(&service, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_take_their_waits_with_them() {
    let stage = Stage::set(1).await;
    let (service, mut client) = stage.serve().await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);

    // Half of the waits of a stream are cancelled, then the stream is dropped.
    let mut route = Route::open(&mut client).await;
    route.park(LEAVING, &carried).await;
    until_parked(&service, LEAVING).await;
    for correlation in (0..LEAVING).step_by(2) {
        route.ask(correlation, Ask::Cancel(v1::Cancel {})).await;
    }
    until_parked(&service, LEAVING / 2).await;

    // Half of as many unary ones are dropped.
    let mut connection = connect(&service).await;
    let unary = |client: &Client| {
        let (mut client, request) = (client.clone(), wait(carried.clone(), BUDGET));
        tokio::spawn(async move { client.wait_until_fresh(request).await.map(drop) })
    };
    let calls: Vec<_> = (0..LEAVING).map(|_| unary(&connection)).collect();
    until_parked(&service, LEAVING / 2 + LEAVING).await;
    for call in calls.iter().step_by(2) {
        call.abort();
    }
    until_parked(&service, LEAVING / 2 + LEAVING / 2).await;

    // The rest is woken, those that left excepted.
    stage.release().await;
    for _ in 0..LEAVING / 2 {
        let (correlation, waited) = route.answer().await;
        assert_eq!(correlation % 2, 1, "a cancelled wait is not answered");
        assert_eq!(waited.outcome(), Ended::Fresh, "{waited:?}");
    }
    for call in calls.into_iter().skip(1).step_by(2) {
        call.await.expect("not dropped").expect("woken");
    }
    until_parked(&service, 0).await;

    // A stream that is dropped whole.
    stage.hold().await;
    let carried = session(&stage.write(&mut connection, "", 2).await);
    route.park(LEAVING, &carried).await;
    until_parked(&service, LEAVING).await;
    drop(route);
    until_parked(&service, 0).await;
    stage.release().await;
}
