//! `Floor`: what one read demands. Not a position, and not a token.

use crate::few::Few;
use crate::leader::Leadership;
use crate::lineage::{Epoch, History};
use crate::position::Position;

/// One demand of a floor: a position in an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The epoch.
    pub epoch: Epoch,
    /// What a node must have applied of it.
    pub position: Position,
}

/// What one read demands: all of its demands.
///
/// The marks behind it were judged against one line of leaders; of another line it says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Floor {
    demands: Few<Demand>,
    /// The heads of the line its marks were judged against; `None`: it is about no session.
    heads: Option<Few<Epoch>>,
    /// How often the history had been disputed when they were judged.
    disputes: u64,
}

impl Floor {
    /// A floor that every node satisfies.
    pub const fn none() -> Self {
        Self { demands: Few::none(), heads: None, disputes: 0 }
    }

    /// Notes whose line its marks were judged against.
    pub(super) fn judge_for(&mut self, leadership: &Leadership, history: &History) {
        self.heads = Some(leadership.heads());
        self.disputes = history.disputes();
    }

    /// Says whether what was judged still holds: the same leaders' line is current, and no origin
    /// was contradicted since.
    pub fn holds_under(&self, leadership: &Leadership, history: &History) -> bool {
        self.heads
            .as_ref()
            .is_none_or(|heads| leadership.has_heads(heads) && self.disputes == history.disputes())
    }

    /// Adds a demand; the higher one of an epoch stands.
    pub fn demand(&mut self, epoch: Epoch, position: Position) {
        match self.demands.iter_mut().find(|demand| demand.epoch == epoch) {
            Some(demand) => demand.position = demand.position.join(position),
            None => self.demands.push(Demand { epoch, position }),
        }
    }

    /// Its demands, at most one per epoch.
    pub fn demands(&self) -> &[Demand] {
        &self.demands
    }

    /// Says whether it demands nothing.
    pub fn is_empty(&self) -> bool {
        self.demands.is_empty()
    }
}
