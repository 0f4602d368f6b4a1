//! What one session must find, what it was told, and what of that was wrong.
//!
//! Knows rows and words only. Whether a row was really lost is judged later, against the rows of
//! the servers (`truth`).

use std::collections::{BTreeMap, BTreeSet};

use tidegate_client::{Notice, NoticeKind};

/// A row that a session must find again.
#[derive(Clone, Debug)]
struct Due {
    /// When it was written or first seen, in turns of the session.
    turn: u64,
    /// The epoch of its commit; none if it was only seen.
    wrote: Option<String>,
    /// Whether the service was told of it.
    recorded: bool,
}

/// A notice when it came.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) turn: u64,
    pub(super) kind: NoticeKind,
    pub(super) lost_epoch: String,
    pub(super) epoch: String,
    /// Whether it had not come before.
    pub(super) first: bool,
    /// The last row it had written in that epoch.
    pub(super) last_written: Option<i64>,
}

/// A row that was due and that a read, called fresh, did not find.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) row: i64,
    pub(super) told: bool,
    /// The epoch the read was judged in.
    pub(super) epoch: String,
    /// Who read where, for people.
    pub(super) words: String,
}

/// What one session must find and was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    turn: u64,
    due: BTreeMap<i64, Due>,
    heard: Vec<Heard>,
    known: BTreeSet<String>,
    last_written: BTreeMap<String, i64>,
    pub(super) missing: Vec<Missing>,
}

impl Memory {
    /// A new request begins.
    pub(super) const fn turns(&mut self) {
        self.turn += 1;
    }

    /// A commit was acknowledged; `recorded`: the service was told.
    pub(super) fn wrote(&mut self, row: i64, epoch: String, recorded: bool) {
        self.last_written.insert(epoch.clone(), row);
        self.due.insert(row, Due { turn: self.turn, wrote: Some(epoch), recorded });
    }

    /// The service was told everything.
    pub(super) fn recorded(&mut self) {
        self.due.values_mut().for_each(|due| due.recorded = true);
    }

    /// Notices came.
    pub(super) fn hears(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            let first = self.known.insert(notice.id);
            self.heard.push(Heard {
                turn: self.turn,
                kind: notice.kind,
                last_written: self.last_written.get(&notice.lost_epoch).copied(),
                lost_epoch: notice.lost_epoch,
                epoch: notice.epoch,
                first,
            });
        }
    }

    /// A read called fresh found these rows; `elsewhere`: on another device than the writer's.
    pub(super) fn found(
        &mut self,
        rows: &BTreeSet<i64>,
        elsewhere: bool,
        epoch: &str,
        words: impl Fn() -> String,
    ) {
        let lacking: Vec<i64> = self
            .due
            .iter()
            .filter(|(row, due)| !rows.contains(row) && (due.recorded || !elsewhere))
            .map(|(row, _)| *row)
            .collect();
        for row in lacking {
            let (told, words) = (self.was_told(row), words());
            self.missing.push(Missing { row, told, epoch: epoch.to_owned(), words });
        }
        let seen = Due { turn: self.turn, wrote: None, recorded: true };
        for row in rows {
            self.due.entry(*row).or_insert_with(|| seen.clone());
        }
    }

    /// What reads did not find.
    pub(super) fn into_missing(self) -> Vec<Missing> {
        self.missing
    }

    /// The oldest row it must find.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.due.keys().next().copied()
    }

    /// Says whether the session was told that this row is lost, or may be.
    pub(super) fn was_told(&self, row: i64) -> bool {
        let Some(due) = self.due.get(&row) else { return false };
        self.heard.iter().any(|heard| match &due.wrote {
            Some(epoch) => {
                heard.kind != NoticeKind::ObservedStateLost
                    && (heard.first && heard.turn > due.turn
                        || heard.lost_epoch == *epoch && heard.turn >= due.turn)
            }
            None => heard.first && heard.turn >= due.turn,
        })
    }

    /// Rows it wrote and must find.
    pub(super) fn written(&self) -> impl Iterator<Item = i64> + '_ {
        self.due.iter().filter(|(_, due)| due.wrote.is_some()).map(|(row, _)| *row)
    }

    /// Rows it wrote or saw and must find.
    pub(super) fn all(&self) -> impl Iterator<Item = i64> + '_ {
        self.due.keys().copied()
    }

    /// The epoch a row was written in, as its own capture says.
    pub(super) fn epoch_of(&self, row: i64) -> &str {
        self.due.get(&row).and_then(|due| due.wrote.as_deref()).unwrap_or("none")
    }

    /// What was told since the last round, in order.
    pub(super) fn heard(&self) -> &[Heard] {
        &self.heard
    }

    /// What was told, for people.
    pub(super) fn words(&self) -> String {
        let words = self.heard.iter().map(|heard| {
            let Heard { turn, kind, lost_epoch, epoch, .. } = heard;
            format!("{kind:?} of {lost_epoch} in {epoch} at turn {turn}")
        });
        let turns = self.due.iter().map(|(row, due)| format!("{row} at turn {}", due.turn));
        let due: Vec<String> = turns.collect();
        format!("[{}], due [{}]", words.collect::<Vec<_>>().join("; "), due.join(", "))
    }

    /// A new round: what survived stays due, the newest `keep` of it; what was told is
    /// settled.
    pub(super) fn settle(&mut self, keep: usize, survives: impl Fn(i64) -> bool) {
        self.due.retain(|row, _| survives(*row));
        while self.due.len() > keep {
            self.due.pop_first();
        }
        for due in self.due.values_mut() {
            due.turn = self.turn;
        }
        self.heard.clear();
        self.missing.clear();
        self.last_written.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(kind: NoticeKind, lost: &str) -> Heard {
        let (lost_epoch, epoch) = (lost.to_owned(), "2.1.1".to_owned());
        Heard { turn: 0, kind, lost_epoch, epoch, first: true, last_written: None }
    }

    fn memory() -> Memory {
        let mut memory = Memory::default();
        memory.turns();
        memory.wrote(1, "1.1.1".to_owned(), true);
        memory
    }

    fn heard(memory: &mut Memory, heard: Heard) {
        let turn = memory.turn;
        memory.heard.push(Heard { turn, ..heard });
    }

    #[test]
    fn a_row_that_is_missing_without_a_word_is_kept_for_judgement() {
        let mut memory = memory();
        memory.turns();
        memory.found(&BTreeSet::new(), false, "2.1.1", String::new);
        assert!(memory.missing.iter().all(|missing| missing.row == 1 && !missing.told));
        assert_eq!(memory.missing.len(), 1);
    }

    #[test]
    fn only_a_word_about_its_write_that_came_after_it_tells_a_session() {
        let mut told = memory();
        heard(&mut told, notice(NoticeKind::PossiblyLost, "0.9.9"));
        assert!(!told.was_told(1), "it came with the write and names an older epoch");
        told.turns();
        heard(&mut told, notice(NoticeKind::ObservedStateLost, "1.1.1"));
        assert!(!told.was_told(1), "it says that the write survived");
        heard(&mut told, notice(NoticeKind::WriteLost, "1.1.1"));
        assert!(told.was_told(1));
    }

    #[test]
    fn a_repeated_word_about_an_older_loss_tells_nothing_of_a_newer_write() {
        let mut memory = memory();
        memory.turns();
        let repeated = Heard { first: false, ..notice(NoticeKind::WriteLost, "0.9.9") };
        heard(&mut memory, repeated);
        assert!(!memory.was_told(1));
    }

    #[test]
    fn what_another_device_cannot_know_yet_is_not_missing_there() {
        let mut memory = Memory::default();
        memory.wrote(1, "1.1.1".to_owned(), false);
        memory.found(&BTreeSet::new(), true, "1.1.1", String::new);
        assert!(memory.missing.is_empty());
        memory.recorded();
        memory.found(&BTreeSet::new(), true, "1.1.1", String::new);
        assert_eq!(memory.missing.len(), 1);
    }
}
