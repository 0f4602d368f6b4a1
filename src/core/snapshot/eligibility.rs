//! Which nodes may serve, and why another may not.

use super::Snapshot;
use crate::instant::Instant;
use crate::leader::EpochFacts;
use crate::lineage::{Epoch, Incarnation};
use crate::views::{NodeId, NodeView, Place, Quarantine, ViewRole};

/// Why a node may not serve a session's read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyNot {
    /// It was never seen, or is not configured.
    Unseen,
    /// It was not seen for longer than a view may be old.
    ViewTooOld,
    /// It contradicted itself; it stays out until its incarnation changes or it is resumed.
    Quarantined(Quarantine),
    /// An operator took it out.
    Drained,
    /// It is writable, but does not lead; or it leads, and only a leader read may name it.
    Writable,
    /// Its last row is off the leader's chain, or ended below its position.
    Diverged,
    /// It shows no lineage row: there is no second way to tell its line.
    NoRow,
    /// Its latest position does not count: its receiver does not name the timeline of its last row.
    Uncounted,
    /// No test ran on servers of its major version.
    UntestedMajor,
}

/// Why an incarnation cannot be chosen for the one that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotResolved {
    /// No node was last seen living it.
    NobodyLivesIt,
    /// This node lives it, in recovery.
    InRecovery(NodeId),
    /// This node lived it when it was last seen, which is too long ago.
    NotSeenLately(NodeId),
}

impl WhyNot {
    /// Says whether the reason still lets it answer reads that demand nothing.
    pub const fn allows_eventual(self) -> bool {
        match self {
            Self::NoRow | Self::Uncounted | Self::UntestedMajor => true,
            Self::Unseen
            | Self::ViewTooOld
            | Self::Quarantined(_)
            | Self::Drained
            | Self::Writable
            | Self::Diverged => false,
        }
    }
}

impl Snapshot {
    /// Where a replica stands, if it may serve a session's read.
    ///
    /// # Errors
    /// [`WhyNot`] names the first reason against it.
    pub fn eligible(&self, node: NodeId, now: Instant) -> Result<Place, WhyNot> {
        let standing = self.standing(node).ok_or(WhyNot::Unseen)?;
        standing.eligible(now).copied()
    }

    /// Where a replica stands, or the first reason against it besides the age of its view.
    pub(super) fn place_of(&self, node: NodeId) -> Result<Place, WhyNot> {
        let view = self.view(node).ok_or(WhyNot::Unseen)?;
        if self.drained.get(node.index()).is_none_or(|drained| *drained) {
            return Err(WhyNot::Drained);
        }
        if let Some(why) = self.quarantine(node) {
            return Err(WhyNot::Quarantined(why));
        }
        if matches!(view.role, ViewRole::Writable(_)) {
            return Err(WhyNot::Writable);
        }
        if self.is_diverged(view) {
            return Err(WhyNot::Diverged);
        }
        if !self.settings.accepted_majors.contains(&view.server_major) {
            return Err(WhyNot::UntestedMajor);
        }
        let place = view.place();
        match (place.last, place.counted) {
            (None, _) => Err(WhyNot::NoRow),
            (Some(_), None) => Err(WhyNot::Uncounted),
            (Some(_), Some(_)) => Ok(place),
        }
    }

    /// Why nobody is served by a node until its incarnation changes or an operator resumes it.
    pub fn quarantine(&self, node: NodeId) -> Option<Quarantine> {
        let view = self.view(node)?;
        let by_facts = || {
            if self.is_former_twin(node, view) {
                Some(Quarantine::FormerTwin)
            } else {
                self.followed_a_restored_leader(node).then_some(Quarantine::FollowedCopy)
            }
        };
        view.quarantine.or_else(by_facts)
    }

    /// It led an epoch that is off every head's chain and did not just restart on its timeline, and
    /// no operator has vouched for what it holds of it.
    ///
    /// One that still leads that epoch is no former twin; it serves nobody for other reasons.
    fn is_former_twin(&self, node: NodeId, view: &NodeView) -> bool {
        let heads = self.leadership.heads();
        // Up the restarts on one timeline: where that comes to a line whose head has left the
        // timeline since, PostgreSQL itself refuses a log that went on past the fork.
        let restarted = |epoch: Epoch, facts: &EpochFacts| {
            let mut grown = self.history.chain(epoch).skip(1);
            let is_left = |grown: Epoch| {
                heads.iter().all(|head| {
                    head.timeline > epoch.timeline && self.history.descends(*head, grown)
                })
            };
            !facts.is_restored
                && grown.by_ref().take_while(|e| e.timeline == epoch.timeline).any(is_left)
        };
        // A server that leads again on the same timeline was restarted or restored whole.
        let leads_on = |epoch: Epoch| match view.role {
            ViewRole::Writable(own) => own.timeline == epoch.timeline && heads.contains(&own),
            ViewRole::Standby => false,
        };
        let is_own_root =
            |epoch: Epoch| self.history.origin(epoch).is_some_and(|(parent, _)| parent.is_none());
        if matches!(view.role, ViewRole::Writable(own) if is_own_root(own)) {
            // A copy that was put in place whole: nothing of another line is mixed into it.
            return false;
        }
        self.settings.guards.former_twin()
            && !heads.is_empty()
            && self.facts.iter().any(|(epoch, facts)| {
                facts.node == Some(node)
                    && view.role != ViewRole::Writable(epoch)
                    && !self.facts.words().is_resumed(epoch.life)
                    && !restarted(epoch, &facts)
                    && !leads_on(epoch)
                    && !self.went_on_unwritten(node, epoch, &heads)
                    && !heads.iter().any(|head| self.history.descends(*head, epoch))
            })
    }

    /// A leader of this line came back as a copy of an older day, and the node may have followed
    /// what it was before: ahead of it, and then along with it, whatever row it shows.
    fn followed_a_restored_leader(&self, node: NodeId) -> bool {
        let heads = self.leadership.heads();
        let (facts, history) = (&self.facts, &self.history);
        self.settings.guards.restored()
            && !self.leadership.is_split()
            && facts.iter().any(|(epoch, known)| {
                known.is_restored
                    && known.node != Some(node)
                    && !facts.words().is_resumed_follower(epoch, node)
                    && heads.iter().any(|head| history.descends(*head, epoch))
            })
    }

    /// Says whether `epoch` restarted before its row stood: then its node shows the same parent
    /// under the same number again, which no other server's log can give it.
    fn went_on_unwritten(&self, node: NodeId, epoch: Epoch, heads: &[Epoch]) -> bool {
        let parent = |epoch| self.history.origin(epoch).map(|(parent, _)| parent);
        let is_again = |again: Epoch| {
            again.timeline == epoch.timeline
                && again.life > epoch.life
                && parent(again) == parent(epoch)
                && self.facts.of(again).is_some_and(|facts| facts.node == Some(node))
        };
        !self.history.has_row(epoch)
            && heads.iter().any(|head| self.history.chain(*head).any(is_again))
    }

    /// Says whether a replica may answer a read that demands nothing.
    pub fn readable(&self, node: NodeId, now: Instant) -> bool {
        match self.eligible(node, now) {
            Ok(_) => true,
            Err(why) => why.allows_eventual(),
        }
    }

    /// The node of an incarnation, if the operator may choose it for the one that counts.
    ///
    /// # Errors
    /// [`NotResolved`] says what is there instead.
    pub fn may_resolve(
        &self,
        incarnation: Incarnation,
        now: Instant,
    ) -> Result<(NodeId, Epoch), NotResolved> {
        let node = self.living(incarnation).ok_or(NotResolved::NobodyLivesIt)?;
        let view = self.view(node).ok_or(NotResolved::NobodyLivesIt)?;
        match view.role {
            ViewRole::Standby => Err(NotResolved::InRecovery(node)),
            ViewRole::Writable(_) if now.since(view.sent_at) > self.settings.view_max_age => {
                Err(NotResolved::NotSeenLately(node))
            }
            ViewRole::Writable(epoch) => Ok((node, epoch)),
        }
    }

    /// Says whether no database has shown a lineage row: no replica's line can be told, and none
    /// will become fresh by waiting.
    pub fn lineage_is_missing(&self) -> bool {
        self.history.rows().all(|row| !self.history.has_row(row.epoch))
    }

    /// Says whether a replica past a fork follows the new leader: the row it lacks to prove that
    /// comes with the log, so waiting for it is of use.
    pub fn lacks_only_the_row(&self, node: NodeId) -> bool {
        let (Some(view), Some(leader)) = (self.view(node), self.leadership.leader()) else {
            return false;
        };
        let is_behind = |row| row != leader.epoch && self.history.descends(leader.epoch, row);
        view.received_timeline == Some(leader.epoch.timeline) && view.row.is_some_and(is_behind)
    }

    /// Off the line of every head: its last row is not on the chain, or ended below its position.
    pub(super) fn is_diverged(&self, view: &NodeView) -> bool {
        let heads = self.leadership.heads();
        if heads.is_empty() || !self.settings.guards.diverged() {
            return false;
        }
        let Some(row) = view.row else { return false };
        heads.iter().all(|head| self.history.is_off(*head, row, view.applied))
    }
}
