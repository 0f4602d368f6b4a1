//! The file of one partition's facts, as JSON: what is written, and what is accepted back.
//!
//! Positions and epochs are the text PostgreSQL and lineage rows print, nodes go by name. It reads
//! and writes no file.

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;
use tidegate_core::leader::{EpochFacts, Facts, Origin, Verdict};
use tidegate_core::lineage::{Epoch, Fork, Life};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::token::PartitionId;
use tidegate_core::views::NodeId;

/// What is written. Version 1, which had neither origins nor an operator's words, is read too.
const VERSION: u32 = 2;
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=VERSION;

/// The facts of one partition.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    partition: u32,
    epochs: Vec<EpochEntry>,
    /// The operator's choice among writable servers, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verdict: Option<VerdictEntry>,
    /// Lives an operator vouched for, as `START.RESET`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resumed: Vec<String>,
    /// Nodes that may follow a restored leader.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    followers: Vec<FollowerEntry>,
}

/// A node that an operator vouched for after its leader had been restored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FollowerEntry {
    /// The epoch of the restored leader.
    epoch: String,
    node: String,
}

/// The operator's choice among writable servers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerdictEntry {
    number: u64,
    /// `TIMELINE.START.RESET`, as all epochs.
    winner: String,
    aside: Vec<String>,
}

/// What an epoch grew from.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OriginEntry {
    /// Null at a root.
    parent: Option<String>,
    fork: ForkEntry,
    shared: String,
}

/// Where a parent ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum ForkEntry {
    Unbounded,
    Unknown,
    Between { at_least: String, at_most: String },
}

/// What polls have shown of one epoch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EpochEntry {
    /// `TIMELINE.START.RESET`.
    epoch: String,
    node: Option<String>,
    /// As `0/3034AB8`.
    flush_seen: String,
    flush_starts_page: bool,
    /// Absent: not known. Null: its leader showed none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    replay: Option<Option<String>>,
    /// Absent: not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<OriginEntry>,
    /// Its leader came back as a copy of an older day.
    #[serde(default)]
    is_restored: bool,
    ended: bool,
}

/// A version alone, to tell a later form from a broken one.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Tells a null from nothing at all.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(from).map(Some)
}

/// The text of a partition's facts.
///
/// # Errors
/// What `serde_json` says, which it does for no value of these types.
pub(super) fn write(
    partition: PartitionId,
    nodes: &[String],
    facts: &Facts,
) -> Result<String, String> {
    let entry = |(epoch, facts): (Epoch, EpochFacts)| EpochEntry {
        epoch: epoch.to_string(),
        node: facts.node.and_then(|node| nodes.get(node.index()).cloned()),
        flush_seen: facts.flush_seen.to_string(),
        flush_starts_page: facts.flush_starts_page,
        replay: facts.replay.map(|shown| shown.map(|position| position.to_string())),
        origin: facts.origin.map(origin_entry),
        is_restored: facts.is_restored,
        ended: facts.ended,
    };
    let words = facts.words();
    let verdict = words.verdict().map(|verdict| VerdictEntry {
        number: verdict.number,
        winner: verdict.winner.to_string(),
        aside: verdict.aside.iter().map(ToString::to_string).collect(),
    });
    let resumed = words.resumed().map(|life| format!("{}.{}", life.start, life.reset)).collect();
    let follower = |(epoch, node): (Epoch, NodeId)| {
        let node = nodes.get(node.index()).cloned()?;
        Some(FollowerEntry { epoch: epoch.to_string(), node })
    };
    let followers = words.resumed_followers().filter_map(follower).collect();
    let epochs = facts.iter().map(entry).collect();
    let document = Document {
        version: VERSION,
        partition: partition.value(),
        epochs,
        verdict,
        resumed,
        followers,
    };
    let mut text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
}

/// Why a text holds no facts.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum Unread {
    /// A later program wrote it, in a form of its own.
    #[error("it has version {0}, this program reads 1 to {VERSION}")]
    Later(u32),
    /// It is none.
    #[error("{0}")]
    Malformed(String),
}

impl From<String> for Unread {
    fn from(problem: String) -> Self {
        Self::Malformed(problem)
    }
}

/// The facts a text holds; nodes that are not in `nodes` are left out of them.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn read(text: &str, partition: PartitionId, nodes: &[String]) -> Result<Facts, Unread> {
    let versioned: Versioned = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !VERSIONS.contains(&versioned.version) {
        return Err(Unread::Later(versioned.version));
    }
    Ok(read_known(text, partition, nodes)?)
}

fn read_known(text: &str, partition: PartitionId, nodes: &[String]) -> Result<Facts, String> {
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if document.partition != partition.value() {
        return Err(format!("it holds the facts of partition {}", document.partition));
    }
    let mut facts = Facts::new();
    for entry in document.epochs {
        let epoch = epoch(&entry.epoch)?;
        if facts.of(epoch).is_some() {
            return Err(format!("it names epoch {epoch} twice"));
        }
        facts.join(epoch, facts_of(&entry, nodes)?);
    }
    if let Some(entry) = document.verdict {
        let aside = entry.aside.iter().map(|text| epoch(text)).collect::<Result<_, _>>()?;
        let verdict = Verdict { number: entry.number, winner: epoch(&entry.winner)?, aside };
        facts.words_mut().judge(verdict);
    }
    for text in &document.resumed {
        facts.words_mut().resume(life(text)?);
    }
    for entry in &document.followers {
        if let Some(node) = node(&entry.node, nodes) {
            facts.words_mut().resume_follower(epoch(&entry.epoch)?, node);
        }
    }
    Ok(facts)
}

fn origin_entry(origin: Origin) -> OriginEntry {
    let fork = match origin.fork {
        Fork::Unbounded => ForkEntry::Unbounded,
        Fork::Unknown => ForkEntry::Unknown,
        Fork::Between { at_least, at_most } => {
            ForkEntry::Between { at_least: at_least.to_string(), at_most: at_most.to_string() }
        }
    };
    let (parent, shared) =
        (origin.parent.map(|parent| parent.to_string()), origin.shared.to_string());
    OriginEntry { parent, fork, shared }
}

fn origin_of(entry: &OriginEntry) -> Result<Origin, String> {
    let parent = entry.parent.as_deref().map(epoch).transpose()?;
    let fork = match &entry.fork {
        ForkEntry::Unbounded => Fork::Unbounded,
        ForkEntry::Unknown => Fork::Unknown,
        ForkEntry::Between { at_least, at_most } => {
            Fork::between(position(at_least)?, position(at_most)?)
        }
    };
    Ok(Origin { parent, fork, shared: position(&entry.shared)? })
}

fn epoch(text: &str) -> Result<Epoch, String> {
    Epoch::parse(text).map_err(|error| error.to_string())
}

fn life(text: &str) -> Result<Life, String> {
    let halves = text.split_once('.');
    let parsed = halves.and_then(|(start, reset)| Some((start.parse().ok()?, reset.parse().ok()?)));
    let (start, reset) = parsed.ok_or_else(|| format!("`{text}` is not START.RESET"))?;
    Ok(Life { start, reset })
}

fn facts_of(entry: &EpochEntry, nodes: &[String]) -> Result<EpochFacts, String> {
    let replay = match &entry.replay {
        None => None,
        Some(None) => Some(None),
        Some(Some(text)) => Some(Some(position(text)?)),
    };
    Ok(EpochFacts {
        node: entry.node.as_deref().and_then(|name| node(name, nodes)),
        flush_seen: position(&entry.flush_seen)?,
        flush_starts_page: entry.flush_starts_page,
        replay,
        origin: entry.origin.as_ref().map(origin_of).transpose()?,
        is_restored: entry.is_restored,
        ended: entry.ended,
    })
}

fn node(name: &str, nodes: &[String]) -> Option<NodeId> {
    let index = nodes.iter().position(|node| node == name)?;
    u16::try_from(index).ok().map(NodeId::new)
}

fn position(text: &str) -> Result<Position, String> {
    Lsn::parse(text).map(Position::from).map_err(|error| error.to_string())
}
