//! `Standing`: what a snapshot says of one node at any time, worked out once when it is published.
//!
//! Only the age of a view depends on when it is asked. Everything here follows from the other parts
//! of the snapshot, and builds with assertions compare the two at every question.

use super::{Snapshot, WhyNot};
use crate::instant::Instant;
use crate::lineage::Epoch;
use crate::position::Position;
use crate::trail::Demand;
use crate::views::{NodeId, NodeSet, Place, ViewRole};

/// What a snapshot says of one node at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Where it stands, or the first reason against it besides the age of its view.
    place: Result<Place, WhyNot>,
    /// The highest flush position seen of the epoch it stands in.
    pub(super) flushed: Option<Position>,
    /// What of that epoch it covers at once; `None`: that takes a closer look.
    reach: Option<(Epoch, Position)>,
    /// From the next instant on its view is too old; the start of time if it was never seen.
    too_old_after: Instant,
    /// It was last seen off the leader's line.
    stray: bool,
}

impl Standing {
    /// Where the node stands, if it may serve a session's read at `now`.
    pub(super) fn eligible(&self, now: Instant) -> Result<&Place, WhyNot> {
        match &self.place {
            Err(why @ (WhyNot::Unseen | WhyNot::Drained)) => Err(*why),
            Ok(_) | Err(_) if now > self.too_old_after => Err(WhyNot::ViewTooOld),
            Ok(place) => Ok(place),
            Err(why) => Err(*why),
        }
    }

    /// [`Self::eligible`] for who does not ask why not.
    #[inline]
    pub(super) fn fit(&self, now: Instant) -> Option<&Place> {
        self.place.as_ref().ok().filter(|_| now <= self.too_old_after)
    }

    /// Where the node stands, if only the age of its view is against it.
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref().ok()
    }

    /// Until when the node counts as seen off the leader's line lately; `None`: it was not.
    pub(super) fn stray_until(&self) -> Option<Instant> {
        self.stray.then_some(self.too_old_after)
    }

    /// Says whether the place surely covers a demand; `false`: [`Place::covers`] must tell.
    pub(super) fn surely_covers(&self, demand: &Demand) -> bool {
        self.reach.is_some_and(|(epoch, position)| {
            epoch == demand.epoch && position.covers(demand.position)
        })
    }
}

/// What most reads ask of all nodes at once, side by side in memory.
///
/// Invariant: it is what the standings say, for demands of one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Reaches {
    /// The epoch the first node that may serve stands in; `None`: no node may.
    epoch: Option<Epoch>,
    nodes: Vec<Reach>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reach {
    /// It may serve so long; `None`: it may not.
    until: Option<Instant>,
    /// What of the epoch it surely covers.
    position: Position,
}

impl Reaches {
    pub(super) fn of(standings: &[Standing]) -> Self {
        let fit = standings.iter().filter(|standing| standing.place.is_ok());
        let epoch = fit.filter_map(|standing| standing.reach).map(|(epoch, _)| epoch).next();
        let reach = |standing: &Standing| Reach {
            until: standing.place.is_ok().then_some(standing.too_old_after),
            position: match standing.reach {
                Some((own, position)) if Some(own) == epoch => position,
                Some(_) | None => Position::START,
            },
        };
        Self { epoch, nodes: standings.iter().map(reach).collect() }
    }

    /// The nodes that may serve and cover one demand; `None`: that takes a closer look.
    #[inline]
    pub(super) fn satisfying(&self, demand: &Demand, now: Instant) -> Option<NodeSet> {
        if self.epoch != Some(demand.epoch) {
            return None;
        }
        let mut is_sure = true;
        let nodes = NodeSet::of(&self.nodes, |node| {
            let covers = node.position.covers(demand.position);
            let fits = node.until.is_some_and(|until| now <= until);
            is_sure &= covers || !fits;
            fits && covers
        });
        is_sure.then_some(nodes)
    }
}

impl Snapshot {
    /// What follows from all other parts for one node.
    pub(super) fn stand(&self, node: NodeId) -> Standing {
        let place = self.place_of(node);
        let last = place.ok().and_then(|place| place.last);
        let seen = self.view(node).map(|view| view.sent_at + self.settings.view_max_age);
        let flushed = last.and_then(|epoch| self.facts.flush_seen(epoch));
        // What has been applied and was seen flushed: both, by whatever rules are in force.
        let counted = place.ok().filter(|place| !place.leads).and_then(|place| place.counted);
        let reach = match (last, counted, flushed) {
            (Some(epoch), Some(applied), Some(flushed)) => Some((epoch, applied.meet(flushed))),
            (None, _, _) | (_, None, _) | (_, _, None) => None,
        };
        Standing {
            place,
            flushed,
            reach,
            too_old_after: seen.unwrap_or_default(),
            stray: self.is_off_the_line(node),
        }
    }

    /// Says whether the last view of a node is off the leader's line.
    fn is_off_the_line(&self, node: NodeId) -> bool {
        let Some(view) = self.view(node) else { return false };
        let set_aside = |epoch| self.facts.words().sets_aside(epoch, &self.history);
        match view.role {
            ViewRole::Writable(epoch) => {
                let leader = self.leadership.leader();
                leader.is_some_and(|leader| leader.epoch != epoch) && !set_aside(epoch)
            }
            // Without a row nobody knows what it holds.
            ViewRole::Standby => {
                view.row.is_none_or(|row| self.is_diverged(view) && !set_aside(row))
            }
        }
    }
}
