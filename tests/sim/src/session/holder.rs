//! Who is asking and who is raised: the calls of `src/sessions`, on bytes that no key seals.

use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, SystemId};
use tidegate_core::position::Position;
use tidegate_core::store_guard::{Belief, Worth};
use tidegate_core::token::{
    BodyLimits, Change, Component, ComponentKey, Mark, Notice, PartitionId, SessionToken,
};
use tidegate_core::trail::Known;

use super::committed::Committed;
use crate::check::{Corner, Deps};
use crate::instance::Instance;
use crate::sim::{Sim, State};
use crate::store::{self, Held, Looked, Promise, StoreKind, version};
use crate::world::log::Rec;

/// Marks a component keeps, one per epoch: the limit the README names.
const MARKS_MAX: usize = 4;

/// One caller: the token it carries and the record of the subject it names.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) carried: SessionToken,
    tokens: usize,
    /// One of them cannot be read.
    unreadable: bool,
    raised: bool,
    named: Option<Named>,
    room: usize,
    merged: SessionToken,
    /// What it was to be told when it came.
    told: Vec<Notice>,
}

#[derive(Clone, Debug)]
pub(super) struct Named {
    subject: usize,
    /// The instance that looked it up.
    at: usize,
    record: Option<SessionToken>,
    worth: Worth,
    held: Option<Held>,
    promise: Promise,
    failed: bool,
    looked_at: Instant,
    /// The instance is of the version before.
    previous: bool,
}

/// Whom a call raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    Write,
    TokenOrRecord,
    All,
}

#[derive(Clone, Copy)]
struct Reach {
    token: bool,
    record: bool,
    /// The store is asked though nothing changes: its answer says where the record is kept.
    must: bool,
}

impl Holder {
    fn merge(&mut self) {
        self.merged = self.carried.clone();
        if let Some(record) = self.named.as_ref().and_then(|named| named.record.as_ref()) {
            self.merged.join(record);
        }
    }

    /// Says whether evidence that comes with a call is raised in what is carried, too.
    pub(crate) const fn adopts_into_token(&self) -> bool {
        self.tokens > 0 || self.named.is_none()
    }

    /// Epochs whose marks do not fit where both holders are joined.
    fn beyond_merge(&self) -> Vec<Epoch> {
        let record = self.named.as_ref().and_then(|named| named.record.as_ref());
        let both = marks(&self.carried).into_iter().chain(record.map(marks).unwrap_or_default());
        let kept = marks(&self.merged);
        // A mark that goes while there is room was forgotten, and nothing excuses that.
        both.filter(|epoch| kept.len() == MARKS_MAX && !kept.contains(epoch)).collect()
    }

    /// Those of `epochs`, and of what either holder holds, of which no mark is left.
    pub(crate) fn without<'a>(&self, epochs: impl Iterator<Item = &'a Epoch>) -> Vec<Epoch> {
        let kept = marks(&self.merged);
        let gone = epochs.copied().filter(|epoch| !kept.contains(epoch));
        gone.chain(self.beyond_merge()).collect()
    }

    pub(crate) const fn merged(&self) -> &SessionToken {
        &self.merged
    }

    pub(crate) fn component(&self) -> Option<&Component> {
        self.merged.component(Instance::key())
    }

    fn belief(&self, guards: &Guards) -> Option<Belief> {
        let named = self.named.as_ref()?;
        Some(named.worth.belief(Instance::key(), named.looked_at, guards))
    }

    pub(crate) fn known(&self, guards: &Guards) -> Known {
        if self.unreadable || self.belief(guards) == Some(Belief::Unknown) {
            return Known::No;
        }
        let key = Instance::key();
        let record = self.named.as_ref().and_then(|named| named.record.as_ref());
        let dropped = |held: &SessionToken| held.overflow && held.component(key).is_none();
        let dropped = dropped(&self.carried) || record.is_some_and(dropped);
        if guards.overflow() && dropped { Known::No } else { Known::Yes }
    }

    pub(crate) fn gate_binds(&self) -> bool {
        self.named.is_some() || self.carried.component(Instance::key()).is_none()
    }

    pub(crate) fn barrier(&self, guards: &Guards) -> Option<(Epoch, Position)> {
        match self.belief(guards)? {
            Belief::Barrier(epoch, position) => Some((epoch, position)),
            Belief::Unknown | Belief::Clear => None,
        }
    }

    const fn reach(&self, whom: Whom) -> Option<Reach> {
        let (subject, carries) = (self.named.is_some(), self.tokens > 0);
        let token = carries || !subject;
        match whom {
            Whom::Write => Some(Reach { token: true, record: subject, must: true }),
            Whom::TokenOrRecord => Some(Reach { token, record: !token, must: false }),
            Whom::All => Some(Reach { token, record: subject, must: false }),
        }
    }
}

/// Who is asking, and what it depends on as far as it told the service.
pub(crate) async fn identify(sim: &Sim, at: usize, device: usize) -> (Holder, Deps) {
    let (own, previous, asked) = sim.with(|state| {
        let own = state.devices[device].clone();
        let owed = own.subject.map(|subject| state.owed(subject, at));
        (own, state.instances[at].previous, owed)
    });
    let mut deps = Deps::default();
    let (mut carried, mut unreadable) = (SessionToken::new(), false);
    let tokens = if own.carries { own.tokens.len() } else { 0 };
    for body in own.tokens.iter().take(tokens) {
        if previous && !version::is_readable(body) {
            unreadable = true;
            continue;
        }
        let read = SessionToken::decode(body, BodyLimits::default());
        carried.join(&read.expect("own bytes are read back").0);
    }
    if unreadable {
        carried = doubted(&carried);
    }
    let named = match own.subject {
        None => None,
        Some(subject) => Some(named(sim, at, subject).await),
    };
    sim.with(|state| {
        if own.carries {
            deps.join(&own.deps, &state.world);
            if unreadable {
                deps.unmark(None, Corner::Unreadable, &state.world);
            }
        }
        if let (Some(named), Some(asked)) = (&named, asked) {
            deps.join(&named.owed(state, asked), &state.world);
        }
    });
    let (room, merged, told, raised) = (own.room, SessionToken::new(), Vec::new(), false);
    let mut holder = Holder { carried, tokens, unreadable, raised, named, room, merged, told };
    holder.merge();
    holder.told = holder.merged.notices().copied().collect();
    for epoch in holder.beyond_merge() {
        sim.with(|state| deps.unmark(Some(epoch), Corner::FifthLife, &state.world));
    }
    (holder, deps)
}

async fn named(sim: &Sim, at: usize, subject: usize) -> Named {
    let Looked { record, worth, held, promise, failed } = store::lookup(sim, at, subject).await;
    let (looked_at, previous) = sim.with(|state| (state.instant(), state.instances[at].previous));
    Named { subject, at, record, worth, held, promise, failed, looked_at, previous }
}

impl Named {
    /// What the subject was promised when it asked, by whether it was found.
    fn owed(&self, state: &State, asked: Deps) -> Deps {
        if state.options.store.kind == StoreKind::Told {
            // What expired is known to be forgotten once it was looked up.
            return state.owed(self.subject, self.at);
        }
        let mut owed = asked;
        self.forget(&mut owed, None, state);
        owed
    }

    /// What the record does not stand for was forgotten.
    pub(super) fn forget(&self, deps: &mut Deps, carried: Option<&Deps>, state: &State) {
        let component = self.record.as_ref().and_then(|record| record.component(Instance::key()));
        let marks: Vec<_> = component.into_iter().flat_map(Component::marks).collect();
        let held = self.held.as_ref().filter(|_| !self.failed).map(|held| (held, &marks[..]));
        deps.forget_but(held, carried, &state.world);
    }

    /// The part of a change that the store is asked to apply; `None`: it is not asked.
    fn part_of(&self, change: &Change, reach: Reach, kind: StoreKind) -> Option<Change> {
        let mut held = self.record.clone().unwrap_or_default();
        let part = part_of(change, &held, reach.record)?;
        // A read that changes nothing is not written. A write is.
        let must = kind == StoreKind::Told || reach.must && reach.record;
        (must || part.apply(&mut held)).then_some(part)
    }
}

/// What was raised.
#[derive(Debug)]
pub(crate) struct Raised {
    /// Epochs whose marks did not fit any more, of the token and of the record.
    pub(crate) fifth: [Vec<Epoch>; 2],
    /// To whom what is recorded is promised.
    pub(crate) promise: Promise,
}

impl Holder {
    /// Raises the holders of a caller by what a call judged or learned, and writes the token.
    pub(crate) async fn commit(
        &self,
        sim: &Sim,
        change: &Change,
        whom: Whom,
        tips: &[Rec],
    ) -> Committed {
        let mut holder = self.clone();
        let tips_of = |holder: &Self| Some(holder.named.as_ref()?.held.as_ref()?.tips.clone());
        let found = tips_of(self);
        let reach = holder.reach(whom);
        let raised = match reach {
            Some(reach) => holder.raise(sim, change, reach, tips).await,
            None => holder.raised_nobody(),
        };
        let issued = sim.now() / 1_000_000_000;
        let notices = holder.notices(&change.tell);
        let held = found.into_iter().chain(tips_of(&holder)).flatten().collect();
        let replaces = reach.is_some() && (holder.tokens > 1 || holder.unreadable);
        let carried = holder.written();
        let token = if holder.raised || replaces {
            carried.encode_within(issued, holder.room)
        } else {
            Vec::new()
        };
        let dropped = !token.is_empty() && carried.component(Instance::key()).is_some() && {
            let read = SessionToken::decode(&token, BodyLimits::default());
            let is_gone =
                read.expect("own bytes are read back").0.component(Instance::key()).is_none();
            // One that goes while there is room was forgotten, and nothing excuses that.
            is_gone && carried.encode(issued).len() > holder.room
        };
        Committed {
            token,
            unreadable: holder.unreadable,
            notices,
            merged: holder.merged,
            raised_token: reach.is_some_and(|reach| reach.token),
            raised_record: reach.is_some_and(|reach| reach.record),
            fifth: raised.fifth,
            dropped,
            promise: raised.promise,
            held,
        }
    }

    /// Raises every holder the caller names by evidence it brought with this call.
    pub(crate) async fn adopt(&mut self, sim: &Sim, change: &Change, tips: &[Rec]) -> Raised {
        let record = self.named.is_some();
        let reach = Reach { token: self.adopts_into_token(), record, must: true };
        let raised = self.raise(sim, change, reach, tips).await;
        self.told = self.notices(&change.tell);
        raised
    }

    /// All it is told and has not acknowledged: what it came with, holds now, and `fresh`.
    fn notices(&self, fresh: &[Notice]) -> Vec<Notice> {
        let mut all = self.merged.clone();
        self.told.iter().chain(fresh).for_each(|notice| all.tell(*notice));
        all.notices().copied().collect()
    }

    pub(crate) async fn acknowledge(&self, sim: &Sim, change: &Change) -> Committed {
        let mut holder = self.clone();
        let (token, record) = (holder.tokens > 0, holder.named.is_some());
        let reach = Reach { token, record, must: true };
        let Raised { fifth, .. } = holder.raise(sim, change, reach, &[]).await;
        let mut committed = holder.commit(sim, &Change::default(), Whom::All, &[]).await;
        committed.fifth = fifth;
        committed
    }

    fn raised_nobody(&self) -> Raised {
        let promise = self.named.as_ref().map_or(Promise::All, |named| named.promise);
        Raised { fifth: [Vec::new(), Vec::new()], promise }
    }

    async fn raise(&mut self, sim: &Sim, change: &Change, reach: Reach, tips: &[Rec]) -> Raised {
        // What is there already is promised as it was found.
        let mut raised = self.raised_nobody();
        let kind = sim.with(|state| state.options.store.kind);
        if let Some(named) = &mut self.named
            && !change.is_empty()
            && let Some(part) = named.part_of(change, reach, kind)
        {
            let kept = store::update(sim, named.at, named.subject, &part, tips).await;
            raised.fifth[1] = pushed_out(&kept.before, &part, &kept.record);
            (raised.promise, named.promise) = (kept.promise, kept.promise);
            named.record = Some(kept.record);
            // The store may have forgotten since the lookup.
            (named.worth, named.held) = (kept.worth, kept.held);
            if kind == StoreKind::Shared {
                (named.failed, named.looked_at) = (kept.failed, sim.with(|state| state.instant()));
            }
        }
        if let Some(part) = part_of(change, &self.carried, reach.token) {
            let before = self.carried.clone();
            self.raised |= part.apply_to_carried(&mut self.carried);
            raised.fifth[0] = pushed_out(&before, &part, &self.carried);
        }
        self.merge();
        raised
    }

    /// What the token is to say, in the words of its version.
    fn written(&self) -> SessionToken {
        let previous = self.named.as_ref().is_some_and(|named| named.previous);
        version::written(&self.carried, previous)
    }

    /// What the record of the subject does not stand for any more was forgotten.
    pub(crate) fn forget_since(&self, deps: &mut Deps, carried: Option<&Deps>, state: &State) {
        let Some(named) = &self.named else { return };
        if state.options.store.kind == StoreKind::Told {
            deps.forget_as(&state.store.deps[named.subject], carried, &state.world);
        } else {
            named.forget(deps, carried, state);
        }
    }
}

/// The token that demands a leader sample of every partition it names, and of all others.
fn doubted(token: &SessionToken) -> SessionToken {
    let mut doubted = token.clone();
    doubted.overflow = true;
    for (key, component) in token.components() {
        let mut component = component.clone();
        component.unresolved = true;
        doubted.replace_component(key, component);
    }
    doubted
}

fn marks(token: &SessionToken) -> Vec<Epoch> {
    let component = token.component(Instance::key()).into_iter();
    component.flat_map(|component| component.marks().map(|(epoch, _)| epoch)).collect()
}

/// Epochs whose marks had to go because a component keeps only so many.
pub(crate) fn pushed_out(
    before: &SessionToken,
    change: &Change,
    after: &SessionToken,
) -> Vec<Epoch> {
    let kept = marks(after);
    let mark = |token: &SessionToken, epoch: Epoch| token.component(Instance::key())?.mark(epoch);
    let replaced = |epoch: &Epoch| {
        let own = mark(before, *epoch);
        let as_judged = |judged: Mark| own.is_none_or(|own| own.join(judged) == judged);
        let mut drops = change.drop.iter().filter(|(_, gone, _)| gone == epoch);
        mark(&change.join, *epoch).is_none() && drops.any(|(_, _, judged)| as_judged(*judged))
    };
    let both = marks(before).into_iter().chain(marks(&change.join));
    let is_full = kept.len() == MARKS_MAX;
    both.filter(|epoch| is_full && !kept.contains(epoch) && !replaced(epoch)).collect()
}

/// The part of `change` that one holder takes, which holds `held`; `None`: it is left alone.
fn part_of(change: &Change, held: &SessionToken, raised: bool) -> Option<Change> {
    let component = |key| held.component(key);
    let replaced = change
        .drop
        .iter()
        .any(|(key, epoch, _)| component(*key).is_some_and(|own| own.mark(*epoch).is_some()));
    let settle: Vec<_> = change
        .settle
        .iter()
        .filter_map(|(key, _)| Some((*key, component(*key)?.clone())))
        .filter(|(_, own)| own.unresolved)
        .collect();
    if !raised && !replaced && settle.is_empty() {
        return None;
    }
    let told = replaced || (raised && change.drop.is_empty());
    Some(Change {
        drop: change.drop.clone(),
        settle,
        join: change.join.clone(),
        tell: if told { change.tell.clone() } else { Vec::new() },
        acknowledge: if raised { change.acknowledge.clone() } else { Vec::new() },
    })
}

/// Components of other partitions, all of them newer than any of ours.
pub(crate) fn crowd() -> SessionToken {
    let mut crowd = SessionToken::new();
    for partition in 2..8 {
        let life = tidegate_core::lineage::Life { start: i64::MAX / 4, reset: i64::MAX / 4 };
        let key = ComponentKey::new(PartitionId::new(partition), SystemId::new(9));
        let position = tidegate_core::position::Lsn::new(u64::from(partition) << 24).into();
        crowd.join_component(key, &Component::of(Epoch::new(1, life), Mark::saw(position)));
    }
    crowd
}
