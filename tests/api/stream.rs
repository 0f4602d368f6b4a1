//! The `Route` stream: answers equal those of calls, and what is wrong ends one call alone.

use std::collections::BTreeMap;

use tidegate_lab::service::PARTITION;
use tidegate_proto::v1;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::stage::{Routing, beside, carrying, of_subject, record, select};

/// One open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    asks: mpsc::Sender<v1::RouteRequest>,
    pub(crate) answers: Streaming<v1::RouteResponse>,
    last: u64,
}

impl Stream {
    /// Opens a stream, which must be let in.
    pub(crate) async fn open(routing: &mut Routing) -> Self {
        let (asks, frames) = mpsc::channel(64);
        let answers = routing.route(ReceiverStream::new(frames)).await.expect("it opens");
        Self { asks, answers: answers.into_inner(), last: 0 }
    }

    /// Sends one frame as it is.
    pub(crate) async fn send(&self, correlation: u64, frame: Option<Ask>) {
        let request = v1::RouteRequest { correlation, frame };
        self.asks.send(request).await.expect("the stream stands");
    }

    /// The next answer.
    pub(crate) async fn next(&mut self) -> (u64, Answer) {
        let answer = self.answers.message().await.expect("an answer").expect("the stream stands");
        (answer.correlation, answer.frame.expect("an answer has a frame"))
    }

    /// Asks one call and awaits its answer, which must be the next.
    pub(crate) async fn asked(&mut self, ask: Ask) -> Answer {
        self.last += 1;
        self.send(self.last, Some(ask)).await;
        let (correlation, answer) = self.next().await;
        assert_eq!(correlation, self.last);
        answer
    }
}

/// A wait for the lab's partition that nothing ends before its budget.
pub(crate) fn wait(
    session: v1::Session,
    node: &str,
    budget_millis: i32,
) -> v1::WaitUntilFreshRequest {
    let (seconds, nanos) = (i64::from(budget_millis / 1000), budget_millis % 1000 * 1_000_000);
    v1::WaitUntilFreshRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        target: Some(v1::wait_until_fresh_request::Target::Node(node.to_owned())),
        budget: Some(prost_types::Duration { seconds, nanos }),
    }
}

fn error_of(answer: Answer) -> (i32, String) {
    let Answer::Error(error) = answer else { panic!("not refused: {answer:?}") };
    (error.code, error.message)
}

#[test]
fn a_stream_answers_as_calls_do() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let mut stream = Stream::open(&mut routing).await;
        let (_, capture) = stage.write().await;

        let request = record(of_subject(""), &capture);
        let Answer::Record(recorded) = stream.asked(Ask::Record(request.clone())).await else {
            panic!("a record is answered by a record");
        };
        let unary = routing.record(request).await.expect("recorded").into_inner();
        assert_eq!(recorded.stored, unary.stored);
        assert_eq!(super::facts::opened(&recorded.token), super::facts::opened(&unary.token));

        let session = carrying(&[&recorded.token]);
        let mut request = select(session.clone(), v1::Level::Leader);
        request.shadow_node = "l".to_owned();
        let Answer::Select(mut selected) = stream.asked(Ask::Select(request.clone())).await else {
            panic!("a select is answered by a select");
        };
        let mut unary = routing.select_replica(request).await.expect("answered").into_inner();
        // What passes with time differs; nothing else may.
        for answer in [&mut selected, &mut unary] {
            answer.shadow.as_mut().expect("asked for").behind = None;
            let Some(v1::select_replica_response::Outcome::Served(served)) = &mut answer.outcome
            else {
                panic!("the leader serves");
            };
            served.waited = None;
        }
        assert_eq!(selected, unary);

        let request = wait(session, "l", 1000);
        let Answer::Wait(waited) = stream.asked(Ask::Wait(request.clone())).await else {
            panic!("a wait is answered by a wait");
        };
        let unary = routing.wait_until_fresh(request).await.expect("answered").into_inner();
        assert_eq!((waited.outcome, waited.reason), (unary.outcome, unary.reason));
        assert_eq!(waited.outcome(), v1::wait_until_fresh_response::Outcome::Fresh);
    });
}

#[test]
fn an_empty_frame_and_a_number_in_use_are_refused_and_the_stream_goes_on() {
    super::stage::alone(async |stage| {
        let mut routing = stage.routing().await;
        let mut stream = Stream::open(&mut routing).await;
        stream.send(7, None).await;
        let (correlation, answer) = stream.next().await;
        let (code, text) = error_of(answer);
        assert_eq!((correlation, code), (7, tonic::Code::InvalidArgument as i32));
        assert!(text.contains("must carry a call"), "{text}");

        stage
            .paused(&["r1"], async {
                let (_, recorded) = stage.written(&mut routing, of_subject("")).await;
                let parked = wait(carrying(&[&recorded.token]), "r1", 20_000);
                stream.send(8, Some(Ask::Wait(parked))).await;
                let read = select(of_subject(""), v1::Level::Eventual);
                stream.send(8, Some(Ask::Select(read.clone()))).await;
                let (correlation, answer) = stream.next().await;
                let (code, text) = error_of(answer);
                assert_eq!((correlation, code), (8, tonic::Code::InvalidArgument as i32));
                assert!(text.contains("number the calls of a stream"), "{text}");

                // A call withdrawn in time is not answered; the next answer is another's.
                stream.send(8, Some(Ask::Cancel(v1::Cancel {}))).await;
                stream.send(9, Some(Ask::Select(read))).await;
                let (correlation, answer) = stream.next().await;
                assert_eq!(correlation, 9);
                assert!(matches!(answer, Answer::Select(_)), "{answer:?}");
            })
            .await;
    });
}

#[test]
fn a_stream_that_is_half_closed_answers_what_is_open_and_ends() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let stream = Stream::open(&mut routing).await;
        for correlation in 1..=20 {
            let read = select(of_subject(""), v1::Level::Global);
            stream.send(correlation, Some(Ask::Select(read))).await;
        }
        let Stream { asks, mut answers, .. } = stream;
        drop(asks);
        let mut answered = BTreeMap::new();
        while let Some(answer) = answers.message().await.expect("no error") {
            *answered.entry(answer.correlation).or_insert(0) += 1;
        }
        let once: BTreeMap<u64, i32> = (1..=20).map(|correlation| (correlation, 1)).collect();
        assert_eq!(answered, once);
    });
}
