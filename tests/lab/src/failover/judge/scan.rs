//! Reads the polls in their order: when each epoch was first seen, and what was known by then.
//!
//! Knows nothing of what was played.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Fork, Rule, place};
use crate::failover::evidence::{Poll, Shown};
use crate::failover::truth::EpochId;

/// A start and a reset time.
pub(super) type Life = (i64, i64);

/// What is known of one epoch from polls of its leader.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The highest flush, whether that was a page start, and when it had been seen.
    pub(super) flushes: Vec<(u64, u64, bool)>,
    /// The leader's replay position when it was seen last.
    pub(super) replay: Option<u64>,
}

/// What is known of one life of a server in recovery.
#[derive(Clone, Debug, Default)]
pub(super) struct Standby {
    /// The timeline the receiver named last.
    pub(super) receives: Option<u32>,
    /// Under each row: the highest position while the receiver named that row's timeline.
    pub(super) proven: BTreeMap<EpochId, u64>,
    replay: u64,
}

/// A new epoch, when it was first seen.
#[derive(Clone, Debug)]
pub(in super::super) struct Sight {
    /// The epoch.
    pub(in super::super) epoch: EpochId,
    /// When its first poll was sent.
    pub(in super::super) sent: u64,
    /// How long before its first poll was answered the same server had answered last.
    pub(in super::super) unseen_for: u64,
    /// The last row it showed then.
    pub(in super::super) parent: Option<EpochId>,
    /// Some server showed a row newer than that.
    pub(in super::super) row_is_older: bool,
    /// What the same server had answered last.
    pub(in super::super) before: Option<Shown>,
    /// What it showed.
    pub(in super::super) shown: Shown,
    /// The highest flush of the parent seen before.
    pub(in super::super) flush_seen: Option<u64>,
    /// That flush was, as printed, the first byte of a page.
    pub(in super::super) flush_starts_page: bool,
    /// The replay position the parent's leader showed last.
    pub(in super::super) parent_replay: Option<u64>,
    /// This life was seen in recovery before.
    pub(in super::super) was_standby: bool,
    /// The timeline its receiver named last, while it was.
    pub(in super::super) received_timeline: Option<u32>,
    /// Another server was last seen writable; whether it still answers.
    pub(in super::super) beside: Option<bool>,
    /// What the rules make of it.
    pub(in super::super) rule: Rule,
    /// Where the parent ends in it.
    pub(in super::super) fork: Fork,
}

/// A server that shows a life it did not show before, in recovery.
#[derive(Clone, Debug)]
pub(in super::super) struct Reborn {
    /// When the poll that saw it was sent.
    pub(in super::super) sent: u64,
    /// What it showed last in its life before.
    pub(in super::super) before: Shown,
    /// What it shows.
    pub(in super::super) shown: Shown,
}

/// What the polls say.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) facts: BTreeMap<EpochId, Facts>,
    pub(super) sights: Vec<Sight>,
    pub(super) reborn: Vec<Reborn>,
    /// The polls of each server that were answered.
    pub(super) answers: BTreeMap<String, Vec<(u64, u64, Shown)>>,
    /// When polls of each server failed.
    failures: BTreeMap<String, Vec<u64>>,
    pub(super) standbys: BTreeMap<Life, Standby>,
    /// Epochs whose row some server showed.
    pub(super) rows: BTreeSet<EpochId>,
    newest_row: Option<EpochId>,
    pub(super) contradictions: Vec<String>,
}

/// Reads all polls.
pub(super) fn scan(polls: &[Poll]) -> Scan {
    let mut scan = Scan::default();
    for poll in polls {
        match &poll.shown {
            Some(shown) => scan.read(poll, shown),
            None => scan.failures.entry(poll.node.clone()).or_default().push(poll.sent),
        }
    }
    scan
}

impl Scan {
    fn read(&mut self, poll: &Poll, shown: &Shown) {
        if let Some(row) = shown.row.filter(|row| self.rows.insert(*row)) {
            self.newest_row = Some(row);
        }
        self.compare(poll, shown);
        match shown.epoch() {
            Some(epoch) => self.leader(poll, shown, epoch),
            None => self.standby(shown),
        }
        let answers = self.answers.entry(poll.node.clone()).or_default();
        answers.push((poll.sent, poll.received, shown.clone()));
    }

    /// Compares with the last answer of the same server, and with the others'.
    fn compare(&mut self, poll: &Poll, shown: &Shown) {
        for (node, answers) in &self.answers {
            let Some((_, received, last)) = answers.last() else { continue };
            if *node != poll.node {
                if last.life == shown.life {
                    let line = format!("one life on {node} and {}: {:?}", poll.node, shown.life);
                    self.contradictions.push(line);
                }
                continue;
            }
            if last.life == shown.life && poll.sent >= *received {
                if shown.position() < last.position() {
                    let line = format!("{node} went back within one life: {last:?}, {shown:?}");
                    self.contradictions.push(line);
                }
                if last.writes.is_some() && shown.writes.is_none() {
                    self.contradictions.push(format!("{node} became a standby in one life"));
                }
                if last.epoch() == shown.epoch()
                    && shown.writes.is_some()
                    && last.replay != shown.replay
                {
                    let line = format!("the replay of {node} moved: {last:?}, {shown:?}");
                    self.contradictions.push(line);
                }
            }
            if last.life != shown.life && shown.writes.is_none() {
                let (sent, before) = (poll.sent, last.clone());
                self.reborn.push(Reborn { sent, before, shown: shown.clone() });
            }
        }
    }

    fn standby(&mut self, shown: &Shown) {
        let life = self.standbys.entry(shown.life).or_default();
        life.receives = shown.receives;
        life.replay = shown.replay.unwrap_or(0).max(life.replay);
        if let Some(row) = shown.row.filter(|row| shown.receives == Some(row.timeline)) {
            let proven = life.proven.entry(row).or_default();
            *proven = life.replay.max(*proven);
        }
    }

    fn leader(&mut self, poll: &Poll, shown: &Shown, epoch: EpochId) {
        let Some(writes) = shown.writes else { return };
        if !self.facts.contains_key(&epoch) {
            let sight = self.first(poll, shown, epoch);
            self.sights.push(sight);
        }
        let none = || Facts { flushes: Vec::new(), replay: None };
        let facts = self.facts.entry(epoch).or_insert_with(none);
        facts.replay = shown.replay;
        if facts.flushes.last().is_none_or(|(_, flush, _)| *flush < writes.flush) {
            facts.flushes.push((poll.received, writes.flush, writes.flush_starts_page));
        }
    }

    fn first(&self, poll: &Poll, shown: &Shown, epoch: EpochId) -> Sight {
        let facts = shown.row.and_then(|row| self.facts.get(&row));
        let flush = facts.and_then(|facts| facts.flushes.last());
        let standby = self.standbys.get(&shown.life);
        let writable = self.answers.iter().filter(|(node, answers)| {
            **node != poll.node && answers.last().is_some_and(|(_, _, last)| last.writes.is_some())
        });
        let answering = writable.map(|(node, _)| !self.is_silent(node, poll.sent));
        let mine = self.answers.get(&poll.node).and_then(|answers| answers.last());
        let mut sight = Sight {
            epoch,
            sent: poll.sent,
            unseen_for: mine.map_or(0, |(_, received, _)| poll.received.saturating_sub(*received)),
            parent: shown.row,
            row_is_older: self.newest_row != shown.row,
            before: mine.map(|(_, _, shown)| shown.clone()),
            shown: shown.clone(),
            flush_seen: flush.map(|(_, flush, _)| *flush),
            flush_starts_page: flush.is_some_and(|(_, _, starts_page)| *starts_page),
            parent_replay: facts.and_then(|facts| facts.replay),
            was_standby: standby.is_some(),
            received_timeline: standby.and_then(|standby| standby.receives),
            beside: answering.max(),
            rule: Rule::Root,
            fork: Fork::NOTHING,
        };
        let proven = standby.zip(shown.row).and_then(|(standby, row)| standby.proven.get(&row));
        (sight.rule, sight.fork) = place(&sight, proven.copied().unwrap_or(0));
        sight
    }

    /// The highest flush of an epoch seen by a time.
    pub(super) fn flush_seen(&self, epoch: EpochId, by: u64) -> u64 {
        let flushes = self.facts.get(&epoch).map(|facts| facts.flushes.as_slice());
        let flushes = flushes.unwrap_or_default().iter().filter(|(received, ..)| *received <= by);
        flushes.map(|(_, flush, _)| *flush).max().unwrap_or(0)
    }

    /// The last answer of a server that had come by a time, whatever its life.
    pub(super) fn last_answer(&self, node: &str, by: u64) -> Option<&Shown> {
        let answers = self.answers.get(node)?;
        answers.iter().rev().find(|(_, received, _)| *received <= by).map(|(_, _, shown)| shown)
    }

    /// What a server answered to the last poll sent by a time; none if it did not.
    pub(super) fn last_asked(&self, node: &str, by: u64) -> Option<&Shown> {
        let answers = self.answers.get(node)?;
        let last = answers.iter().rev().find(|(sent, ..)| *sent <= by);
        last.filter(|_| !self.is_silent(node, by)).map(|(_, _, shown)| shown)
    }

    /// Whether the last poll of a server that was sent by a time failed.
    fn is_silent(&self, node: &str, by: u64) -> bool {
        let last = |times: &mut dyn Iterator<Item = u64>| times.filter(|at| *at <= by).max();
        let failed = self.failures.get(node).map(|times| last(&mut times.iter().copied()));
        let answers = self.answers.get(node);
        let answered = answers.map(|all| last(&mut all.iter().map(|(sent, ..)| *sent)));
        failed.flatten() > answered.flatten()
    }
}
