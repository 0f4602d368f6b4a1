//! One session: it asks with everything it carries and keeps what the answers add.
//!
//! The scopes (`write`, `read`) are the way to use it; the single calls are for those who wire
//! their own. It decides nothing, and holds no lock while it waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::record_request::Observed as Wire;

use crate::carried::{Carried, Sent};
use crate::client::Client;
use crate::clock::Instant;
use crate::error::ClientError;
use crate::options::SessionOptions;
use crate::outcome::{Notice, Selection, WaitTarget, Waited};
use crate::policy::{Policy, span};
use crate::{Raise, Stored};

/// What was observed, to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Observed {
    /// What `tidegate.capture()` returned after COMMIT or `tidegate.sample()` after a read.
    Evidence(String),
    /// A capture, with what `tidegate.before()` returned inside the transaction.
    CaptureWithBefore {
        /// The capture.
        capture: String,
        /// The reading before COMMIT.
        before: String,
    },
    /// Something was read from this incarnation and could not be sampled.
    Incarnation(String),
    /// Something reached the session by another way, such as a message without a token: later reads
    /// have everything the leader has now.
    LeaderNow,
}

/// What is known of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SessionState {
    /// Nothing was recorded, for sure.
    None,
    /// The session's tokens say everything.
    Known,
    /// There may be more than the tokens say; reads with them demand a leader sample.
    Unknown,
}

/// One session: whose reads see its writes. Clones are the same session.
#[derive(Clone, Debug)]
pub struct Session {
    client: Client,
    partition: Arc<str>,
    zone: Arc<str>,
    before: bool,
    carried: Arc<Mutex<Carried>>,
}

impl Session {
    pub(crate) fn new(client: Client, options: SessionOptions) -> Self {
        let carried = Carried::new(options.subject, options.tokens, options.max_token_chars);
        Self {
            client,
            partition: options.partition.into(),
            zone: options.zone.into(),
            before: options.before,
            carried: Arc::new(Mutex::new(carried)),
        }
    }

    /// The tokens to carry on, as in a cookie each: together they are the session.
    pub fn tokens(&self) -> Vec<String> {
        self.carried().tokens()
    }

    /// One token that holds everything known of this session, its subject's record included, to
    /// attach to a message or a job; `None`: nothing is known of it.
    ///
    /// Asks the service where a subject is named, several tokens must be joined, or something is
    /// not recorded yet.
    ///
    /// # Errors
    /// [`ClientError`]; then no token holds everything.
    pub async fn token(&self) -> Result<Option<String>, ClientError> {
        if self.carried().is_one_token() {
            return Ok(self.tokens().into_iter().next());
        }
        self.resolve().await?;
        Ok(self.tokens().into_iter().next())
    }

    /// Carries this token too, as one that came with a message.
    pub fn join(&self, token: impl Into<String>) {
        self.carried().add_token(token.into());
    }

    /// Forgets its tokens, after the service refused one as malformed or foreign. What they said is
    /// then unknown: the next read demands what the leader has.
    pub fn distrust_tokens(&self) {
        self.carried().distrust();
    }

    /// Losses told since the last call of this. They are told again until acknowledged.
    pub fn take_notices(&self) -> Vec<Notice> {
        self.carried().take_notices()
    }

    /// Acknowledges notices by their ids, so that they are not told to this session again.
    ///
    /// # Errors
    /// [`ClientError`]; acknowledging again is harmless.
    pub async fn acknowledge(&self, ids: &[String]) -> Result<(), ClientError> {
        self.join_tokens().await?;
        let (session, sent) = self.carried().ask();
        let request = v1::AcknowledgeNoticesRequest { session: Some(session), ids: ids.to_owned() };
        let mut rpc = self.client.rpc();
        let answer = self.client.unary(Box::pin(rpc.acknowledge_notices(request))).await;
        let v1::AcknowledgeNoticesResponse { token } = self.checked(&sent, answer)?;
        let mut carried = self.carried();
        carried.answered(&sent, token, Vec::new());
        carried.forget_notices(ids);
        Ok(())
    }

    /// Joins everything known of this session, its subject's record included, into its tokens.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn resolve(&self) -> Result<SessionState, ClientError> {
        use v1::resolve_session_response::State;
        self.settle().await?;
        let (session, sent) = self.carried().ask();
        let request = v1::ResolveSessionRequest { session: Some(session) };
        let mut rpc = self.client.rpc();
        let answer = self.client.unary(Box::pin(rpc.resolve_session(request))).await;
        let answer = self.checked(&sent, answer)?;
        let state = answer.state();
        self.carried().answered(&sent, answer.token, answer.notices);
        match state {
            State::None => Ok(SessionState::None),
            State::Known => Ok(SessionState::Known),
            State::Unknown => Ok(SessionState::Unknown),
            State::Unspecified => Err(ClientError::NotUnderstood { what: "a session's state" }),
        }
    }

    /// Asks for a node that may serve one read.
    ///
    /// Use it only with a connection whose incarnation the answer accepts, and record a sample
    /// afterwards: [`Session::read`] does both.
    ///
    /// # Errors
    /// [`ClientError`]. A refusal is an answer.
    pub async fn select(&self, policy: &Policy) -> Result<Selection, ClientError> {
        self.select_after(policy, Duration::ZERO).await
    }

    /// As [`Self::select`], when part of the budget is used up already.
    pub(crate) async fn select_after(
        &self,
        policy: &Policy,
        used: Duration,
    ) -> Result<Selection, ClientError> {
        self.settle().await?;
        let (session, sent, previous_node) = {
            let carried = self.carried();
            let (session, sent) = carried.ask();
            (session, sent, carried.previous_node())
        };
        let request = v1::SelectReplicaRequest {
            session: Some(session),
            partition: self.partition.to_string(),
            policy: Some(policy.after(used)),
            zone: self.zone.to_string(),
            previous_node,
            shadow_node: String::new(),
        };
        let sent_at = Instant::now();
        let answer = Box::pin(self.client.route().select(request)).await;
        let mut answer = self.checked(&sent, answer)?;
        let (token, notices) =
            (std::mem::take(&mut answer.token), std::mem::take(&mut answer.notices));
        self.carried().answered(&sent, token, notices);
        Selection::read(answer, sent_at)
    }

    /// Waits until `target` has what this session wrote and read, for `budget`.
    ///
    /// # Errors
    /// [`ClientError`]. A wait that timed out is an answer.
    pub async fn wait(&self, target: WaitTarget, budget: Duration) -> Result<Waited, ClientError> {
        self.settle().await?;
        let (session, sent) = self.carried().ask();
        let request = v1::WaitUntilFreshRequest {
            session: Some(session),
            partition: self.partition.to_string(),
            target: Some(target.wire()),
            budget: Some(span(budget)),
        };
        let answer = Box::pin(self.client.route().wait(request, budget)).await;
        let mut answer = self.checked(&sent, answer)?;
        let (token, notices) =
            (std::mem::take(&mut answer.token), std::mem::take(&mut answer.notices));
        self.carried().answered(&sent, token, notices);
        Waited::read(answer)
    }

    /// Records what `tidegate.capture()` returned after COMMIT.
    ///
    /// # Errors
    /// [`ClientError`]; evidence is then kept and goes with the session's next call.
    pub async fn record_capture(&self, evidence: impl Into<String>) -> Result<Stored, ClientError> {
        self.record(Observed::Evidence(evidence.into()), Raise::Unspecified).await
    }

    /// Records what was observed and raises whom `raise` says; a write raises every holder.
    ///
    /// # Errors
    /// [`ClientError`]; evidence is then kept and goes with the session's next call, and anything
    /// else makes the session's next read demand what the leader has.
    pub async fn record(&self, observed: Observed, raise: Raise) -> Result<Stored, ClientError> {
        // Kept before anything is awaited: a future that is dropped forgets nothing.
        match observed {
            Observed::Evidence(text) => {
                let kept = self.carried().keep(text);
                self.record_kept(kept, String::new(), raise).await
            }
            Observed::CaptureWithBefore { capture, before } => {
                let kept = self.carried().keep(capture);
                self.record_kept(kept, before, raise).await
            }
            Observed::Incarnation(text) => {
                let doubt = self.in_doubt();
                let stored = self.record_other(Wire::Incarnation(text), raise).await?;
                doubt.dispel();
                Ok(stored)
            }
            Observed::LeaderNow => {
                let doubt = self.in_doubt();
                let stored = self.record_other(Wire::LeaderNow(v1::LeaderNow {}), raise).await?;
                doubt.dispel();
                Ok(stored)
            }
        }
    }

    /// Records the evidence kept under this number.
    pub(crate) async fn record_kept(
        &self,
        kept: u64,
        before: String,
        raise: Raise,
    ) -> Result<Stored, ClientError> {
        self.join_tokens().await?;
        let asked = self.carried().ask_recording(kept);
        let Some((session, sent, evidence)) = asked else {
            // Another call of this session carried it meanwhile.
            return Ok(Stored::Unspecified);
        };
        let observed = Some(Wire::Evidence(evidence));
        self.record_sent((session, sent), observed, before, raise).await
    }

    async fn record_other(&self, observed: Wire, raise: Raise) -> Result<Stored, ClientError> {
        self.join_tokens().await?;
        let asked = self.carried().ask();
        self.record_sent(asked, Some(observed), String::new(), raise).await
    }

    async fn record_sent(
        &self,
        (session, sent): (v1::Session, Sent),
        observed: Option<Wire>,
        before: String,
        raise: Raise,
    ) -> Result<Stored, ClientError> {
        let request = v1::RecordRequest {
            session: Some(session),
            observed,
            before,
            partition: self.partition.to_string(),
            raise: raise.into(),
        };
        let answer = Box::pin(self.client.route().record(request)).await;
        let answer = self.checked(&sent, answer)?;
        let stored = answer.stored();
        self.carried().answered(&sent, answer.token, answer.notices);
        Ok(stored)
    }

    /// Tells the service of every doubt, and has tokens joined where there are many.
    async fn settle(&self) -> Result<(), ClientError> {
        self.join_tokens().await?;
        let doubts = self.carried().doubts();
        if let Some(doubts) = doubts {
            let leader_now = Wire::LeaderNow(v1::LeaderNow {});
            self.record_other(leader_now, Raise::All).await?;
            self.carried().told(doubts);
        }
        Ok(())
    }

    async fn join_tokens(&self) -> Result<(), ClientError> {
        loop {
            let Some((session, sent)) = self.carried().ask_join() else { return Ok(()) };
            let request = v1::ResolveSessionRequest { session: Some(session) };
            let mut rpc = self.client.rpc();
            let call = Box::pin(rpc.resolve_session(request));
            let answer = self.client.unary(call).await?;
            if answer.token.is_empty() {
                return Err(ClientError::NotUnderstood { what: "tokens joined into none" });
            }
            self.carried().answered(&sent, answer.token, answer.notices);
        }
    }

    /// Lets the session learn from a failure before the caller does.
    fn checked<T>(&self, sent: &Sent, answer: Result<T, ClientError>) -> Result<T, ClientError> {
        answer.inspect_err(|error| self.carried().failed(sent, error))
    }

    /// Until dispelled, something may have happened that no evidence tells.
    pub(crate) fn in_doubt(&self) -> InDoubt<'_> {
        InDoubt { session: self, open: true }
    }

    pub(crate) fn carried(&self) -> MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn reads_before(&self) -> bool {
        self.before
    }
}

/// Puts its session in doubt when dropped, unless dispelled.
#[derive(Debug)]
pub(crate) struct InDoubt<'a> {
    session: &'a Session,
    open: bool,
}

impl InDoubt<'_> {
    pub(crate) fn dispel(mut self) {
        self.open = false;
    }
}

impl Drop for InDoubt<'_> {
    fn drop(&mut self) {
        if self.open {
            self.session.carried().doubt();
        }
    }
}
