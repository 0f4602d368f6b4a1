//! What runs have shown, added up and side by side.

use std::fmt::Write;
use std::ops::Add;
use std::time::Duration;

use super::schedule::Fault;
use crate::history::Figures;

/// What a run has shown.
#[derive(Clone, Debug)]
#[must_use]
pub struct Sums {
    /// What was written and read.
    pub figures: Figures,
    /// Rows missing on a node called fresh, each told.
    pub violations: Vec<String>,
    /// Reads that were refused or broke off; they promise nothing.
    pub unanswered: u64,
    /// Connections of the client that led to another server than the one named, and were noticed.
    pub selected_again: u64,
    /// How long it took.
    pub took: Duration,
}

impl Add for Sums {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        let (own, more) = (&mut self.figures, other.figures);
        own.writes += more.writes;
        own.reads += more.reads;
        own.calm_replica_reads += more.calm_replica_reads;
        own.replica_reads += more.replica_reads;
        own.leader_reads += more.leader_reads;
        own.flagged_reads += more.flagged_reads;
        own.rounds_lacking += more.rounds_lacking;
        own.notices += more.notices;
        for (kind, count) in more.faults {
            *own.faults.entry(kind).or_default() += count;
        }
        self.violations.extend(other.violations);
        self.unanswered += other.unanswered;
        self.selected_again += other.selected_again;
        self.took = self.took.max(other.took);
        self
    }
}

impl Sums {
    /// How often a fault fired.
    #[must_use]
    pub fn fired(&self, fault: Fault) -> u64 {
        self.figures.faults.get(fault.kind()).copied().unwrap_or(0)
    }

    /// Why silence of this run would prove nothing; empty: it proves something.
    #[must_use]
    pub fn vacuous(&self) -> Vec<String> {
        let figures = &self.figures;
        let mut found = Vec::new();
        if figures.calm_replica_reads * 2 < figures.reads {
            found.push("less than half of the reads were calm ones on replicas".to_owned());
        }
        if figures.rounds_lacking * 5 < figures.writes {
            found.push("standbys lacked the row in less than a fifth of the rounds".to_owned());
        }
        let silent = Fault::ALL.into_iter().filter(|fault| self.fired(*fault) == 0);
        found.extend(silent.map(|fault| format!("no {} fired", fault.kind())));
        if self.unanswered * 20 > figures.reads {
            found.push("more than one read in twenty was not answered".to_owned());
        }
        found
    }

    /// The figures of several runs side by side, each under its name.
    #[must_use]
    pub fn table(runs: &[(&str, &Self)]) -> String {
        type Line = fn(&Sums) -> String;
        let lines: [(&str, Line); 10] = [
            ("rounds", |sums| sums.figures.writes.to_string()),
            ("rows missing on a node called fresh", |sums| sums.violations.len().to_string()),
            ("reads judged", |sums| sums.figures.reads.to_string()),
            ("unflagged on a replica, no fault", |sums| {
                sums.figures.calm_replica_reads.to_string()
            }),
            ("unflagged on a replica", |sums| sums.figures.replica_reads.to_string()),
            ("on the leader", |sums| sums.figures.leader_reads.to_string()),
            ("flagged", |sums| sums.figures.flagged_reads.to_string()),
            ("refused or broken off", |sums| sums.unanswered.to_string()),
            ("reads selected more than once", |sums| sums.selected_again.to_string()),
            ("rounds in which a standby lacked it", |sums| sums.figures.rounds_lacking.to_string()),
        ];
        let mut text = String::new();
        let mut row = |name: &str, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>12}")).collect();
            // A string takes everything.
            _ = writeln!(text, "{name:<38}{cells}");
        };
        row("", runs.iter().map(|(name, _)| (*name).to_owned()).collect());
        for (name, figure) in lines {
            row(name, runs.iter().map(|(_, sums)| figure(sums)).collect());
        }
        for fault in Fault::ALL {
            row(fault.kind(), runs.iter().map(|(_, s)| s.fired(fault).to_string()).collect());
        }
        let seconds = |sums: &Self| format!("{:.1}", sums.took.as_secs_f64());
        row("seconds", runs.iter().map(|(_, sums)| seconds(sums)).collect());
        text
    }
}
