//! `tidegate events`: what happens to leaders, epochs and losses, a line each.

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use tidegate_proto::v1;
use tidegate_proto::v1::watch_events_response::Event;

use super::admin::{ANSWER, AdminAt, Client, broken_off, refused};
use super::table::{fork, fork_json, loss_json, partition_json, state, time, told, who_leads};

type Stream = tonic::Streaming<v1::WatchEventsResponse>;

/// Show what happens.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate events                       the state of now
  tidegate events --follow              and what happens from then on, until Ctrl-C
  tidegate events --follow main --json  of one partition, a JSON object a line

Exit codes: 0 shown, 1 the service cannot be reached or shuts down, 2 wrong arguments.")]
pub(super) struct Events {
    /// Only of this partition.
    partition: Option<String>,
    /// Go on until interrupted.
    #[arg(long)]
    follow: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAt,
}

impl Events {
    /// Prints them.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self { partition, follow, json, admin } = self;
        let partition = partition.unwrap_or_default();
        if follow {
            let print = async |events| print(events, json, None, out).await;
            return admin.follow(ANSWER, |client| watch(client, partition), print);
        }
        admin.ask(ANSWER, async |mut client: Client| {
            let request = v1::ListPartitionsRequest { partition: partition.clone() };
            let listed = client.list_partitions(request).await.map_err(|s| refused(&s))?;
            let count = listed.into_inner().partitions.len();
            print(watch(client, partition).await?, json, Some(count), out).await
        })
    }
}

async fn watch(mut client: Client, partition: String) -> Result<Stream> {
    let request = v1::WatchEventsRequest { partition };
    let events = client.watch_events(request).await.map_err(|status| refused(&status))?;
    Ok(events.into_inner())
}

/// Prints so many events; all without a number.
async fn print(
    mut events: Stream,
    json: bool,
    most: Option<usize>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut printed = 0;
    while most.is_none_or(|most| printed < most) {
        let Some(event) = events.message().await.map_err(|status| broken_off(&status))? else {
            bail!("the service ended the stream");
        };
        let line = if json { event_json(&event).to_string() } else { line(&event) };
        writeln!(out, "{line}")?;
        out.flush()?;
        printed += 1;
    }
    Ok(())
}

fn line(event: &v1::WatchEventsResponse) -> String {
    let what = event.event.as_ref().map_or_else(|| "unknown to this version".to_owned(), words);
    let of = if event.partition.is_empty() { "store" } else { event.partition.as_str() };
    format!("{}  {of}  {what}", time(event.time.as_ref()))
}

fn words(event: &Event) -> String {
    let or_nobody =
        |node: &str| if node.is_empty() { "nobody".to_owned() } else { node.to_owned() };
    match event {
        Event::Current(partition) => {
            let alarms: Vec<String> =
                partition.alarms.iter().map(|alarm| format!("; alarm: {alarm}")).collect();
            format!("now: {}{}", who_leads(partition), alarms.concat())
        }
        Event::LeadershipChanged(now) => {
            format!("{} leads; epoch {}", or_nobody(&now.node), now.epoch)
        }
        Event::SplitBegun(split) => {
            let all: Vec<String> = split
                .contenders
                .iter()
                .map(|one| format!("{} (incarnation {})", one.node, one.incarnation))
                .collect();
            format!("SPLIT between {}: resolve-split says who leads", all.join(" and "))
        }
        Event::EpochPlaced(placed) => {
            let (epoch, parent) = (&placed.epoch, &placed.parent);
            match placed.fork.as_ref() {
                None => format!("epoch {epoch} is a root"),
                some => format!("epoch {epoch} grew from {parent}, which survives: {}", fork(some)),
            }
        }
        Event::NodeQuarantined(node) => format!("{} is out: {}", node.node, node.reason),
        Event::NodeResumed(node) => format!("{} was resumed by an operator", node.node),
        Event::VerdictGiven(verdict) => {
            let aside = verdict.aside_epochs.join(", ");
            format!("an operator decided for epoch {}; set aside: {aside}", verdict.epoch)
        }
        Event::NodeRestored(node) => {
            format!("{} continues nothing known in epoch {}: an older copy?", node.node, node.epoch)
        }
        Event::RowConflict(row) => format!("where epoch {} came from is contradicted", row.epoch),
        Event::RowUnwritable(row) => {
            format!("the lineage row of epoch {} cannot be written", row.epoch)
        }
        Event::ForeignSystem(node) => format!("{} answers as another database", node.node),
        Event::LossesTold(loss) => {
            format!("sessions told what epoch {} lost: {}", loss.lost_epoch, told(loss))
        }
        Event::DeposedWrite(write) => format!(
            "a write on the deposed leader of epoch {} was recorded, at {}",
            write.epoch, write.position
        ),
        Event::FailoverAnnounced(said) => announced(said),
        Event::OtherInstances(others) if others.connections.is_empty() => {
            "no other instance is connected any more".to_owned()
        }
        Event::OtherInstances(others) => format!(
            "other instances are connected, subjects are unknown: {}",
            others.connections.join(", ")
        ),
        Event::StoreChanged(store) => {
            let cause =
                if store.cause.is_empty() { String::new() } else { format!(": {}", store.cause) };
            format!("the token store {}{cause}", super::store::befell(store.kind()))
        }
        Event::Missed(missed) => format!("{} events were missed", missed.event_count),
    }
}

/// An announcement is a hint; it need not name a leader.
fn announced(said: &v1::FailoverAnnounced) -> String {
    let node = if said.node.is_empty() { String::new() } else { format!(", of {}", said.node) };
    let leads = match said.new_leader_node.as_str() {
        "" => String::new(),
        leads => format!(": {leads} leads"),
    };
    format!("announced by {}{node}{leads}", said.source)
}

fn event_json(event: &v1::WatchEventsResponse) -> Value {
    let (kind, what) = match event.event.as_ref() {
        None => ("unknown", Value::Null),
        Some(Event::Current(now)) => ("current", partition_json(now)),
        Some(Event::LeadershipChanged(now)) => (
            "leadership_changed",
            json!({ "state": state(now.state()), "node": now.node, "epoch": now.epoch }),
        ),
        Some(Event::SplitBegun(split)) => {
            let all: Vec<Value> = split.contenders.iter().map(contender_json).collect();
            ("split_begun", json!({ "contenders": all }))
        }
        Some(Event::EpochPlaced(placed)) => {
            let fork = fork_json(placed.fork.as_ref());
            let placed = json!({ "epoch": placed.epoch, "parent": placed.parent, "fork": fork });
            ("epoch_placed", placed)
        }
        Some(Event::NodeQuarantined(node)) => {
            ("node_quarantined", json!({ "node": node.node, "reason": node.reason }))
        }
        Some(Event::NodeResumed(node)) => ("node_resumed", json!({ "node": node.node })),
        Some(Event::VerdictGiven(verdict)) => (
            "verdict_given",
            json!({ "epoch": verdict.epoch, "aside_epochs": verdict.aside_epochs }),
        ),
        Some(Event::NodeRestored(node)) => {
            ("node_restored", json!({ "node": node.node, "epoch": node.epoch }))
        }
        Some(Event::RowConflict(row)) => ("row_conflict", json!({ "epoch": row.epoch })),
        Some(Event::RowUnwritable(row)) => ("row_unwritable", json!({ "epoch": row.epoch })),
        Some(Event::ForeignSystem(node)) => ("foreign_system", json!({ "node": node.node })),
        Some(Event::LossesTold(loss)) => ("losses_told", loss_json(loss)),
        Some(Event::DeposedWrite(write)) => {
            ("deposed_write", json!({ "epoch": write.epoch, "position": write.position }))
        }
        Some(Event::FailoverAnnounced(said)) => {
            let (source, node, new) = (&said.source, &said.node, &said.new_leader_node);
            let said = json!({ "source": source, "node": node, "new_leader_node": new });
            ("failover_announced", said)
        }
        Some(Event::OtherInstances(others)) => {
            ("other_instances", json!({ "connections": others.connections }))
        }
        Some(Event::StoreChanged(store)) => {
            let kind = super::store::kind_word(store.kind());
            ("store_changed", json!({ "kind": kind, "cause": store.cause }))
        }
        Some(Event::Missed(missed)) => ("missed", json!({ "event_count": missed.event_count })),
    };
    let at = time(event.time.as_ref());
    json!({ "time": at, "partition": event.partition, "event": kind, kind: what })
}

fn contender_json(one: &v1::Contender) -> Value {
    json!({ "node": one.node, "incarnation": one.incarnation, "epoch": one.epoch })
}
