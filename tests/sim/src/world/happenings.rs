//! What happens to servers: crashes, restarts, promotions, stops.

use tidegate_core::lineage::Life;

use super::log::page_start;
use super::{STREAM_NANOS, World};

/// How a server ends one life and begins the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// The whole server crashed.
    Crash,
    /// A backend crashed; the postmaster lived on.
    Backend,
    /// It was restarted cleanly.
    Clean,
}

impl World {
    pub(super) fn next_life(&mut self, old: Life, ends: Ends) -> Life {
        let new = self.new_life();
        match ends {
            Ends::Crash => new,
            Ends::Backend => Life { start: old.start, reset: new.reset },
            Ends::Clean => Life { start: new.start, reset: old.reset },
        }
    }

    /// Ends a life; a leader loses what was not flushed, a standby reopens behind what it showed.
    pub(crate) fn restart(&mut self, at: usize, ends: Ends, now: u64, pick: u64) {
        let life = self.next_life(self.servers[at].life, ends);
        let server = &mut self.servers[at];
        server.life = life;
        server.frozen = false;
        let unflushed = server.log.len().saturating_sub(server.flushed_count);
        match (server.leads, ends) {
            (Some(_), Ends::Crash | Ends::Backend) => {
                let lucky = usize::try_from(pick).unwrap_or(0) % (unflushed + 1);
                let length = server.flushed_count + lucky;
                server.truncate(length);
                let end = self.tree.end(self.servers[at].log.last().copied());
                let server = &mut self.servers[at];
                server.recovered_to = Some(end);
                server.flushed = server.flushed.min(end);
                self.lead(at, now);
            }
            (Some(_), Ends::Clean) => {
                self.flush_all(at, now);
                self.servers[at].recovered_to = None;
                self.lead(at, now);
            }
            (None, Ends::Crash | Ends::Backend) => {
                let back = usize::try_from(pick % 40).unwrap_or(0);
                server.applied = server.applied.saturating_sub(back).max(1);
                server.following = None;
                server.forget_rows();
            }
            (None, Ends::Clean) => server.following = None,
        }
    }

    /// An operator resets the statistics: it looks like a new life, and is none.
    pub(crate) fn reset_statistics(&mut self, at: usize, now: u64) {
        let reset = self.new_life().reset;
        let server = &mut self.servers[at];
        server.life.reset = reset;
        if server.leads.is_some() {
            let (epoch, parent) = (server.epoch(), server.log.last().copied());
            let branch = self.tree.begin(epoch, at, parent);
            self.servers[at].leads = Some(branch);
            self.servers[at].flush_due = now;
        }
    }

    /// Leaves recovery on a timeline of its own.
    pub(crate) fn promote(&mut self, at: usize, is_next_of_all: bool, now: u64) {
        let server = &mut self.servers[at];
        if server.leads.is_some() || !server.answers() {
            return;
        }
        server.applied = server.log.len();
        let end = self.tree.end(server.log.last().copied());
        let own = server.log.last().map_or(1, |rec| self.tree.timeline(*rec)) + 1;
        let server = &mut self.servers[at];
        server.timeline = if is_next_of_all { own.max(self.top_timeline + 1) } else { own };
        server.recovered_to = Some(end);
        server.flushed = end;
        server.flushed_count = server.log.len();
        self.lead(at, now);
    }

    /// Stops a server; what it had not flushed is gone unless it stops cleanly.
    pub(crate) fn stop(&mut self, at: usize, cleanly: bool, now: u64) {
        if self.servers[at].leads.is_some() && cleanly {
            self.flush_all(at, now);
        }
        self.servers[at].up = false;
        self.servers[at].following = None;
    }

    /// Stops a leader as an operator does who hands over: whoever follows it gets everything.
    pub(crate) fn hand_over(&mut self, at: usize, now: u64) {
        self.append(at, None, false);
        self.flush_all(at, now);
        for follower in 0..self.servers.len() {
            let server = &self.servers[follower];
            if server.answers() && server.leads.is_none() && server.upstream == at {
                self.receive(follower, now + STREAM_NANOS);
            }
        }
        self.stop(at, true, now);
    }

    /// Flushes whole pages only and lets the WAL writer rest: what it shows next is the start of a
    /// page inside a record.
    pub(crate) fn flush_pages(&mut self, at: usize, until: u64, now: u64) {
        loop {
            self.append(at, None, false);
            let end = self.tree.end(self.servers[at].log.last().copied());
            let page = page_start(end);
            if page > self.servers[at].flushed && page < end {
                self.flush_to(at, page, now);
                break;
            }
        }
        self.servers[at].flush_due = until;
    }

    /// Starts a server that was stopped, as what it was.
    pub(crate) fn start(&mut self, at: usize, now: u64, pick: u64) {
        if self.servers[at].up {
            return;
        }
        let clean = self.servers[at].flushed_count == self.servers[at].log.len();
        self.servers[at].up = true;
        let ends = if clean { Ends::Clean } else { Ends::Crash };
        self.restart(at, ends, now, pick);
    }
}
