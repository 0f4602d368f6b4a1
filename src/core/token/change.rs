//! `Change`: what is done to a record or token at once. Idempotent, and safe to race with others.

use super::{Component, ComponentKey, Mark, Notice, NoticeId, SessionToken};
use crate::lineage::Epoch;

/// What is done to a record or token at once.
///
/// A join alone cannot take a replaced mark out, so drops and settlements name what was judged:
/// they do nothing where somebody else has raised it since.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Marks that were replaced, as they were judged.
    pub drop: Vec<(ComponentKey, Epoch, Mark)>,
    /// Unresolved components whose demand is met by what is joined, as they were judged.
    pub settle: Vec<(ComponentKey, Component)>,
    /// What is joined.
    pub join: SessionToken,
    /// What the holder is told.
    pub tell: Vec<Notice>,
    /// What the holder has been told and need not be again.
    pub acknowledge: Vec<NoticeId>,
}

impl Change {
    /// The change that only joins.
    pub fn joining(join: SessionToken) -> Self {
        Self { join, ..Self::default() }
    }

    /// Says whether it does nothing to any holder.
    pub fn is_empty(&self) -> bool {
        self.drop.is_empty()
            && self.settle.is_empty()
            && self.join.is_empty()
            && self.tell.is_empty()
            && self.acknowledge.is_empty()
    }

    /// Applies it to a record, which somebody else may have changed since it was judged; says
    /// whether anything changed.
    pub fn apply(&self, holder: &mut SessionToken) -> bool {
        self.apply_to(holder, false)
    }

    /// Applies it to a token as it was carried and judged; says whether anything changed.
    pub fn apply_to_carried(&self, carried: &mut SessionToken) -> bool {
        self.apply_to(carried, true)
    }

    fn apply_to(&self, holder: &mut SessionToken, as_judged: bool) -> bool {
        let before = holder.clone();
        let settled: Vec<ComponentKey> = self
            .settle
            .iter()
            .filter(|(key, judged)| holder.component(*key) == Some(judged))
            .map(|(key, _)| *key)
            .collect();
        for (key, epoch, judged) in &self.drop {
            let Some(component) = holder.component(*key) else { continue };
            let raised = component.mark(*epoch).is_some_and(|mark| mark.join(*judged) != *judged);
            if !raised {
                let mut left = component.clone();
                left.drop_mark(*epoch);
                holder.replace_component(*key, left);
            }
        }
        for key in settled {
            if let Some(component) = holder.component(key) {
                let mut left = component.clone();
                left.unresolved = false;
                holder.replace_component(key, left);
            }
        }
        holder.join(&self.joined_to(&before, as_judged));
        for notice in &self.tell {
            holder.tell(*notice);
        }
        for id in &self.acknowledge {
            holder.acknowledge(*id);
        }
        *holder != before
    }

    /// What is joined to a holder that may have dropped components.
    ///
    /// One that dropped the partition's must not come to look complete by a mark of some read: it
    /// stays unresolved. A leader sample covers whatever was dropped before it was asked for; only
    /// those have nothing written or seen. Of a record more may have been dropped since.
    fn joined_to(&self, holder: &SessionToken, as_judged: bool) -> SessionToken {
        if !holder.overflow {
            return self.join.clone();
        }
        let is_sample = |mark: Mark| !mark.has_write() && mark.saw.is_none();
        let covers_all =
            |component: &Component| as_judged && component.marks().any(|(_, mark)| is_sample(mark));
        let mut joined = self.join.clone();
        for (key, component) in self.join.components() {
            if holder.component(key).is_none() && !covers_all(component) {
                joined.join_component(key, &Component::unresolved());
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Life, SystemId};
    use crate::position::{Lsn, Position};
    use crate::token::PartitionId;

    const KEY: ComponentKey = ComponentKey::new(PartitionId::new(1), SystemId::new(7));

    fn at(value: u64) -> Position {
        Lsn::new(value).into()
    }

    fn epoch(life: i64) -> Epoch {
        Epoch::new(1, Life { start: life, reset: life })
    }

    #[test]
    fn a_replaced_mark_goes_unless_somebody_raised_it() {
        let judged = Mark::saw(at(5));
        let mut holder = SessionToken::of(KEY, Component::of(epoch(1), judged));
        let change = Change {
            drop: vec![(KEY, epoch(1), judged)],
            join: SessionToken::of(KEY, Component::of(epoch(2), Mark::demand(at(9)))),
            ..Change::default()
        };
        let mut raised = holder.clone();
        raised.join_component(KEY, &Component::of(epoch(1), Mark::saw(at(6))));
        assert!(change.apply(&mut holder));
        assert_eq!(holder.component(KEY).and_then(|c| c.mark(epoch(1))), None);
        assert!(change.apply(&mut raised));
        assert_eq!(raised.component(KEY).and_then(|c| c.mark(epoch(1))), Some(Mark::saw(at(6))));
    }

    #[test]
    fn an_unresolved_demand_is_settled_only_as_it_was_judged() {
        let judged = Component::unresolved();
        let mark = Component::of(epoch(1), Mark::demand(at(9)));
        let change = Change {
            settle: vec![(KEY, judged.clone())],
            join: SessionToken::of(KEY, mark),
            ..Change::default()
        };
        let mut holder = SessionToken::of(KEY, judged.clone());
        let mut raised = holder.clone();
        raised.join_component(KEY, &Component::of(epoch(1), Mark::saw(at(6))));
        change.apply(&mut holder);
        change.apply(&mut raised);
        assert_eq!(holder.component(KEY).map(|c| c.unresolved), Some(false));
        assert_eq!(raised.component(KEY).map(|c| c.unresolved), Some(true));
    }

    #[test]
    fn a_mark_joined_to_a_record_that_dropped_components_does_not_stand_for_them() {
        let mut dropped = SessionToken::new();
        dropped.overflow = true;
        let joins = |mark| Change::joining(SessionToken::of(KEY, Component::of(epoch(1), mark)));
        let is_unresolved = |holder: &SessionToken| holder.component(KEY).map(|c| c.unresolved);
        for (mark, as_judged, unresolved) in [
            (Mark::saw(at(9)), false, true),
            (Mark::saw(at(9)), true, true),
            // Somebody else may have recorded more since the sample, and dropped it.
            (Mark::demand(at(9)), false, true),
            (Mark::demand(at(9)), true, false),
        ] {
            let mut holder = dropped.clone();
            let apply = if as_judged { Change::apply_to_carried } else { Change::apply };
            assert!(apply(&joins(mark), &mut holder));
            assert_eq!(is_unresolved(&holder), Some(unresolved), "{mark:?} {as_judged}");
            assert!(!apply(&joins(mark), &mut holder));
        }
        let mut held = dropped.clone();
        held.join_component(KEY, &Component::of(epoch(1), Mark::demand(at(7))));
        assert!(joins(Mark::saw(at(9))).apply(&mut held));
        assert_eq!(is_unresolved(&held), Some(false), "it held all there was");
    }

    #[test]
    fn applying_twice_changes_nothing_more() {
        let change =
            Change::joining(SessionToken::of(KEY, Component::of(epoch(1), Mark::demand(at(9)))));
        let mut holder = SessionToken::new();
        assert!(change.apply(&mut holder));
        assert!(!change.apply(&mut holder));
    }
}
