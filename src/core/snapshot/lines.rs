//! What a position of an epoch, or an answer, is to the lines of all heads at once.

use super::Snapshot;
use crate::lineage::{Epoch, Relation};
use crate::position::Position;
use crate::trail::{Demand, Floor};
use crate::views::NodeId;

impl Snapshot {
    /// Says whether the content of `epoch` up to `position` is in the line of every head.
    pub fn is_alive(&self, epoch: Epoch, position: Position) -> bool {
        self.every_head(|head| self.relation(head, epoch, position) == Relation::Alive)
    }

    /// Says whether what ends at `position` was written on a deposed leader: past the fork in which
    /// its epoch ended, whichever head counts.
    pub fn is_deposed(&self, epoch: Epoch, position: Position) -> bool {
        self.every_head(|head| match self.relation(head, epoch, position) {
            Relation::Lost { .. } => true,
            Relation::Alive | Relation::Unknown { .. } => false,
        })
    }

    /// Says whether an answer that names `node` for `floor` takes one line of leaders for another:
    /// the node's last row is on no head's line, or a position demanded is not in every one.
    ///
    /// It repeats no rule of the decision: whoever asks checks an answer that was given.
    pub fn crosses(&self, floor: &Floor, node: NodeId) -> bool {
        if self.leadership.heads().is_empty() {
            return false;
        }
        let row = self.view(node).and_then(|view| view.row);
        let is_off = |row| self.every_head(|head| !self.history.descends(head, row));
        let is_in = |head: Epoch, Demand { epoch, position }: Demand| {
            self.relation(head, epoch, position) == Relation::Alive
                // A session may know that so much was flushed.
                || self.history.kept(head, epoch, Some(position)).own.covers(position)
        };
        row.is_some_and(is_off)
            || floor.demands().iter().any(|demand| !self.every_head(|head| is_in(head, *demand)))
    }

    fn relation(&self, head: Epoch, epoch: Epoch, position: Position) -> Relation {
        self.history.relation(head, epoch, position, &self.settings.guards)
    }

    /// Says whether it is so for every head; `false` if there is none.
    fn every_head(&self, is_so: impl Fn(Epoch) -> bool) -> bool {
        let heads = self.leadership.heads();
        !heads.is_empty() && heads.iter().all(|head| is_so(*head))
    }
}
