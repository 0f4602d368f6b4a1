//! `tidegate store`: what keeps the records of subjects, and how it is.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tidegate_proto::v1;
use tidegate_proto::v1::store_changed::Kind;
use tidegate_proto::v1::token_store::Condition;

use super::admin::{ANSWER, AdminAt, Client, refused};

/// Show what keeps the records of subjects.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate store           where it is, how it is, and what was counted
  tidegate store --json    the same as a JSON object

Whatever the store is, tokens that are carried work. Where its records are not believed, sessions
known by their subject alone are unknown: their reads see all that was acknowledged before them.

Exit codes: 0 it is well; 1 it is not, or the service cannot be reached; 2 wrong arguments.")]
pub(super) struct Store {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAt,
}

impl Store {
    /// Prints it.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self { json, admin } = self;
        let store = admin.ask(ANSWER, async |mut client: Client| {
            let answer = client.get_store(v1::GetStoreRequest {}).await;
            Ok(answer.map_err(|status| refused(&status))?.into_inner().store.unwrap_or_default())
        })?;
        if json {
            writeln!(out, "{}", store_json(&store))?;
        } else {
            write(&store, out)?;
        }
        if store.condition() != Condition::Well {
            anyhow::bail!("the token store {}", word(store.condition()));
        }
        Ok(())
    }
}

fn write(store: &v1::TokenStore, out: &mut dyn Write) -> Result<()> {
    if store.servers.is_empty() {
        writeln!(out, "store       {}, in the service itself", store.kind)?;
    } else {
        writeln!(out, "store       {} at {}", store.kind, store.servers)?;
    }
    if !store.version.is_empty() {
        writeln!(out, "version     {}, redundancy {}", store.version, store.redundancy)?;
    }
    let problem =
        if store.problem.is_empty() { String::new() } else { format!(": {}", store.problem) };
    writeln!(out, "state       {}{problem}", word(store.condition()))?;
    if store.lost_part_count > 0 {
        let (lost, parts) = (store.lost_part_count, store.part_count);
        write!(out, "lost        {lost} of {parts} parts are not believed")?;
        match store.fence_left.as_ref() {
            Some(left) => writeln!(out, "; the fence ends in {}", shown(left))?,
            None => writeln!(out, "; a barrier is awaited")?,
        }
    }
    if store.kind != "memory" {
        let v1::TokenStore { pending_count, pending_limit_count, .. } = store;
        writeln!(out, "waiting     {pending_count} of at most {pending_limit_count} records")?;
        writeln!(
            out,
            "since start {} lookups, {} updates, {} calls, {} retries, {} losses, {} unreadable, \
             {} unreachable",
            store.lookup_count,
            store.update_count,
            store.round_trip_count,
            store.retry_count,
            store.loss_count,
            store.malformed_count,
            store.unreachable.as_ref().map_or_else(|| "0s".to_owned(), shown),
        )?;
    }
    for hint in &store.hints {
        writeln!(out, "hint        {hint}")?;
    }
    Ok(())
}

fn store_json(store: &v1::TokenStore) -> Value {
    let seconds =
        |span: Option<&prost_types::Duration>| span.map(|span| duration(span).as_secs_f64());
    json!({
        "kind": store.kind,
        "servers": store.servers,
        "version": store.version,
        "redundancy": store.redundancy,
        "condition": condition_word(store.condition()),
        "problem": store.problem,
        "fence_left_seconds": seconds(store.fence_left.as_ref()),
        "lost_parts": store.lost_part_count,
        "parts": store.part_count,
        "pending": store.pending_count,
        "pending_limit": store.pending_limit_count,
        "lookups": store.lookup_count,
        "updates": store.update_count,
        "round_trips": store.round_trip_count,
        "retries": store.retry_count,
        "losses": store.loss_count,
        "malformed": store.malformed_count,
        "unreachable_seconds": seconds(store.unreachable.as_ref()),
        "hints": store.hints,
    })
}

fn duration(span: &prost_types::Duration) -> Duration {
    Duration::try_from(*span).unwrap_or_default()
}

fn shown(span: &prost_types::Duration) -> String {
    let whole =
        Duration::from_millis(u64::try_from(duration(span).as_millis()).unwrap_or(u64::MAX));
    humantime::format_duration(whole).to_string()
}

const fn word(condition: Condition) -> &'static str {
    match condition {
        Condition::Unspecified => "is unknown to this version",
        Condition::Well => "is well",
        Condition::Unsettled => "is not believed yet: its servers must take writes for a while",
        Condition::Refuses => "refuses writes",
        Condition::Lost => "lost records",
        Condition::Unreachable => "does not answer",
        Condition::Unfit => "must not be used as it is",
    }
}

const fn condition_word(condition: Condition) -> &'static str {
    match condition {
        Condition::Unspecified => "unknown",
        Condition::Well => "well",
        Condition::Unsettled => "unsettled",
        Condition::Refuses => "refuses",
        Condition::Lost => "lost",
        Condition::Unreachable => "unreachable",
        Condition::Unfit => "unfit",
    }
}

/// What befell the store, behind its name.
pub(super) const fn befell(kind: Kind) -> &'static str {
    match kind {
        Kind::Unspecified => "changed in a way unknown to this version",
        Kind::Lost => "LOST records: subjects are unknown until a barrier covers that",
        Kind::Stands => "is believed again: a barrier covers what it lost",
        Kind::Unreachable => "does not answer: subjects are unknown",
        Kind::Reachable => "answers again",
        Kind::Refuses => "refuses writes: what is recorded waits in memory",
        Kind::Takes => "takes writes again",
        Kind::RecordMalformed => "holds a record that cannot be read: its session is unknown",
        Kind::Unfit => "must not be used as it is",
    }
}

/// The same in one word.
pub(super) const fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Unspecified => "unknown",
        Kind::Lost => "lost",
        Kind::Stands => "stands",
        Kind::Unreachable => "unreachable",
        Kind::Reachable => "reachable",
        Kind::Refuses => "refuses",
        Kind::Takes => "takes",
        Kind::RecordMalformed => "record_malformed",
        Kind::Unfit => "unfit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_and_how_long_the_fence_stands_is_shown() {
        let mut store = v1::TokenStore {
            kind: "redis".to_owned(),
            servers: "redis://h:6379".to_owned(),
            lost_part_count: 1,
            part_count: 64,
            fence_left: Some(prost_types::Duration { seconds: 21, nanos: 900_000_000 }),
            problem: "why".to_owned(),
            ..v1::TokenStore::default()
        };
        store.set_condition(Condition::Lost);
        let mut out = Vec::new();
        write(&store, &mut out).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("state       lost records: why\n"), "{text}");
        assert!(text.contains("1 of 64 parts are not believed; the fence ends in 21s 900ms\n"));
        let json = store_json(&store);
        assert_eq!(
            (&json["condition"], &json["fence_left_seconds"]),
            (&json!("lost"), &json!(21.9))
        );
    }
}
