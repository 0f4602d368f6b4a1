//! `Servers`: the servers of a shared store together: who is primary, what is replicated, who is
//! promoted.

use super::options::StoreOptions;
use super::server::{Data, Op, Record, Refused, Server, Swap, Swapped};

/// What the network takes to tell a primary that a replica lives.
const HEARD_NANOS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) all: Vec<Server>,
    /// Whom whoever watches the servers names as the primary.
    pub(crate) main: usize,
    /// When that changed.
    pub(crate) switched_at: u64,
    histories: u64,
    options: StoreOptions,
    /// What the primary kept some time ago.
    copies: Vec<Data>,
}

impl Servers {
    pub(crate) fn new(options: &StoreOptions) -> Self {
        let servers = (0..options.replicas + 2).map(|at| {
            let upstream = (1..=options.replicas).contains(&at).then_some(0);
            let mut server = Server::new(1, upstream);
            server.delay = options.delay_max / 2;
            server
        });
        let options = *options;
        let all: Vec<Server> = servers.collect();
        Self { all, main: 0, switched_at: 0, histories: 1, options, copies: Vec::new() }
    }

    /// Lets every server do what it does by itself.
    pub(crate) fn step(&mut self, now: u64) {
        for at in 0..self.all.len() {
            if self.all[at].runs() {
                self.drain(at, now);
                self.receive(at, now);
            }
        }
        for at in 0..self.all.len() {
            let server = &mut self.all[at];
            if server.runs() && now >= server.counted_at + self.options.count_interval {
                server.counted_at = now;
                let limit = self.options.max_lag + self.options.count_interval;
                server.good = server.heard.values().filter(|then| now - **then <= limit).count();
            }
        }
        if self.copies.len() < 64 && now / 200_000_000 > self.copies.len() as u64 {
            self.copies.push(self.all[self.main].data.clone());
        }
    }

    /// What callers sent while it was frozen and did not wait for.
    fn drain(&mut self, at: usize, now: u64) {
        for swap in std::mem::take(&mut self.all[at].queued) {
            let _ = self.swap(at, &swap, now);
        }
    }

    /// Takes in what is under way from the primary, and lets that one know.
    fn receive(&mut self, at: usize, now: u64) {
        let Some(upstream) = self.all[at].upstream else { return };
        let other = &self.all[upstream];
        if self.all[at].cut || !other.runs() || other.upstream.is_some() {
            return;
        }
        let (history, data) = (other.history, other.data.clone());
        let server = &mut self.all[at];
        if server.must_sync || server.history != history {
            server.must_sync = false;
            server.inbox.clear();
            (server.history, server.data) = (history, data);
        }
        while let Some((due, _)) = server.inbox.front()
            && *due <= now
        {
            if let Some((_, op)) = server.inbox.pop_front() {
                server.data.apply(op);
            }
        }
        self.all[upstream].heard.insert(at, now - HEARD_NANOS);
    }

    /// A primary changes its data, and sends that on.
    pub(crate) fn change(&mut self, at: usize, op: &Op, now: u64) {
        self.all[at].data.apply(op.clone());
        for other in 0..self.all.len() {
            let server = &mut self.all[other];
            if server.upstream == Some(at) {
                if server.cut || !server.up {
                    server.must_sync = true;
                } else {
                    let due = now + server.delay;
                    server.inbox.push_back((due, op.clone()));
                }
            }
        }
    }

    /// A record is changed if it is what the caller takes it for.
    pub(crate) fn swap(&mut self, at: usize, swap: &Swap, now: u64) -> Result<Swapped, Refused> {
        let Swap { subject, expected, body, tips, replaces, fifth } = swap;
        let server = &self.all[at];
        if !server.scripts {
            return Err(Refused::NoScript);
        }
        if server.upstream.is_some() {
            return Err(Refused::ReadOnly);
        }
        let found = server.record(*subject, now);
        if found.map(|record| &record.body) != expected.as_ref() {
            return Ok(Swapped::Differs(found.map(|record| record.body.clone())));
        }
        let kept = found.filter(|_| !replaces);
        let held = kept.map(|record| record.held.clone()).unwrap_or_default();
        let held = held.with(tips, fifth);
        if expected == body {
            if let Some(record) = self.all[at].data.records.get_mut(subject) {
                record.held = held.clone();
            }
            return Ok(Swapped::Done { wrote: false, held });
        }
        server.takes_writes(self.options.min_replicas)?;
        let expires_at = now + server.ahead + self.options.lifetime;
        let op = body.clone().map_or(Op::Delete(*subject), |body| {
            Op::Set(*subject, Record { body, held: held.clone(), expires_at })
        });
        self.change(at, &op, now);
        Ok(Swapped::Done { wrote: true, held })
    }

    /// A write that changes nothing.
    pub(crate) fn beat(&self, at: usize) -> Result<(), Refused> {
        self.all[at].takes_writes(self.options.min_replicas)
    }

    /// The generation is replaced, if it is what the caller takes it for.
    pub(crate) fn swap_generation(
        &mut self,
        at: usize,
        expected: Option<&Vec<u8>>,
        bytes: Option<Vec<u8>>,
        now: u64,
    ) -> Result<bool, Refused> {
        self.beat(at)?;
        let same = self.all[at].data.generation.as_ref() == expected;
        if same {
            self.change(at, &Op::Generation(bytes), now);
        }
        Ok(same)
    }

    fn next_history(&mut self) -> u64 {
        self.histories += 1;
        self.histories
    }

    /// A replica becomes a primary, with what it has.
    pub(crate) fn promote(&mut self, at: usize, now: u64) {
        let history = self.next_history();
        let old = self.all[at].upstream;
        let server = &mut self.all[at];
        server.inbox.clear();
        server.heard.clear();
        // It counts on those that are told to follow it, as a new primary does.
        (server.upstream, server.history) = (None, history);
        (server.good, server.counted_at) = (0, now);
        if let Some(old) = old {
            self.all[old].heard.remove(&at);
        }
        (self.main, self.switched_at) = (at, now);
    }

    /// A server follows another one, and gets all it has.
    pub(crate) fn follow(&mut self, at: usize, upstream: usize) {
        if at == upstream {
            return;
        }
        let old = self.all[at].upstream;
        let server = &mut self.all[at];
        (server.upstream, server.must_sync) = (Some(upstream), true);
        server.inbox.clear();
        server.heard.clear();
        if let Some(old) = old.filter(|old| *old != upstream) {
            self.all[old].heard.remove(&at);
        }
    }

    /// The server that is not in use as a rule.
    const fn spare(&self) -> usize {
        self.options.replicas + 1
    }

    /// Whoever is not a primary follows `at`, the spare server included, but for `stays`.
    pub(crate) fn all_follow(&mut self, at: usize, stays: Option<usize>) {
        for other in 0..self.all.len() {
            let follows = self.all[other].upstream.is_some() || other == self.spare();
            if other != at && follows && Some(other) != stays {
                self.follow(other, at);
            }
        }
    }

    /// A former primary comes back and follows `at`; the spare server is not in use any more.
    pub(crate) fn demote(&mut self, old: usize, at: usize, now: u64) {
        if old == at {
            return;
        }
        if !self.all[old].up {
            self.restart(old, Data::default(), now);
        }
        self.follow(old, at);
        self.all_follow(at, None);
        self.stand_by();
    }

    /// The spare server is not in use any more, if it did not become the primary.
    fn stand_by(&mut self) {
        let spare = self.spare();
        if self.main == spare {
            return;
        }
        if let Some(upstream) = self.all[spare].upstream.take() {
            self.all[upstream].heard.remove(&spare);
        }
    }

    /// A server starts again with `data`.
    pub(crate) fn restart(&mut self, at: usize, data: Data, now: u64) {
        let history = self.next_history();
        let server = &mut self.all[at];
        (server.up, server.frozen) = (true, false);
        (server.evicted, server.scripts) = (0, false);
        server.data = data;
        server.inbox.clear();
        server.heard.clear();
        if server.upstream.is_none() {
            (server.history, server.good, server.counted_at) = (history, 0, now);
        }
        for other in &mut self.all {
            other.must_sync |= other.upstream == Some(at);
        }
    }

    /// What the primary kept so many copies ago.
    pub(crate) fn copy(&self, ago: usize) -> Option<Data> {
        let at = self.copies.len().checked_sub(1 + ago)?;
        self.copies.get(at).cloned()
    }

    /// A primary evicts a record.
    pub(crate) fn evict(&mut self, at: usize, pick: usize, now: u64) -> bool {
        let subjects: Vec<usize> = self.all[at].data.records.keys().copied().collect();
        if subjects.is_empty() {
            return false;
        }
        self.all[at].evicted += 1;
        self.change(at, &Op::Delete(subjects[pick % subjects.len()]), now);
        true
    }

    /// Everything runs, the named primary leads, and all follow it.
    pub(crate) fn heal(&mut self, now: u64) {
        for at in 0..self.all.len() {
            if !self.all[at].up {
                let data = self.all[at].data.clone();
                self.restart(at, data, now);
            }
            let server = &mut self.all[at];
            (server.frozen, server.cut) = (false, false);
            server.delay = server.delay.min(self.options.delay_max);
        }
        let main = self.main;
        for at in 0..self.all.len() {
            if at != main && self.all[at].upstream != Some(main) {
                self.follow(at, main);
            }
        }
        self.stand_by();
    }
}
