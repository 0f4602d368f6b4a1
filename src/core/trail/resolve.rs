//! `resolve`: what one read demands, from what its session depends on.
//!
//! Every mark is judged against the line of the current leader *before* any node is asked whether
//! it covers it. What is lost or unknown is replaced by a leader sample sent after the call, and
//! told. Ignorance is a demand for freshness, never "none".

use std::time::Duration;

use super::judge::{Judged, Line, replacement};
use super::{Floor, Sample};
use crate::instant::Instant;
use crate::lineage::{Epoch, Kept};
use crate::position::Position;
use crate::token::{Component, ComponentKey, Mark, NoticeKind};

/// Whether what a session depends on is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Everything it depends on is in the component.
    Yes,
    /// It may depend on more: an unreadable token, an unbelieved lookup, a dropped component.
    No,
}

/// What a read asks for.
#[derive(Clone, Debug)]
pub struct Requested<'a> {
    /// The component's key today.
    pub key: ComponentKey,
    /// What the session depends on in this partition.
    pub component: Option<&'a Component>,
    /// Components of former databases of this partition; `true`: the operator said it was upgraded.
    pub former: Vec<(ComponentKey, &'a Component, bool)>,
    /// Whether that is all.
    pub known: Known,
    /// Says whether the session's guarantees are asked for at all.
    pub session: bool,
    /// The largest staleness a session without a component may meet, if the gate binds it.
    pub gate: Option<Duration>,
    /// What covers all that the token store last forgot, if that still matters.
    pub barrier: Option<(Epoch, Position)>,
    /// The largest staleness asked for.
    pub bound: Option<Duration>,
    /// Demands everything acknowledged before the call.
    pub global: bool,
    /// When the call arrived and all of the above was known: a sample sent before proves nothing.
    pub since: Instant,
    /// A sample was asked for and did not come in time: answer without it.
    pub gave_up: bool,
}

/// What a resolved session demands, and what its holders must be told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// What a node must satisfy.
    pub floor: Floor,
    /// Something is demanded that nothing can show now: no node satisfies it.
    pub unprovable: Option<Unprovable>,
    /// The gate could not be proven: read-your-writes is not promised.
    pub ungated: bool,
    /// What every holder named is raised by.
    pub raise: Raise,
    /// What was lost.
    pub losses: Vec<Loss>,
}

/// Why nothing can satisfy a read now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unprovable {
    /// No leader is known, and something must be judged by one.
    NoLeader,
    /// Several nodes claim to lead, and not all of them have what is demanded.
    Split,
    /// The leader did not answer in time.
    NoSample,
    /// A mark names a line no configured node shows.
    UnknownEpoch {
        /// The timeline of that line.
        timeline: u32,
    },
}

/// A change to a session's holders. Idempotent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Raise {
    /// Components to join.
    pub join: Vec<(ComponentKey, Component)>,
    /// Marks that were replaced: dropped where they are still the same.
    pub drop: Vec<(ComponentKey, Epoch, Mark)>,
    /// Components whose unresolved demand is met by what is joined.
    pub settle: Vec<ComponentKey>,
}

impl Raise {
    /// Says whether it changes nothing.
    pub const fn is_empty(&self) -> bool {
        self.join.is_empty() && self.drop.is_empty() && self.settle.is_empty()
    }
}

/// A loss to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// How grave.
    pub kind: NoticeKind,
    /// The epoch whose end was lost.
    pub lost: Epoch,
    /// The epoch that goes on without it.
    pub child: Epoch,
    /// The end of what the session knew of the lost epoch; the start, where that is not known.
    pub upto: Position,
    /// The mark lay beyond what its own leader had: a position from nowhere.
    pub future: bool,
}

/// Whether a read can be decided.
#[expect(clippy::large_enum_variant, reason = "nearly every read is ready: a box would cost each")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// It can.
    Ready(Ready),
    /// First a leader sample sent at or after `since` must come.
    NeedSample {
        /// As [`Requested::since`]; now, where only a bound wants it.
        since: Instant,
    },
}

/// Works out what a read demands of a node.
pub fn resolve(asked: &Requested<'_>, line: &Line<'_>, now: Instant) -> Resolution {
    let mut ready = Ready::default();
    match resolve_into(&mut ready, asked, line, now) {
        None => Resolution::Ready(ready),
        Some(since) => Resolution::NeedSample { since },
    }
}

/// As [`resolve`], into a new `ready`: it is large to be moved for every read.
///
/// Returned is when the leader sample must have been sent that must come first, if one must.
pub fn resolve_into(
    ready: &mut Ready,
    asked: &Requested<'_>,
    line: &Line<'_>,
    now: Instant,
) -> Option<Instant> {
    ready.floor = Floor::judged_for(line.leadership, line.history);
    let mut work = Work { asked, line, ready, wants_since: None };
    work.by_time(now);
    if asked.session {
        work.by_session(now);
    }
    let may_wait = !asked.gave_up && line.leadership.leader().is_some();
    work.wants_since.filter(|_| may_wait)
}

struct Work<'a, 'b> {
    asked: &'a Requested<'a>,
    line: &'a Line<'b>,
    ready: &'a mut Ready,
    /// When the leader sample must have been sent that is missing.
    wants_since: Option<Instant>,
}

impl Work<'_, '_> {
    /// A leader sample sent after the call; without one, nothing can satisfy the read.
    fn fresh(&mut self) -> Option<Sample> {
        let fresh = self.line.alive_since(self.asked.since).next();
        if fresh.is_none() {
            self.want(self.asked.since);
            self.stuck(self.line.why_no_sample());
        }
        fresh
    }

    /// A leader sample sent at or after `since` is missing.
    fn want(&mut self, since: Instant) {
        self.wants_since = Some(self.wants_since.map_or(since, |other| other.max(since)));
    }

    fn stuck(&mut self, why: Unprovable) {
        self.ready.unprovable.get_or_insert(why);
    }

    fn demand(&mut self, sample: Sample) {
        self.ready.floor.demand(sample.epoch, sample.position);
    }

    /// The oldest leader sample by which an answer with this bound may be given.
    fn young(&self, bound: Duration, now: Instant) -> Option<Sample> {
        self.line.alive_since(now - self.line.lease(bound).age_max()).next()
    }

    fn by_time(&mut self, now: Instant) {
        if self.asked.global
            && let Some(sample) = self.fresh()
        {
            self.demand(sample);
        }
        if let Some(bound) = self.asked.bound {
            match self.young(bound, now) {
                Some(sample) => self.demand(sample),
                // One sent after the call may be too old by now as well.
                None => {
                    self.want(now);
                    self.stuck(self.line.why_no_sample());
                }
            }
        }
    }

    fn by_session(&mut self, now: Instant) {
        if let Some(window) = self.asked.gate.filter(|_| self.line.guards.gate()) {
            match self.young(window, now) {
                Some(sample) => self.demand(sample),
                None => self.ready.ungated = true,
            }
        }
        if let Some((epoch, position)) = self.asked.barrier {
            self.barrier(epoch, position);
        }
        if self.asked.known == Known::No
            && self.line.guards.unknown_upward()
            && let Some(sample) = self.fresh()
        {
            self.demand(sample);
            self.join(sample.epoch, Mark::demand(sample.position));
        }
        self.former();
        if let Some(component) = self.asked.component {
            self.component(component);
        }
    }

    /// Another leader's sample says nothing of what was recorded under this one.
    fn barrier(&mut self, epoch: Epoch, position: Position) {
        let mark = Mark::demand(position);
        let stands = !self.line.is_demand_of_another(epoch, &mark)
            && self.line.judge(epoch, &mark) == Judged::Alive;
        if stands {
            self.ready.floor.demand(epoch, position);
        } else if let Some(sample) = self.fresh() {
            self.demand(sample);
        }
    }

    fn join(&mut self, epoch: Epoch, mark: Mark) {
        self.ready.raise.join.push((self.asked.key, Component::of(epoch, mark)));
    }

    /// Marks of a database this partition was served by before.
    fn former(&mut self) {
        for (key, component, upgraded) in &self.asked.former {
            let Some(sample) = self.fresh() else { return };
            self.demand(sample);
            self.join(sample.epoch, Mark::demand(sample.position));
            if component.unresolved {
                self.ready.raise.settle.push(*key);
            }
            for (epoch, mark) in component.marks() {
                self.ready.raise.drop.push((*key, epoch, mark));
                if !upgraded && (mark.has_write() || mark.saw.is_some()) {
                    let kind = NoticeKind::PossiblyLost;
                    let (lost, child, upto) = (epoch, sample.epoch, mark.floor);
                    self.ready.losses.push(Loss { kind, lost, child, upto, future: false });
                }
            }
        }
    }

    fn component(&mut self, component: &Component) {
        if component.unresolved
            && self.line.guards.unknown_upward()
            && let Some(sample) = self.fresh()
        {
            self.demand(sample);
            self.join(sample.epoch, Mark::demand(sample.position));
            self.ready.raise.settle.push(self.asked.key);
        }
        for (epoch, mark) in component.marks_held() {
            self.mark(*epoch, mark);
        }
        // A mark alone has no heir.
        if self.asked.known == Known::Yes && component.marks_held().len() > 1 {
            self.prune(component);
        }
    }

    fn mark(&mut self, epoch: Epoch, mark: &Mark) {
        if !self.line.guards.leader_first() {
            self.ready.floor.demand(epoch, mark.floor);
            return;
        }
        if self.line.is_demand_of_another(epoch, mark) && self.line.guards.unknown_upward() {
            // It stands for what is not known: another leader's sample says nothing of that.
            let Some(sample) = self.fresh() else { return };
            self.demand(sample);
            self.ready.raise.drop.push((self.asked.key, epoch, *mark));
            self.join(sample.epoch, Mark::demand(sample.position));
            return;
        }
        match self.line.judge(epoch, mark) {
            Judged::Alive if self.line.is_beyond_leader(epoch, mark.floor) => {
                self.beyond_leader(epoch, *mark);
            }
            Judged::Alive if mark.write_end_is_unknown() => self.open_end(epoch, *mark),
            Judged::Alive => self.ready.floor.demand(epoch, mark.floor),
            Judged::Lost { kept, at_most } => {
                let kind = self.line.loss_kind(mark, &kept, Some(at_most));
                self.replace(epoch, *mark, &kept, Some(at_most), kind);
            }
            Judged::Unknown { kept } => {
                if !self.line.guards.unknown_upward() {
                    return;
                }
                if self.line.timeline_is_below(epoch) && !self.line.has_yielded(epoch) {
                    if self.line.alive_since(self.asked.since).next().is_none() {
                        self.want(self.asked.since);
                    }
                    self.stuck(Unprovable::UnknownEpoch { timeline: epoch.timeline });
                    return;
                }
                let kind = self.line.loss_kind(mark, &kept, None);
                self.replace(epoch, *mark, &kept, None, kind);
            }
            Judged::NoLeader => self.stuck(Unprovable::NoLeader),
            Judged::Split => self.stuck(Unprovable::Split),
        }
    }

    /// A mark past what its own leader was seen to have: the next sample judges it.
    fn beyond_leader(&mut self, epoch: Epoch, mark: Mark) {
        let fresh = self.line.alive_since(self.asked.since).next();
        match fresh {
            None => {
                self.want(self.asked.since);
                self.ready.floor.demand(epoch, mark.floor);
            }
            Some(sample) if sample.epoch != epoch || sample.position.covers(mark.floor) => {
                self.ready.floor.demand(epoch, mark.floor);
                if mark.write_end_is_unknown() {
                    self.open_end(epoch, mark);
                }
            }
            Some(sample) => {
                let clip = |position: Position| position.meet(sample.position);
                let kept = Mark {
                    floor: sample.position,
                    after: mark.after.map(clip),
                    upto: mark.upto.map(clip),
                    saw: mark.saw.map(clip),
                    led: mark.led.map(clip),
                    flushed: mark.flushed.map(clip),
                };
                self.demand(sample);
                self.ready.raise.drop.push((self.asked.key, epoch, mark));
                self.join(epoch, kept);
                let kind = NoticeKind::PossiblyLost;
                let (lost, child, upto) = (epoch, epoch, mark.floor);
                self.ready.losses.push(Loss { kind, lost, child, upto, future: true });
            }
        }
    }

    /// A write whose end is unknown is demanded up to a sample sent after the call.
    fn open_end(&mut self, epoch: Epoch, mark: Mark) {
        let Some(sample) = self.fresh() else { return };
        self.demand(sample);
        self.ready.floor.demand(epoch, mark.floor);
        if !self.line.history.descends(sample.epoch, epoch) {
            // A sample from before the mark's epoch began: it shows no end of a write in it.
            self.stuck(Unprovable::NoSample);
            return;
        }
        // The mark is alive there: the write is in the sample's line, and ended before it.
        let floor = mark.floor.join(sample.position);
        self.ready.raise.drop.push((self.asked.key, epoch, mark));
        self.join(sample.epoch, Mark { floor, upto: Some(floor), ..mark });
    }

    fn replace(
        &mut self,
        epoch: Epoch,
        mark: Mark,
        kept: &Kept,
        at_most: Option<Position>,
        kind: Option<NoticeKind>,
    ) {
        let Some(sample) = self.fresh() else { return };
        self.demand(sample);
        self.ready.raise.drop.push((self.asked.key, epoch, mark));
        self.join(sample.epoch, replacement(&mark, sample, kept, at_most));
        if let Some(kind) = kind {
            let child = self.line.child_of(epoch, sample.epoch);
            let (lost, upto) = (epoch, mark.floor);
            self.ready.losses.push(Loss { kind, lost, child, upto, future: false });
        }
    }

    /// A mark goes when a later one covers it, which takes over what was written and seen.
    fn prune(&mut self, component: &Component) {
        for (epoch, mark) in component.marks() {
            let heir = component.marks().find(|(later, _)| {
                *later != epoch
                    && self.line.knows_alive(*later)
                    && self.line.is_alive_in(*later, epoch, &mark)
            });
            let Some((later, heir)) = heir else { continue };
            if mark.write_end_is_unknown() || heir.write_end_is_unknown() {
                continue;
            }
            // What is alive in the heir's line lies below whatever the heir's epoch added to it.
            self.ready.raise.drop.push((self.asked.key, epoch, mark));
            self.join(later, mark);
        }
    }
}
