//! `Line`: the line of the current leader, and what it makes of one mark.
//!
//! Judges and words losses. It changes nothing and asks no node.

use super::{ClockDrift, LeaderTrail, Lease, Sample, Unprovable};
use crate::guards::Guards;
use crate::instant::Instant;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::{Facts, Leadership};
use crate::lineage::{Epoch, Fork, History, Kept, Relation};
use crate::position::Position;
use crate::token::{Mark, NoticeKind};
use crate::views::{NodeView, ViewRole};

/// The line of the current leader, as one snapshot knows it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Who leads.
    pub leadership: &'a Leadership,
    /// Which epochs followed which.
    pub history: &'a History,
    /// What the leader had, and when.
    pub trail: &'a LeaderTrail,
    /// What polls have shown of each epoch, and what an operator has said.
    pub facts: &'a Facts,
    /// What was last seen of each node.
    pub views: &'a [Option<Arc<NodeView>>],
    /// A node off the leader's line was seen lately: what seems lost may still come back.
    pub stray_seen: bool,
    /// By how much the rate of a clock may be off.
    pub clock_drift: ClockDrift,
    /// The rules in force.
    pub guards: &'a Guards,
}

/// What the current leadership makes of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    Alive,
    Lost { kept: Kept, at_most: Position },
    Unknown { kept: Kept },
    NoLeader,
    Split,
}

impl Line<'_> {
    /// What a bound allows here.
    pub fn lease(&self, bound: Duration) -> Lease {
        Lease::of(bound, self.clock_drift, self.guards)
    }

    /// Judges one mark.
    #[inline]
    pub(super) fn judge(&self, epoch: Epoch, mark: &Mark) -> Judged {
        match self.leadership {
            Leadership::Leader(leader) if leader.epoch == epoch => Judged::Alive,
            Leadership::Leader(leader) => self.relation(leader.epoch, epoch, mark),
            Leadership::Last(head) => match self.relation(*head, epoch, mark) {
                Judged::Alive => Judged::Alive,
                Judged::Lost { .. } | Judged::Unknown { .. } | Judged::NoLeader | Judged::Split => {
                    Judged::NoLeader
                }
            },
            Leadership::Nobody => Judged::NoLeader,
            Leadership::Split(heads) => {
                let alive =
                    |epoch_of_head| self.relation(epoch_of_head, epoch, mark) == Judged::Alive;
                // Two nodes in one epoch are two logs under one name: it proves neither.
                let twice = |at: usize| heads[..at].iter().any(|h| h.epoch == heads[at].epoch);
                let fine = if self.guards.split() {
                    heads.iter().all(|head| alive(head.epoch)) && !(1..heads.len()).any(twice)
                } else {
                    heads.iter().any(|head| alive(head.epoch))
                };
                if fine { Judged::Alive } else { Judged::Split }
            }
        }
    }

    fn relation(&self, head: Epoch, epoch: Epoch, mark: &Mark) -> Judged {
        let relation = self.history.relation(head, epoch, mark.floor, self.guards);
        if relation == Relation::Alive && (head == epoch || !mark.write_end_is_unknown()) {
            return Judged::Alive;
        }
        let kept = self.history.kept(head, epoch, mark.flushed);
        match relation {
            // A write with an unknown end counts as past any end of its epoch.
            Relation::Alive => {
                let next = self.history.next_towards(head, epoch);
                match next.and_then(|next| self.history.origin(next)) {
                    Some((_, Fork::Unbounded)) => Judged::Alive,
                    Some((_, Fork::Between { at_most, .. })) => Judged::Lost { kept, at_most },
                    Some((_, Fork::Unknown)) | None => Judged::Unknown { kept: Kept::NOTHING },
                }
            }
            Relation::Unknown { .. } if mark.is_within(&kept) => Judged::Alive,
            Relation::Unknown { .. } => Judged::Unknown { kept },
            Relation::Lost { at_most, .. } => Judged::Lost { kept, at_most },
        }
    }

    /// The leader's samples sent at or after `since` whose content is in its line today.
    pub(super) fn alive_since(&self, since: Instant) -> impl Iterator<Item = Sample> + '_ {
        let head = match self.leadership {
            Leadership::Leader(leader) => Some(leader.epoch),
            Leadership::Last(head) => Some(*head),
            Leadership::Nobody | Leadership::Split(_) => None,
        };
        let alive = move |sample: &Sample| {
            head.is_some_and(|head| {
                let relation =
                    self.history.relation(head, sample.epoch, sample.position, self.guards);
                relation == Relation::Alive
            })
        };
        self.trail.since(since).filter(alive)
    }

    pub(super) const fn why_no_sample(&self) -> Unprovable {
        match self.leadership {
            Leadership::Leader(_) => Unprovable::NoSample,
            Leadership::Nobody | Leadership::Last(_) => Unprovable::NoLeader,
            Leadership::Split(_) => Unprovable::Split,
        }
    }

    /// Says whether `floor` lies past everything the leader of `epoch` was seen to have.
    pub(super) fn is_beyond_leader(&self, epoch: Epoch, floor: Position) -> bool {
        let leads = self.leadership.leader().is_some_and(|leader| leader.epoch == epoch);
        let seen = self.trail.last().filter(|sample| sample.epoch == epoch);
        leads && !seen.is_some_and(|sample| sample.position.covers(floor))
    }

    /// Says whether the leader is on a lower timeline than the mark: somebody may be ahead of us.
    pub(super) fn timeline_is_below(&self, epoch: Epoch) -> bool {
        self.leadership.leader().is_none_or(|leader| leader.epoch.timeline < epoch.timeline)
    }

    /// Says whether a line that seems ahead of the leader's has given way all the same: the
    /// operator said so, or its leader follows the current one now.
    pub(super) fn has_yielded(&self, epoch: Epoch) -> bool {
        let Some(leader) = self.leadership.leader().filter(|_| self.guards.yielded()) else {
            return false;
        };
        if self.facts.words().stands_for(leader.epoch, self.history) {
            return true;
        }
        let led = self.facts.of(epoch).and_then(|facts| facts.node);
        let node = led.and_then(|node| self.views.get(node.index())?.as_deref());
        let seen =
            || self.views.iter().flatten().map(Arc::as_ref).find(|view| view.lived(epoch.life));
        node.or_else(seen).is_some_and(|view| {
            // A view from before it led says nothing of that.
            view.incarnation.life.start > epoch.life.start
                && view.role == ViewRole::Standby
                && view.row.is_some_and(|row| self.history.descends(leader.epoch, row))
        })
    }

    /// Says whether a mark only demands, and another epoch than its own is current.
    pub(super) fn is_demand_of_another(&self, epoch: Epoch, mark: &Mark) -> bool {
        let is_demand = !mark.has_write() && mark.saw.is_none();
        is_demand && !self.leadership.heads().iter().all(|head| *head == epoch)
    }

    pub(super) fn knows_alive(&self, epoch: Epoch) -> bool {
        self.leadership.leader().is_some_and(|leader| self.history.descends(leader.epoch, epoch))
    }

    /// Says whether the mark of `epoch` is alive in the line of `later`.
    pub(super) fn is_alive_in(&self, later: Epoch, epoch: Epoch, mark: &Mark) -> bool {
        self.history.descends(later, epoch) && self.relation(later, epoch, mark) == Judged::Alive
    }

    /// The epoch that goes on without the end of `lost`.
    pub(super) fn child_of(&self, lost: Epoch, leader: Epoch) -> Epoch {
        let common = self.history.last_common(lost, leader);
        common.and_then(|common| self.history.next_towards(leader, common)).unwrap_or(leader)
    }

    /// What a session is told of a mark past a fork; `None`: nothing of it was harmed.
    pub(super) fn loss_kind(
        &self,
        mark: &Mark,
        kept: &Kept,
        at_most: Option<Position>,
    ) -> Option<NoticeKind> {
        let write_kept = mark.has_kept_write(kept);
        if write_kept && mark.has_kept_reads(kept) {
            return None;
        }
        let Some(at_most) = at_most.filter(|_| !self.stray_seen) else {
            return Some(NoticeKind::PossiblyLost);
        };
        let began_past = mark.has_write() && mark.after.is_some_and(|after| after.covers(at_most));
        Some(match (began_past, write_kept) {
            (true, _) => NoticeKind::WriteLost,
            (false, true) => NoticeKind::ObservedStateLost,
            (false, false) => NoticeKind::PossiblyLost,
        })
    }
}

/// What replaces a lost or unknown mark: a leader sample that keeps what surely survived.
pub(super) fn replacement(
    mark: &Mark,
    sample: Sample,
    kept: &Kept,
    at_most: Option<Position>,
) -> Mark {
    let own = kept.own;
    let keeps_write = mark.has_write()
        && own != Position::START
        && mark.after.is_none_or(|after| !after.covers(own));
    let end = at_most.map_or(sample.position, |end| end.meet(sample.position));
    let clip = |position: Position| position.meet(end);
    // Only the last commit is bounded: earlier ones, which survived, must not be lost untold later.
    let earlier = (mark.has_write() && !keeps_write).then_some(own);
    let saw = [mark.saw_within(kept), earlier]
        .into_iter()
        .flatten()
        .reduce(Position::join)
        .filter(|saw| *saw != Position::START)
        .map(|saw| saw.meet(sample.position));
    Mark {
        floor: sample.position,
        after: mark.after.filter(|_| keeps_write).map(clip),
        upto: if keeps_write { Some(mark.upto.map_or(end, clip)) } else { None },
        saw,
        led: saw,
        flushed: None,
    }
}
