//! A leader, two standbys and real time: what was acknowledged when, and what each node has when.
//!
//! No clock of anybody is in here, and no rule of Tidegate. Time is real, in nanoseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::position::{Lsn, Position};

use crate::random::Random;

pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MILLI;
/// The first leader; the standby that is promoted; the one that stays.
pub(crate) const NODES: usize = 3;

/// One commit of one line.
#[derive(Clone, Copy, Debug)]
struct Commit {
    acknowledged_at: u64,
    end: u64,
}

/// A standby that applies so much later, and stops now and then.
#[derive(Clone, Copy, Debug)]
struct Standby {
    delay: u64,
    /// It has stopped: nothing later is applied, until then.
    stopped: Option<(u64, u64)>,
}

/// A read that is made of a node at a real time, by an answer with a bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Read {
    pub(crate) at: u64,
    pub(crate) node: usize,
    /// Whose line was current for who answered: 0 the first leader's, 1 the promoted one's.
    pub(crate) line: usize,
    pub(crate) bound: u64,
}

/// What a read met, beyond its bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    /// By how much it broke the bound for the leader in view.
    pub(crate) broken: Option<u64>,
    /// By how much for a leader that was not in view.
    pub(crate) excess: Option<u64>,
}

/// All servers.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) now: u64,
    /// What the first leader acknowledged, and the promoted one.
    lines: [Vec<Commit>; 2],
    /// Nothing is written to the true leader until then.
    idle_until: u64,
    standbys: [Standby; NODES],
    /// When the second node was promoted, and what it had by then.
    promoted: Option<(u64, u64)>,
    /// The first leader goes on taking writes after that.
    is_fed: bool,
    /// Reads to come, and what those made have met.
    reads: BinaryHeap<Reverse<Read>>,
    pub(crate) met: Vec<Met>,
    random: Random,
}

impl Servers {
    pub(crate) fn new(mut random: Random) -> Self {
        let standby = Standby { delay: random.within(1, 60) as u64 * MILLI, stopped: None };
        let other = Standby { delay: random.within(1, 400) as u64 * MILLI, stopped: None };
        let standbys = [standby, standby, other];
        let first = Commit { acknowledged_at: 0, end: 1_000 };
        let (lines, is_fed) = ([vec![first], Vec::new()], random.one_in(2));
        let (reads, met) = (BinaryHeap::new(), Vec::new());
        let (now, idle_until, promoted) = (SECOND, 0, None);
        Self { now, lines, idle_until, standbys, promoted, is_fed, reads, met, random }
    }

    /// When the standby was promoted.
    pub(crate) fn promoted_at(&self) -> Option<u64> {
        self.promoted.map(|(at, _)| at)
    }

    /// The second node leads from now on; the first does not know.
    pub(crate) fn promote(&mut self) {
        self.promoted = Some((self.now, self.applied(1, self.now)));
        // A server that leaves recovery writes a record of its own before it answers.
        self.commit(1);
    }

    /// A client will read then.
    pub(crate) fn plan(&mut self, read: Read) {
        self.reads.push(Reverse(read));
    }

    /// Makes the reads up to `until`, before anything else happens there.
    fn read_until(&mut self, until: u64) {
        while let Some(Reverse(read)) = self.reads.peek().copied().filter(|r| r.0.at <= until) {
            self.reads.pop();
            let before = read.at.saturating_sub(read.bound);
            let lacks = |line| {
                let at = self.lacks(read.node, line, read.at, before)?;
                Some(before - at)
            };
            let unseen = self.promoted.is_some() && read.line == 0;
            let (broken, excess) = (lacks(read.line), unseen.then(|| lacks(1)).flatten());
            self.met.push(Met { broken, excess });
        }
    }

    /// Lets time pass: leaders take writes, standbys stop and go on.
    pub(crate) fn advance(&mut self, span: u64) {
        let until = self.now + span;
        while self.now < until {
            let next = until.min(self.now + self.random.within(1, 30) as u64 * MILLI);
            self.read_until(next);
            self.now = next;
            let random = &mut self.random;
            if random.one_in(1_500) {
                self.idle_until = self.now + random.within(1, 30) as u64 * SECOND;
            }
            if self.now >= self.idle_until {
                let leads = usize::from(self.promoted.is_some());
                self.commit(leads);
            }
            if self.promoted.is_some() && self.is_fed {
                self.commit(0);
            }
            for node in 1..NODES {
                self.stop_or_go(node);
            }
        }
    }

    fn commit(&mut self, line: usize) {
        let begun = self.promoted.map_or(0, |(_, had)| had);
        let end = self.lines[line].last().map_or(begun, |commit| commit.end);
        let end = end + 8 + self.random.next() % 90;
        self.lines[line].push(Commit { acknowledged_at: self.now, end });
    }

    fn stop_or_go(&mut self, node: usize) {
        let (now, random) = (self.now, &mut self.random);
        let standby = &mut self.standbys[node];
        match standby.stopped {
            Some((_, until)) if until <= now => standby.stopped = None,
            None if random.one_in(800) => {
                standby.stopped = Some((now, now + random.within(1, 60_000) as u64 * MILLI));
            }
            Some(_) | None => {}
        }
    }

    fn end_of(&self, line: usize, before: u64) -> u64 {
        let commits = &self.lines[line];
        let count = commits.partition_point(|commit| commit.acknowledged_at <= before);
        count.checked_sub(1).map_or(0, |last| commits[last].end)
    }

    /// How far a node has the first leader's log now.
    fn applied(&self, node: usize, now: u64) -> u64 {
        if let Some((_, had)) = self.promoted.filter(|_| node == 1) {
            return had;
        }
        if node == 0 {
            return self.end_of(0, now);
        }
        let standby = self.standbys[node];
        let until = standby.stopped.map_or(now, |(stopped_at, _)| stopped_at);
        self.end_of(0, until.saturating_sub(standby.delay))
    }

    /// What a node shows now: where its own log, or the one it follows, has come to.
    pub(crate) fn shows(&self, node: usize) -> Position {
        let own = (node == 1).then(|| self.end_of(1, self.now)).filter(|end| *end > 0);
        Lsn::new(own.unwrap_or_else(|| self.applied(node, self.now))).into()
    }

    /// When the first commit of a line was acknowledged, before `before`, that the node lacks
    /// at `now`.
    fn lacks(&self, node: usize, line: usize, now: u64, before: u64) -> Option<u64> {
        let has = match (node, line) {
            (1, 1) => return None,
            (_, 1) => 0,
            (node, _) => self.applied(node, now),
        };
        let commits = &self.lines[line];
        let first = commits.partition_point(|commit| commit.end <= has);
        let at = commits.get(first)?.acknowledged_at;
        (at < before).then_some(at)
    }
}
