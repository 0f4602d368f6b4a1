//! The calls without an answer, in the order they were made, and what must still be sent.
//!
//! A broken stream loses the calls open on it and nothing else: all are idempotent and are sent
//! again on the next one, with what is left of their budget. No I/O and no waiting here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::route_request::Frame as Asked;
use tidegate_proto::v1::route_response::Frame as Answered;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::clock::Instant;
use crate::error::{ClientError, ServiceError};
use crate::policy::{read_span, span, use_up};

/// A call whose stream broke this often is given up: it may be what breaks them.
const SENDS_MAX: u32 = 4;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Select(v1::SelectReplicaRequest),
    Wait(v1::WaitUntilFreshRequest),
    Record(v1::RecordRequest),
}

impl Ask {
    /// The frame to send when `used` of the call's time has passed.
    fn frame(&self, used: Duration) -> Asked {
        match self.clone() {
            Self::Select(mut request) => {
                use_up(request.policy.get_or_insert_default(), used);
                Asked::Select(request)
            }
            Self::Wait(mut request) => {
                let budget = read_span(request.budget).unwrap_or_default();
                request.budget = Some(span(budget.saturating_sub(used)));
                Asked::Wait(request)
            }
            Self::Record(request) => Asked::Record(request),
        }
    }
}

/// What was answered.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Select(v1::SelectReplicaResponse),
    Wait(v1::WaitUntilFreshResponse),
    Record(v1::RecordResponse),
}

/// One call, with where its answer goes.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) correlation: u64,
    pub(super) ask: Ask,
    pub(super) started: Instant,
    pub(super) reply: oneshot::Sender<Result<Answer, ClientError>>,
    /// Its place among the calls in progress, given back with the answer.
    pub(super) _place: OwnedSemaphorePermit,
}

/// What the task is told.
#[derive(Debug)]
pub(super) enum Command {
    Call(Box<Call>),
    Withdraw { correlation: u64, overdue: bool },
}

#[derive(Debug)]
struct Open {
    call: Box<Call>,
    sends: u32,
    failures: u32,
    /// When it was sent on the stream that is open now.
    sent_at: Option<Instant>,
}

#[derive(Debug)]
enum Unsent {
    Call(u64),
    Cancel(u64),
}

/// The calls of one client that have no answer yet.
///
/// Invariant: each leaves exactly once: answered, failed, or withdrawn.
#[derive(Debug)]
pub(super) struct Calls {
    open: BTreeMap<u64, Open>,
    unsent: VecDeque<Unsent>,
    /// When the stream that is open now was last heard.
    heard_at: Option<Instant>,
    endpoint: String,
    retries: u32,
}

impl Calls {
    pub(super) fn new(endpoint: String, retries: u32) -> Self {
        let (open, unsent) = (BTreeMap::new(), VecDeque::new());
        Self { open, unsent, heard_at: None, endpoint, retries }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Takes one command. Returns `false` if the open stream has gone silent: a call it should
    /// have answered long ago is overdue, and nothing was heard since that call was sent.
    pub(super) fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Call(call) => {
                self.unsent.push_back(Unsent::Call(call.correlation));
                let open = Open { call, sends: 0, failures: 0, sent_at: None };
                self.open.insert(open.call.correlation, open);
                true
            }
            Command::Withdraw { correlation, overdue } => {
                let Some(open) = self.open.remove(&correlation) else { return true };
                let Some(sent_at) = open.sent_at else { return true };
                self.unsent.push_back(Unsent::Cancel(correlation));
                !(overdue && self.heard_at.is_none_or(|heard_at| heard_at < sent_at))
            }
        }
    }

    /// The next frame to send; `None`: there is none.
    pub(super) fn next_frame(&mut self) -> Option<v1::RouteRequest> {
        while let Some(unsent) = self.unsent.pop_front() {
            match unsent {
                Unsent::Cancel(correlation) => {
                    let frame = Some(Asked::Cancel(v1::Cancel {}));
                    return Some(v1::RouteRequest { correlation, frame });
                }
                Unsent::Call(correlation) => {
                    let Some(open) = self.open.get_mut(&correlation) else { continue };
                    if open.call.reply.is_closed() {
                        self.open.remove(&correlation);
                        continue;
                    }
                    open.sends += 1;
                    open.sent_at = Some(Instant::now());
                    let frame = Some(open.call.ask.frame(open.call.started.elapsed()));
                    return Some(v1::RouteRequest { correlation, frame });
                }
            }
        }
        None
    }

    /// Hands an answer to its caller. An answer nobody waits for is dropped.
    pub(super) fn answered(&mut self, response: v1::RouteResponse) {
        self.heard_at = Some(Instant::now());
        let Some(open) = self.open.remove(&response.correlation) else { return };
        let answer = match response.frame {
            Some(Answered::Select(answer)) => Ok(Answer::Select(answer)),
            Some(Answered::Wait(answer)) => Ok(Answer::Wait(answer)),
            Some(Answered::Record(answer)) => Ok(Answer::Record(answer)),
            Some(Answered::Error(status)) => Err(ServiceError::of_frame(&status).into()),
            None => Err(ClientError::NotUnderstood { what: "a frame without an answer" }),
        };
        reply(open, answer);
    }

    /// Queues every open call again, after the stream broke as `last` says.
    pub(super) fn broke(&mut self, last: &ServiceError) {
        self.unsent.clear();
        self.heard_at = None;
        let worn = |open: &Open| open.sends >= SENDS_MAX;
        self.fail(worn, |open| unreachable(open.sends, last));
        for (correlation, open) in &mut self.open {
            open.sent_at = None;
            self.unsent.push_back(Unsent::Call(*correlation));
        }
    }

    /// Counts an attempt to open the stream that failed as `last` says; calls that have waited for
    /// as many as they may fail.
    pub(super) fn not_opened(&mut self, last: &ServiceError) {
        for open in self.open.values_mut() {
            open.failures += 1;
        }
        let retries = self.retries;
        self.fail(|open| open.failures > retries, |open| unreachable(open.failures, last));
    }

    /// Fails every call: trying again would end the same way.
    pub(super) fn refused(&mut self, error: &ServiceError) {
        self.fail(|_| true, |_| error.clone().into());
    }

    fn fail(&mut self, which: impl Fn(&Open) -> bool, why: impl Fn(&Open) -> ClientError) {
        let failed: Vec<u64> =
            self.open.iter().filter(|(_, open)| which(open)).map(|(id, _)| *id).collect();
        for correlation in failed {
            if let Some(open) = self.open.remove(&correlation) {
                let mut error = why(&open);
                if let ClientError::Unreachable { endpoint, .. } = &mut error {
                    endpoint.clone_from(&self.endpoint);
                }
                reply(open, Err(error));
            }
        }
    }
}

fn unreachable(attempts: u32, last: &ServiceError) -> ClientError {
    ClientError::Unreachable {
        endpoint: String::new(),
        attempts,
        last: last.message.clone(),
        retry_after: last.retry_after,
    }
}

/// A caller that has gone needs no answer.
fn reply(open: Open, answer: Result<Answer, ClientError>) {
    drop(open.call.reply.send(answer));
}
