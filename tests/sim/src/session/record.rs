//! Evidence of a write or a read, turned into marks, as `src/reads/record.rs` does.

use std::time::Duration;

use tidegate_core::evidence::{Evidence, EvidenceKind};
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, Incarnation};
use tidegate_core::partition::{Event, Need};
use tidegate_core::position::Position;
use tidegate_core::token::{Change, Component, Mark, NoticeKind, SessionToken};
use tidegate_core::trail::Loss;

use super::committed::Committed;
use super::holder::{Holder, Raised, Whom, identify};
use super::judged::losses_to_notices;
use crate::check::{Corner, Dep, Deps};
use crate::instance::{Instance, POLL_TIMEOUT, VIEW_MAX_AGE};
use crate::sim::{Sim, State};
use crate::world::log::Rec;

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
    if sim.with(|state| state.instances[at].life) != life {
        return None;
    }
    let whom = if learned.wrote { Whom::Write } else { whom };
    let change = learned.change(sim.now());
    let new: Vec<Dep> = dep.map(|dep| learned.dep(dep)).into_iter().collect();
    let tips: Vec<Rec> = new.iter().map(|dep| dep.tip).collect();
    sim.with(|state| state.writes(device, &new));
    let committed = holder.commit(sim, &change, whom, &tips).await;
    sim.with(|state| {
        if state.instances[at].life != life {
            return None;
        }
        committed.spread(state, device, &new);
        state.tell(at, device, &committed, &change.tell, &mut deps);
        Some(committed)
    })
}

impl State {
    /// Notes what is about to be recorded of a subject, whether anybody answers or not.
    fn writes(&mut self, device: usize, new: &[Dep]) {
        let Some(subject) = self.devices[device].subject else { return };
        let wrote = new.iter().filter(|dep| dep.wrote);
        let writes = wrote.filter_map(|dep| Some((dep.tip, dep.epoch?)));
        self.store.writes[subject].extend(writes);
    }
}

/// Who is asking, after evidence it could not record before was recorded.
pub(crate) async fn delivered(sim: &Sim, at: usize, device: usize) -> (Holder, Deps) {
    let since = sim.with(|state| state.instant());
    let (mut holder, mut deps) = identify(sim, at, device).await;
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
        if sim.with(|state| state.instances[at].life) != life {
            // The call failed: the client keeps it.
            sim.with(|state| state.devices[device].pending.push(one.clone()));
            continue;
        }
        let change = learned.change(sim.now());
        sim.with(|state| state.writes(device, &[learned.dep(one.dep)]));
        let Raised { fifth, promise } = holder.adopt(sim, &change, &[one.dep.tip]).await;
        sim.with(|state| {
            if state.instances[at].life != life {
                state.devices[device].pending.push(one.clone());
                return;
            }
            let own = &state.devices[device];
            holder.forget_since(&mut deps, own.carries.then_some(&own.deps), state);
            for epoch in holder.without(fifth.iter().flatten()) {
                deps.unmark(Some(epoch), Corner::FifthLife, &state.world);
            }
            // What its loss tells of is gone at once.
            let mut left = Deps { all: vec![learned.dep(one.dep)], ..Deps::default() };
            state.check.told(&change.tell, &mut left, &state.world);
            let dep = left.all.first().map(|dep| Dep { promise, ..*dep });
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
            let mark = evidence.written(before.as_ref(), false, &guards).ok()?;
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
            let proven = sim.with(|state| state.instances[at].snapshot.mark_of_sample(&evidence));
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
    let unsampled = !guards.sample_after();
    let mut asked_at = since;
    while alive
        && (unsampled || sim.need(at, Need::Incarnation(incarnation), asked_at, until).await)
    {
        let (mark, awaits) = sim.with(|state| {
            asked_at = state.instant();
            let snapshot = &state.instances[at].snapshot;
            (snapshot.mark_seen(incarnation), snapshot.awaits_its_row(incarnation))
        });
        if let Some((epoch, mark)) = mark {
            return Learned::of(epoch, mark, false);
        }
        if unsampled || asked_at >= until || !awaits {
            break;
        }
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
        upto: Position::START,
        future: false,
    });
    Learned {
        component: Component::of(sample.epoch, Mark::demand(sample.position)),
        losses: losses.into_iter().collect(),
        wrote: false,
        epoch: Some(sample.epoch),
    }
}
