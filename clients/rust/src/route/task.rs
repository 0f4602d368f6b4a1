//! The background task of a client: opens the stream, carries frames, opens it again.
//!
//! It holds no lock and keeps no deadline: callers stop waiting by themselves and withdraw.

use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::ErrorReason;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::calls::{Calls, Command};
use crate::clock::Instant;
use crate::error::ServiceError;
use crate::options::ClientOptions;

/// Frames that wait for the connection to take them.
const FRAMES_MAX: usize = 256;

type Commands = mpsc::Receiver<Command>;

/// Carries calls until every sender of commands is gone.
pub(super) async fn run(
    rpc: RoutingServiceClient<Channel>,
    mut commands: Commands,
    options: ClientOptions,
) {
    let mut calls = Calls::new(options.endpoint.clone(), options.retries);
    let mut pace = Pace::new(options.backoff);
    loop {
        while calls.is_empty() {
            match commands.recv().await {
                Some(command) => _ = calls.take(command),
                None => return,
            }
        }
        let opened = open(&rpc, &mut commands, &mut calls, &mut pace, options.attempt_timeout);
        let stream = match opened.await {
            Opened::Stream(stream) => stream,
            Opened::NotYet => continue,
            Opened::Closed => return,
        };
        match carry(stream, &mut commands, &mut calls, &mut pace).await {
            Some(error) => {
                tracing::debug!(%error, "the Route stream broke");
                pace.broke(error.retry_after);
                calls.broke(&error);
            }
            None => return,
        }
    }
}

struct Stream {
    out: mpsc::Sender<v1::RouteRequest>,
    answers: Streaming<v1::RouteResponse>,
}

enum Opened {
    Stream(Box<Stream>),
    NotYet,
    Closed,
}

/// Makes one attempt to open the stream; takes commands meanwhile, and ends early when nobody
/// waits any more.
async fn open(
    rpc: &RoutingServiceClient<Channel>,
    commands: &mut Commands,
    calls: &mut Calls,
    pace: &mut Pace,
    timeout: Duration,
) -> Opened {
    let mut rpc = rpc.clone();
    let (out, frames) = mpsc::channel(FRAMES_MAX);
    let wait = pace.left();
    let attempt = async move {
        tokio::time::sleep(wait).await;
        tokio::time::timeout(timeout, rpc.route(ReceiverStream::new(frames))).await
    };
    let mut attempt = std::pin::pin!(attempt);
    loop {
        tokio::select! {
            opened = &mut attempt => {
                let error = match opened {
                    Ok(Ok(response)) => {
                        let answers = response.into_inner();
                        return Opened::Stream(Box::new(Stream { out, answers }));
                    }
                    Ok(Err(status)) => ServiceError::of_status(&status),
                    Err(_) => silent("no answer to the attempt to open the stream"),
                };
                pace.failed(error.retry_after);
                if may_pass(&error) {
                    calls.not_opened(&error);
                } else {
                    calls.refused(&error);
                }
                return Opened::NotYet;
            }
            command = commands.recv() => match command {
                Some(command) => _ = calls.take(command),
                None => return Opened::Closed,
            },
        }
        if calls.is_empty() {
            return Opened::NotYet;
        }
    }
}

/// Carries frames until the stream breaks, and says how; `None`: every sender is gone.
async fn carry(
    stream: Box<Stream>,
    commands: &mut Commands,
    calls: &mut Calls,
    pace: &mut Pace,
) -> Option<ServiceError> {
    let Stream { out, mut answers } = *stream;
    loop {
        tokio::select! {
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    pace.succeeded();
                    calls.answered(answer);
                }
                Ok(None) => return Some(silent("the service ended the stream")),
                Err(status) => return Some(ServiceError::of_status(&status)),
            },
            command = commands.recv() => {
                if !calls.take(command?) {
                    return Some(silent("the service has gone silent"));
                }
            }
            place = out.reserve(), if calls.has_unsent() => match place {
                Ok(place) => {
                    if let Some(frame) = calls.next_frame() {
                        place.send(frame);
                    }
                }
                Err(_) => return Some(silent("the connection was lost")),
            },
        }
    }
}

fn silent(what: &str) -> ServiceError {
    ServiceError {
        code: Code::Unavailable,
        reason: ErrorReason::Unspecified,
        message: what.to_owned(),
        retry_after: None,
    }
}

/// Says whether another attempt may end better. `Internal` and `Unknown` are how a transport that
/// breaks half-way shows itself.
fn may_pass(error: &ServiceError) -> bool {
    matches!(
        error.code,
        Code::Unavailable
            | Code::ResourceExhausted
            | Code::Internal
            | Code::Unknown
            | Code::Cancelled
    )
}

/// When the next attempt may be made: bounded pauses that double, with jitter.
#[derive(Debug)]
struct Pace {
    least: Duration,
    most: Duration,
    next: Duration,
    not_before: Option<Instant>,
}

impl Pace {
    const fn new((least, most): (Duration, Duration)) -> Self {
        Self { least, most, next: Duration::ZERO, not_before: None }
    }

    /// An attempt failed; `asked` is when the service asked to try again.
    fn failed(&mut self, asked: Option<Duration>) {
        self.next = self.next.max(self.least);
        self.broke(asked);
    }

    /// A stream broke. After one that answered, the first attempt is made at once.
    fn broke(&mut self, asked: Option<Duration>) {
        let asked = asked.unwrap_or_default();
        let jitter = 0.5 + fastrand::f64() / 2.0;
        let pause = self.next.mul_f64(jitter).max(asked).min(self.most);
        self.next = (self.next * 2).clamp(self.least, self.most);
        self.not_before = Some(Instant::now().plus(pause));
    }

    fn succeeded(&mut self) {
        self.next = Duration::ZERO;
    }

    fn left(&self) -> Duration {
        self.not_before.map_or(Duration::ZERO, Instant::left)
    }
}
