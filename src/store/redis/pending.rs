//! `Pending`: changes that the store did not take, until it does.
//!
//! One change per subject, joined from all that came. Bounded; it writes nothing itself.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::token::Change;
use tokio::sync::Notify;

use super::events::{StoreCount, StoreCounters};
use crate::ports::SubjectKey;

/// Marks to be dropped that are remembered per subject: dropping fewer demands more.
const DROPS_MAX: usize = 64;

/// Changes that the store did not take.
#[derive(Debug)]
pub(super) struct Pending {
    waiting: Mutex<Waiting>,
    /// How many: most lookups see by this alone that nothing waits.
    count: AtomicUsize,
    limit: usize,
    counters: Arc<StoreCounters>,
    /// Something waits to be written.
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    by_subject: HashMap<SubjectKey, Entry>,
    /// Whose turn it is to be written; each subject stands here once, or is being written.
    turns: VecDeque<SubjectKey>,
}

#[derive(Debug)]
struct Entry {
    change: Change,
    /// Counts the changes joined in.
    version: u64,
}

/// More subjects wait than may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingFull {
    pub(super) limit: usize,
}

impl Pending {
    pub(super) fn new(limit: usize, counters: &Arc<StoreCounters>) -> Self {
        let (waiting, count, wake) = (Mutex::default(), AtomicUsize::new(0), Notify::new());
        Self { waiting, count, limit, counters: Arc::clone(counters), wake }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Entries are whole at any time.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self, waiting: &Waiting) {
        let count = waiting.by_subject.len();
        self.count.store(count, Ordering::Release);
        self.counters.set(StoreCount::Pending, count as u64);
    }

    /// Adds a change; returns all that waits for this subject now.
    pub(super) fn add(&self, subject: SubjectKey, change: &Change) -> Result<Change, PendingFull> {
        let mut waiting = self.waiting();
        let is_new = !waiting.by_subject.contains_key(&subject);
        if is_new && waiting.by_subject.len() >= self.limit {
            return Err(PendingFull { limit: self.limit });
        }
        if is_new {
            waiting.turns.push_back(subject);
        }
        let empty = || Entry { change: Change::default(), version: 0 };
        let entry = waiting.by_subject.entry(subject).or_insert_with(empty);
        absorb(&mut entry.change, change);
        entry.version += 1;
        let all = entry.change.clone();
        self.counted(&waiting);
        drop(waiting);
        self.wake.notify_one();
        Ok(all)
    }

    /// What waits for a subject.
    pub(super) fn of(&self, subject: SubjectKey) -> Option<Change> {
        if self.is_empty() {
            return None;
        }
        self.waiting().by_subject.get(&subject).map(|entry| entry.change.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// What is to be written next, with its version; each must be [`Self::done`].
    pub(super) fn next(&self, most: usize) -> Vec<(SubjectKey, Change, u64)> {
        let mut waiting = self.waiting();
        let most = waiting.turns.len().min(most);
        let turns: Vec<SubjectKey> = waiting.turns.drain(..most).collect();
        let entry = |subject: SubjectKey| {
            let entry = waiting.by_subject.get(&subject)?;
            Some((subject, entry.change.clone(), entry.version))
        };
        turns.into_iter().filter_map(entry).collect()
    }

    /// Forgets what was written, unless more has come since; what was not takes its turn again.
    pub(super) fn done(&self, subject: SubjectKey, version: u64, written: bool) {
        let mut waiting = self.waiting();
        let same = waiting.by_subject.get(&subject).is_some_and(|entry| entry.version == version);
        if written && same {
            waiting.by_subject.remove(&subject);
        } else {
            waiting.turns.push_back(subject);
        }
        self.counted(&waiting);
    }
}

/// Joins a later change in. The join may hold marks that the later one drops: that demands more.
fn absorb(all: &mut Change, later: &Change) {
    all.join.join(&later.join);
    for notice in &later.tell {
        all.join.tell(*notice);
    }
    for id in &later.acknowledge {
        all.join.acknowledge(*id);
    }
    for drop in &later.drop {
        if all.drop.len() < DROPS_MAX && !all.drop.contains(drop) {
            all.drop.push(*drop);
        }
    }
    for settle in &later.settle {
        if all.settle.len() < DROPS_MAX && !all.settle.contains(settle) {
            all.settle.push(settle.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::lineage::{Epoch, Life, SystemId};
    use tidegate_core::position::Lsn;
    use tidegate_core::token::{
        Component, ComponentKey, Mark, Notice, NoticeKind, PartitionId, SessionToken,
    };

    const KEY: ComponentKey = ComponentKey::new(PartitionId::new(1), SystemId::new(7));
    const EPOCH: Epoch = Epoch::new(1, Life { start: 5, reset: 3 });
    const ALICE: SubjectKey = SubjectKey::new([1; 16]);
    const BOB: SubjectKey = SubjectKey::new([2; 16]);

    fn saw(position: u64) -> Change {
        let mark = Mark::saw(Lsn::new(position).into());
        Change::joining(SessionToken::of(KEY, Component::of(EPOCH, mark)))
    }

    fn pending(limit: usize) -> Pending {
        Pending::new(limit, &Arc::default())
    }

    #[test]
    fn what_waits_for_a_subject_is_joined_and_another_subject_needs_room() {
        let pending = pending(1);
        assert_eq!(pending.add(ALICE, &saw(5)), Ok(saw(5)));
        assert_eq!(pending.add(BOB, &saw(5)), Err(PendingFull { limit: 1 }));
        assert_eq!(pending.add(ALICE, &saw(9)), Ok(saw(9)));
        assert_eq!((pending.of(ALICE), pending.of(BOB)), (Some(saw(9)), None));
    }

    #[test]
    fn what_came_while_it_was_written_stays() {
        let pending = pending(9);
        pending.add(ALICE, &saw(5)).expect("there is room");
        assert_eq!(pending.next(9), [(ALICE, saw(5), 1)]);
        pending.add(ALICE, &saw(9)).expect("it has its place");
        assert_eq!(pending.next(9), [], "it is being written");
        pending.done(ALICE, 1, true);
        assert_eq!(pending.of(ALICE), Some(saw(9)));
        for written in [false, true] {
            assert_eq!(pending.next(9), [(ALICE, saw(9), 2)]);
            pending.done(ALICE, 2, written);
        }
        assert!(pending.is_empty() && pending.of(ALICE).is_none());
        assert_eq!(pending.next(9), []);
    }

    #[test]
    fn a_notice_that_was_told_and_acknowledged_meanwhile_is_not_told_again() {
        let pending = pending(9);
        let child = Epoch::new(2, Life { start: 9, reset: 9 });
        let (kind, lost) = (NoticeKind::PossiblyLost, EPOCH);
        let (partition, upto, told_seconds) = (KEY.partition, Lsn::new(9).into(), 5);
        let notice = Notice { partition, kind, lost, child, upto, told_seconds };
        pending.add(ALICE, &Change { tell: vec![notice], ..Change::default() }).expect("room");
        let acknowledge = vec![notice.id()];
        let all = pending.add(ALICE, &Change { acknowledge, ..Change::default() }).expect("room");
        let mut record = SessionToken::new();
        record.tell(notice);
        all.apply(&mut record);
        assert_eq!(record.notices().count(), 0);
    }

    #[test]
    fn more_drops_than_are_remembered_leave_more_demanded() {
        let pending = pending(9);
        let mut all = Change::default();
        for position in 0..200 {
            let drop = vec![(KEY, EPOCH, Mark::saw(Lsn::new(position).into()))];
            all = pending.add(ALICE, &Change { drop, ..Change::default() }).expect("room");
        }
        assert_eq!(all.drop.len(), DROPS_MAX);
    }
}
