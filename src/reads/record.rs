//! Evidence of a write or a read, turned into marks.
//!
//! Evidence raises only the session that brings it. What a replica showed becomes a mark only where
//! its line is proven; otherwise the next observation of that incarnation *sent after the call*
//! does, and where that proves nothing either, a leader sample sent after the call.

use std::sync::Arc;

use tidegate_core::evidence::{Evidence, EvidenceError, EvidenceKind};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, Incarnation};
use tidegate_core::partition::Need;
use tidegate_core::position::Position;
use tidegate_core::token::{Change, Component, Mark, Notice, NoticeKind, SessionToken};
use tidegate_core::trail::Loss;

use super::{Caller, ReadError, Reads};
use crate::partitions::PartitionHandle;
use crate::sessions::{Asked, Holder, RaiseWhom, Whom, losses_to_notices};
use crate::sessions::{Stored, TokenStore};

/// What a session wrote or saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Observed {
    /// What `capture()` returned after COMMIT or `sample()` after a read; and what `before()`
    /// returned inside the transaction, or nothing.
    Evidence {
        /// The capture or sample.
        text: String,
        /// The reading before COMMIT; empty: none.
        before: String,
    },
    /// It read from this incarnation and cannot sample.
    Incarnation(String),
    /// Something reached it by another way: it depends on everything the leader has now.
    LeaderNow,
}

/// What was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The token to carry from now on; empty: nothing changed.
    pub token: String,
    /// Where it was kept; `None`: nowhere but in the token.
    pub stored: Option<Stored>,
    /// What was lost and not acknowledged.
    pub notices: Vec<Notice>,
}

/// What was learned of one partition.
struct Learned {
    handle: Arc<PartitionHandle>,
    component: Component,
    losses: Vec<Loss>,
    wrote: bool,
}

impl<S: TokenStore> Reads<S> {
    /// Records what a session wrote or saw.
    ///
    /// # Errors
    /// [`ReadError`]; then nothing was recorded, but for evidence the caller carried besides.
    pub async fn record(
        &self,
        caller: Caller,
        partition: &str,
        observed: Observed,
        raise: RaiseWhom,
        deadline: Option<Instant>,
    ) -> Result<Recorded, ReadError> {
        let since = self.clock.now();
        let learned = match &observed {
            Observed::Evidence { text, before } => {
                self.learned_from_evidence(text, before, partition, since).await?
            }
            Observed::Incarnation(text) => {
                let incarnation = Incarnation::parse(text)?;
                let handle = self.of_system(incarnation.system, partition)?;
                self.learned_from_incarnation(handle, incarnation, since, deadline).await
            }
            Observed::LeaderNow => {
                let handle = Arc::clone(self.partition(partition)?);
                self.learned_from_leader(handle, since, deadline, None).await
            }
        };
        let holder = self.delivered(caller).await?;
        let (change, whom) = self.change_for(&learned, raise);
        let committed = self.sessions.commit(&holder, change, whom).await?;
        Ok(Recorded {
            token: committed.token,
            stored: committed.stored,
            notices: committed.notices,
        })
    }

    /// Who is asking, after evidence it could not record before was recorded.
    pub(super) async fn delivered(&self, caller: Caller) -> Result<Holder, ReadError> {
        let since = self.clock.now();
        let (subject, max_token_chars) = (caller.subject.as_str(), caller.max_token_chars);
        let asked = Asked { subject, tokens: &caller.tokens, max_token_chars };
        let mut holder = self.sessions.identify(asked).await?;
        for text in &caller.evidence {
            // Boxed: most calls bring none, and a call is moved about as large as it may get.
            let learned = Box::pin(self.learned_from_evidence(text, "", "", since)).await?;
            let (change, _) = self.change_for(&learned, RaiseWhom::All);
            holder = Box::pin(self.sessions.adopt(holder, change)).await?;
        }
        Ok(holder)
    }

    fn change_for(&self, learned: &Learned, raise: RaiseWhom) -> (Change, Whom) {
        let handle = &learned.handle;
        let join = SessionToken::of(handle.key(), learned.component.clone());
        learned.losses.iter().for_each(|loss| handle.telemetry().lost(loss.kind));
        let told_seconds = self.clock.wall_seconds();
        let tell = losses_to_notices(handle.info().id, &learned.losses, told_seconds);
        let change = Change { join, tell, ..Change::default() };
        (change, if learned.wrote { Whom::Write } else { Whom::Read(raise) })
    }

    fn of_system(
        &self,
        system: tidegate_core::lineage::SystemId,
        partition: &str,
    ) -> Result<Arc<PartitionHandle>, ReadError> {
        let found = self.partitions.of_system(system);
        let handle =
            found.ok_or_else(|| ReadError::EvidenceForeign { system: system.to_string() })?;
        if !partition.is_empty() && handle.info().name != partition {
            self.partition(partition)?;
            let text = format!(
                "the evidence is of partition `{}`, not `{partition}`: leave the partition out, \
                 it follows from the evidence",
                handle.info().name
            );
            return Err(ReadError::Malformed(text));
        }
        Ok(Arc::clone(handle))
    }

    async fn learned_from_evidence(
        &self,
        text: &str,
        before: &str,
        partition: &str,
        since: Instant,
    ) -> Result<Learned, ReadError> {
        let guards = self.guards();
        let evidence = Evidence::parse(text, &guards)?;
        let handle = self.of_system(evidence.incarnation.system, partition)?;
        let before = match before {
            "" => None,
            before => Some(Evidence::parse(before, &guards)?),
        };
        if let Some(before) = &before {
            fits(before, &evidence)?;
        }
        match evidence.kind {
            EvidenceKind::Capture => {
                let is_durable = handle.info().async_commits_never;
                let mark = evidence.written(before.as_ref(), is_durable, &guards)?;
                // The next read should find the flush of this write known.
                handle.hurry();
                if let Some((epoch, mark)) = &mark {
                    handle.note_write(*epoch, mark.floor);
                }
                let component = mark
                    .map_or_else(Component::unresolved, |(epoch, mark)| Component::of(epoch, mark));
                Ok(Learned { handle, component, losses: Vec::new(), wrote: true })
            }
            EvidenceKind::Sample => Ok(self.learned_from_sample(handle, &evidence, since).await),
            EvidenceKind::Before | EvidenceKind::Poll => {
                Err(EvidenceError::Field { field: "kind" }.into())
            }
        }
    }

    /// A sample is a mark at once where its line is proven.
    async fn learned_from_sample(
        &self,
        handle: Arc<PartitionHandle>,
        evidence: &Evidence,
        since: Instant,
    ) -> Learned {
        let proven = handle.snapshot().mark_of_sample(evidence);
        match proven {
            Some((epoch, mark)) => {
                let component = Component::of(epoch, mark);
                Learned { handle, component, losses: Vec::new(), wrote: false }
            }
            None => self.learned_from_incarnation(handle, evidence.incarnation, since, None).await,
        }
    }

    /// The next observation of the incarnation sent after the call, if its position counts.
    async fn learned_from_incarnation(
        &self,
        handle: Arc<PartitionHandle>,
        incarnation: Incarnation,
        since: Instant,
        deadline: Option<Instant>,
    ) -> Learned {
        let asked_for = handle.snapshot();
        let guards = &asked_for.settings.guards;
        let max_age = asked_for.settings.view_max_age;
        let now = self.clock.now();
        let alive = asked_for
            .views
            .iter()
            .flatten()
            .any(|view| view.incarnation == incarnation && now.since(view.sent_at) <= max_age);
        let unsampled = !guards.sample_after();
        let until = self.ends_at(deadline, self.limits.poll_timeout);
        let mut asked_at = since;
        while alive
            && (unsampled || handle.need(Need::Incarnation(incarnation), asked_at, until).await)
        {
            let snapshot = handle.snapshot();
            if let Some((epoch, mark)) = snapshot.mark_seen(incarnation) {
                let component = Component::of(epoch, mark);
                return Learned { handle, component, losses: Vec::new(), wrote: false };
            }
            // Whatever it has applied by then is of one log with what was read.
            asked_at = self.clock.now();
            if unsampled || asked_at >= until || !snapshot.awaits_its_row(incarnation) {
                break;
            }
        }
        let read_in = Epoch::new(0, incarnation.life);
        self.learned_from_leader(handle, since, deadline, Some(read_in)).await
    }

    /// A leader sample sent after the call; without a leader the component stays unresolved.
    async fn learned_from_leader(
        &self,
        handle: Arc<PartitionHandle>,
        since: Instant,
        deadline: Option<Instant>,
        read_in: Option<Epoch>,
    ) -> Learned {
        let until = self.ends_at(deadline, self.limits.poll_timeout);
        let came = handle.need(Need::Leader, since, until).await;
        let sample = handle.snapshot().trail.since(since).next().filter(|_| came);
        let Some(sample) = sample else {
            let component = Component::unresolved();
            return Learned { handle, component, losses: Vec::new(), wrote: false };
        };
        let component = Component::of(sample.epoch, Mark::demand(sample.position));
        let losses = read_in.map(|lost| Loss {
            kind: NoticeKind::PossiblyLost,
            lost,
            child: sample.epoch,
            upto: Position::START,
            future: false,
        });
        Learned { handle, component, losses: losses.into_iter().collect(), wrote: false }
    }

    fn guards(&self) -> Guards {
        let any = self.partitions.iter().next();
        any.map_or_else(Guards::on, |handle| handle.snapshot().settings.guards)
    }
}

/// Refuses a `before` that cannot belong to the evidence beside it.
fn fits(before: &Evidence, evidence: &Evidence) -> Result<(), ReadError> {
    let text = if before.kind != EvidenceKind::Before {
        "`before` must be what tidegate.before() returned inside the transaction"
    } else if evidence.kind != EvidenceKind::Capture {
        "`before` goes with what tidegate.capture() returned after COMMIT: leave it out"
    } else if before.incarnation.system != evidence.incarnation.system {
        "`before` is of another database than the capture: pass the one of the same transaction"
    } else {
        return Ok(());
    };
    Err(ReadError::Malformed(text.to_owned()))
}
