//! The `Route` stream: the calls of one client, many at once, answered in any order.
//!
//! It keeps reading while calls wait, so that an answer is never held up by another; frames beyond
//! the bound are refused at once, and no answer is repeated.

use std::collections::HashMap;
use std::task::Poll;

use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use tidegate_proto::v1;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::routing::{Gatekeeper, Routing, StreamPlace};
use super::status;
use crate::sessions::TokenStore;

/// Answers that may wait for the client to read them; beyond that nothing more is read from it.
const ANSWERS_MAX: usize = 256;

/// Serves one stream. Dropping the answers ends all its calls.
pub(super) fn serve<S: TokenStore, G: Gatekeeper>(
    routing: Routing<S, G>,
    asks: Streaming<v1::RouteRequest>,
    place: StreamPlace,
) -> impl Stream<Item = Result<v1::RouteResponse, Status>> + Send {
    let (out, answers) = mpsc::channel(ANSWERS_MAX);
    let task = tokio::spawn(async move {
        let _place = place;
        let closed = out.clone();
        tokio::select! {
            () = run(routing, asks, out) => {}
            () = closed.closed() => {}
        }
    });
    // The task ends by itself when the answers are dropped.
    drop(task);
    ReceiverStream::new(answers)
}

type Out = mpsc::Sender<Result<v1::RouteResponse, Status>>;

async fn run<S: TokenStore, G: Gatekeeper>(
    routing: Routing<S, G>,
    mut asks: Streaming<v1::RouteRequest>,
    out: Out,
) {
    let mut calls = FuturesUnordered::new();
    let mut running: HashMap<u64, AbortHandle> = HashMap::new();
    let mut draining = routing.gate.draining();
    let mut open = true;
    while open || !calls.is_empty() {
        tokio::select! {
            () = &mut draining => {
                // The client that has gone needs no farewell.
                _ = out.send(Err(status::draining())).await;
                return;
            }
            Some((correlation, ended)) = calls.next(), if !calls.is_empty() => {
                running.remove(&correlation);
                if let Ok(frame) = ended
                    && out.send(Ok(answer(correlation, frame))).await.is_err()
                {
                    return;
                }
            }
            ask = asks.message(), if open => match ask {
                Ok(Some(request)) => {
                    let correlation = request.correlation;
                    match admitted(&routing, request.frame, &mut running, correlation) {
                        Admitted::Call(ask) => {
                            let mut call = Box::pin(call(routing.clone(), *ask));
                            // Most reads wait for nothing: they need no place among the running.
                            if let Poll::Ready(frame) = futures::poll!(&mut call) {
                                if out.send(Ok(answer(correlation, frame))).await.is_err() {
                                    return;
                                }
                                continue;
                            }
                            let (handle, registration) = AbortHandle::new_pair();
                            running.insert(correlation, handle);
                            let call = Abortable::new(call, registration);
                            calls.push(async move { (correlation, call.await) });
                        }
                        Admitted::Done => {}
                        Admitted::Refused(refused) => {
                            let frame = Answer::Error(status::frame(&refused));
                            if out.send(Ok(answer(correlation, frame))).await.is_err() {
                                return;
                            }
                        }
                    }
                }
                Ok(None) => open = false,
                Err(broken) => {
                    let Some(refused) = status::undecodable(&broken) else {
                        open = false;
                        continue;
                    };
                    // Nothing can be read from the stream behind it.
                    _ = out.send(Err(refused)).await;
                    return;
                }
            },
        }
    }
}

enum Admitted {
    Call(Box<Ask>),
    Done,
    Refused(Status),
}

fn admitted<S, G>(
    routing: &Routing<S, G>,
    frame: Option<Ask>,
    running: &mut HashMap<u64, AbortHandle>,
    correlation: u64,
) -> Admitted {
    match frame {
        None => Admitted::Refused(status::field("frame", "a frame must carry a call")),
        Some(Ask::Cancel(_)) => {
            if let Some(call) = running.get(&correlation) {
                call.abort();
            }
            Admitted::Done
        }
        Some(Ask::Select(_) | Ask::Wait(_) | Ask::Record(_))
            if running.contains_key(&correlation) =>
        {
            let text = format!("correlation {correlation} is in use: number the calls of a stream");
            Admitted::Refused(status::field("correlation", text))
        }
        Some(Ask::Select(_) | Ask::Wait(_) | Ask::Record(_))
            if running.len() >= routing.limits.frames_max =>
        {
            Admitted::Refused(status::frames_full(routing.limits.frames_max))
        }
        Some(ask @ (Ask::Select(_) | Ask::Wait(_) | Ask::Record(_))) => {
            Admitted::Call(Box::new(ask))
        }
    }
}

async fn call<S: TokenStore, G: Gatekeeper>(routing: Routing<S, G>, ask: Ask) -> Answer {
    let answered = match ask {
        Ask::Select(request) => routing.select_one(request, None).await.map(Answer::Select),
        // Boxed: a select, the usual call, is moved about less where these take no room.
        Ask::Wait(request) => Box::pin(routing.wait_one(request, None)).await.map(Answer::Wait),
        Ask::Record(request) => {
            Box::pin(routing.record_one(request, None)).await.map(Answer::Record)
        }
        Ask::Cancel(_) => Err(status::internal("a cancel was called")),
    };
    answered.unwrap_or_else(|error| Answer::Error(status::frame(&error)))
}

const fn answer(correlation: u64, frame: Answer) -> v1::RouteResponse {
    v1::RouteResponse { correlation, frame: Some(frame) }
}
