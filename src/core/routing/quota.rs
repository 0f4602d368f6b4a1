//! `Quota`: the part of a partition's fallback cap that one instance may use, so that all of them
//! together stay below it.
//!
//! Instances keep one [`QuotaBook`] between them, which each changes in turn by compare-and-swap.
//! No two clocks are compared: a share counts for a while from when its holder *sent* the book in
//! which it stands, and it is another's when its holder's entry has not moved for longer than that
//! by the other's clock. An instance that cannot reach the book uses a static share, which those
//! that can leave free. It reads no clock and no store; how much was admitted is for `FallbackCap`.

mod book;
mod cap_share;

pub use book::{BookId, InstanceLife, QuotaBook, QuotaEntry};
pub use cap_share::CapShare;

use crate::instant::Instant;
use book::{SHARE_LEAST, divide, left_for_newcomers, reads_in_a_second, static_share};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long what counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaRules {
    /// A share may be used for so long from when the book was sent in which it stands.
    pub lease: Duration,
    /// An entry that has not moved for so long is nobody's: longer than `lease` by more than the
    /// clocks of two machines drift apart in it.
    pub reclaim: Duration,
    /// What a silent instance may use without the book is kept for it so long.
    pub remember: Duration,
    /// Instances that together stay below the cap when none of them reaches the book.
    pub fallback_instances: u32,
}

impl QuotaRules {
    /// When an instance that cannot reach the book has been given up by all that can: they may have
    /// seen it last one lease after it wrote, count it for `reclaim`, and use for one lease more
    /// what they then held.
    pub fn given_up_after(&self) -> Duration {
        self.lease * 2 + self.reclaim + (self.reclaim - self.lease.min(self.reclaim))
    }
}

/// Where the share in force comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaKind {
    /// It is the whole cap: nobody else is there.
    Whole,
    /// From the book.
    Leased,
    /// The book was not reached for a lease.
    Static,
}

/// A share, from the book of this id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lease {
    share: u32,
    until: Instant,
    book: BookId,
}

/// What was seen of another instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Peer {
    entry: QuotaEntry,
    /// When its entry was first seen as it is.
    moved_at: Instant,
    /// It moved between two looks that were close to each other: it was there then.
    is_known: bool,
}

/// The part of one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota {
    rules: QuotaRules,
    life: InstanceLife,
    cap: u32,
    seq: u64,
    lease: Option<Lease>,
    /// What the book may say of this instance by now, at least.
    share: u32,
    /// The cap that the book may say it goes by, at most; `None`: it says nothing.
    said_cap: Option<u32>,
    /// When it was heard of last, at the latest; `None`: never.
    heard_at: Option<Instant>,
    /// A book is under way of which nobody knows whether it arrived.
    is_sent: bool,
    book: Option<(BookId, Instant)>,
    /// When the book was asked for last.
    asked_at: Option<Instant>,
    peers: BTreeMap<InstanceLife, Peer>,
}

impl Quota {
    /// The part of an instance that knows nothing yet, of a cap of so many reads per second.
    ///
    /// As long as it cannot reach a book it uses the static share.
    pub const fn new(rules: QuotaRules, life: InstanceLife, cap: u32) -> Self {
        Self {
            rules,
            life,
            cap,
            seq: 0,
            lease: None,
            share: 0,
            said_cap: None,
            heard_at: None,
            is_sent: false,
            book: None,
            asked_at: None,
            peers: BTreeMap::new(),
        }
    }

    /// Goes by another cap: at once if it is lower, by the next exchange if it is higher.
    pub const fn set_cap(&mut self, cap: u32) {
        self.cap = cap;
    }

    /// The reads that may be admitted in any one second as of `at`, and why.
    pub fn in_force(&self, at: Instant) -> (u32, QuotaKind) {
        let alone = self.static_share();
        let (share, kind) = match self.lease.filter(|lease| at < lease.until) {
            Some(lease) => (lease.share, QuotaKind::Leased),
            None if self.counts_there(at) => (self.share.min(alone), QuotaKind::Static),
            None => (alone, QuotaKind::Static),
        };
        (share.min(reads_in_a_second(self.cap)), kind)
    }

    /// When what is in force changes by itself next, after `at`.
    pub fn changes_after(&self, at: Instant) -> Option<Instant> {
        let ends = self.lease.map(|lease| lease.until);
        let next = [ends, self.given_up_at()].into_iter().flatten();
        next.filter(|change| *change > at).min()
    }

    /// The book to put in the place of `read`, which was asked for at `asked_at`.
    ///
    /// What this instance gives up in it is given up here and now. `read` is `None` where there is
    /// none, or one that is older than what was lost.
    pub fn propose(
        &mut self,
        read: Option<&QuotaBook>,
        demand: u32,
        (asked_at, now): (Instant, Instant),
    ) -> QuotaBook {
        self.seq += 1;
        let opened = || QuotaBook::new(BookId { by: self.life, seq: self.seq });
        let mut book = read.cloned().unwrap_or_else(opened);
        self.look(&mut book, asked_at, now);
        let others: Vec<Peer> = book.entries.iter().filter_map(|entry| self.peer(entry)).collect();
        let share = self.wanted(&book, &others, demand, now);
        self.give_up(share, book.id, now);
        for peer in others.iter().filter(|peer| self.is_silent(peer, now)) {
            book.put(QuotaEntry { share: 0, is_silent: true, ..peer.entry });
        }
        let entry = QuotaEntry {
            life: self.life,
            seq: self.seq,
            share,
            demand,
            cap: self.cap,
            is_silent: false,
        };
        book.put(entry);
        self.said_cap = Some(self.said_cap.unwrap_or(self.cap).min(self.cap));
        self.is_sent = true;
        book
    }

    /// The proposed book stands; it was sent at `sent_at`.
    pub fn confirmed(&mut self, book: &QuotaBook, sent_at: Instant, now: Instant) {
        let own = book.entry(self.life);
        let share = own.map_or(0, |entry| entry.share);
        self.said_cap = own.map(|entry| entry.cap);
        (self.share, self.heard_at, self.is_sent) = (share, Some(now), false);
        // What a lost book had granted ends by itself: nobody takes it before.
        let is_older = |lease: &Lease| lease.book != book.id && now < lease.until;
        if self.lease.is_none_or(|lease| !is_older(&lease) || lease.share <= share) {
            let until = sent_at + self.rules.lease;
            self.lease = Some(Lease { share, until, book: book.id });
        }
    }

    /// The exchange failed; a book that was proposed may have arrived all the same.
    pub const fn failed(&mut self, now: Instant) {
        if self.is_sent {
            (self.heard_at, self.is_sent) = (Some(now), false);
        }
    }

    /// The book without this instance, which admits nothing from now on.
    pub fn leave(&mut self, read: &QuotaBook) -> QuotaBook {
        (self.lease, self.share, self.cap) = (None, 0, 0);
        let mut book = read.clone();
        book.remove(self.life);
        book
    }

    /// By the cap that others know of: they leave free so much.
    fn static_share(&self) -> u32 {
        let cap = self.said_cap.map_or(self.cap, |cap| cap.min(self.cap));
        static_share(cap, self.rules.fallback_instances)
    }

    fn given_up_at(&self) -> Option<Instant> {
        self.heard_at.map(|at| at + self.rules.given_up_after())
    }

    /// Somebody may still go by what the book said of this instance.
    fn counts_there(&self, at: Instant) -> bool {
        self.given_up_at().is_some_and(|given_up_at| at < given_up_at)
    }

    fn is_leased(&self, at: Instant) -> bool {
        self.lease.is_some_and(|lease| at < lease.until)
    }

    /// Takes in what a book says of others; puts those into a new book that the lost one had.
    fn look(&mut self, book: &mut QuotaBook, asked_at: Instant, now: Instant) {
        let is_same = self.book.is_some_and(|(id, _)| id == book.id);
        if is_same {
            // They left, or were forgotten.
            self.peers.retain(|life, _| book.entry(*life).is_some());
        } else {
            self.book = Some((book.id, now));
        }
        let asked_before = self.asked_at.replace(asked_at);
        let is_close = asked_before.is_some_and(|before| now.since(before) <= self.rules.lease);
        if !is_close {
            // They may have been as unable to reach it: what they were is of no use any more.
            for peer in self.peers.values_mut() {
                (peer.moved_at, peer.is_known) = (now, false);
            }
            self.book = Some((book.id, now));
        }
        for entry in book.entries.iter().filter(|entry| entry.life != self.life) {
            let known = self.peers.get(&entry.life);
            let stands = known.filter(|peer| peer.entry.seq == entry.seq);
            let (moved_at, is_known) =
                stands.map_or((now, is_same && is_close), |peer| (peer.moved_at, peer.is_known));
            self.peers.insert(entry.life, Peer { entry: *entry, moved_at, is_known });
        }
        let remember = self.rules.remember;
        self.peers.retain(|_, peer| now.since(peer.moved_at) < remember);
        for (life, peer) in &self.peers {
            if book.entry(*life).is_none() {
                book.put(QuotaEntry { share: 0, is_silent: true, ..peer.entry });
            }
        }
        book.entries
            .retain(|entry| entry.life == self.life || self.peers.contains_key(&entry.life));
        book.is_new &= !self.is_older(self.rules.given_up_after(), now);
    }

    /// The book has been there for so long.
    fn is_older(&self, span: Duration, now: Instant) -> bool {
        self.book.is_some_and(|(_, seen_at)| now.since(seen_at) >= span)
    }

    /// Shares of the book before this one may be in use.
    fn is_barred(&self, book: &QuotaBook, now: Instant) -> bool {
        book.is_new && !self.is_older(self.rules.reclaim, now)
    }

    fn peer(&self, entry: &QuotaEntry) -> Option<Peer> {
        self.peers.get(&entry.life).copied()
    }

    fn is_silent(&self, peer: &Peer, now: Instant) -> bool {
        peer.entry.is_silent || now.since(peer.moved_at) >= self.rules.reclaim
    }

    /// The share to have next.
    fn wanted(&self, book: &QuotaBook, others: &[Peer], demand: u32, now: Instant) -> u32 {
        let there = |peer: &&Peer| peer.is_known && !self.is_silent(peer, now);
        let live: Vec<&Peer> = others.iter().filter(there).collect();
        let cap = live.iter().map(|peer| peer.entry.cap).fold(self.cap, u32::min);
        let total = reads_in_a_second(cap);
        let kept = self.kept_for_absent(others, (live.len(), book.is_new), now);
        let held = live.iter().fold(kept, |sum, peer| sum.saturating_add(peer.entry.share));
        let without_book = self.without_book(book, others, total, now);
        if self.is_barred(book, now) {
            return without_book;
        }
        let demands = live.iter().map(|peer| (peer.entry.life, peer.entry.demand));
        let mut demands: Vec<_> = demands.collect();
        let at = demands.partition_point(|(life, _)| *life < self.life);
        demands.insert(at, (self.life, demand));
        let demands: Vec<u32> = demands.into_iter().map(|(_, demand)| demand).collect();
        let left = left_for_newcomers(total);
        let fair = divide(total.saturating_sub(kept.saturating_add(left)), &demands);
        let fair = fair.get(at).copied().unwrap_or(0);
        let free = total.saturating_sub(held);
        // Who has nothing yet does not wait until others have given some up; and who has something
        // keeps a little of it until they have.
        let first = (free.min(left) / 2).max(SHARE_LEAST.min(free));
        let kept_on = if self.is_leased(now) { self.share.min(left / 2) } else { 0 };
        fair.min(free.saturating_sub(left).max(first).max(kept_on)).max(without_book)
    }

    /// What is left free for those that may use more than the book says, or nothing of it.
    fn kept_for_absent(&self, others: &[Peer], (live, is_new): (usize, bool), now: Instant) -> u32 {
        let instances = usize::try_from(self.rules.fallback_instances).unwrap_or(usize::MAX);
        // Of more than these nothing is promised.
        let mut places = instances.saturating_sub(live + 1);
        let mut kept = 0_u32;
        for peer in others {
            let is_silent = self.is_silent(peer, now);
            if peer.is_known && !is_silent {
                continue;
            }
            let share = if is_silent { 0 } else { peer.entry.share };
            let alone = static_share(peer.entry.cap, self.rules.fallback_instances);
            let most = if places > 0 { share.max(alone) } else { share };
            places = places.saturating_sub(1);
            kept = kept.saturating_add(most);
        }
        // Those that have not come back to a new book are known to nobody.
        let places = if is_new { u32::try_from(places).unwrap_or(u32::MAX) } else { 0 };
        let alone = static_share(self.cap, self.rules.fallback_instances);
        kept.saturating_add(places.saturating_mul(alone))
    }

    /// What an instance that comes back may go on to use: others had left it free.
    fn without_book(&self, book: &QuotaBook, others: &[Peer], total: u32, now: Instant) -> u32 {
        if self.is_leased(now) || self.counts_there(now) {
            if !self.is_barred(book, now) {
                return 0;
            }
            // It was here a moment ago: what the book says of it stands. Of a new one nobody has
            // anything yet that another had in the lost one: what was its own there still is.
            let own = book.entry(self.life).filter(|entry| !entry.is_silent);
            return own.map_or_else(|| self.in_force(now).0, |own| own.share).min(self.share);
        }
        let shares = others.iter().filter(|peer| !self.is_silent(peer, now));
        let held = shares.fold(0_u32, |sum, peer| sum.saturating_add(peer.entry.share));
        self.static_share().min(total.saturating_sub(held))
    }

    /// Uses no more than `share` of what this book or none has granted, before anybody reads so.
    fn give_up(&mut self, share: u32, book: BookId, now: Instant) {
        let was_there = self.is_leased(now) || self.counts_there(now);
        self.share = if was_there { self.share.min(share) } else { share };
        match &mut self.lease {
            Some(lease) if now < lease.until => {
                if lease.book == book {
                    lease.share = lease.share.min(share);
                }
            }
            // Whoever reads this goes by it.
            Some(_) | None => self.heard_at = Some(now),
        }
    }
}
