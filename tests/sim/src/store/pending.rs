//! `Pending`: changes of one subject that the store did not take, joined as the Redis store does.

use tidegate_core::token::{Change, SessionToken};

use super::link::Link;
use crate::world::log::Rec;

/// What waits of one subject.
#[derive(Clone, Default, Debug)]
pub(crate) struct Pending {
    pub(crate) change: Change,
    /// The records it stands for.
    pub(crate) tips: Vec<Rec>,
    /// Counts what was joined in.
    pub(crate) version: u64,
}

impl Pending {
    fn absorb(&mut self, later: &Change, tips: &[Rec]) {
        let all = &mut self.change;
        all.join.join(&later.join);
        later.tell.iter().for_each(|notice| all.join.tell(*notice));
        later.acknowledge.iter().for_each(|id| all.join.acknowledge(*id));
        for drop in &later.drop {
            if !all.drop.contains(drop) {
                all.drop.push(*drop);
            }
        }
        for settle in &later.settle {
            if !all.settle.contains(settle) {
                all.settle.push(settle.clone());
            }
        }
        self.tips.extend(tips);
        self.version += 1;
    }

    /// What is known of the subject from it alone.
    fn record(&self) -> SessionToken {
        let mut record = SessionToken::new();
        self.change.apply(&mut record);
        record
    }
}

impl Link {
    /// Keeps a change until the store takes it; what waits of the subject alone, before and after.
    pub(super) fn put_off(
        &mut self,
        subject: usize,
        change: &Change,
        tips: &[Rec],
    ) -> (SessionToken, SessionToken) {
        let pending = self.pending.entry(subject).or_default();
        let before = pending.record();
        pending.absorb(change, tips);
        (before, pending.record())
    }

    /// Forgets what was written, unless more has come since.
    pub(super) fn written(&mut self, subject: usize, version: u64) {
        let same = |pending: &Pending| pending.version == version;
        if self.pending.get(&subject).is_some_and(same) {
            self.pending.remove(&subject);
        }
    }
}
