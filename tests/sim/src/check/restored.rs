//! `Restored`: leaders that started from older copies of themselves, and who could tell.
//!
//! Whoever saw more flushed before than the copy shows at first can. Nobody else: documented as
//! not promised.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::evidence::{Evidence, Role};
use tidegate_core::lineage::{Epoch, Life};
use tidegate_core::position::Position;

#[derive(Default, Debug)]
pub(crate) struct Restored {
    instances: usize,
    /// The lives of leaders that began with an older copy: the instances that saw them, and whether
    /// they could tell.
    lives: BTreeMap<Life, BTreeMap<usize, bool>>,
    /// The highest flush position an instance polled in an epoch.
    flushed: BTreeMap<(usize, Epoch), Position>,
    /// The life each instance sees at a node, and those that it saw there before.
    lives_at: BTreeMap<(usize, usize), Life>,
    ended: BTreeSet<(usize, Life)>,
}

impl Restored {
    pub(super) fn of(instances: usize) -> Self {
        Self { instances, ..Self::default() }
    }

    /// Notes that a leader lives on as an older copy.
    pub(crate) fn add(&mut self, life: Life) {
        self.lives.insert(life, BTreeMap::new());
    }

    /// Notes what an instance polled.
    pub(super) fn seen(&mut self, at: (usize, usize), epoch: Epoch, evidence: &Evidence) {
        let instance = at.0;
        let before = self.lives_at.insert(at, epoch.life).filter(|life| *life != epoch.life);
        self.ended.extend(before.map(|life| (instance, life)));
        let Role::Writable { flush, insert, .. } = evidence.role else { return };
        if let Some(told) = self.lives.get_mut(&epoch.life) {
            let at = evidence.replay.unwrap_or(insert);
            let known = evidence.row.and_then(|row| self.flushed.get(&(instance, row)));
            // Where its row stands, whoever wrote that has told everybody.
            let tells =
                evidence.row == Some(epoch) || known.is_some_and(|known| !at.covers(*known));
            told.entry(instance).or_insert(tells);
        }
        if self.ended.contains(&(instance, epoch.life)) {
            // Too late to count.
            return;
        }
        let known = self.flushed.entry((instance, epoch)).or_insert(flush);
        *known = known.join(flush);
    }

    pub(super) fn is_any(&self) -> bool {
        !self.lives.is_empty()
    }

    /// Says whether a copy came up that one of the instances could not tell from its original: its
    /// row may have told all others so.
    pub(crate) fn is_unseen(&self) -> bool {
        let instances = self.instances;
        self.lives.values().any(|told| (0..instances).any(|at| told.get(&at) != Some(&true)))
    }
}
