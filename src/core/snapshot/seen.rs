//! The mark of a read, from a sample taken after it or from what was seen of its server.
//!
//! What a standby has applied was flushed before it was sent; that is all its position says of any
//! leader.

use super::Snapshot;
use crate::evidence::{Evidence, Role};
use crate::lineage::{Epoch, Incarnation};
use crate::token::Mark;
use crate::views::{NodeId, ViewRole};

impl Snapshot {
    /// The node that was last seen living this life.
    pub fn living(&self, incarnation: Incarnation) -> Option<NodeId> {
        let lives =
            |node: &NodeId| self.view(*node).is_some_and(|view| view.incarnation == incarnation);
        self.nodes().find(lives)
    }

    /// What a sample proves at once; `None`: whatever was read there may be of any line.
    pub fn mark_of_sample(&self, sample: &Evidence) -> Option<(Epoch, Mark)> {
        let position = sample.position()?;
        let node = self.living(sample.incarnation);
        match sample.role {
            Role::Writable { flush, .. } => {
                Some((sample.epoch()?, Mark::saw(position).with_flushed(flush)))
            }
            Role::Standby { received_timeline } => {
                let row = sample.row?;
                if node.is_some_and(|node| self.quarantine(node).is_some()) {
                    return None;
                }
                let view = node.and_then(|node| self.view(node));
                let proven = view.and_then(|view| view.proven_under(row));
                let follows = received_timeline == Some(row.timeline)
                    || proven.is_some_and(|proven| proven.covers(position));
                follows.then_some((row, Mark::saw_applied(position)))
            }
        }
    }

    /// What the latest view of an incarnation proves that a reader may have seen.
    pub fn mark_seen(&self, incarnation: Incarnation) -> Option<(Epoch, Mark)> {
        let node = self.living(incarnation)?;
        if self.quarantine(node).is_some() {
            return None;
        }
        let view = self.view(node)?;
        match view.role {
            ViewRole::Writable(epoch) => Some((epoch, Mark::saw(view.applied?))),
            ViewRole::Standby => {
                let place = view.place();
                Some((place.last?, Mark::saw_applied(place.counted?)))
            }
        }
    }

    /// Says whether an incarnation follows a later timeline than that of its last row: the row that
    /// tells which line that is comes with the log.
    pub fn awaits_its_row(&self, incarnation: Incarnation) -> bool {
        let view = self.living(incarnation).and_then(|node| self.view(node));
        view.is_some_and(|view| {
            let received = view.received_timeline.zip(view.row);
            received.is_some_and(|(received, row)| received > row.timeline)
        })
    }
}
