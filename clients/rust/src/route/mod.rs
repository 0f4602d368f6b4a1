//! The one `Route` stream of a client: selects, waits and records of all its sessions.
//!
//! - `calls`: the calls without an answer, and what a broken stream means for them;
//! - `task`: the one background task, which opens the stream, again and again, and carries frames.
//!
//! It does not know what a call means, except how much of its budget is left when it is sent again.

mod calls;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use self::calls::{Answer, Ask, Call, Command};
use crate::ClientError;
use crate::clock::Instant;
use crate::options::ClientOptions;
use crate::policy::longest_wait;

/// Carries calls; the task ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Route {
    commands: mpsc::Sender<Command>,
    places: Arc<Semaphore>,
    calls_max: usize,
    grace: Duration,
    next: AtomicU64,
    task: JoinHandle<()>,
}

impl Drop for Route {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Route {
    /// Starts the task. The stream is opened with the first call.
    pub(crate) fn start(rpc: RoutingServiceClient<Channel>, options: &ClientOptions) -> Self {
        // Each call in progress sends itself and at most one withdrawal.
        let (commands, received) = mpsc::channel(2 * options.calls_max);
        let task = tokio::spawn(task::run(rpc, received, options.clone()));
        Self {
            commands,
            places: Arc::new(Semaphore::new(options.calls_max)),
            calls_max: options.calls_max,
            grace: options.call_grace,
            next: AtomicU64::new(1),
            task,
        }
    }

    /// Asks for a node.
    pub(crate) async fn select(
        &self,
        request: v1::SelectReplicaRequest,
    ) -> Result<v1::SelectReplicaResponse, ClientError> {
        let waits = request.policy.as_ref().map_or(Duration::ZERO, longest_wait);
        match self.call(Ask::Select(request), waits).await? {
            Answer::Select(answer) => Ok(answer),
            Answer::Wait(_) | Answer::Record(_) => Err(MISMATCH),
        }
    }

    /// Waits for fresh nodes, for `budget`.
    pub(crate) async fn wait(
        &self,
        request: v1::WaitUntilFreshRequest,
        budget: Duration,
    ) -> Result<v1::WaitUntilFreshResponse, ClientError> {
        match self.call(Ask::Wait(request), budget).await? {
            Answer::Wait(answer) => Ok(answer),
            Answer::Select(_) | Answer::Record(_) => Err(MISMATCH),
        }
    }

    /// Records what was observed.
    pub(crate) async fn record(
        &self,
        request: v1::RecordRequest,
    ) -> Result<v1::RecordResponse, ClientError> {
        match self.call(Ask::Record(request), Duration::ZERO).await? {
            Answer::Record(answer) => Ok(answer),
            Answer::Select(_) | Answer::Wait(_) => Err(MISMATCH),
        }
    }

    async fn call(&self, ask: Ask, waits: Duration) -> Result<Answer, ClientError> {
        let started = Instant::now();
        let after = waits.saturating_add(self.grace);
        let deadline = started.plus(after);
        let place = Arc::clone(&self.places).acquire_owned();
        let place = match tokio::time::timeout(after, place).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(ClientError::Closed),
            Err(_) => return Err(ClientError::Busy { limit: self.calls_max }),
        };
        let (reply, answer) = oneshot::channel();
        let correlation = self.next.fetch_add(1, Ordering::Relaxed);
        let call = Box::new(Call { correlation, ask, started, reply, _place: place });
        self.commands.try_send(Command::Call(call)).map_err(|_| ClientError::Closed)?;
        let mut open = OpenCall { commands: &self.commands, correlation, ended: None };
        match tokio::time::timeout(deadline.left(), answer).await {
            Ok(answered) => {
                open.ended = Some(Ended::Answered);
                answered.unwrap_or(Err(ClientError::Closed))
            }
            Err(_) => {
                open.ended = Some(Ended::Overdue);
                Err(ClientError::DeadlineExceeded { after })
            }
        }
    }
}

const MISMATCH: ClientError =
    ClientError::NotUnderstood { what: "it answers another kind of call" };

/// How the caller's side of a call ended; a dropped future says nothing.
enum Ended {
    Answered,
    Overdue,
}

/// Withdraws its call when dropped without an answer.
struct OpenCall<'a> {
    commands: &'a mpsc::Sender<Command>,
    correlation: u64,
    ended: Option<Ended>,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let overdue = match self.ended {
            Some(Ended::Answered) => return,
            Some(Ended::Overdue) => true,
            None => false,
        };
        // A full queue loses the withdrawal: the answer then finds nobody, which is harmless.
        let withdrawn = Command::Withdraw { correlation: self.correlation, overdue };
        drop(self.commands.try_send(withdrawn));
    }
}

#[cfg(test)]
mod tests;
