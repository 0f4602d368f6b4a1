//! The stream's mechanics against a server of our own: reconnect, send again, withdraw, give up.
//!
//! It answers what each test says and judges nothing.

use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use tidegate_proto::v1::record_request::Observed as WireObserved;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::routing_service_server::{RoutingService, RoutingServiceServer};
use tidegate_proto::v1::{self, ErrorReason};
use tidegate_proto::{ERROR_DOMAIN, RpcStatus};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

use crate::policy::read_span;
use crate::{
    Client, ClientError, ClientOptions, Policy, Session, SessionOptions, WaitOutcome, WaitTarget,
};

/// Longer than any condition here takes.
const LIMIT: Duration = Duration::from_secs(20);
const CAPTURE: &str = "tge1|capture|...";

struct Accepted {
    asks: Streaming<v1::RouteRequest>,
    out: mpsc::Sender<Result<v1::RouteResponse, Status>>,
}

struct Scripted {
    refusals: Mutex<Vec<Status>>,
    accepted: mpsc::Sender<Accepted>,
}

type Answers<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl RoutingService for Scripted {
    async fn select_replica(
        &self,
        _: Request<v1::SelectReplicaRequest>,
    ) -> Answers<v1::SelectReplicaResponse> {
        Err(Status::unimplemented("only the stream is tested here"))
    }

    async fn wait_until_fresh(
        &self,
        _: Request<v1::WaitUntilFreshRequest>,
    ) -> Answers<v1::WaitUntilFreshResponse> {
        Err(Status::unimplemented("only the stream is tested here"))
    }

    async fn record(&self, _: Request<v1::RecordRequest>) -> Answers<v1::RecordResponse> {
        Err(Status::unimplemented("only the stream is tested here"))
    }

    async fn resolve_session(
        &self,
        request: Request<v1::ResolveSessionRequest>,
    ) -> Answers<v1::ResolveSessionResponse> {
        let tokens = request.into_inner().session.unwrap_or_default().tokens;
        let mut answer =
            v1::ResolveSessionResponse { token: tokens.join("+"), ..Default::default() };
        answer.set_state(v1::resolve_session_response::State::Known);
        Ok(Response::new(answer))
    }

    async fn acknowledge_notices(
        &self,
        _: Request<v1::AcknowledgeNoticesRequest>,
    ) -> Answers<v1::AcknowledgeNoticesResponse> {
        Ok(Response::new(v1::AcknowledgeNoticesResponse { token: "acknowledged".to_owned() }))
    }

    type RouteStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::RouteResponse, Status>> + Send>>;

    async fn route(
        &self,
        request: Request<Streaming<v1::RouteRequest>>,
    ) -> Answers<Self::RouteStream> {
        if let Some(status) = self.refusals.lock().expect("no test panics here").pop() {
            return Err(status);
        }
        let (out, answers) = mpsc::channel(64);
        let accepted = Accepted { asks: request.into_inner(), out };
        self.accepted.send(accepted).await.map_err(|_| Status::aborted("the test is over"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

struct Server {
    endpoint: String,
    accepted: mpsc::Receiver<Accepted>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(mut refusals: Vec<Status>) -> Self {
        refusals.reverse();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (send, accepted) = mpsc::channel(16);
        let scripted = Scripted { refusals: Mutex::new(refusals), accepted: send };
        let task = tokio::spawn(async move {
            let router = tonic::transport::Server::builder()
                .add_service(RoutingServiceServer::new(scripted));
            let served = router.serve_with_incoming(TcpListenerStream::new(listener)).await;
            served.expect("the listener lives");
        });
        Self { endpoint, accepted, task }
    }

    fn options(&self) -> ClientOptions {
        ClientOptions::new(self.endpoint.clone())
            .backoff(Duration::from_millis(1), Duration::from_millis(20))
    }

    fn session(&self, options: ClientOptions) -> Session {
        let client = Client::lazy(options).expect("an endpoint");
        client.session(SessionOptions::new("main").token("t0"))
    }

    async fn stream(&mut self) -> Accepted {
        let accepted = tokio::time::timeout(LIMIT, self.accepted.recv()).await;
        accepted.expect("a stream is opened").expect("the server runs")
    }
}

impl Accepted {
    async fn ask(&mut self) -> (u64, Ask) {
        let asked = tokio::time::timeout(LIMIT, self.asks.message()).await;
        let request = asked.expect("a frame comes").expect("no error").expect("no end");
        (request.correlation, request.frame.expect("a frame says something"))
    }

    async fn answer(&self, correlation: u64, frame: Answer) {
        let response = v1::RouteResponse { correlation, frame: Some(frame) };
        self.out.send(Ok(response)).await.expect("the client listens");
    }

    /// Answers the next select with `token`; returns what it carried.
    async fn answer_select(&mut self, token: &str) -> v1::SelectReplicaRequest {
        let (correlation, ask) = self.ask().await;
        let Ask::Select(request) = ask else { panic!("not a select: {ask:?}") };
        self.answer(correlation, refused(token)).await;
        request
    }
}

fn refused(token: &str) -> Answer {
    use v1::select_replica_response::Outcome;
    let outcome = Some(Outcome::Refused(v1::Refused::default()));
    let token = token.to_owned();
    Answer::Select(v1::SelectReplicaResponse { outcome, token, ..Default::default() })
}

fn details(reason: &str, retry: Option<Duration>) -> ErrorDetails {
    let metadata = [("limit".to_owned(), "1".to_owned())];
    let mut details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata);
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    details
}

fn frame(code: Code, reason: &str, retry: Option<Duration>) -> Answer {
    use prost::Message;
    let status = Status::with_error_details(code, "no", details(reason, retry));
    Answer::Error(RpcStatus::decode(status.details()).expect("it was just encoded"))
}

async fn ends<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("it ends")
}

#[tokio::test]
async fn a_call_whose_stream_broke_is_sent_again_with_what_is_left_of_its_budget() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options());
    let call =
        tokio::spawn(async move { session.wait(WaitTarget::Any, Duration::from_secs(600)).await });
    let mut first = server.stream().await;
    let (_, Ask::Wait(sent)) = first.ask().await else { panic!("not a wait") };
    drop(first);
    let mut second = server.stream().await;
    let (correlation, Ask::Wait(again)) = second.ask().await else { panic!("not a wait") };
    assert_eq!((&again.session, &again.target), (&sent.session, &sent.target));
    let (sent, again) = (read_span(sent.budget), read_span(again.budget));
    assert!(again < sent && again > Some(Duration::from_secs(500)), "{sent:?} {again:?}");
    let mut answer = v1::WaitUntilFreshResponse::default();
    answer.set_outcome(v1::wait_until_fresh_response::Outcome::TimedOut);
    second.answer(correlation, Answer::Wait(answer)).await;
    let waited = ends(call).await.expect("no panic").expect("an answer");
    assert_eq!(waited.outcome, WaitOutcome::TimedOut);
}

#[tokio::test]
async fn a_dropped_call_is_withdrawn_and_the_stream_goes_on() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options());
    let waiting = session.clone();
    let call =
        tokio::spawn(async move { waiting.wait(WaitTarget::All, Duration::from_secs(600)).await });
    let mut stream = server.stream().await;
    let (waited, _) = stream.ask().await;
    call.abort();
    let (withdrawn, ask) = stream.ask().await;
    assert_eq!((withdrawn, ask), (waited, Ask::Cancel(v1::Cancel {})));
    let policy = Policy::default();
    let (answered, _) = tokio::join!(ends(session.select(&policy)), stream.answer_select(""));
    answered.expect("an answer");
}

#[tokio::test]
async fn answers_in_any_order_reach_who_asked() {
    let mut server = Server::start(Vec::new()).await;
    let client = Client::lazy(server.options()).expect("an endpoint");
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let session = client.session(SessionOptions::new("main").subject(number.to_string()));
            tokio::spawn(async move {
                session.select(&Policy::default()).await.expect("an answer");
                session.tokens()
            })
        })
        .collect();
    let mut stream = server.stream().await;
    let mut asked = Vec::new();
    while asked.len() < calls.len() {
        let (correlation, Ask::Select(request)) = stream.ask().await else { panic!("a select") };
        asked.push((correlation, request.session.unwrap_or_default().subject));
    }
    for (correlation, subject) in asked.into_iter().rev() {
        stream.answer(correlation, refused(&subject)).await;
    }
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(ends(call).await.expect("no panic"), [number.to_string()]);
    }
}

#[tokio::test]
async fn an_error_frame_keeps_its_reason_and_when_to_try_again() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options());
    let policy = Policy::default();
    let call = session.select(&policy);
    let answering = async {
        let mut stream = server.stream().await;
        let (correlation, _) = stream.ask().await;
        let retry = Some(Duration::from_millis(70));
        stream.answer(correlation, frame(Code::ResourceExhausted, "WAITS_FULL", retry)).await;
        stream
    };
    let (failed, _stream) = tokio::join!(ends(call), answering);
    let error = failed.expect_err("an error frame");
    assert_eq!(error.reason(), Some(ErrorReason::WaitsFull));
    assert_eq!(error.retry_after(), Some(Duration::from_millis(70)));
    assert_eq!(session.tokens(), ["t0"]);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_tried_twice_and_said_to_be_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let options = ClientOptions::new(endpoint.clone());
    let session = Client::lazy(options).expect("an endpoint").session(SessionOptions::new("main"));
    let error = ends(session.select(&Policy::default())).await.expect_err("nobody is there");
    let ClientError::Unreachable { endpoint: told, attempts: 2, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*told, endpoint);
    let connected = ends(Client::connect(ClientOptions::new(endpoint))).await;
    assert!(matches!(connected, Err(ClientError::Unreachable { .. })), "{connected:?}");
}

#[tokio::test]
async fn an_instance_that_just_starts_is_tried_again_and_one_that_forbids_is_not() {
    let retry = Some(Duration::from_millis(2));
    let starting = Status::with_error_details(Code::Unavailable, "", details("NOT_READY", retry));
    let forbidding =
        Status::with_error_details(Code::PermissionDenied, "", details("FORBIDDEN", None));
    let mut server = Server::start(vec![starting, forbidding]).await;
    let session = server.session(server.options());
    let error = ends(session.select(&Policy::default())).await.expect_err("it is forbidden");
    assert_eq!(error.reason(), Some(ErrorReason::Forbidden));
    let policy = Policy::default();
    let answering = async { server.stream().await.answer_select("t1").await };
    let (answered, _) = tokio::join!(ends(session.select(&policy)), answering);
    answered.expect("an answer");
    assert_eq!(session.tokens(), ["t1"]);
}

#[tokio::test]
async fn a_stream_that_went_silent_is_left_by_the_first_overdue_call() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options().call_grace(Duration::from_millis(20)));
    let policy = Policy::default().wait_budget(Duration::ZERO);
    let overdue = ends(session.wait(WaitTarget::Any, Duration::ZERO)).await;
    assert!(matches!(overdue, Err(ClientError::DeadlineExceeded { .. })), "{overdue:?}");
    let mut silent = server.stream().await;
    silent.ask().await;
    let slow = tokio::spawn(async move { session.select(&policy).await });
    let mut stream = server.stream().await;
    stream.answer_select("").await;
    drop((ends(slow).await, silent));
}

#[tokio::test]
async fn calls_beyond_the_bound_wait_for_a_place_and_then_say_so() {
    let mut server = Server::start(Vec::new()).await;
    let options = server.options().calls_max(1).call_grace(Duration::from_millis(30));
    let session = server.session(options);
    let waiting = session.clone();
    let parked =
        tokio::spawn(async move { waiting.wait(WaitTarget::Any, Duration::from_secs(600)).await });
    let mut stream = server.stream().await;
    stream.ask().await;
    let busy = ends(session.select(&Policy::default().wait_budget(Duration::ZERO))).await;
    assert_eq!(busy, Err(ClientError::Busy { limit: 1 }));
    parked.abort();
    assert_eq!(stream.ask().await.1, Ask::Cancel(v1::Cancel {}));
}

#[tokio::test]
async fn a_call_that_breaks_every_stream_is_given_up() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options());
    let call = tokio::spawn(async move { session.select(&Policy::default()).await });
    for _ in 0..4 {
        server.stream().await.ask().await;
    }
    let error = ends(call).await.expect("no panic").expect_err("it is given up");
    assert!(matches!(error, ClientError::Unreachable { attempts: 4, .. }), "{error:?}");
}

#[tokio::test]
async fn with_the_last_session_the_stream_and_its_task_end() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options());
    let policy = Policy::default();
    let (answered, mut stream) = tokio::join!(ends(session.select(&policy)), async {
        let mut stream = server.stream().await;
        stream.answer_select("").await;
        stream
    });
    answered.expect("an answer");
    drop(session);
    let end = ends(stream.asks.message()).await;
    assert!(matches!(end, Ok(None) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn a_capture_that_was_not_taken_goes_with_the_next_call() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options());
    let scene = async {
        let mut stream = server.stream().await;
        let (correlation, Ask::Record(record)) = stream.ask().await else { panic!("a record") };
        assert_eq!(record.observed, Some(WireObserved::Evidence(CAPTURE.to_owned())));
        assert!(record.session.unwrap_or_default().evidence.is_empty());
        stream.answer(correlation, frame(Code::Unavailable, "STORE_UNAVAILABLE", None)).await;
        let select = stream.answer_select("t1").await;
        assert_eq!(select.session.unwrap_or_default().evidence, [CAPTURE]);
        let select = stream.answer_select("").await.session.unwrap_or_default();
        assert_eq!((select.tokens, select.evidence.len()), (vec!["t1".to_owned()], 0));
    };
    let calls = async {
        let error = session.record_capture(CAPTURE).await.expect_err("the store is away");
        assert_eq!(error.reason(), Some(ErrorReason::StoreUnavailable));
        session.select(&Policy::default()).await.expect("an answer");
        session.select(&Policy::default()).await.expect("an answer");
    };
    ends(async { tokio::join!(scene, calls) }).await;
}

#[tokio::test]
async fn a_session_in_doubt_demands_what_the_leader_has_before_it_reads() {
    let mut server = Server::start(Vec::new()).await;
    let session = server.session(server.options());
    drop(session.in_doubt());
    let scene = async {
        let mut stream = server.stream().await;
        let (correlation, Ask::Record(record)) = stream.ask().await else { panic!("a record") };
        assert_eq!(record.observed, Some(WireObserved::LeaderNow(v1::LeaderNow {})));
        let answer = v1::RecordResponse { token: "t1".to_owned(), ..Default::default() };
        stream.answer(correlation, Answer::Record(answer)).await;
        let select = stream.answer_select("").await;
        assert_eq!(select.session.unwrap_or_default().tokens, ["t1"]);
    };
    let policy = Policy::default();
    let (_, answered) = ends(async { tokio::join!(scene, session.select(&policy)) }).await;
    answered.expect("an answer");
}

#[tokio::test]
async fn many_tokens_are_joined_before_they_are_carried() {
    let server = Server::start(Vec::new()).await;
    let client = Client::lazy(server.options()).expect("an endpoint");
    let tokens = (0..20).map(|number| format!("t{number}"));
    let session = client.session(SessionOptions::new("main").tokens(tokens));
    let token = ends(session.token()).await.expect("joined").expect("there is one");
    assert!((0..20).all(|number| token.contains(&format!("t{number}"))), "{token}");
    ends(session.acknowledge(&["n".to_owned()])).await.expect("acknowledged");
    assert_eq!(session.tokens(), ["acknowledged"]);
}
