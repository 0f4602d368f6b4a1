//! Runs the commands of the guide and judges what they print.
//!
//! A write is recorded through one instance and waited for and read through the other, by the user
//! id alone, while one standby is held back. Whether a row is there is asked of the server that was
//! named; an answer that was right for want of knowledge (a read of an unknown user demands
//! everything) does not count as one that knew her.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::databases::{DATABASE, NAMES, TABLE};
use super::guide::Guide;
use super::set::{INSTANCES, Set};
use crate::claims::{Claims, Op};
use crate::demo::narrator::line;
use crate::machine;
use crate::wait::until;

/// The reason of an answer that is right by what is known of its session.
const COVERED: &str = "REASON_COVERED";
/// Time until a store is believed: its fence, and what a busy machine adds.
const BELIEF: Duration = Duration::from_secs(60);
/// Reads of the user through each instance.
const READS: u64 = 12;
/// Reads that demand nothing: by chance alone some go to the standby that is held back.
const CARELESS_READS: u64 = 24;

/// Waits until each instance believes what the store says.
///
/// The store is new, so whatever it had known is lost: for the length of a fence every read by a
/// user id demands what the leader has.
///
/// # Errors
/// When an instance does not within the limit.
pub(super) async fn await_belief(set: &Set) -> Result<()> {
    let guide = Guide::new(set);
    let shell = Shell { preamble: guide.preamble()? };
    for instance in INSTANCES {
        let asked = guide.select("nobody", instance)?;
        until(&format!("instance {instance} believes its store"), BELIEF, || async {
            Ok(text(&shell.answer(&asked).await?, "/reason") == COVERED)
        })
        .await?;
    }
    Ok(())
}

/// Tries everything through each instance.
///
/// # Errors
/// When a command of the guide fails, or prints something else than an answer.
pub(super) async fn check(set: &Set, claims: &mut Claims) -> Result<()> {
    let guide = Guide::new(set);
    let shell = Shell { preamble: guide.preamble()? };
    shell.runs(&guide.hold()?).await?;
    let [a, b] = INSTANCES;
    for (through, other) in [(a, b), (b, a)] {
        one_way(set, &guide, &shell, claims, (through, other)).await?;
    }
    shell.runs(&guide.release()?).await?;
    let caught_up = shell.answer(&guide.wait_for_all(&user(a), b)?).await?;
    claims.count("all: waits that ended with every node fresh", fresh(&caught_up), 1, 1);
    for (words, command) in guide.operators()? {
        line(&format!("  {words}"));
        shell.runs(&command).await?;
    }
    Ok(())
}

fn user(through: &str) -> String {
    format!("ana-{through}")
}

/// A write through one instance, a wait and reads through the other.
async fn one_way(
    set: &Set,
    guide: &Guide<'_>,
    shell: &Shell,
    claims: &mut Claims,
    (through, other): (&str, &str),
) -> Result<()> {
    let who = user(through);
    line(&format!("  Written through {through}, read through {other}"));
    let recorded = shell.answer(&guide.write(&who, "a note", through)?).await?;
    let stored = text(&recorded, "/stored");
    let kept = u64::from(!matches!(stored.as_str(), "" | "STORED_NOT_ASKED"));
    claims.count(&format!("write through {through}: recorded ({stored})"), kept, 1, 1);
    let waited = shell.answer(&guide.wait(&who, other)?).await?;
    claims.count(&format!("wait through {other}: ended fresh"), fresh(&waited), 1, 1);

    let (mut known, mut held, mut missing) = (0, 0, 0);
    for _ in 0..READS {
        let read = Read::of(&shell.answer(&guide.select(&who, other)?).await?)?;
        known += u64::from(read.reason == COVERED);
        held += u64::from(read.node == NAMES[1]);
        missing += u64::from(!read.finds(set, &who).await?);
    }
    let reads = |what: &str| format!("reads through {other}: {what}");
    claims.count(&reads("by what the store knows"), known, READS, READS);
    claims.count(&reads("that named the standby held back"), held, 0, READS);
    claims.count(&reads("that missed the row"), missing, 0, READS);

    let mut missing = 0_u32;
    for _ in 0..CARELESS_READS {
        let read = Read::of(&shell.answer(&guide.select_without_session(other)?).await?)?;
        missing += u32::from(!read.finds(set, &who).await?);
    }
    let name = reads("without her id that missed it");
    claims.claim(&name, f64::from(missing), Op::AtLeast, 1.0, CARELESS_READS);
    Ok(())
}

/// Where an answer sends a read, and why there.
struct Read {
    node: String,
    reason: String,
}

impl Read {
    fn of(answer: &Value) -> Result<Self> {
        let node = text(answer, "/served/node/name");
        if node.is_empty() {
            anyhow::bail!("no node was named: {answer}");
        }
        Ok(Self { node, reason: text(answer, "/reason") })
    }

    /// The truth: whether the row is on the server that was named.
    async fn finds(&self, set: &Set, who: &str) -> Result<bool> {
        let query = format!("select exists (select from {TABLE} where who = '{who}')");
        Ok(set.databases.sql(&set.folder, &self.node, DATABASE, &query).await? == "t")
    }
}

/// 1 if a wait ended with what was waited for.
fn fresh(answer: &Value) -> u64 {
    u64::from(text(answer, "/outcome") == "OUTCOME_FRESH")
}

fn text(answer: &Value, path: &str) -> String {
    answer.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A shell that knows what the guide has a person paste first.
struct Shell {
    preamble: String,
}

impl Shell {
    /// Runs commands to their end, which must be good; what they printed.
    async fn runs(&self, commands: &str) -> Result<String> {
        let script = format!("set -eu\n{}\n{commands}", self.preamble);
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        let printed = machine::blocking(move || machine::run(&mut shell)).await;
        printed.with_context(|| format!("this command failed: {commands}"))
    }

    /// Runs commands of which the last prints an answer of Tidegate.
    async fn answer(&self, commands: &str) -> Result<Value> {
        let printed = self.runs(commands).await?;
        serde_json::from_str(&printed).with_context(|| format!("no answer is: {printed}"))
    }
}
