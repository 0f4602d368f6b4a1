//! Servers, their logs, and what happens to them. No rule of Tidegate is in here.
//!
//! - [`log`]: every record ever written, as a tree
//! - [`server`]: one server and what it says of itself
//! - [`happenings`]: crashes, restarts, promotions and stops
//! - [`files`]: clones, rewinds, restores and copies

mod files;
mod happenings;
pub(crate) mod log;
pub(crate) mod server;

use tidegate_core::lineage::{Epoch, Life};

pub(crate) use happenings::Ends;
use log::{LogTree, Rec, RowWrite, fills_page, page_start};
use server::Server;

use crate::random::Random;

/// The system id of the database.
pub(crate) const SYSTEM: u64 = 7;
/// From one step of the servers to the next.
pub(crate) const STEP: u64 = 4_000_000;
/// What the network takes between two servers.
const STREAM_NANOS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) tree: LogTree,
    pub(crate) servers: Vec<Server>,
    /// The server that answers at each node's address.
    pub(crate) address: Vec<usize>,
    /// The server another address answers as, now and then.
    pub(crate) shared: Vec<Option<usize>>,
    /// Nodes whose address leads to another database.
    pub(crate) foreign: Vec<bool>,
    /// How often the WAL writer works.
    pub(crate) flush_interval: u64,
    /// Records are all of one size, so that the ends of two logs meet.
    pub(crate) even_sizes: bool,
    /// The highest timeline ever.
    pub(crate) top_timeline: u32,
    lives: i64,
    random: Random,
}

impl World {
    /// One leader and its standbys, which have what it has.
    pub(crate) fn new(count: usize, flush_interval: u64, even_sizes: bool, seed: u64) -> Self {
        let mut world = Self {
            tree: LogTree::default(),
            servers: Vec::new(),
            address: (0..count).collect(),
            shared: vec![None; count],
            foreign: vec![false; count],
            flush_interval,
            even_sizes,
            top_timeline: 1,
            lives: 0,
            random: Random::new(seed),
        };
        for _ in 0..count {
            let life = world.new_life();
            world.servers.push(Server::new(life));
        }
        world.lead(0, 0);
        for at in 1..count {
            world.servers[at].log = world.servers[0].log.clone();
            world.servers[at].applied = world.servers[0].log.len();
            world.servers[at].flushed = world.servers[0].flushed;
        }
        world
    }

    fn new_life(&mut self) -> Life {
        self.lives += 1;
        let start = self.lives * 1_000_000;
        Life { start, reset: start + 1 }
    }

    /// Starts a branch of its own, as a server does that leaves recovery or starts.
    fn lead(&mut self, at: usize, now: u64) {
        let server = &mut self.servers[at];
        server.applied = server.log.len();
        server.following = None;
        let (epoch, parent) = (server.epoch(), server.log.last().copied());
        self.top_timeline = self.top_timeline.max(epoch.timeline);
        let branch = self.tree.begin(epoch, at, parent);
        self.servers[at].leads = Some(branch);
        // It writes and flushes a record of its own before it answers.
        self.append(at, None, false);
        self.flush_all(at, now);
    }

    /// Adds a record to a leader's log.
    pub(crate) fn append(&mut self, at: usize, row: Option<RowWrite>, fills: bool) -> Option<Rec> {
        let branch = self.servers[at].leads?;
        let end = self.tree.end(self.servers[at].log.last().copied());
        let length = match fills_page(end).filter(|_| fills) {
            Some(length) => length,
            None if self.even_sizes => 64,
            None => 32 + 8 * (self.random.next() % 100),
        };
        let rec = self.tree.append(branch, length, row);
        self.servers[at].log.push(rec);
        self.servers[at].applied = self.servers[at].log.len();
        Some(rec)
    }

    /// Flushes up to `position`.
    fn flush_to(&mut self, at: usize, position: u64, now: u64) {
        let server = &mut self.servers[at];
        if position <= server.flushed {
            return;
        }
        server.flushed = position;
        while let Some(rec) = server.log.get(server.flushed_count)
            && self.tree.record(*rec).end <= position
        {
            let record = &mut self.tree.records[*rec as usize];
            record.flushed_at.get_or_insert(now);
            server.flushed_count += 1;
        }
    }

    pub(crate) fn flush_all(&mut self, at: usize, now: u64) {
        let end = self.tree.end(self.servers[at].log.last().copied());
        self.flush_to(at, end, now);
    }

    /// Lets every server do what it does by itself.
    pub(crate) fn step(&mut self, now: u64) {
        for at in 0..self.servers.len() {
            let server = &self.servers[at];
            if !server.answers() {
                continue;
            }
            if server.leads.is_none() {
                self.receive(at, now);
                self.apply(at, now);
            } else if now >= server.flush_due {
                let end = self.tree.end(server.log.last().copied());
                // Whole pages first; the rest at its next turn.
                let whole = self.random.one_in(4) && page_start(end) > server.flushed;
                self.servers[at].flush_due = now + self.flush_interval;
                self.flush_to(at, if whole { page_start(end) } else { end }, now);
            }
        }
    }

    /// What an upstream offers: how much of its log, by its end.
    fn offered(&self, upstream: usize) -> usize {
        let server = &self.servers[upstream];
        if server.leads.is_some() { server.flushed_count } else { server.log.len() }
    }

    fn receive(&mut self, at: usize, now: u64) {
        self.servers[at].following = None;
        let upstream = self.servers[at].upstream;
        if !self.servers[at].receives || upstream == at || !self.servers[upstream].up {
            return;
        }
        let Some(next) = self.joint(at, upstream) else { return };
        let offered = self.offered(upstream);
        let (own, other) = if at < upstream {
            let (low, high) = self.servers.split_at_mut(upstream);
            (&mut low[at], &high[0])
        } else {
            let (low, high) = self.servers.split_at_mut(at);
            (&mut high[0], &low[upstream])
        };
        // Whoever follows a log that is nobody's has one, too.
        own.naive |= other.naive;
        let mut next = next;
        if !other.frozen {
            while next < offered {
                let rec = other.log[next];
                let sent = self.tree.record(rec).flushed_at.unwrap_or(now);
                if now < sent + STREAM_NANOS {
                    break;
                }
                own.log.push(rec);
                next += 1;
            }
        }
        let named = other.log.get(next).map_or(other.timeline, |rec| self.tree.timeline(*rec));
        own.following = Some(named);
        own.timeline = own.log.last().map_or(1, |rec| self.tree.timeline(*rec));
        own.flushed = self.tree.end(own.log.last().copied());
    }

    /// Where in the upstream's log this one goes on; `None`: the receiver cannot connect.
    fn joint(&mut self, at: usize, upstream: usize) -> Option<usize> {
        let offered = self.offered(upstream);
        let (own, other) = (&self.servers[at], &self.servers[upstream]);
        let length = own.log.len();
        if own.naive {
            let next = length.checked_add_signed(own.shift)?;
            let last = other.log.get(next.checked_sub(1)?);
            return (next <= offered && last == own.log.last()).then_some(next);
        }
        let same = |count: usize| count == 0 || own.log.get(count - 1) == other.log.get(count - 1);
        if length <= offered && same(length) {
            return Some(length);
        }
        let mut shared = length.min(offered);
        while !same(shared) {
            shared -= 1;
        }
        let newer = |count: usize| {
            let (own, other) = (own.log.get(count)?, other.log.get(count)?);
            Some(self.tree.timeline(*other) > self.tree.timeline(*own))
        };
        if shared >= own.applied && shared < offered && newer(shared) == Some(true) {
            // What was received of the old timeline and not applied yet is left aside.
            self.servers[at].truncate(shared);
            return Some(shared);
        }
        if own.attaches_naively {
            return self.attach(at, upstream);
        }
        None
    }

    /// The record boundary that two logs share by chance, or by a test's will.
    fn attach(&mut self, at: usize, upstream: usize) -> Option<usize> {
        let offered = self.offered(upstream);
        let (own, other) = (&self.servers[at], &self.servers[upstream]);
        let last = self.tree.record(*own.log.last()?);
        if own.applied < own.log.len() || other.timeline < own.timeline {
            return None;
        }
        // A receiver asks for the timeline it is on, and gets it only where it did not end before.
        let timeline = |rec: Rec| self.tree.timeline(rec);
        let own_last = own.log.last().map(|rec| timeline(*rec));
        let meets = |rec: &Rec| {
            let record = self.tree.record(*rec);
            let same = record.end == last.end && record.length == last.length;
            same && Some(timeline(*rec)) == own_last
        };
        let joint = other.log[..offered].iter().position(meets)? + 1;
        if joint >= offered {
            return None;
        }
        let length = own.log.len();
        let next = other.log[joint];
        let own = &mut self.servers[at];
        own.naive = true;
        own.shift = joint.cast_signed() - length.cast_signed();
        // Its next step compares the last record: the boundary must be the upstream's own.
        own.log.push(next);
        Some(joint + 1)
    }

    fn apply(&mut self, at: usize, now: u64) {
        let server = &mut self.servers[at];
        if now < server.paused_until {
            return;
        }
        while let Some(rec) = server.log.get(server.applied) {
            let sent = self.tree.record(*rec).flushed_at.unwrap_or(0);
            if now < sent + server.delay {
                break;
            }
            server.applied += 1;
        }
    }

    /// The server at the address of a node; where two answer, `pick` says which.
    pub(crate) fn at_address(&self, node: usize, pick: u64) -> usize {
        match self.shared[node] {
            Some(other) if pick.is_multiple_of(2) => other,
            Some(_) | None => self.address[node],
        }
    }

    /// The leader that counts: of the writable servers the only one with the highest timeline.
    ///
    /// Copies that somebody promoted to try something do not count.
    pub(crate) fn true_leader(&self) -> Option<usize> {
        let writable = |at: &usize| {
            let server = &self.servers[*at];
            server.up && server.leads.is_some() && !server.test_copy
        };
        let servers = || (0..self.servers.len()).filter(writable);
        let top = servers().map(|at| self.servers[at].timeline).max()?;
        let mut at_top = servers().filter(|at| self.servers[*at].timeline == top);
        at_top.next().filter(|_| at_top.next().is_none())
    }

    /// The last record of a leader's line as it stands: what it has if it still leads that epoch,
    /// else all it ever wrote.
    pub(crate) fn line(&self, epoch: Epoch) -> Option<Rec> {
        let branch = self.tree.branch_of(epoch)?;
        self.tree.tip(branch)
    }
}
