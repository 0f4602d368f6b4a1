//! Nodes, lives, epochs and positions as words.
//!
//! A life is a server and a number: `a2` is the second life of server a. `a2/a1` started as a2 but
//! kept the statistics of a1, as after a clean restart. `2:b1` is timeline 2 led in life b1.

use std::time::Duration;

use tidegate_core::lineage::{Epoch, Fork, Life};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::views::NodeId;

/// The servers of every story.
pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];

pub(crate) fn node(word: &str) -> Option<NodeId> {
    let index = NODES.iter().position(|name| *name == word)?;
    u16::try_from(index).ok().map(NodeId::new)
}

pub(crate) fn node_name(node: NodeId) -> &'static str {
    NODES[node.index()]
}

pub(crate) fn nodes(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| node_name(*node)).collect::<Vec<_>>().join(" ")
}

pub(crate) fn at(word: &str) -> Position {
    Lsn::parse(word).expect("a position such as 0/412").into()
}

fn half(word: &str) -> i64 {
    let (server, number) = word.split_at(1);
    let server = NODES.iter().position(|name| *name == server).expect("a server");
    let number: i64 = number.parse().expect("the number of a life");
    i64::try_from(server).expect("few servers") * 100 + 100 + number
}

pub(crate) fn life(word: &str) -> Life {
    let (start, reset) = word.split_once('/').unwrap_or((word, word));
    Life { start: half(start), reset: half(reset) }
}

pub(crate) fn epoch(word: &str) -> Epoch {
    let (timeline, led) = word.split_once(':').expect("an epoch such as 1:a1");
    Epoch::new(timeline.parse().expect("a timeline"), life(led))
}

fn half_name(micros: i64) -> String {
    let server = usize::try_from(micros / 100 - 1).expect("a server");
    format!("{}{}", NODES[server], micros % 100)
}

pub(crate) fn epoch_name(epoch: Epoch) -> String {
    let (start, reset) = (half_name(epoch.life.start), half_name(epoch.life.reset));
    let led = if start == reset { start } else { format!("{start}/{reset}") };
    format!("{}:{led}", epoch.timeline)
}

/// `none` (nothing was lost), `unknown`, or the two ends of the interval.
pub(crate) fn fork(words: &[&str]) -> Fork {
    match words {
        ["none"] => Fork::Unbounded,
        ["unknown"] => Fork::Unknown,
        [low, high] => Fork::between(at(low), at(high)),
        other => panic!("no fork: {other:?}"),
    }
}

pub(crate) fn fork_name(fork: Fork) -> String {
    match fork {
        Fork::Unbounded => "nothing of it lost".to_owned(),
        Fork::Unknown => "unknown what of it is left".to_owned(),
        Fork::Between { at_least, at_most } if at_least == at_most => {
            format!("which ended at {at_most}")
        }
        Fork::Between { at_least, at_most } => {
            format!("kept up to {at_least}, lost past {at_most}")
        }
    }
}

/// `50ms`, `6s` or `1h`.
pub(crate) fn span(word: &str) -> Duration {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().expect("a number with a unit");
    match &word[digits.len()..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "h" => Duration::from_secs(number * 3600),
        unit => panic!("no unit: {unit}"),
    }
}

/// The words after `key`, up to the next of `keys`.
pub(crate) fn after<'a>(words: &'a [&'a str], key: &str, keys: &[&str]) -> Option<&'a [&'a str]> {
    let start = words.iter().position(|word| *word == key)? + 1;
    let rest = &words[start..];
    let end = rest.iter().position(|word| keys.contains(word)).unwrap_or(rest.len());
    Some(&rest[..end])
}
