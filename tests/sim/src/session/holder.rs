//! Who is asking and who is raised: the calls of `src/sessions`, on bytes that no key seals.

use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, SystemId};
use tidegate_core::position::Position;
use tidegate_core::store_guard::{Belief, EmbeddedGuard};
use tidegate_core::token::{
    BodyLimits, Change, Component, ComponentKey, Mark, Notice, PartitionId, SessionToken,
};
use tidegate_core::trail::Known;

use crate::check::{Corner, Dep, Deps};
use crate::instance::Instance;
use crate::sim::State;

/// Marks a component keeps, one per epoch: the limit the README names.
const MARKS_MAX: usize = 4;

/// One caller: the token it carries and the record of the subject it names.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) carried: SessionToken,
    tokens: usize,
    raised: bool,
    named: Option<Named>,
    room: usize,
    merged: SessionToken,
}

#[derive(Clone, Debug)]
struct Named {
    subject: usize,
    /// The instance that looked it up.
    at: usize,
    record: Option<SessionToken>,
    guard: EmbeddedGuard,
    looked_at: Instant,
}

/// Whom a call raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    Write,
    TokenOrRecord,
    All,
}

/// What a call made of its caller's session.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// The token to carry from now on; empty: what is carried stands.
    pub(crate) token: Vec<u8>,
    pub(crate) notices: Vec<Notice>,
    /// What its holders hold together afterwards.
    pub(crate) merged: SessionToken,
    /// The token was raised.
    pub(crate) raised_token: bool,
    /// The record was raised.
    pub(crate) raised_record: bool,
    /// Epochs whose marks did not fit any more, of the token and of the record.
    pub(crate) fifth: [Vec<Epoch>; 2],
    /// The component did not fit into the token.
    pub(crate) dropped: bool,
}

#[derive(Clone, Copy)]
struct Reach {
    token: bool,
    record: bool,
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
        Some(named.guard.belief(Instance::key(), named.looked_at, guards))
    }

    pub(crate) fn known(&self, guards: &Guards) -> Known {
        if self.belief(guards) == Some(Belief::Unknown) {
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
            Whom::Write => Some(Reach { token: true, record: subject }),
            Whom::TokenOrRecord => Some(Reach { token, record: !token }),
            Whom::All => Some(Reach { token, record: subject }),
        }
    }
}

impl State {
    /// Who is asking, and what it depends on as far as it told the service.
    pub(crate) fn identify(&mut self, at: usize, device: usize) -> (Holder, Deps) {
        let own = &self.devices[device];
        let mut deps = Deps::default();
        let mut carried = SessionToken::new();
        let mut tokens = 0;
        if own.carries {
            deps.join(&own.deps, &self.world);
            tokens = own.tokens.len();
            for body in &own.tokens {
                let read = SessionToken::decode(body, BodyLimits::default());
                carried.join(&read.expect("own bytes are read back").0);
            }
        }
        let (room, subject) = (own.room, own.subject);
        let named = subject.map(|subject| {
            let record = self.store.lookup(subject, self.now);
            deps.join(&self.store.deps[subject], &self.world);
            // Read after the lookup: what the store forgot before it is known by then.
            let guard = self.instances[at].guard.clone();
            Named { subject, at, record, guard, looked_at: self.instant() }
        });
        let merged = SessionToken::new();
        let mut holder = Holder { carried, tokens, raised: false, named, room, merged };
        holder.merge();
        for epoch in holder.beyond_merge() {
            deps.unmark(Some(epoch), Corner::FifthLife, &self.world);
        }
        (holder, deps)
    }

    /// Raises the holders of a caller by what a call judged or learned, and writes the token.
    pub(crate) fn commit(&mut self, holder: &Holder, change: &Change, whom: Whom) -> Committed {
        let mut holder = holder.clone();
        let reach = holder.reach(whom);
        let fifth = match reach {
            Some(reach) => self.raise(&mut holder, change, reach),
            None => [Vec::new(), Vec::new()],
        };
        let mut told = holder.merged().clone();
        change.tell.iter().for_each(|notice| told.tell(*notice));
        let notices = told.notices().copied().collect();
        let replaces = reach.is_some() && holder.tokens > 1;
        let token = if holder.raised || replaces {
            holder.carried.encode_within(self.now / 1_000_000_000, holder.room)
        } else {
            Vec::new()
        };
        let dropped = !token.is_empty() && holder.carried.component(Instance::key()).is_some() && {
            let read = SessionToken::decode(&token, BodyLimits::default());
            let is_gone =
                read.expect("own bytes are read back").0.component(Instance::key()).is_none();
            // One that goes while there is room was forgotten, and nothing excuses that.
            is_gone && holder.carried.encode(self.now / 1_000_000_000).len() > holder.room
        };
        Committed {
            token,
            notices,
            merged: holder.merged,
            raised_token: reach.is_some_and(|reach| reach.token),
            raised_record: reach.is_some_and(|reach| reach.record),
            fifth,
            dropped,
        }
    }

    /// Raises every holder the caller names by evidence it brought with this call.
    pub(crate) fn adopt(&mut self, holder: &mut Holder, change: &Change) -> [Vec<Epoch>; 2] {
        let record = holder.named.is_some();
        let reach = Reach { token: holder.adopts_into_token(), record };
        self.raise(holder, change, reach)
    }

    pub(crate) fn acknowledge(&mut self, holder: &Holder, change: &Change) -> Committed {
        let mut holder = holder.clone();
        let (token, record) = (holder.tokens > 0, holder.named.is_some());
        let fifth = self.raise(&mut holder, change, Reach { token, record });
        let mut committed = self.commit(&holder, &Change::default(), Whom::All);
        committed.fifth = fifth;
        committed
    }

    fn raise(&mut self, holder: &mut Holder, change: &Change, reach: Reach) -> [Vec<Epoch>; 2] {
        let mut fifth = [Vec::new(), Vec::new()];
        let now = self.now;
        if let Some(named) = &mut holder.named
            && !change.is_empty()
        {
            let held = named.record.clone().unwrap_or_default();
            if let Some(part) = part_of(change, &held, reach.record) {
                // Somebody else may have raised it since: what is there is what the store says.
                let before = self.store.lookup(named.subject, now).unwrap_or_default();
                let kept = self.store.update(named.subject, &part, now);
                fifth[1] = pushed_out(&before, &part, &kept);
                named.record = Some(kept);
                // The store may have forgotten since the lookup.
                named.guard = self.instances[named.at].guard.clone();
            }
        }
        if let Some(part) = part_of(change, &holder.carried, reach.token) {
            let before = holder.carried.clone();
            holder.raised |= part.apply(&mut holder.carried);
            fifth[0] = pushed_out(&before, &part, &holder.carried);
        }
        holder.merge();
        fifth
    }
}

fn marks(token: &SessionToken) -> Vec<Epoch> {
    let component = token.component(Instance::key()).into_iter();
    component.flat_map(|component| component.marks().map(|(epoch, _)| epoch)).collect()
}

/// Epochs whose marks had to go because a component keeps only so many.
fn pushed_out(before: &SessionToken, change: &Change, after: &SessionToken) -> Vec<Epoch> {
    let kept = marks(after);
    let replaced = |epoch: &Epoch| change.drop.iter().any(|(_, gone, _)| gone == epoch);
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
        join: joined(&change.join, held),
        tell: if told { change.tell.clone() } else { Vec::new() },
        acknowledge: if raised { change.acknowledge.clone() } else { Vec::new() },
    })
}

fn joined(join: &SessionToken, held: &SessionToken) -> SessionToken {
    if !held.overflow {
        return join.clone();
    }
    let covers_all = |component: &Component| {
        component.marks().any(|(_, mark)| !mark.has_write() && mark.saw.is_none())
    };
    let mut joined = join.clone();
    for (key, component) in join.components() {
        if held.component(key).is_none() && !covers_all(component) {
            joined.join_component(key, &Component::unresolved());
        }
    }
    joined
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

impl Committed {
    /// Gives the holders that were raised what this call made them depend on.
    pub(crate) fn spread(&self, state: &mut State, device: usize, new: &[Dep]) {
        let State { devices, store, world, .. } = state;
        let own = &mut devices[device];
        if !self.token.is_empty() && own.carries {
            own.tokens = vec![self.token.clone()];
        }
        for (_, dep, raised) in std::mem::take(&mut own.delivered) {
            if let Some(dep) = dep.filter(|_| raised && own.carries) {
                own.deps.add(dep, world);
            }
        }
        if self.raised_token && own.carries {
            for dep in new {
                own.deps.add(*dep, world);
            }
        }
        for epoch in &self.fifth[0] {
            own.deps.unmark(Some(*epoch), Corner::FifthLife, world);
        }
        if self.dropped {
            own.deps.unmark(None, Corner::NoRoom, world);
        }
        let Some(subject) = own.subject else { return };
        if self.raised_record {
            for dep in new {
                store.deps[subject].add(*dep, world);
            }
        }
        for epoch in &self.fifth[1] {
            store.deps[subject].unmark(Some(*epoch), Corner::FifthLife, world);
        }
    }
}
