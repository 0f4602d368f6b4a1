//! What becomes of a server's files: clones, rewinds, restores, copies.

use std::fmt::Write as _;

use tidegate_core::position::Lsn;

use super::World;
use super::happenings::Ends;
use super::log::Rec;
use super::server::Server;

impl World {
    /// Starts a stopped server as a standby of another, with its files as they are.
    pub(crate) fn attach_without_rewind(&mut self, at: usize, upstream: usize, now: u64) {
        self.flush_all(at, now);
        let life = self.next_life(self.servers[at].life, Ends::Clean);
        let server = &mut self.servers[at];
        server.up = true;
        server.life = life;
        server.leads = None;
        server.recovered_to = None;
        server.applied = server.log.len();
        server.upstream = upstream;
        server.receives = true;
        server.attaches_naively = true;
    }

    /// What `pg_rewind` does: `false` if it says that no rewind is required.
    ///
    /// It compares the histories of timelines and nothing else: two servers that were promoted to
    /// one number at one position are the same to it.
    pub(crate) fn rewind(&mut self, at: usize, upstream: usize, now: u64) -> bool {
        self.flush_all(at, now);
        let (own, other) = (self.timelines(at), self.timelines(upstream));
        let mut begins = None;
        let mut diverges = 0;
        for ((timeline, end), (theirs, their_end)) in own.iter().zip(&other) {
            if timeline != theirs || begins.is_some_and(|(one, other)| one != other) {
                break;
            }
            diverges = *end.min(their_end);
            begins = Some((*end, *their_end));
        }
        let end = self.tree.end(self.servers[at].log.last().copied());
        if end <= diverges {
            self.attach_without_rewind(at, upstream, now);
            return false;
        }
        self.reclone(at, upstream);
        true
    }

    /// The timelines of a server's log, each with where it ends; the last one does not.
    fn timelines(&self, at: usize) -> Vec<(u32, u64)> {
        let mut all: Vec<(u32, u64)> = Vec::new();
        for rec in &self.servers[at].log {
            let (timeline, end) = (self.tree.timeline(*rec), self.tree.record(*rec).end);
            match all.last_mut().filter(|(last, _)| *last == timeline) {
                Some(last) => last.1 = end,
                None => all.push((timeline, end)),
            }
        }
        if let Some(last) = all.last_mut() {
            last.1 = u64::MAX;
        }
        all
    }

    /// The history file of the timeline a server is on.
    pub(crate) fn history_file(&self, at: usize) -> String {
        let mut text = String::new();
        for (timeline, end) in self.timelines(at).iter().filter(|(_, end)| *end != u64::MAX) {
            _ = writeln!(text, "{timeline}\t{}\tno recovery target specified", Lsn::new(*end));
        }
        text
    }

    /// Makes a server anew from what another has.
    pub(crate) fn reclone(&mut self, at: usize, upstream: usize) {
        let life = self.new_life();
        let source = &self.servers[upstream];
        let length = self.offered(upstream);
        let delay = self.servers[at].delay;
        let mut server = Server::new(life);
        server.log = source.log[..length].to_vec();
        server.naive = source.naive;
        server.applied = length;
        server.timeline = server.log.last().map_or(1, |rec| self.tree.timeline(*rec));
        server.flushed = self.tree.end(server.log.last().copied());
        server.upstream = upstream;
        server.delay = delay;
        server.hides_receiver = self.servers[at].hides_receiver;
        self.servers[at] = server;
    }

    /// Starts a server from an older copy of its own files, of the same role; `false`: there is
    /// none that old.
    pub(crate) fn restore(&mut self, at: usize, records: usize, ends: Ends, now: u64) -> bool {
        // What is in a copy had been flushed.
        self.flush_all(at, now);
        let server = &self.servers[at];
        let began = |rec: &Rec| self.tree.timeline(*rec) == server.timeline;
        let own = server.log.iter().position(began).unwrap_or(0);
        let length = server.log.len().saturating_sub(records).max(own + 1);
        if length >= server.log.len() || server.naive {
            return false;
        }
        let end = self.tree.end(Some(server.log[length - 1]));
        let life = self.next_life(self.servers[at].life, ends);
        let server = &mut self.servers[at];
        server.truncate(length);
        server.life = life;
        server.applied = length;
        server.flushed = end;
        server.flushed_count = length;
        server.following = None;
        if server.leads.is_some() {
            server.recovered_to = (ends != Ends::Clean).then_some(end);
            self.lead(at, now);
        }
        true
    }

    /// Takes a running server back to what it was, memory and all.
    pub(crate) fn revert(&mut self, at: usize, records: usize) {
        let server = &mut self.servers[at];
        let length = server.applied.saturating_sub(records).max(1);
        server.truncate(length);
        server.applied = length;
        server.flushed = self.tree.end(server.log.last().copied());
    }

    /// Makes a server a copy of a running one, memory and all: both live one life.
    pub(crate) fn copy_alive(&mut self, at: usize, from: usize) {
        let mut copy = self.servers[from].clone();
        copy.delay = self.servers[at].delay;
        self.servers[at] = copy;
    }
}
