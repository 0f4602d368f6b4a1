//! `Leadership`: which of the writable nodes leads, if any. It decides no freshness by itself: a
//! wrong choice is told as loss, never served as fresh.

use crate::few::Few;
use crate::guards::Guards;
use crate::lineage::{Epoch, History};
use crate::views::NodeId;

/// A node that counts as writable, seen or known from the facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contender {
    /// Which node.
    pub node: NodeId,
    /// The epoch it is writable in.
    pub epoch: Epoch,
}

/// Who leads a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leadership {
    /// No writable node was ever seen.
    Nobody,
    /// This node leads in this epoch.
    Leader(Contender),
    /// No node is writable now; the chain of this epoch stays current.
    Last(Epoch),
    /// Several nodes are writable and none has all others give way to it.
    Split(Vec<Contender>),
}

impl Leadership {
    /// Judges the writable nodes; `last` is the epoch that led before.
    pub fn of(
        contenders: &[Contender],
        last: Option<Epoch>,
        history: &History,
        guards: &Guards,
    ) -> Self {
        match contenders {
            [] => last.map_or(Self::Nobody, Self::Last),
            [only] => Self::Leader(*only),
            [first, ..] => {
                if !guards.who_leads() {
                    return Self::Leader(*first);
                }
                let wins = |one: &Contender| {
                    contenders.iter().all(|other| {
                        other.node == one.node || gives_way(other.epoch, one.epoch, history)
                    })
                };
                let winner = contenders.iter().find(|one| wins(one));
                winner.map_or_else(|| Self::Split(contenders.to_vec()), |one| Self::Leader(*one))
            }
        }
    }

    /// The leader, if there is exactly one.
    pub const fn leader(&self) -> Option<Contender> {
        match self {
            Self::Leader(leader) => Some(*leader),
            Self::Nobody | Self::Last(_) | Self::Split(_) => None,
        }
    }

    /// The ends of the lines that count: the leader's, the last leader's, or every head of a split.
    #[inline]
    pub fn heads(&self) -> Few<Epoch> {
        match self {
            Self::Nobody => Few::none(),
            Self::Leader(leader) => Few::one(leader.epoch),
            Self::Last(epoch) => Few::one(*epoch),
            Self::Split(heads) => heads.iter().map(|head| head.epoch).collect(),
        }
    }

    /// Says whether these, in this order, are [`Self::heads`].
    #[inline]
    pub fn has_heads(&self, first: Option<Epoch>, others: &[Epoch]) -> bool {
        match self {
            Self::Nobody => first.is_none() && others.is_empty(),
            Self::Leader(leader) => first == Some(leader.epoch) && others.is_empty(),
            Self::Last(epoch) => first == Some(*epoch) && others.is_empty(),
            Self::Split(several) => {
                let heads = first.iter().chain(others);
                several.iter().map(|head| &head.epoch).eq(heads)
            }
        }
    }

    /// Says whether several nodes claim to lead.
    pub const fn is_split(&self) -> bool {
        matches!(self, Self::Split(_))
    }
}

/// One still on the timeline of their last common row gives way to one on a higher timeline.
fn gives_way(one: Epoch, other: Epoch, history: &History) -> bool {
    history
        .last_common(one, other)
        .is_some_and(|row| one.timeline == row.timeline && other.timeline > row.timeline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Fork, Life, LineageRow};

    const ON: Guards = Guards::on();

    fn epoch(timeline: u32, life: i64) -> Epoch {
        Epoch::new(timeline, Life { start: life, reset: life })
    }

    fn contender(node: u16, epoch: Epoch) -> Contender {
        Contender { node: NodeId::new(node), epoch }
    }

    fn tree(rows: &[(Epoch, Option<Epoch>)]) -> History {
        let mut history = History::new();
        for (epoch, parent) in rows {
            let row = LineageRow { epoch: *epoch, parent: *parent, fork: Fork::Unknown, n: 1 };
            history.read_row(row).expect("rows agree");
        }
        history
    }

    #[test]
    fn the_old_leader_gives_way_to_the_promoted_one() {
        let (old, new) = (epoch(1, 1), epoch(2, 2));
        let history = tree(&[(old, None), (new, Some(old))]);
        for order in
            [[contender(0, old), contender(1, new)], [contender(1, new), contender(0, old)]]
        {
            let led = Leadership::of(&order, Some(old), &history, &ON);
            assert_eq!(led.leader(), Some(contender(1, new)));
        }
    }

    #[test]
    fn twins_split_the_partition() {
        let (old, one, two) = (epoch(1, 1), epoch(2, 2), epoch(2, 3));
        let history = tree(&[(old, None), (one, Some(old)), (two, Some(old))]);
        let both = [contender(1, one), contender(2, two)];
        assert!(Leadership::of(&both, Some(old), &history, &ON).is_split());
    }

    #[test]
    fn writable_nodes_without_a_common_row_split_the_partition() {
        let (one, two) = (epoch(1, 1), epoch(3, 2));
        let history = tree(&[(one, None), (two, None)]);
        let both = [contender(0, one), contender(1, two)];
        assert!(Leadership::of(&both, Some(one), &history, &ON).is_split());
    }

    #[cfg(feature = "unsafe-guards")]
    #[test]
    fn the_who_leads_guard_keeps_the_first_writable_node_from_leading() {
        let (old, new) = (epoch(1, 1), epoch(2, 2));
        let history = tree(&[(old, None), (new, Some(old))]);
        let both = [contender(0, old), contender(1, new)];
        let off = Guards::without("who_leads").expect("named");
        assert_eq!(Leadership::of(&both, None, &history, &ON).leader(), Some(both[1]));
        assert_eq!(Leadership::of(&both, None, &history, &off).leader(), Some(both[0]));
    }

    #[test]
    fn without_a_writable_node_the_last_line_stays_current() {
        let old = epoch(1, 1);
        assert_eq!(Leadership::of(&[], Some(old), &History::new(), &ON), Leadership::Last(old));
        assert_eq!(Leadership::of(&[], None, &History::new(), &ON), Leadership::Nobody);
    }
}
