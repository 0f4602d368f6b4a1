//! What came of a round, judged by the rows of the servers: what was lost, who was told, and what
//! was told wrongly.

use std::collections::BTreeMap;

use tidegate_client::NoticeKind;
use tidegate_core::position::{Lsn, Position};
use tidegate_proto::v1;

use super::person::Person;
use super::schedule::{Plan, has_gap, has_two_writers};
use super::truth::Truth;

/// Why a session was told that something may be lost, in the order in which it is looked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// Something it wrote or saw was lost.
    Lost,
    /// Nobody could poll while it happened.
    Gap,
    /// Two servers were written to at the same time.
    TwoWriters,
    /// It does not wait for the disk.
    Asynchronous,
    /// It does not send `before()`.
    NoBefore,
    /// None of these.
    None,
}

impl Cause {
    /// For people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lost => "something was lost",
            Self::Gap => "nobody could poll",
            Self::TwoWriters => "two servers were written to",
            Self::Asynchronous => "asynchronous commits",
            Self::NoBefore => "no before()",
            Self::None => "none of these",
        }
    }
}

/// What came of one round, or of several.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Verdict {
    /// Rows acknowledged and lost.
    pub lost: u64,
    /// Sessions that lost some.
    pub losers: u64,
    /// Those that were never told.
    pub untold: Vec<String>,
    /// Reads called fresh that lacked a row nobody had said is lost.
    pub stale: Vec<String>,
    /// Notices by kind, each counted once per session.
    pub write_lost: u64,
    /// See above.
    pub observed_lost: u64,
    /// See above, by cause.
    pub possibly_lost: BTreeMap<Cause, u64>,
    /// `WRITE_LOST` of a write that survived.
    pub false_lost: Vec<String>,
    /// Notices whose marks are known.
    pub marked: u64,
    /// Those about marks at or below what surely survived.
    pub needless: Vec<String>,
}

impl Verdict {
    /// Adds another round.
    pub fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.losers += other.losers;
        self.write_lost += other.write_lost;
        self.observed_lost += other.observed_lost;
        self.marked += other.marked;
        self.untold.extend(other.untold);
        self.stale.extend(other.stale);
        self.false_lost.extend(other.false_lost);
        self.needless.extend(other.needless);
        for (cause, count) in other.possibly_lost {
            *self.possibly_lost.entry(cause).or_default() += count;
        }
    }

    /// Notices told, of all kinds.
    #[must_use]
    pub fn notices(&self) -> u64 {
        self.write_lost + self.observed_lost + self.possibly_lost.values().sum::<u64>()
    }

    /// Notices that something may be lost, where nothing was and nothing stood against knowing.
    #[must_use]
    pub fn without_cause(&self) -> u64 {
        self.possibly_lost.get(&Cause::None).copied().unwrap_or(0)
    }

    /// Every promise that was broken, for people.
    #[must_use]
    pub fn broken(&self) -> Vec<&str> {
        let all = [&self.stale, &self.untold, &self.false_lost, &self.needless];
        all.into_iter().flatten().map(String::as_str).collect()
    }
}

/// Judges one session after a round.
pub(super) fn judge(person: &Person, plan: &Plan, truth: &Truth, epochs: &[v1::Epoch]) -> Verdict {
    let (mut verdict, memory) = (Verdict::default(), &person.memory);
    for missing in &memory.missing {
        if !missing.told {
            verdict.stale.push(format!("{} and lacked row {}", missing.words, missing.row));
        } else if truth.survives(missing.row) && truth.was_on(&missing.epoch, missing.row) {
            let words = &missing.words;
            verdict.stale.push(format!("{words} and lacked row {}, which survived", missing.row));
        }
    }
    let lost: Vec<i64> = memory.written().filter(|row| !truth.survives(*row)).collect();
    verdict.lost = lost.len() as u64;
    verdict.losers = u64::from(!lost.is_empty());
    let untold: Vec<i64> = lost.iter().copied().filter(|row| !memory.was_told(*row)).collect();
    if let Some(row) = untold.first() {
        let (epoch, heard) = (memory.epoch_of(*row), memory.words());
        let words = format!("lost row {row} of {epoch} and was not told; told was: {heard}");
        verdict.untold.push(format!("{} {words}", person.words()));
    }
    notices(person, plan, truth, &mut verdict);
    marks(person, epochs, &mut verdict);
    verdict
}

fn notices(person: &Person, plan: &Plan, truth: &Truth, verdict: &mut Verdict) {
    let memory = &person.memory;
    for heard in memory.heard().iter().filter(|heard| heard.first) {
        let survives = |row| truth.was_on(&heard.epoch, row) && truth.survives(row);
        // A write of another epoch whose mark was taken over: at least one must be gone.
        let is_false = heard.last_written.map_or_else(|| memory.written().all(survives), survives);
        if heard.kind == NoticeKind::WriteLost && is_false {
            let (row, lost) = (heard.last_written, &heard.lost_epoch);
            let words = format!("was told that its write ({row:?}) of {lost} is lost");
            verdict.false_lost.push(format!("{} {words}; {}", person.words(), memory.words()));
        }
        match heard.kind {
            NoticeKind::WriteLost => verdict.write_lost += 1,
            NoticeKind::ObservedStateLost => verdict.observed_lost += 1,
            NoticeKind::PossiblyLost => {
                let cause = cause(person, plan, truth);
                *verdict.possibly_lost.entry(cause).or_default() += 1;
            }
            _ => {}
        }
    }
}

fn cause(person: &Person, plan: &Plan, truth: &Truth) -> Cause {
    if person.memory.all().any(|row| !truth.survives(row)) {
        Cause::Lost
    } else if has_gap(plan.kind) {
        Cause::Gap
    } else if has_two_writers(plan.kind) {
        Cause::TwoWriters
    } else if !person.is_synchronous {
        Cause::Asynchronous
    } else if !person.sends_before {
        Cause::NoBefore
    } else {
        Cause::None
    }
}

/// No notice for what lies at or below the position up to which an epoch surely survived.
fn marks(person: &Person, epochs: &[v1::Epoch], verdict: &mut Verdict) {
    for marked in &person.marked {
        let child = epochs.iter().find(|epoch| epoch.epoch == marked.epoch);
        let Some(child) = child.filter(|child| child.parent == marked.lost_epoch) else { continue };
        verdict.marked += 1;
        let Some(fork) = &child.fork else { continue };
        let at_least = position(&fork.at_least);
        let nothing_lost = fork.kind() == v1::fork::Kind::Unbounded;
        if nothing_lost || at_least.is_some_and(|at_least| marked.lies_within(at_least)) {
            let (lost, epoch) = (&marked.lost_epoch, &marked.epoch);
            let words = format!("was told of {lost} lost in {epoch}, where all of it survived");
            verdict.needless.push(format!("{} {words}", person.words()));
        }
    }
}

fn position(text: &str) -> Option<Position> {
    Lsn::parse(text).ok().map(Position::Lsn)
}
