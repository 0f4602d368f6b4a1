//! `tidegate lost`: what failovers lost since some time, and how many sessions were told.

use std::io::Write;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tidegate_proto::v1;

use super::admin::{ANSWER, AdminAt, Epochs, epochs};
use super::table::{Table, fork_json, loss_json, time};
use crate::clock::Clock;

/// Show what failovers lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate lost --since 2h
  tidegate lost --since 2026-11-30T12:00:00Z main --json

Positions are as the database prints them: nothing up to FROM was lost, nothing past SURELY FROM
survives, and TO is the highest position the lost leader was polled at. WRITES, READS and PERHAPS
count the sessions this instance told that a write, something they read, or perhaps one of both is
gone. What was forked before the service started counts as forked at its start.

Exit codes: 0 shown, also if nothing was lost; 1 the service cannot be reached;
2 wrong arguments.")]
pub(super) struct Lost {
    /// Since when: a time ago, as 90s, 30m, 2h or 7d, or a time, as 2026-11-30T12:00:00Z.
    #[arg(long, value_name = "AGO|TIME", value_parser = since)]
    since: SystemTime,
    /// Only in this partition.
    partition: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAt,
}

/// One loss, and the epoch that goes on without it.
struct Found<'a> {
    partition: &'a str,
    node: &'a str,
    loss: &'a v1::Loss,
    /// `None`: that epoch is not listed any more.
    child: Option<&'a v1::Epoch>,
}

impl Lost {
    /// Prints them.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self { since, partition, json, admin } = self;
        let all = admin.ask(ANSWER, |client| epochs(client, partition))?;
        let found: Vec<Found<'_>> =
            all.iter().flat_map(losses).filter(|found| found.is_since(since)).collect();
        let since = humantime::format_rfc3339_seconds(since);
        if json {
            let losses: Vec<Value> = found.iter().map(Found::json).collect();
            writeln!(out, "{}", json!({ "since": since.to_string(), "losses": losses }))?;
            return Ok(());
        }
        let mut table = Table::new(&[
            "PARTITION",
            "LOST EPOCH",
            "NODE",
            "GOES ON IN",
            "FORKED",
            "FROM",
            "SURELY FROM",
            "TO",
            "BYTES",
            "WRITES",
            "READS",
            "PERHAPS",
        ]);
        for found in &found {
            table.row(found.row());
        }
        if table.is_empty() {
            writeln!(out, "nothing was lost since {since}")?;
        } else {
            table.print(out)?;
        }
        Ok(())
    }
}

/// Reads a time, or a time ago.
fn since(text: &str) -> Result<SystemTime, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let now = Duration::from_secs(Clock::new().wall_seconds());
        let at = SystemTime::UNIX_EPOCH.checked_add(now).and_then(|now| now.checked_sub(ago));
        let at = at.filter(|at| *at >= SystemTime::UNIX_EPOCH);
        return at.ok_or_else(|| "that is before 1970".to_owned());
    }
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| "write a time ago, as 2h, or a time, as 2026-11-30T12:00:00Z".to_owned())
}

fn losses(all: &Epochs) -> impl Iterator<Item = Found<'_>> {
    let Epochs { partition, epochs } = all;
    epochs.iter().flat_map(move |lost| {
        lost.losses.iter().map(move |loss| Found {
            partition: &partition.name,
            node: &lost.node,
            loss,
            child: epochs.iter().find(|epoch| epoch.epoch == loss.epoch),
        })
    })
}

impl Found<'_> {
    fn is_since(&self, since: SystemTime) -> bool {
        let forked = self.child.and_then(|child| child.first_seen_time);
        let times = [forked, self.loss.last_told_time];
        let at = |time: prost_types::Timestamp| {
            let seconds = u64::try_from(time.seconds).unwrap_or(0);
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
        };
        // To the second; and what has no time may have been since.
        let lately = |at: SystemTime| at + Duration::from_secs(1) > since;
        let known: Vec<SystemTime> = times.into_iter().flatten().filter_map(at).collect();
        known.is_empty() || known.into_iter().any(lately)
    }

    fn row(&self) -> Vec<String> {
        let loss = self.loss;
        let forked = self.child.and_then(|child| child.first_seen_time.as_ref());
        let is_known = !loss.from.is_empty() && !loss.to.is_empty();
        vec![
            self.partition.to_owned(),
            loss.lost_epoch.clone(),
            self.node.to_owned(),
            loss.epoch.clone(),
            time(forked),
            loss.from.clone(),
            loss.surely_from.clone(),
            loss.to.clone(),
            if is_known { loss.byte_count.to_string() } else { String::new() },
            loss.write_lost_session_count.to_string(),
            loss.observed_state_lost_session_count.to_string(),
            loss.possibly_lost_session_count.to_string(),
        ]
    }

    fn json(&self) -> Value {
        let mut shown = loss_json(self.loss);
        if let Value::Object(fields) = &mut shown {
            let child = self.child;
            let forked = time(child.and_then(|child| child.first_seen_time.as_ref()));
            let fork = fork_json(child.and_then(|child| child.fork.as_ref()));
            fields.insert("partition".to_owned(), json!(self.partition));
            fields.insert("node".to_owned(), json!(self.node));
            fields.insert("forked_time".to_owned(), json!(forked));
            fields.insert("fork".to_owned(), fork);
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_ago_and_a_time_are_read_and_nothing_else() {
        let ago = since("2h").expect("a time ago");
        let since_1970 = ago.duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs();
        let past = Clock::new().wall_seconds() - since_1970;
        assert!((7200..7260).contains(&past), "{past}");
        assert!(since("2026-11-30T12:00:00Z").is_ok() && since("2026-11-30 12:00:00").is_ok());
        for text in ["", "2", "yesterday", "-2h", "99999999999d"] {
            assert!(since(text).is_err(), "{text:?}");
        }
    }
}
