//! `Sessions`: looks up who is asking, raises who is to be raised, and seals what is carried back.
//!
//! It owns the one belief in the store of this instance. A record is raised before the answer, and
//! a store that does not answer makes a session unknown, never new. It judges no mark.

use std::sync::Arc;

use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::token::{Change, ComponentKey, Notice, NoticeId, SessionToken};
use tidegate_core::trail::Sample;
use tracing::Instrument;

use super::asked::doubted;
use super::holder::Named;
use super::whom::{Reach, part_of};
use super::{Asked, Holder, Ignorance, LossLedger, SessionError, SessionLimits, TokenKeys, Whom};
use crate::clock::Clock;
use crate::ports::{Looked, StoreError, Stored, SubjectKey, TokenStore};
use crate::seal::{Keyring, SubjectHash};
use crate::telemetry::{Step, step_span};

/// The sessions of one instance and tenant.
#[derive(Debug)]
pub struct Sessions<S> {
    store: S,
    guards: Guards,
    keys: TokenKeys,
    subjects: SubjectHash,
    tenant: String,
    limits: SessionLimits,
    partitions: Vec<ComponentKey>,
    ledger: Arc<LossLedger>,
    clock: Clock,
}

/// What a call made of its caller's session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The token to carry from now on; empty: what is carried stands.
    pub token: String,
    /// Where the record was kept; `None`: the store was not asked.
    pub stored: Option<Stored>,
    /// What was lost and not acknowledged, of everything the caller names.
    pub notices: Vec<Notice>,
    /// Why the record of a read was not raised; what it would hold is in the token.
    pub unkept: Option<StoreError>,
}

/// What is known of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionState {
    /// It depends on nothing, for sure.
    None,
    /// All it depends on is known.
    Known,
    /// It may depend on more than is known, in some partition.
    Unknown,
}

/// A session, resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedSession {
    /// What is known of it.
    pub state: SessionState,
    /// The token to carry from now on; empty: what is carried stands.
    pub token: String,
    /// What was lost and not acknowledged.
    pub notices: Vec<Notice>,
}

impl<S: TokenStore> Sessions<S> {
    /// Sessions kept in `store`; `partitions` are those configured.
    #[expect(clippy::too_many_arguments, reason = "wired once, each of a type of its own")]
    pub fn new(
        store: S,
        keyring: &Keyring,
        subjects: SubjectHash,
        tenant: &str,
        partitions: Vec<ComponentKey>,
        limits: SessionLimits,
        guards: Guards,
        clock: Clock,
    ) -> Self {
        let tenant = tenant.to_owned();
        let ledger = Arc::default();
        let keys = TokenKeys::new(keyring, clock.now());
        Self { store, guards, keys, subjects, tenant, limits, partitions, ledger, clock }
    }

    /// How many sessions were told of each loss.
    pub const fn ledger(&self) -> &Arc<LossLedger> {
        &self.ledger
    }

    /// What tokens are sealed and opened with.
    pub const fn keys(&self) -> &TokenKeys {
        &self.keys
    }

    /// Offers a poll of a partition's leader; it may become the barrier of what the store forgot.
    pub fn sampled(&self, key: ComponentKey, sample: Sample) {
        self.store.sampled(key, sample);
    }

    /// What keeps the records.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Who is asking: the join of the tokens, and the record of the subject.
    ///
    /// A store that does not answer is no error: the session is unknown then.
    ///
    /// # Errors
    /// [`SessionError`] for what is too large, malformed or foreign; then nothing was looked up.
    pub async fn identify(&self, asked: Asked<'_>) -> Result<Holder, SessionError> {
        asked.within(&self.limits)?;
        let carried = asked.carried(&self.keys.current(), self.clock.now())?;
        let named = if asked.subject.is_empty() { None } else { Some(self.named(asked).await) };
        let body_bytes = asked.body_bytes(&self.limits);
        Ok(Holder::new(carried, asked.tokens.len(), named, body_bytes))
    }

    /// As [`Self::identify`] at `now`, if that takes no waiting; `None`: it does, or it fails.
    ///
    /// A reading of the clock from before the lookup asks for no less: a barrier stands longer.
    pub fn identify_at_once(&self, asked: Asked<'_>, now: Instant) -> Option<Holder> {
        asked.within(&self.limits).ok()?;
        let carried = asked.carried(&self.keys.current(), now).ok()?;
        let named = if asked.subject.is_empty() {
            None
        } else {
            let key = self.subjects.key(&self.tenant, asked.subject);
            let looked = self.store.lookup_at_once(key, now)?;
            Some(self.named_by(key, looked, now))
        };
        let body_bytes = asked.body_bytes(&self.limits);
        Some(Holder::new(carried, asked.tokens.len(), named, body_bytes))
    }

    async fn named(&self, asked: Asked<'_>) -> Named {
        let key = self.subjects.key(&self.tenant, asked.subject);
        let looked = self.store.lookup(key).instrument(step_span(Step::Lookup)).await;
        self.named_by(key, looked, self.clock.now())
    }

    /// The subject of `key`, of which the store has just said what it keeps.
    fn named_by(
        &self,
        key: SubjectKey,
        looked: Result<Looked, StoreError>,
        looked_at: Instant,
    ) -> Named {
        if let Err(error) = &looked {
            tracing::debug!(%error, "a session is unknown: its record could not be looked up");
        }
        Named { key, looked, looked_at, guards: self.guards }
    }

    /// Raises the holders of a caller by what a call judged or learned, and seals the token.
    ///
    /// A write raises every holder named, the record first. A read raises whom it says, and tries:
    /// where a record cannot be raised the token is. Marks that were replaced are replaced in every
    /// holder that has them, except by a read that raises nobody.
    ///
    /// # Errors
    /// [`SessionError::Store`] if a write could not be kept under its subject; then the token was
    /// not raised either, and the call may be repeated.
    pub async fn commit(
        &self,
        holder: &Holder,
        change: Change,
        whom: Whom,
    ) -> Result<Committed, SessionError> {
        let reach = Reach::of(whom, holder);
        if change.is_empty() {
            return Ok(self.unchanged(holder, whom));
        }
        let asked = holder;
        let mut holder = asked.clone();
        let (mut stored, mut unkept) = (None, None);
        if let Some(reach) = reach {
            // Boxed: most reads raise nobody, and a call is moved about as large as it may get.
            (stored, unkept) = Box::pin(self.raise(&mut holder, &change, reach)).await?;
        }
        self.count(&change, asked, &holder);
        let notices = holder.notices(&change.tell);
        let token = self.token(&holder, reach.is_some());
        Ok(Committed { token, stored, notices, unkept })
    }

    /// As [`Self::commit`] of nothing, as most reads end: nobody is raised, and the store is not
    /// asked.
    pub fn unchanged(&self, holder: &Holder, whom: Whom) -> Committed {
        let notices = holder.notices(&[]);
        let token = self.token(holder, Reach::of(whom, holder).is_some());
        Committed { token, stored: None, notices, unkept: None }
    }

    /// Raises every holder the caller names by what it brought with this call, before it is judged.
    ///
    /// The token of a later [`Self::commit`] holds it.
    ///
    /// # Errors
    /// [`SessionError::Store`] if it could not be kept under the subject.
    pub async fn adopt(&self, asked: Holder, change: Change) -> Result<Holder, SessionError> {
        let reach = Reach::named(&asked);
        let mut holder = asked.clone();
        self.raise(&mut holder, &change, reach).await?;
        self.count(&change, &asked, &holder);
        holder.told = holder.notices(&change.tell);
        Ok(holder)
    }

    /// Counts what a holder was told first by this change.
    fn count(&self, change: &Change, asked: &Holder, raised: &Holder) {
        if !change.tell.is_empty() {
            let subject = raised.named.as_ref().map(|named| named.key);
            self.ledger.count(&change.tell, (asked.merged(), raised.merged()), subject);
        }
    }

    /// What is known of a session, and its token joined.
    pub fn resolve_session(&self, holder: &Holder) -> ResolvedSession {
        let merged = holder.merged();
        let unknown = |key: &ComponentKey| {
            // An absent record says nothing as long as the store may have forgotten it.
            let forgotten = holder.barrier(*key).is_some() && merged.is_empty();
            forgotten || holder.ignorance(*key, &self.guards).is_some()
        };
        let state = if self.partitions.iter().any(unknown) {
            SessionState::Unknown
        } else if merged.is_empty() {
            SessionState::None
        } else {
            SessionState::Known
        };
        let notices = merged.notices().copied().collect();
        ResolvedSession { state, token: self.all_of(holder), notices }
    }

    /// One token that says all of a session, what the store may have forgotten included; empty if
    /// the caller has it already.
    fn all_of(&self, holder: &Holder) -> String {
        let merged = holder.merged();
        let forgotten = |key: &ComponentKey| {
            let ignorance = holder.ignorance(*key, &self.guards);
            let by_store =
                matches!(ignorance, Some(Ignorance::StoreUnavailable | Ignorance::StoreLost));
            by_store || holder.barrier(*key).is_some()
        };
        let all =
            if self.partitions.iter().any(forgotten) { doubted(merged) } else { merged.clone() };
        if all == holder.carried {
            return self.token(holder, true);
        }
        self.sealed(&all, holder)
    }

    /// Takes notices out of every holder named, for good; returns the token to carry from now on,
    /// empty if what is carried stands.
    ///
    /// # Errors
    /// [`SessionError::Store`] if the record could not be changed.
    pub async fn acknowledge(
        &self,
        holder: &Holder,
        ids: &[NoticeId],
    ) -> Result<String, SessionError> {
        let mut holder = holder.clone();
        let change = Change { acknowledge: ids.to_vec(), ..Change::default() };
        let (token, record) = (holder.carries_token(), holder.has_subject());
        self.raise(&mut holder, &change, Reach { token, record, record_must: true }).await?;
        Ok(self.token(&holder, true))
    }

    /// Raises the record, then what is carried; says where it was kept, or why it was not.
    async fn raise(
        &self,
        holder: &mut Holder,
        change: &Change,
        reach: Reach,
    ) -> Result<(Option<Stored>, Option<StoreError>), SessionError> {
        let (mut stored, mut unkept) = (None, None);
        if let Some(named) = &mut holder.named
            && let Some(part) = of_record(change, named, reach)
        {
            let update = self.store.update(named.key, &part).instrument(step_span(Step::Update));
            match update.await {
                Ok(kept) => {
                    stored = Some(kept.stored);
                    // As after a lookup: what is there now may lack what was there then.
                    named.looked = Ok(Looked { record: Some(kept.record), worth: kept.worth });
                    named.looked_at = self.clock.now();
                }
                Err(error) if reach.record_must => return Err(error.into()),
                Err(error) => {
                    tracing::debug!(%error, "a read raises its token: its record cannot be");
                    unkept = Some(error);
                }
            }
        }
        let part = part_of(change, &holder.carried, reach.token || unkept.is_some());
        if let Some(part) = part {
            holder.raised |= part.apply_to_carried(&mut holder.carried);
        }
        holder.merge();
        Ok((stored, unkept))
    }

    /// The token of what is carried; empty if the caller has it already.
    fn token(&self, holder: &Holder, may_replace: bool) -> String {
        let replaces = may_replace && (holder.tokens > 1 || holder.unreadable);
        if !holder.raised && !replaces {
            return String::new();
        }
        self.sealed(&holder.carried, holder)
    }

    fn sealed(&self, token: &SessionToken, holder: &Holder) -> String {
        let issued_seconds = self.clock.wall_seconds();
        let body = token.encode_within(issued_seconds, holder.body_bytes);
        self.keys.current().seal_at(&body, self.clock.now())
    }
}

/// The part of a change the store is asked to apply; `None`: it is not asked.
///
/// A read that changes nothing is not written. A write is: its answer says where it is kept.
fn of_record(change: &Change, named: &Named, reach: Reach) -> Option<Change> {
    if change.is_empty() {
        return None;
    }
    // As far as it is known: what it really holds is seen where it is changed.
    let nothing = SessionToken::new();
    let held = named.found().unwrap_or(&nothing);
    let part = part_of(change, held, reach.record)?;
    let asked = reach.record_must && reach.record || part.apply(&mut held.clone());
    asked.then_some(part)
}
