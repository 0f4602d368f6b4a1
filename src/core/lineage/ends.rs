//! Where an epoch, or a timeline, ends in the line of a head, and which epochs stand side by side.
//!
//! For people and tools: what a session is told, [`History::relation`] says.

use super::{Epoch, Fork, History};
use crate::position::Position;

/// Where something of an epoch ends in the line of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The epoch of that line that goes on without it.
    pub child: Epoch,
    /// Nothing up to here was lost; `None`: not known, or nothing of it survives for sure.
    pub from: Option<Position>,
    /// Nothing past here survives; `None`: not known.
    pub surely_from: Option<Position>,
}

impl End {
    /// Says whether all up to `position` of what ended surely survives.
    pub fn survives(&self, position: Position) -> bool {
        self.from.is_some_and(|from| from.covers(position))
    }
}

impl History {
    /// The fork in which `timeline` ends on the line of `head`; `None`: it does not end there yet.
    pub fn end_of(&self, head: Epoch, timeline: u32) -> Option<Fork> {
        self.chain(head).find_map(|child| {
            let (parent, fork) = self.origin(child)?;
            let ends = parent?.timeline == timeline && child.timeline > timeline;
            ends.then_some(fork)
        })
    }

    /// Where `epoch` ends in the line of `head`; `None`: it is the head, it goes on unbounded, or
    /// they have nothing in common.
    pub fn end_towards(&self, head: Epoch, epoch: Epoch) -> Option<End> {
        if head == epoch {
            return None;
        }
        let common = self.last_common(epoch, head)?;
        let child = self.next_towards(head, common)?;
        let (_, fork) = self.origin(child)?;
        if common == epoch {
            let from = match fork {
                Fork::Unbounded => return None,
                Fork::Between { at_least, .. } => Some(at_least),
                Fork::Unknown => None,
            };
            return Some(End { child, from, surely_from: fork.at_most() });
        }
        // Off the chain: what both lines grew from is kept, nothing of its own is.
        let own = self.origin(epoch).filter(|(parent, _)| *parent == Some(common));
        let kept = own.and_then(|(_, own)| own.at_least()).zip(fork.at_least());
        let from = kept.map(|(own, other)| own.meet(other)).filter(|from| *from != Position::START);
        Some(End { child, from, surely_from: fork.at_most() })
    }

    /// The epochs that grew from the same parent, of which neither `epoch` nor the other gives way:
    /// one still on the parent's timeline gives way to a promoted one.
    ///
    /// Lives of one server are among them: nothing here knows which server lived what.
    pub fn twins(&self, epoch: Epoch) -> impl Iterator<Item = Epoch> + '_ {
        let parent = self.origin(epoch).and_then(|(parent, _)| parent);
        self.rows().filter(move |row| row.parent.is_some() && row.parent == parent).filter_map(
            move |row| {
                let stays = |epoch: Epoch| parent.is_some_and(|p| p.timeline == epoch.timeline);
                let is_twin = row.epoch != epoch && stays(row.epoch) == stays(epoch);
                is_twin.then_some(row.epoch)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Life, LineageRow};
    use crate::position::Lsn;

    fn at(value: u64) -> Position {
        Lsn::new(value).into()
    }

    fn epoch(timeline: u32, life: i64) -> Epoch {
        Epoch::new(timeline, Life { start: life, reset: life })
    }

    /// A crash, then two promotions from one parent.
    fn grown() -> (History, [Epoch; 4]) {
        let (root, again) = (epoch(1, 1), epoch(1, 2));
        let (third, twin) = (epoch(3, 3), epoch(2, 4));
        let rows = [
            (root, None, Fork::Unknown),
            (again, Some(root), Fork::between(at(10), at(20))),
            (third, Some(again), Fork::between(at(50), at(60))),
            (twin, Some(again), Fork::between(at(30), at(30))),
        ];
        let mut history = History::new();
        for (n, (epoch, parent, fork)) in (1..).zip(rows) {
            history.read_row(LineageRow { epoch, parent, fork, n }).expect("rows agree");
        }
        (history, [root, again, third, twin])
    }

    #[test]
    fn the_end_of_a_timeline_is_where_a_higher_one_begins_on_the_leaders_line() {
        let (history, [_, again, third, twin]) = grown();
        let fork = Fork::between(at(50), at(60));
        assert_eq!(history.end_of(third, 1), Some(fork), "not the crash before it");
        assert_eq!(history.end_of(third, 2), None, "a step nobody saw");
        assert_eq!(history.end_of(again, 1), None, "it has not ended");
        assert_eq!(history.end_of(twin, 1), Some(Fork::between(at(30), at(30))));
    }

    #[test]
    fn an_epoch_ends_in_the_fork_of_what_followed_it() {
        let (history, [root, again, third, _]) = grown();
        let end = history.end_towards(third, root).expect("it ended");
        let crash = End { child: again, from: Some(at(10)), surely_from: Some(at(20)) };
        assert_eq!(end, crash);
        assert!(end.survives(at(10)) && !end.survives(at(11)));
        assert_eq!(history.end_towards(third, third), None);
        assert_eq!(history.end_towards(third, epoch(9, 9)), None, "nobody heard of it");
    }

    #[test]
    fn of_a_twin_only_what_both_grew_from_is_kept() {
        let (history, [_, _, third, twin]) = grown();
        let end = End { child: third, from: Some(at(30)), surely_from: Some(at(60)) };
        assert_eq!(history.end_towards(third, twin), Some(end));
    }

    #[test]
    fn a_restart_of_the_old_leader_is_no_twin_of_a_promoted_one() {
        let (mut history, [root, again, third, twin]) = grown();
        let restarted = epoch(1, 5);
        let fork = Fork::between(at(70), at(70));
        let row = LineageRow { epoch: restarted, parent: Some(again), fork, n: 3 };
        history.read_row(row).expect("new");
        assert!(history.twins(third).eq([twin]) && history.twins(twin).eq([third]));
        assert_eq!(history.twins(restarted).next(), None);
        assert_eq!(history.twins(root).next(), None, "roots are of different logs");
    }
}
