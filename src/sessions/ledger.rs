//! `LossLedger`: how many sessions were told of each loss, for operators.
//!
//! A holder is counted once for each loss, when it is first told; where a graver kind is told
//! later, it is counted as that from then on. It keeps no token and no subject, and decides
//! nothing. A client that keeps no token cannot be told from a new one and is counted again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::lineage::Epoch;
use tidegate_core::token::{Notice, NoticeKind, PartitionId, SessionToken};
use tokio::sync::watch;

use crate::ports::SubjectKey;

/// Losses kept of one partition; the one first told longest ago goes first.
const LOSSES_MAX: usize = 256;
/// Subjects remembered for each loss: calls of one subject that run side by side each find it
/// untold.
const LATELY_MAX: usize = 128;

/// One loss: what was lost, and the epoch that goes on without it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LossKey {
    /// Where.
    pub partition: PartitionId,
    /// The epoch whose end was lost.
    pub lost: Epoch,
    /// The epoch that goes on without it.
    pub child: Epoch,
}

/// Who was told of one loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// When the first one was, in seconds since 1970.
    pub first_seconds: u64,
    /// When the last one was first told.
    pub last_seconds: u64,
    /// Sessions that lost a write.
    pub write_lost: u64,
    /// Sessions that lost something they had read.
    pub observed_state_lost: u64,
    /// Sessions that may have lost something.
    pub possibly_lost: u64,
}

/// How many sessions were told of each loss.
#[derive(Debug)]
pub struct LossLedger {
    losses: Mutex<BTreeMap<LossKey, Entry>>,
    changes: watch::Sender<u64>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    told: Told,
    lately: VecDeque<SubjectKey>,
}

impl Told {
    /// Sessions told, of whatever kind.
    pub const fn sessions(&self) -> u64 {
        self.write_lost + self.observed_state_lost + self.possibly_lost
    }

    const fn of(&mut self, kind: NoticeKind) -> &mut u64 {
        match kind {
            NoticeKind::WriteLost => &mut self.write_lost,
            NoticeKind::ObservedStateLost => &mut self.observed_state_lost,
            NoticeKind::PossiblyLost => &mut self.possibly_lost,
        }
    }
}

impl Default for LossLedger {
    fn default() -> Self {
        Self { losses: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl LossLedger {
    fn losses(&self) -> MutexGuard<'_, BTreeMap<LossKey, Entry>> {
        // A panic elsewhere leaves counts, which are whole at any time.
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what of `tell` a holder holds `after` a call and did not `before`; `subject`: whose
    /// record it has.
    pub(super) fn count(
        &self,
        tell: &[Notice],
        (before, after): (&SessionToken, &SessionToken),
        subject: Option<SubjectKey>,
    ) {
        let mut changed = false;
        let is_told =
            |notice: &&Notice| tell.iter().any(|told| told.id().loss() == notice.id().loss());
        for notice in after.notices().filter(is_told) {
            let known = before.notices().find(|own| own.id().loss() == notice.id().loss());
            let known = known.map(|own| own.kind);
            if known != Some(notice.kind) {
                changed |= self.told(notice, known, subject);
            }
        }
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn told(
        &self,
        notice: &Notice,
        known: Option<NoticeKind>,
        subject: Option<SubjectKey>,
    ) -> bool {
        let Notice { partition, kind, lost, child, upto: _, told_seconds } = *notice;
        let mut losses = self.losses();
        let entry = losses.entry(LossKey { partition, lost, child }).or_default();
        if let Some(subject) = subject.filter(|_| known.is_none()) {
            if entry.lately.contains(&subject) {
                return false;
            }
            entry.lately.push_back(subject);
            if entry.lately.len() > LATELY_MAX {
                entry.lately.pop_front();
            }
        }
        let told = &mut entry.told;
        if let Some(known) = known {
            let before = told.of(known);
            *before = before.saturating_sub(1);
        }
        if told.first_seconds == 0 {
            told.first_seconds = told_seconds;
        }
        told.last_seconds = told.last_seconds.max(told_seconds);
        *told.of(kind) += 1;
        trim(&mut losses, partition);
        true
    }

    /// Who was told of one loss; nobody, where there is none.
    pub fn of(&self, key: LossKey) -> Told {
        self.losses().get(&key).map(|entry| entry.told).unwrap_or_default()
    }

    /// The losses of one partition.
    pub fn in_partition(&self, partition: PartitionId) -> Vec<(LossKey, Told)> {
        let losses = self.losses();
        let own = losses.iter().filter(|(key, _)| key.partition == partition);
        own.map(|(key, entry)| (*key, entry.told)).collect()
    }

    /// Changes whenever a session was first told of a loss.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Keeps the bound of one partition.
fn trim(losses: &mut BTreeMap<LossKey, Entry>, partition: PartitionId) {
    let own = || losses.iter().filter(|(key, _)| key.partition == partition);
    if own().count() > LOSSES_MAX {
        let oldest = own().min_by_key(|(_, entry)| entry.told.first_seconds);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            losses.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::lineage::Life;
    use tidegate_core::position::Position;

    const PARTITION: PartitionId = PartitionId::new(1);

    fn epoch(life: i64) -> Epoch {
        Epoch::new(1, Life { start: life, reset: life })
    }

    fn notice(kind: NoticeKind, lost: i64) -> Notice {
        let (lost, child) = (epoch(lost), epoch(lost + 1_000_000));
        let (upto, told_seconds) = (Position::START, 9);
        Notice { partition: PARTITION, kind, lost, child, upto, told_seconds }
    }

    fn holding(notices: &[Notice]) -> SessionToken {
        let mut token = SessionToken::new();
        notices.iter().for_each(|notice| token.tell(*notice));
        token
    }

    fn count(ledger: &LossLedger, before: &[Notice], after: Notice, subject: Option<[u8; 16]>) {
        let (before, held) = (holding(before), holding(&[after]));
        ledger.count(&[after], (&before, &held), subject.map(SubjectKey::new));
    }

    fn told(ledger: &LossLedger) -> Vec<(u64, u64, u64)> {
        let losses = ledger.in_partition(PARTITION);
        let counts = |told: Told| (told.write_lost, told.observed_state_lost, told.possibly_lost);
        losses.into_iter().map(|(_, told)| counts(told)).collect()
    }

    #[test]
    fn a_holder_is_counted_when_it_is_first_told_and_not_again() {
        let ledger = LossLedger::default();
        let lost = notice(NoticeKind::WriteLost, 1);
        let mut changes = ledger.changes();
        count(&ledger, &[], lost, None);
        count(&ledger, &[lost], lost, None);
        assert_eq!(told(&ledger), [(1, 0, 0)]);
        assert!(changes.has_changed().expect("open"));
        changes.mark_unchanged();
        count(&ledger, &[lost], lost, None);
        assert!(!changes.has_changed().expect("open"));
    }

    #[test]
    fn a_graver_kind_moves_the_holder() {
        let ledger = LossLedger::default();
        let perhaps = notice(NoticeKind::PossiblyLost, 1);
        count(&ledger, &[], perhaps, None);
        count(&ledger, &[perhaps], notice(NoticeKind::WriteLost, 1), None);
        assert_eq!(told(&ledger), [(1, 0, 0)]);
    }

    #[test]
    fn calls_of_one_subject_side_by_side_count_once() {
        let ledger = LossLedger::default();
        let lost = notice(NoticeKind::ObservedStateLost, 1);
        for subject in [[1; 16], [1; 16], [2; 16]] {
            count(&ledger, &[], lost, Some(subject));
        }
        assert_eq!(told(&ledger), [(0, 2, 0)]);
    }

    #[test]
    fn the_oldest_loss_goes_first() {
        let ledger = LossLedger::default();
        for life in 0..300_u32 {
            let told_seconds = u64::from(life) + 1;
            let lost = Notice { told_seconds, ..notice(NoticeKind::WriteLost, i64::from(life)) };
            count(&ledger, &[], lost, None);
        }
        let losses = ledger.in_partition(PARTITION);
        assert_eq!(losses.len(), LOSSES_MAX);
        assert!(losses.iter().all(|(_, told)| told.first_seconds > 44), "{losses:?}");
    }
}
