//! Tables and words for people, and the same as JSON for programs.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tidegate_proto::v1;

/// Rows under their headings, each column as wide as its widest cell.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of headings.
    pub(super) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|word| (*word).to_owned()).collect()] }
    }

    /// Adds a row; an empty cell is a dash.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        let cell = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    /// Says whether it has headings alone.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// Prints it.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A time of the wire as people write it; empty without one.
pub(super) fn time(time: Option<&prost_types::Timestamp>) -> String {
    let seconds = time.and_then(|time| u64::try_from(time.seconds).ok());
    let at = seconds.and_then(|s| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(s)));
    at.map_or_else(String::new, |at| humantime::format_rfc3339_seconds(at).to_string())
}

/// Where a parent ended in its child, in words.
pub(super) fn fork(fork: Option<&v1::Fork>) -> String {
    use v1::fork::Kind;
    let Some(fork) = fork else { return "root".to_owned() };
    match fork.kind() {
        Kind::Interval if fork.at_least == fork.at_most => fork.at_most.clone(),
        Kind::Interval => format!("{} to {}", fork.at_least, fork.at_most),
        Kind::Unbounded => "all of it".to_owned(),
        Kind::Unknown | Kind::Unspecified => "unknown".to_owned(),
    }
}

/// How many sessions were told of a loss, by kind.
pub(super) fn told(loss: &v1::Loss) -> String {
    let counts = [
        (loss.write_lost_session_count, "writes"),
        (loss.observed_state_lost_session_count, "reads"),
        (loss.possibly_lost_session_count, "perhaps"),
    ];
    let told = counts.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// A loss as JSON.
pub(super) fn loss_json(loss: &v1::Loss) -> Value {
    json!({
        "lost_epoch": loss.lost_epoch,
        "epoch": loss.epoch,
        "from": loss.from,
        "surely_from": loss.surely_from,
        "to": loss.to,
        "byte_count": loss.byte_count,
        "write_lost_session_count": loss.write_lost_session_count,
        "observed_state_lost_session_count": loss.observed_state_lost_session_count,
        "possibly_lost_session_count": loss.possibly_lost_session_count,
        "first_told_time": time(loss.first_told_time.as_ref()),
        "last_told_time": time(loss.last_told_time.as_ref()),
    })
}

/// A fork as JSON; null at a root.
pub(super) fn fork_json(fork: Option<&v1::Fork>) -> Value {
    let kind = |fork: &v1::Fork| fork.kind().as_str_name().trim_start_matches("KIND_").to_owned();
    fork.map_or(
        Value::Null,
        |fork| json!({ "kind": kind(fork), "at_least": fork.at_least, "at_most": fork.at_most }),
    )
}

/// The state of a partition as JSON.
pub(super) fn partition_json(partition: &v1::Partition) -> Value {
    json!({
        "name": partition.name,
        "state": state(partition.state()),
        "leader_node": partition.leader_node,
        "epoch": partition.epoch,
        "alarms": partition.alarms,
    })
}

/// The state of a partition in one word.
pub(super) fn state(state: v1::partition::State) -> &'static str {
    state.as_str_name().trim_start_matches("STATE_")
}

/// Who leads a partition, in words.
pub(super) fn who_leads(partition: &v1::Partition) -> String {
    use v1::partition::State;
    match partition.state() {
        State::Led => format!("{} leads in epoch {}", partition.leader_node, partition.epoch),
        State::Leaderless => "nobody leads".to_owned(),
        State::Split => "several nodes claim to lead".to_owned(),
        State::Unspecified => "nothing was seen yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NODE", "ROLE"]);
        table.row(vec!["replica-1".to_owned(), String::new()]);
        assert!(!table.is_empty());
        let mut out = Vec::new();
        table.print(&mut out).expect("memory");
        assert_eq!(String::from_utf8_lossy(&out), "NODE       ROLE\nreplica-1  -\n");
    }

    #[test]
    fn who_was_told_is_said_by_kind() {
        let loss = v1::Loss {
            write_lost_session_count: 2,
            possibly_lost_session_count: 1,
            ..v1::Loss::default()
        };
        assert_eq!(told(&loss), "2 writes, 1 perhaps");
        assert_eq!(told(&v1::Loss::default()), "");
    }
}
