//! Evidence of a write or a read, turned into marks, as `src/reads/record.rs` does.

use std::time::Duration;

use tidegate_core::evidence::{Evidence, EvidenceKind, Role};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, Incarnation};
use tidegate_core::partition::{Event, Need};
use tidegate_core::snapshot::Snapshot;
use tidegate_core::token::{Change, Component, Mark, NoticeKind, SessionToken};
use tidegate_core::trail::Loss;
use tidegate_core::views::{NodeId, ViewRole};

use super::holder::{Committed, Holder, Whom};
use super::judged::losses_to_notices;
use crate::check::{Corner, Dep, Deps};
use crate::instance::{Instance, POLL_TIMEOUT, VIEW_MAX_AGE};
use crate::sim::Sim;

/// What a session wrote or saw.
#[derive(Clone, Debug)]
pub(crate) enum Observed {
    Evidence { text: String, before: String },
    Incarnation(Incarnation),
    LeaderNow,
}

/// What was learned.
#[derive(Clone, Debug)]
struct Learned {
    component: Component,
    losses: Vec<Loss>,
    wrote: bool,
    /// The epoch its mark is of.
    epoch: Option<Epoch>,
}

impl Learned {
    fn of(epoch: Epoch, mark: Mark, wrote: bool) -> Self {
        let component = Component::of(epoch, mark);
        Self { component, losses: Vec::new(), wrote, epoch: Some(epoch) }
    }

    fn nothing(wrote: bool) -> Self {
        let component = Component::unresolved();
        Self { component, losses: Vec::new(), wrote, epoch: None }
    }

    fn change(&self, now: u64) -> Change {
        Change {
            join: SessionToken::of(Instance::key(), self.component.clone()),
            tell: losses_to_notices(&self.losses, now / 1_000_000_000),
            ..Change::default()
        }
    }

    /// What the session depends on from now on.
    fn dep(&self, dep: Dep) -> Dep {
        let unmarked = self.epoch.is_none().then_some(Corner::NoMark);
        Dep { epoch: self.epoch, unmarked, ..dep }
    }
}

/// Records what a session wrote or saw; `dep` is what that was, if anything.
pub(crate) async fn record(
    sim: &Sim,
    at: usize,
    device: usize,
    observed: &Observed,
    dep: Option<Dep>,
    whom: Whom,
) -> Option<Committed> {
    let since = sim.with(|state| state.instant());
    let life = sim.with(|state| state.instances[at].life);
    let learned = match observed {
        Observed::Evidence { text, before } => from_evidence(sim, at, text, before, since).await?,
        Observed::Incarnation(incarnation) => from_incarnation(sim, at, *incarnation, since).await,
        Observed::LeaderNow => from_leader(sim, at, since, None).await,
    };
    let (holder, mut deps) = delivered(sim, at, device).await;
    sim.with(|state| {
        if state.instances[at].life != life {
            return None;
        }
        let whom = if learned.wrote { Whom::Write } else { whom };
        let change = learned.change(state.now);
        let committed = state.commit(&holder, &change, whom);
        let new: Vec<Dep> = dep.map(|dep| learned.dep(dep)).into_iter().collect();
        committed.spread(state, device, &new);
        state.tell(at, device, &committed, &change.tell, &mut deps);
        Some(committed)
    })
}

/// Who is asking, after evidence it could not record before was recorded.
pub(crate) async fn delivered(sim: &Sim, at: usize, device: usize) -> (Holder, Deps) {
    let since = sim.with(|state| state.instant());
    let (mut holder, mut deps) = sim.with(|state| state.identify(at, device));
    let pending = sim.with(|state| {
        let own = &mut state.devices[device];
        // The last call that delivered these failed: nobody heard of its token.
        let failed = std::mem::take(&mut own.delivered).into_iter().map(|(one, ..)| one);
        failed.chain(std::mem::take(&mut own.pending)).collect::<Vec<_>>()
    });
    let life = sim.with(|state| state.instances[at].life);
    for one in pending {
        let learned = from_evidence(sim, at, &one.text, "", since).await;
        let Some(learned) = learned else { continue };
        sim.with(|state| {
            if state.instances[at].life != life {
                // The call failed: the client keeps it.
                state.devices[device].pending.push(one.clone());
                return;
            }
            let change = learned.change(state.now);
            let fifth = state.adopt(&mut holder, &change);
            for epoch in holder.without(fifth.iter().flatten()) {
                deps.unmark(Some(epoch), Corner::FifthLife, &state.world);
            }
            // What its loss tells of is gone at once.
            let mut left = Deps { all: vec![learned.dep(one.dep)], ..Deps::default() };
            state.check.told(&change.tell, &mut left, &state.world);
            let dep = left.all.first().copied();
            state.adopted(device, &fifth, (one.clone(), dep), holder.adopts_into_token());
            deps.join(&left, &state.world);
            state.learn(device, &change.tell, &mut deps);
        });
    }
    (holder, deps)
}

async fn from_evidence(
    sim: &Sim,
    at: usize,
    text: &str,
    before: &str,
    since: Instant,
) -> Option<Learned> {
    let guards = sim.with(|state| state.options.guards());
    let evidence = Evidence::parse(text, &guards).ok()?;
    let before = match before {
        "" => None,
        before => Some(Evidence::parse(before, &guards).ok()?),
    };
    match evidence.kind {
        EvidenceKind::Capture => {
            let mark = written(&evidence, before.as_ref(), &guards)?;
            sim.with(|state| {
                let since = state.instant();
                state.handle(at, Event::Hurry(since));
            });
            Some(mark.map_or_else(
                || Learned::nothing(true),
                |(epoch, mark)| Learned::of(epoch, mark, true),
            ))
        }
        EvidenceKind::Sample => {
            let proven = sim.with(|state| {
                proven_sample(&state.instances[at], &state.instances[at].snapshot, &evidence)
            });
            Some(match proven {
                Some((epoch, mark)) => Learned::of(epoch, mark, false),
                None => from_incarnation(sim, at, evidence.incarnation, since).await,
            })
        }
        EvidenceKind::Before | EvidenceKind::Poll => None,
    }
}

async fn from_incarnation(
    sim: &Sim,
    at: usize,
    incarnation: Incarnation,
    since: Instant,
) -> Learned {
    let (alive, now, guards) = sim.with(|state| {
        let now = state.instant();
        let views = state.instances[at].snapshot.views.iter().flatten();
        let lives = |view: &std::sync::Arc<tidegate_core::views::NodeView>| {
            view.incarnation == incarnation && now.since(view.sent_at) <= VIEW_MAX_AGE
        };
        (views.clone().any(lives), now, state.options.guards())
    });
    let until = now + Duration::from_nanos(POLL_TIMEOUT);
    if alive
        && (!guards.sample_after()
            || sim.need(at, Need::Incarnation(incarnation), since, until).await)
        && let Some((epoch, mark)) = sim.with(|state| seen_of(&state.instances[at], incarnation))
    {
        return Learned::of(epoch, mark, false);
    }
    let read_in = Epoch::new(0, incarnation.life);
    from_leader(sim, at, since, Some(read_in)).await
}

async fn from_leader(sim: &Sim, at: usize, since: Instant, read_in: Option<Epoch>) -> Learned {
    let until = sim.with(|state| state.instant() + Duration::from_nanos(POLL_TIMEOUT));
    let came = sim.need(at, Need::Leader, since, until).await;
    let sample =
        sim.with(|state| state.instances[at].snapshot.trail.since(since).next().filter(|_| came));
    let Some(sample) = sample else { return Learned::nothing(false) };
    let losses = read_in.map(|lost| Loss {
        kind: NoticeKind::PossiblyLost,
        lost,
        child: sample.epoch,
        future: false,
    });
    Learned {
        component: Component::of(sample.epoch, Mark::demand(sample.position)),
        losses: losses.into_iter().collect(),
        wrote: false,
        epoch: Some(sample.epoch),
    }
}

/// The mark of a write; inner `None`: nothing but that there was one is known.
fn written(
    capture: &Evidence,
    before: Option<&Evidence>,
    guards: &Guards,
) -> Option<Option<(Epoch, Mark)>> {
    let (Some(epoch), Role::Writable { insert, flush, .. }) = (capture.epoch(), capture.role)
    else {
        return None;
    };
    let Some(before) = before else {
        return Some(Some((epoch, Mark::wrote(None, insert))));
    };
    let (Some(began_in), Role::Writable { insert: began_at, .. }) = (before.epoch(), before.role)
    else {
        return Some(None);
    };
    if began_in != epoch && guards.moved_capture() {
        return Some(Some((began_in, Mark::wrote_past(began_at))));
    }
    let upto = if before.asynchronous { insert } else { flush };
    Some(Some((epoch, Mark::wrote(Some(began_at.meet(upto)), upto))))
}

/// What a sample proves at once.
fn proven_sample(
    instance: &Instance,
    snapshot: &Snapshot,
    evidence: &Evidence,
) -> Option<(Epoch, Mark)> {
    let position = evidence.position()?;
    let node: Option<NodeId> = instance.living(evidence.incarnation);
    match evidence.role {
        Role::Writable { .. } => evidence.epoch().map(|epoch| (epoch, Mark::saw(position))),
        Role::Standby { received_timeline } => {
            let row = evidence.row?;
            if node.is_some_and(|node| snapshot.quarantine(node).is_some()) {
                return None;
            }
            let view = node.and_then(|node| snapshot.view(node));
            let proven = view.and_then(|view| view.proven_under(row));
            let follows = received_timeline == Some(row.timeline)
                || proven.is_some_and(|proven| proven.covers(position));
            follows.then_some((row, Mark::saw(position)))
        }
    }
}

/// What the latest view of an incarnation proves that a reader may have seen.
fn seen_of(instance: &Instance, incarnation: Incarnation) -> Option<(Epoch, Mark)> {
    let node = instance.living(incarnation)?;
    if instance.snapshot.quarantine(node).is_some() {
        return None;
    }
    let view = instance.snapshot.view(node)?;
    match view.role {
        ViewRole::Writable(epoch) => view.applied.map(|applied| (epoch, Mark::saw(applied))),
        ViewRole::Standby => {
            let place = view.place();
            place.last.zip(place.counted.map(Mark::saw))
        }
    }
}
