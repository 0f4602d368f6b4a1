//! A wait never outlives its budget, nor the deadline of its call, however it is asked.

use std::time::Duration;

use tidegate_lab::service::Service;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::select_replica_response::Outcome;
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tidegate_proto::v1::{self, Level, Session};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Streaming};

use super::stage::{Client, Stage, WINDOW, connect, named, read, session, span, wait};

const BUDGETS: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(1000),
];
/// Times a budget may be late while other work is done on this machine.
const TRIES: usize = 5;
/// Calls at once with each budget.
const CALLS: u64 = 20;

/// How a call ended, as far as these tests ask.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    TimedOut,
    Refused,
    Other(String),
}

fn of_wait(answer: &v1::WaitUntilFreshResponse) -> Ending {
    match answer.outcome() {
        Ended::TimedOut => Ending::TimedOut,
        Ended::Unspecified | Ended::Fresh | Ended::Lost | Ended::Unknown | Ended::Gone => {
            Ending::Other(format!("{answer:?}"))
        }
    }
}

fn of_select(answer: &v1::SelectReplicaResponse) -> Ending {
    match answer.outcome {
        Some(Outcome::Refused(_)) => Ending::Refused,
        Some(Outcome::Served(_)) | None => Ending::Other(format!("{answer:?}")),
    }
}

/// A read that waits for its budget and then neither bothers the leader nor takes stale data.
fn patient(carried: &Session, budget: Duration) -> v1::SelectReplicaRequest {
    use v1::above_cap_step::Kind;
    let mut request = read(carried.clone(), Level::Session);
    let policy = request.policy.get_or_insert_default();
    policy.wait_budget = span(budget);
    policy.fallback = Some(false);
    policy.above_cap = vec![v1::AboveCapStep { kind: Kind::Refuse.into(), wait_budget: None }];
    request
}

/// Two standbys that lack a session's write, held.
async fn held() -> (Stage, Service, Client, Session) {
    let stage = Stage::set(2).await;
    let (service, mut client) = stage.serve().await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    (stage, service, client, carried)
}

/// Calls at once, every other one a read; how long all of them took.
async fn unary(stage: &Stage, client: &Client, carried: &Session, budget: Duration) -> Duration {
    let began_at = stage.clock.now();
    let calls = (0..CALLS).map(|number| {
        let (mut client, carried) = (client.clone(), carried.clone());
        async move {
            if number % 2 == 0 {
                let answer = client.wait_until_fresh(wait(carried, budget)).await;
                of_wait(answer.expect("a decision").get_ref())
            } else {
                let answer = client.select_replica(patient(&carried, budget)).await;
                of_select(answer.expect("a decision").get_ref())
            }
        }
    });
    for ending in futures::future::join_all(calls).await {
        assert!(matches!(ending, Ending::TimedOut | Ending::Refused), "{ending:?}");
    }
    stage.clock.now().since(began_at)
}

/// The same on one stream.
async fn streamed(
    stage: &Stage,
    asks: &mpsc::Sender<v1::RouteRequest>,
    answers: &mut Streaming<v1::RouteResponse>,
    carried: &Session,
    budget: Duration,
) -> Duration {
    let began_at = stage.clock.now();
    for correlation in 0..CALLS {
        let frame = match correlation % 2 {
            0 => Ask::Wait(wait(carried.clone(), budget)),
            _ => Ask::Select(patient(carried, budget)),
        };
        let frame = v1::RouteRequest { correlation, frame: Some(frame) };
        asks.send(frame).await.expect("the stream is open");
    }
    for _ in 0..CALLS {
        let answer = answers.message().await.expect("an answer").expect("the stream is open");
        let ending = match answer.frame {
            Some(Answer::Wait(answer)) => of_wait(&answer),
            Some(Answer::Select(answer)) => of_select(&answer),
            Some(frame @ (Answer::Record(_) | Answer::Error(_))) => {
                Ending::Other(format!("{frame:?}"))
            }
            None => Ending::Other("nothing".to_owned()),
        };
        assert!(matches!(ending, Ending::TimedOut | Ending::Refused), "{ending:?}");
    }
    stage.clock.now().since(began_at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn a_wait_ends_with_its_budget() {
    let (stage, service, client, carried) = held().await;
    let (asks, frames) = mpsc::channel(64);
    let mut router = connect(&service).await;
    let answers = router.route(ReceiverStream::new(frames)).await.expect("a stream");
    let mut answers = answers.into_inner();
    for budget in BUDGETS {
        let mut late = Vec::new();
        while late.len() < TRIES {
            stage.stall.forget();
            let unary = unary(&stage, &client, &carried, budget).await;
            let streamed = streamed(&stage, &asks, &mut answers, &carried, budget).await;
            println!("budget {budget:?}: {CALLS} unary in {unary:?}, on Route in {streamed:?}");
            assert!(unary.min(streamed) >= budget, "they did not wait for {budget:?}");
            if unary.max(streamed) <= stage.stall.allow(budget + WINDOW) {
                break;
            }
            // Other work on this machine is no stall; a wait without an end is late every time.
            late.push((unary, streamed));
        }
        assert!(late.len() < TRIES, "{budget:?} is outlived: {late:?}");
    }
    // The wrong way: the same wait without the session's token ends at once, too early.
    let answer = client.clone().wait_until_fresh(wait(Session::default(), BUDGETS[3])).await;
    let answer = answer.expect("a decision").into_inner();
    assert_eq!(answer.outcome(), Ended::Fresh, "without a token nothing is waited for");
    let node = super::stage::node_of(answer.served.as_ref());
    assert!(!stage.shows(node, 1).await, "and the write is missing there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_deadline_is_answered_before_it_passes() {
    const ENOUGH: usize = 5;
    let (_stage, _service, client, carried) = held().await;
    for deadline in [Duration::from_millis(60), Duration::from_millis(300)] {
        let (mut answered, mut missed) = (0, Vec::new());
        while answered < ENOUGH && missed.len() < 4 * TRIES {
            let mut client = client.clone();
            let mut request = Request::new(wait(carried.clone(), Duration::from_secs(5)));
            request.set_timeout(deadline);
            let waited = client.wait_until_fresh(request).await;
            let mut request = Request::new(patient(&carried, Duration::from_secs(5)));
            request.set_timeout(deadline);
            let selected = client.select_replica(request).await;
            let (waited, selected) = match (waited, selected) {
                (Ok(waited), Ok(selected)) => (waited.into_inner(), selected.into_inner()),
                // The service keeps 10 ms of a deadline: this machine may be busy for longer.
                (Err(late), _) | (_, Err(late)) if late.code() == Code::Cancelled => {
                    missed.push(late);
                    continue;
                }
                (Err(failed), _) | (_, Err(failed)) => panic!("not an outcome: {failed:?}"),
            };
            assert_eq!(of_wait(&waited), Ending::TimedOut);
            assert_eq!(of_select(&selected), Ending::Refused, "{}", named(&selected));
            answered += 1;
        }
        assert_eq!(answered, ENOUGH, "{deadline:?} passed before the answer: {missed:?}");
    }
}
