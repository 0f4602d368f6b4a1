//! What the placed epochs say of every row, held against whether the servers show it.

use std::collections::BTreeMap;

use super::rules::{Fork, Way, place_by};
use super::scan::Scan;
use super::{Judgement, Kind, short};
use crate::failover::evidence::Shown;
use crate::failover::truth::{Census, EpochId, Marker, Played};

/// What the evidence says of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Alive,
    Lost,
    Unknown,
}

/// What became of the rows of one kind, on the leader in the end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in super::super) struct Rows {
    /// There, and known to be.
    pub(in super::super) alive: u64,
    /// There, and not known to be.
    pub(in super::super) doubted: u64,
    /// Gone, and known to be.
    pub(in super::super) lost: u64,
    /// Gone, and not known to be.
    pub(in super::super) possibly_lost: u64,
    /// Answers of standbys that were called covered and had the row.
    pub(in super::super) covered: u64,
}

/// The placed epochs: of each its parent and where that ends in it.
pub(super) struct Tree<'a> {
    scan: &'a Scan,
    way: Way,
    edges: BTreeMap<EpochId, (Option<EpochId>, Fork)>,
}

impl Tree<'_> {
    /// Where an epoch ends towards a head; none where it is not on the head's chain.
    fn edge(&self, epoch: EpochId, head: EpochId) -> Option<Fork> {
        let mut child = head;
        loop {
            let (parent, fork) = self.edges.get(&child)?;
            if *parent == Some(epoch) {
                return Some(*fork);
            }
            child = (*parent)?;
        }
    }

    fn chain(&self, epoch: EpochId) -> Vec<EpochId> {
        let mut chain = vec![epoch];
        while let Some((Some(parent), _)) = chain.last().and_then(|last| self.edges.get(last)) {
            chain.push(*parent);
        }
        chain
    }

    fn word(&self, marker: &Marker, head: EpochId) -> Word {
        if marker.epoch == head {
            return Word::Alive;
        }
        let off_chain = || {
            if !self.scan.rows.contains(&marker.epoch) {
                return None;
            }
            let common = self.chain(marker.epoch).into_iter();
            let edge = common.filter_map(|epoch| self.edge(epoch, head)).next()?;
            Some(Fork { at_least: 0, at_most: edge.at_most })
        };
        match self.edge(marker.epoch, head).or_else(off_chain) {
            Some(fork) if marker.upto <= fork.at_least => Word::Alive,
            Some(fork) if marker.after >= fork.at_most => Word::Lost,
            Some(_) | None => Word::Unknown,
        }
    }
}

impl<'a> Tree<'a> {
    /// The epochs placed in one way.
    pub(super) fn new(scan: &'a Scan, way: Way) -> Self {
        let placed = scan.sights.iter();
        let edges = placed.map(|sight| (sight.epoch, (sight.parent, place_by(sight, way))));
        Self { scan, way, edges: edges.collect() }
    }

    /// Whether a standby has a row, as its last answer before the servers were asked tells it.
    fn covers(&self, census: &Census, marker: &Marker) -> bool {
        let Some(seen) = self.scan.last_answer(&census.server, census.asked_at) else {
            return false;
        };
        if seen.life != census.life || seen.writes.is_some() {
            return false;
        }
        let reached = seen.replay >= Some(marker.upto);
        match self.way {
            Way::PositionAlone => return reached,
            Way::TimelineAndPosition => {
                return reached && seen.receives == Some(marker.epoch.timeline);
            }
            Way::Ours
            | Way::ReplayIsFork
            | Way::TimelineContinues
            | Way::ResetIsCrash
            | Way::Unflushed => {}
        }
        let Some(row) = seen.row else { return false };
        if row == marker.epoch {
            let flushed = marker.upto <= self.scan.flush_seen(row, census.asked_at);
            reached
                && seen.receives == Some(row.timeline)
                && (flushed || self.way == Way::Unflushed)
        } else {
            self.edge(marker.epoch, row).is_some_and(|fork| marker.upto <= fork.at_least)
        }
    }

    /// What is wrong with what a census's server is said to have; none: it is so.
    fn wrong(&self, census: &Census, marker: &Marker) -> Option<&'static str> {
        let there = census.markers.contains(&marker.id);
        let Some(head) = census.writes else {
            let covers = self.covers(census, marker);
            return (covers && !there).then_some("called covered, and is not there");
        };
        let begins = self.scan.sights.iter().find(|sight| sight.epoch == head);
        let begins = begins.map_or(0, |sight| sight.shown.position().unwrap_or(0));
        let word = match self.way {
            Way::PositionAlone if marker.upto <= begins => Word::Alive,
            Way::TimelineAndPosition
                if marker.upto <= begins && marker.epoch.timeline == head.timeline =>
            {
                Word::Alive
            }
            Way::PositionAlone | Way::TimelineAndPosition => Word::Unknown,
            Way::Ours
            | Way::ReplayIsFork
            | Way::TimelineContinues
            | Way::ResetIsCrash
            | Way::Unflushed => self.word(marker, head),
        };
        match word {
            Word::Alive if !there => Some("called alive, and is gone"),
            Word::Lost if there => Some("called lost, and is there"),
            Word::Alive | Word::Lost | Word::Unknown => None,
        }
    }

    /// Holds every row against every answer of the servers.
    pub(super) fn wrongs(&self, played: &Played) -> Vec<String> {
        let mut wrongs = Vec::new();
        for census in &played.censuses {
            for marker in played.markers.iter().filter(|marker| marker.at <= census.asked_at) {
                if let Some(word) = self.wrong(census, marker) {
                    wrongs.push(format!(
                        "{}: row {} of {} up to {:X} on {} is {word}",
                        played.kind,
                        marker.id,
                        short(marker.epoch),
                        marker.upto,
                        census.server,
                    ));
                }
            }
        }
        wrongs
    }
}

/// Counts what became of the rows, by Tidegate's rules.
pub(super) fn sum(kind: Kind, played: &Played, tree: &Tree<'_>, found: &mut Judgement) {
    for census in played.censuses.iter().filter(|census| census.writes.is_none()) {
        let covered = played.markers.iter().filter(|marker| tree.covers(census, marker));
        found.rows.entry(kind).or_default().covered += covered.count() as u64;
    }
    count(kind, played, tree, found);
    ends(kind, played, tree, found);
}

/// Counts the rows on the leader in the end.
fn count(kind: Kind, played: &Played, tree: &Tree<'_>, found: &mut Judgement) {
    let end = played.censuses.iter().rev().find(|census| census.server == played.leader);
    let Some((end, head)) = end.and_then(|end| Some((end, end.writes?))) else { return };
    let rows = found.rows.entry(kind).or_default();
    for marker in played.markers.iter().filter(|marker| marker.epoch != head) {
        let there = end.markers.contains(&marker.id);
        match (tree.word(marker, head), there) {
            (Word::Alive, _) => rows.alive += 1,
            (Word::Lost, _) => rows.lost += 1,
            (Word::Unknown, true) => rows.doubted += 1,
            (Word::Unknown, false) => rows.possibly_lost += 1,
        }
    }
}

/// What the servers that do not lead look like in the end.
fn ends(kind: Kind, played: &Played, tree: &Tree<'_>, found: &mut Judgement) {
    let by = played.span.1;
    let head = tree.scan.last_asked(&played.leader, by).and_then(Shown::epoch);
    let Some(head) = head else { return };
    for node in tree.scan.answers.keys().filter(|node| **node != played.leader) {
        let end = match tree.scan.last_asked(node, by) {
            None => "no answer",
            Some(shown) if shown.writes.is_some() => "writable",
            Some(shown) => standby_end(tree, shown, head),
        };
        *found.ends.entry((kind, end)).or_default() += 1;
    }
}

fn standby_end(tree: &Tree<'_>, shown: &Shown, head: EpochId) -> &'static str {
    let Some(row) = shown.row else { return "without a row" };
    let ended = tree.edge(row, head).map(|fork| fork.at_most);
    match shown.receives {
        _ if row != head && ended.is_none() => "diverged: row off the chain",
        _ if ended.is_some_and(|at_most| shown.replay.unwrap_or(0) > at_most) => {
            "diverged: past the fork"
        }
        Some(timeline) if timeline == row.timeline && row == head => "follows",
        Some(timeline) if timeline == row.timeline => "streams under an older row",
        Some(_) => "receives another timeline",
        None => "receives nothing",
    }
}
