//! The `Route` stream: the calls of one client, many at once, answered in any order.
//!
//! It keeps reading while calls wait, so that an answer is never held up by another; frames beyond
//! the bound are refused at once, and no answer is repeated.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::{AbortHandle, Abortable, Aborted, BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use tidegate_proto::v1;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tonic::{Status, Streaming};

use super::routing::{Gatekeeper, Routing, StreamPlace};
use super::status;
use crate::sessions::TokenStore;

/// Answers in a row after which it is looked whether the instance shuts down.
const ANSWERS_IN_A_ROW: u32 = 64;

/// Serves one stream. Dropping the answers ends all its calls.
pub(super) fn serve<S: TokenStore, G: Gatekeeper>(
    routing: Routing<S, G>,
    asks: Streaming<v1::RouteRequest>,
    place: StreamPlace,
) -> impl Stream<Item = Result<v1::RouteResponse, Status>> + Send {
    let draining = routing.gate.draining();
    Answers {
        routing: Arc::new(routing),
        asks,
        calls: FuturesUnordered::new(),
        running: HashMap::new(),
        draining,
        in_a_row: 0,
        open: true,
        ended: false,
        _place: place,
    }
}

/// The answers of one stream, made when they are asked for: no task and no queue lies between the
/// two directions, and a client that reads no answers is not read from.
struct Answers<S, G> {
    routing: Arc<Routing<S, G>>,
    asks: Streaming<v1::RouteRequest>,
    /// Those that wait for something; the others are answered at once.
    calls: FuturesUnordered<Call>,
    running: HashMap<u64, AbortHandle>,
    draining: Pin<Box<dyn Future<Output = ()> + Send>>,
    in_a_row: u32,
    /// More requests may come.
    open: bool,
    /// It was told why it ends.
    ended: bool,
    _place: StreamPlace,
}

/// One call that waits.
struct Call {
    correlation: u64,
    answer: Abortable<BoxFuture<'static, Answer>>,
}

impl Future for Call {
    type Output = (u64, Result<Answer, Aborted>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.answer.poll_unpin(context));
        Poll::Ready((self.correlation, ended))
    }
}

impl<S: TokenStore, G: Gatekeeper> Stream for Answers<S, G> {
    type Item = Result<v1::RouteResponse, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<v1::RouteResponse, Status>>> {
        let own = &mut *self;
        if own.in_a_row < ANSWERS_IN_A_ROW
            && let Poll::Ready(answered) = own.advance(context)
        {
            own.in_a_row += 1;
            return Poll::Ready(answered);
        }
        let row_is_long = std::mem::take(&mut own.in_a_row) >= ANSWERS_IN_A_ROW;
        if !own.ended && own.draining.poll_unpin(context).is_ready() {
            return Poll::Ready(Some(own.end(status::draining())));
        }
        if row_is_long { own.advance(context) } else { Poll::Pending }
    }
}

impl<S: TokenStore, G: Gatekeeper> Answers<S, G> {
    /// The next answer, of a call that waited or of one that comes in.
    fn advance(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<v1::RouteResponse, Status>>> {
        loop {
            // Also after each request: it may have begun a call, or cancelled one.
            while !self.calls.is_empty()
                && let Poll::Ready(Some((correlation, ended))) = self.calls.poll_next_unpin(context)
            {
                self.running.remove(&correlation);
                if let Ok(frame) = ended {
                    return Poll::Ready(Some(Ok(answer(correlation, frame))));
                }
            }
            if !self.open {
                return if self.calls.is_empty() { Poll::Ready(None) } else { Poll::Pending };
            }
            match ready!(self.asks.poll_next_unpin(context)) {
                Some(Ok(v1::RouteRequest { correlation, frame })) => {
                    if let Some(frame) = self.asked(correlation, frame, context) {
                        return Poll::Ready(Some(Ok(answer(correlation, frame))));
                    }
                }
                None => self.open = false,
                Some(Err(broken)) => {
                    self.open = false;
                    if let Some(refused) = status::undecodable(&broken) {
                        // Nothing can be read from the stream behind it.
                        return Poll::Ready(Some(self.end(refused)));
                    }
                }
            }
        }
    }

    /// Ends the stream with all its calls.
    fn end(&mut self, why: Status) -> Result<v1::RouteResponse, Status> {
        (self.open, self.ended) = (false, true);
        self.running.clear();
        self.calls.clear();
        Err(why)
    }

    /// The answer to one frame, if it needs not be waited for.
    fn asked(
        &mut self,
        correlation: u64,
        frame: Option<Ask>,
        context: &mut Context<'_>,
    ) -> Option<Answer> {
        let Some(ask) = frame else {
            let refused = status::field("frame", "a frame must carry a call");
            return Some(Answer::Error(status::frame(&refused)));
        };
        if matches!(ask, Ask::Cancel(_)) {
            if let Some(call) = self.running.get(&correlation) {
                call.abort();
            }
            return None;
        }
        if let Some(refused) = self.refused(correlation) {
            return Some(Answer::Error(status::frame(&refused)));
        }
        let mut call = match self.begun(ask) {
            Ok(answered) => return Some(answered),
            Err(call) => call,
        };
        // Many of these wait for nothing either, and need no place among the running.
        if let Poll::Ready(answered) = call.poll_unpin(context) {
            return Some(answered);
        }
        let (handle, registration) = AbortHandle::new_pair();
        self.running.insert(correlation, handle);
        self.calls.push(Call { correlation, answer: Abortable::new(call, registration) });
        None
    }

    /// Says why no call of this number is taken now, if none is.
    fn refused(&self, correlation: u64) -> Option<Status> {
        if self.running.contains_key(&correlation) {
            let text = format!("correlation {correlation} is in use: number the calls of a stream");
            return Some(status::field("correlation", text));
        }
        let most = self.routing.limits.frames_max;
        (self.running.len() >= most).then(|| status::frames_full(most))
    }

    /// The answer of a call, or its future. Most selects need none.
    fn begun(&self, ask: Ask) -> Result<Answer, BoxFuture<'static, Answer>> {
        let routing = || Arc::clone(&self.routing);
        let failed = |error: Status| Answer::Error(status::frame(&error));
        match ask {
            Ask::Select(request) => {
                let select = match self.routing.asked(request, None) {
                    Ok(select) => select,
                    Err(refused) => return Ok(failed(refused)),
                };
                if let Some(selected) = self.routing.select_at_once(&select) {
                    return Ok(selected.map_or_else(failed, Answer::Select));
                }
                let routing = routing();
                Err(async move {
                    let selected = routing.select_later(select).await;
                    selected.map_or_else(failed, Answer::Select)
                }
                .boxed())
            }
            Ask::Wait(request) => {
                let routing = routing();
                Err(async move {
                    routing.wait_one(request, None).await.map_or_else(failed, Answer::Wait)
                }
                .boxed())
            }
            Ask::Record(request) => {
                let routing = routing();
                Err(async move {
                    routing.record_one(request, None).await.map_or_else(failed, Answer::Record)
                }
                .boxed())
            }
            Ask::Cancel(_) => Ok(failed(status::internal("a cancel was called"))),
        }
    }
}

const fn answer(correlation: u64, frame: Answer) -> v1::RouteResponse {
    v1::RouteResponse { correlation, frame: Some(frame) }
}
