//! `tidegate epochs`: which leader lives followed which, where each ended, and what was lost.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tidegate_proto::v1;

use super::admin::{ANSWER, AdminAt, Epochs, epochs};
use super::table::{Table, fork, fork_json, loss_json, time, told, who_leads};

/// Show epochs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate epochs                every partition
  tidegate epochs main --json    one, for programs

Columns:
  LINE   leads; on it: its log is in the leader's; off it: some of its log is in no other
  FORK   where its parent ended in it: up to the first position all of the parent survives, past the
         second nothing does
  LOST   bytes of its own end that are not in the leader's log, as far as its leader was polled
  TOLD   sessions told: lost writes, lost reads, and those that perhaps lost something

Exit codes: 0 shown, 1 the service cannot be reached, 2 wrong arguments.")]
pub(super) struct ShowEpochs {
    /// Only of this partition.
    partition: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAt,
}

impl ShowEpochs {
    /// Prints them.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self { partition, json, admin } = self;
        let all = admin.ask(ANSWER, |client| epochs(client, partition))?;
        if json {
            let all: Vec<Value> = all.iter().map(partition_json).collect();
            writeln!(out, "{}", json!({ "partitions": all }))?;
            return Ok(());
        }
        for Epochs { partition, epochs } in &all {
            writeln!(out, "{}: {}", partition.name, who_leads(partition))?;
            let mut table = Table::new(&[
                "EPOCH",
                "NODE",
                "LINE",
                "PARENT",
                "FORK",
                "FIRST SEEN",
                "LOST",
                "TOLD",
            ]);
            for epoch in epochs {
                table.row(row(partition, epoch));
            }
            table.print(out)?;
            for alarm in &partition.alarms {
                writeln!(out, "alarm: {alarm}")?;
            }
        }
        Ok(())
    }
}

fn row(partition: &v1::Partition, epoch: &v1::Epoch) -> Vec<String> {
    let leads = !partition.leader_node.is_empty() && partition.epoch == epoch.epoch;
    let line = if leads {
        "leads"
    } else if epoch.on_chain {
        "on it"
    } else {
        "off it"
    };
    let twins = epoch.twin_epochs.len();
    let twins = if twins > 0 { format!(", {twins} twin(s)") } else { String::new() };
    let lost = |loss: &v1::Loss| {
        if loss.from.is_empty() || loss.to.is_empty() {
            "unknown".to_owned()
        } else {
            format!("{} after {}", loss.byte_count, loss.from)
        }
    };
    let each = |what: &dyn Fn(&v1::Loss) -> String| {
        let all: Vec<String> = epoch.losses.iter().map(what).filter(|t| !t.is_empty()).collect();
        all.join("; ")
    };
    vec![
        epoch.epoch.clone(),
        epoch.node.clone(),
        format!("{line}{twins}"),
        epoch.parent.clone(),
        fork(epoch.fork.as_ref()),
        time(epoch.first_seen_time.as_ref()),
        each(&lost),
        each(&told),
    ]
}

fn partition_json(all: &Epochs) -> Value {
    let mut shown = super::table::partition_json(&all.partition);
    let epochs: Vec<Value> = all.epochs.iter().map(epoch_json).collect();
    if let Value::Object(fields) = &mut shown {
        fields.insert("epochs".to_owned(), Value::Array(epochs));
    }
    shown
}

fn epoch_json(epoch: &v1::Epoch) -> Value {
    json!({
        "epoch": epoch.epoch,
        "parent": epoch.parent,
        "fork": fork_json(epoch.fork.as_ref()),
        "node": epoch.node,
        "row_seen": epoch.row_seen,
        "flush_seen": epoch.flush_seen,
        "ended": epoch.ended,
        "on_chain": epoch.on_chain,
        "first_seen_time": time(epoch.first_seen_time.as_ref()),
        "twin_epochs": epoch.twin_epochs,
        "losses": epoch.losses.iter().map(loss_json).collect::<Vec<_>>(),
    })
}
