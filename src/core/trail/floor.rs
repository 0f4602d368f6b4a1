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
    /// Its marks were judged; `false`: it is about no session.
    judged: bool,
    /// The first head of the line they were judged against.
    head: Option<Epoch>,
    /// The other ones of a split.
    other_heads: Vec<Epoch>,
    /// How often the history had been disputed when they were judged.
    disputes: u64,
}

impl Floor {
    /// A floor that every node satisfies.
    pub const fn none() -> Self {
        Self {
            demands: Few::none(),
            judged: false,
            head: None,
            other_heads: Vec::new(),
            disputes: 0,
        }
    }

    /// A floor for marks that are judged against this line. It demands nothing yet.
    pub(super) fn judged_for(leadership: &Leadership, history: &History) -> Self {
        let (demands, disputes) = (Few::none(), history.disputes());
        let (head, other_heads) = match leadership {
            Leadership::Nobody => (None, Vec::new()),
            Leadership::Leader(leader) => (Some(leader.epoch), Vec::new()),
            Leadership::Last(epoch) => (Some(*epoch), Vec::new()),
            Leadership::Split(heads) => {
                let mut epochs = heads.iter().map(|head| head.epoch);
                (epochs.next(), epochs.collect())
            }
        };
        Self { demands, judged: true, head, other_heads, disputes }
    }

    /// Says whether what was judged still holds: the same leaders' line is current, and no origin
    /// was contradicted since.
    #[inline]
    pub fn holds_under(&self, leadership: &Leadership, history: &History) -> bool {
        !self.judged
            || (leadership.has_heads(self.head, &self.other_heads)
                && self.disputes == history.disputes())
    }

    /// Adds a demand; the higher one of an epoch stands.
    #[inline]
    pub fn demand(&mut self, epoch: Epoch, position: Position) {
        if self.demands.is_empty() {
            self.demands = Few::one(Demand { epoch, position });
            return;
        }
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
