//! The file of one partition's facts, as JSON: what is written, and what is accepted back.
//!
//! Positions and epochs are the text PostgreSQL and lineage rows print, nodes go by name. It reads
//! and writes no file.

use serde::{Deserialize, Deserializer, Serialize};
use tidegate_core::leader::{EpochFacts, Facts};
use tidegate_core::lineage::Epoch;
use tidegate_core::position::{Lsn, Position};
use tidegate_core::token::PartitionId;
use tidegate_core::views::NodeId;

/// The only version there is.
const VERSION: u32 = 1;

/// The facts of one partition.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    partition: u32,
    epochs: Vec<EpochEntry>,
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
        ended: facts.ended,
    };
    let epochs = facts.iter().map(entry).collect();
    let document = Document { version: VERSION, partition: partition.value(), epochs };
    let mut text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
}

/// The facts a text holds; nodes that are not in `nodes` are left out of them.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn read(text: &str, partition: PartitionId, nodes: &[String]) -> Result<Facts, String> {
    let versioned: Versioned = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if versioned.version != VERSION {
        return Err(format!("it has version {}, this program reads {VERSION}", versioned.version));
    }
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if document.partition != partition.value() {
        return Err(format!("it holds the facts of partition {}", document.partition));
    }
    let mut facts = Facts::new();
    for entry in document.epochs {
        let epoch = Epoch::parse(&entry.epoch).map_err(|error| error.to_string())?;
        if facts.of(epoch).is_some() {
            return Err(format!("it names epoch {epoch} twice"));
        }
        facts.join(epoch, facts_of(&entry, nodes)?);
    }
    Ok(facts)
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
