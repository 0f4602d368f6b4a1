//! `Beliefs`: the `SharedGuard` of each bucket, told of every answer of its servers.
//!
//! It decides nothing: the core's guard does. A lock is held for one event at a time, never while
//! a server is asked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::store_guard::{
    LossCause, Needs, News, Replicas, Reply, Server, SharedGuard, SharedRules, Unbelieved, Worth,
    Write,
};
use tidegate_core::token::ComponentKey;
use tidegate_core::trail::Sample;
use tokio::sync::Notify;

use super::check::Checked;
use super::events::{Announcer, StoreCount, StoreCounters, StoreEvent};
use super::info::ServerInfo;
use super::keys::Bucket;
use crate::clock::{Clock, Instant};
use crate::config::Redundancy;

/// Servers that are remembered to have the scripts: more than any cluster of 64 buckets has.
const SERVERS_MAX: usize = 256;

/// What may be believed of a store, by bucket.
#[derive(Debug)]
pub(super) struct Beliefs {
    parts: Vec<Mutex<Part>>,
    /// Servers that ran a script by its hash.
    scripted: Mutex<BTreeSet<Server>>,
    rules: SharedRules,
    /// The longest `min-replicas-max-lag` that the fence covers.
    max_lag: Duration,
    may_have_replicas: bool,
    guards: Guards,
    announcer: Arc<Announcer>,
    counters: Arc<StoreCounters>,
    clock: Clock,
    /// Whether servers need all of their replicas; `None`: nothing rests on that.
    replicas: Option<Mutex<Replicas>>,
    /// Generations that are void and may still be there.
    pub(super) voids: Mutex<Vec<Void>>,
    /// A generation may have become due.
    pub(super) wake: Notify,
}

#[derive(Debug)]
struct Part {
    guard: SharedGuard,
    /// Who answered last.
    server: Option<Server>,
    /// Why it refused our last write.
    refuses: Option<String>,
    /// Why it does not store our records, though it is the primary.
    complains: Option<Complaint>,
    /// It takes writes without a replica that may be promoted: what an operator has to know.
    unfit: Option<String>,
    /// Whether it needs all of its replicas was read, and it does.
    is_fit: bool,
}

/// A write of ours that was refused for what a server or a key holds, or may not do now.
#[derive(Debug)]
struct Complaint {
    code: String,
    why: String,
}

impl Complaint {
    /// Whether a removal that was taken shows that it has passed: a full server takes those too,
    /// and they touch no key of another type.
    fn passes_with_heartbeats(&mut self) -> bool {
        !matches!(self.code.as_str(), "OOM" | "WRONGTYPE")
    }
}

/// How the buckets stand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Standing {
    /// Buckets for which no generation stands.
    pub(super) lost: usize,
    /// When the last fence ends.
    pub(super) fenced_until: Option<Instant>,
    /// Why a server refuses writes.
    pub(super) refuses: Option<String>,
    /// Why a server must not be used as it is.
    pub(super) unfit: Option<String>,
}

/// What a write is worth that a server took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Took {
    /// It stands.
    Counts,
    /// The server has not taken our writes for long enough: it may be deposed.
    Young,
    /// Its replicas do not follow, or it does without one of them.
    Behind,
}

/// A generation that is void and must go, unless it has changed meanwhile.
#[derive(Debug)]
pub(super) struct Void {
    pub(super) bucket: Bucket,
    pub(super) bytes: Vec<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A guard takes in whole events: it is whole after a panic too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Beliefs {
    pub(super) fn new(
        buckets: usize,
        (rules, keys): (SharedRules, &[ComponentKey]),
        (guards, checked): (Guards, &Checked),
        (announcer, counters): (&Arc<Announcer>, &Arc<StoreCounters>),
        clock: Clock,
    ) -> Self {
        let part = || {
            let guard = SharedGuard::new(rules, keys.to_vec());
            let (server, refuses, complains, unfit) = (None, None, None, None);
            Mutex::new(Part { guard, server, refuses, complains, unfit, is_fit: true })
        };
        Self {
            parts: (0..buckets).map(|_| part()).collect(),
            scripted: Mutex::default(),
            rules,
            guards,
            announcer: Arc::clone(announcer),
            counters: Arc::clone(counters),
            clock,
            max_lag: checked.max_lag.unwrap_or_default(),
            may_have_replicas: checked.redundancy != Redundancy::Single,
            replicas: match checked.redundancy {
                Redundancy::Single => Some(Mutex::new(Replicas::single(rules.recount))),
                Redundancy::Fenced => Some(Mutex::new(Replicas::read(rules.recount))),
                Redundancy::Async => None,
            },
            voids: Mutex::default(),
            wake: Notify::new(),
        }
    }

    fn part(&self, bucket: Bucket) -> Option<MutexGuard<'_, Part>> {
        self.parts.get(bucket.index()).map(lock)
    }

    /// Takes in an answer; says what it is worth.
    pub(super) fn replied(
        &self,
        bucket: Bucket,
        info: &ServerInfo,
        generation: Option<Vec<u8>>,
    ) -> Worth {
        let ServerInfo { server, is_primary, .. } = *info;
        let evicted = self.forgot(info);
        let reply = Reply { server, is_primary, evicted, generation };
        let Some(mut part) = self.part(bucket) else {
            return Worth::Unknown(Unbelieved::Lost);
        };
        if is_primary {
            part.server = Some(server);
        }
        let (worth, news) = part.guard.replied(&reply, self.clock.now(), &self.guards);
        drop(part);
        if let Some(news) = news {
            self.announce(news, bucket);
        }
        match self.needs(bucket, info) {
            Needs::All => worth,
            Needs::Unread | Needs::Fewer { .. } => Worth::Unknown(Unbelieved::Deposed),
        }
    }

    /// What a server counts of what no generation outlives; copies where one may be promoted: alike
    /// in all instances that share such a store, since a count that differs is a loss.
    fn forgot(&self, info: &ServerInfo) -> u64 {
        let counts = self.may_have_replicas && self.guards.believed_lookup();
        let copied = if counts { info.copied } else { 0 };
        Reply::counts(info.evicted, copied)
    }

    /// Notes what a server said of how many replicas it needs to take a write, and of their lag in
    /// seconds; `None`: it does not tell.
    pub(super) fn needs_replicas(&self, info: &ServerInfo, told: Option<(u64, u64)>) {
        let Some(replicas) = self.replicas.as_ref().filter(|_| self.asks_for_needs()) else {
            return;
        };
        let needed = match told {
            // The fence is as long as the longest lag of the start needs: until it ends whoever
            // believes a deposed primary, which takes writes for its lag, has ceased to. What is
            // believed for less than that is so on the safe side.
            Some((_, lag)) if lag == 0 || lag > self.max_lag.as_secs() => 0,
            Some((needed, _)) => needed,
            None => u64::from(info.needs_replicas),
        };
        lock(replicas).needs(info.server, needed, self.clock.now());
    }

    /// Whether heartbeats have to ask for that: a server that was promoted has settings of its own,
    /// and they can be changed while it runs.
    pub(super) const fn asks_for_needs(&self) -> bool {
        self.rules.believed_for.is_some()
    }

    /// Says whether a primary takes writes only with all replicas it ever had; if not, nothing
    /// keeps it from taking them while one is promoted.
    fn needs(&self, bucket: Bucket, info: &ServerInfo) -> Needs {
        let Some(replicas) = self.replicas.as_ref().filter(|_| self.guards.believed_lookup())
        else {
            return Needs::All;
        };
        if !info.is_primary {
            return Needs::All;
        }
        // Those that it has not heard of for longer are of no use to it.
        let attached = match self.rules.believed_for {
            Some(window) => info.replicas_within(window.as_secs()),
            None => info.lags.len(),
        };
        let attached = u64::try_from(attached).unwrap_or(u64::MAX);
        let needs = lock(replicas).attached(info.server, attached, self.clock.now());
        let unfit = match needs {
            // A replica that connects anew may be shown twice for a moment.
            Needs::All | Needs::Unread | Needs::Fewer { lasts: false, .. } => None,
            Needs::Fewer { needed, of, lasts: true } => Some(self.unfit(needed, of)),
        };
        let Some(mut part) = self.part(bucket) else { return needs };
        part.is_fit = needs == Needs::All;
        if unfit.is_some() {
            part.guard.refused();
        }
        let before = std::mem::replace(&mut part.unfit, unfit.clone());
        drop(part);
        match (before, unfit) {
            (None, Some(why)) => self.announcer.tell(StoreEvent::Unfit, &why),
            (Some(_), None) => {
                self.announcer.tell(StoreEvent::Takes, &format!("bucket {}", bucket.index()));
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        needs
    }

    fn unfit(&self, needed: u64, of: u64) -> String {
        match self.rules.believed_for {
            None => "a replica was attached to a `single` store and may be promoted: set \
                     `min-replicas-to-write` to the number of its replicas, or remove them, and \
                     restart Tidegate"
                .to_owned(),
            // What is set is no fence at all, or reaches further than the one of the start.
            Some(_) if needed == 0 => format!(
                "it takes writes without its replicas for longer than at the start: set \
                 `min-replicas-to-write` to {of} and `min-replicas-max-lag` to at most {}, or \
                 restart Tidegate",
                self.max_lag.as_secs()
            ),
            Some(_) => format!(
                "it takes writes with {needed} of {of} replicas, so one may be promoted unseen: \
                 set `min-replicas-to-write` to {of}, with a `min-replicas-max-lag` of at most \
                 {}; or remove replicas and restart Tidegate",
                self.max_lag.as_secs()
            ),
        }
    }

    fn announce(&self, news: News, bucket: Bucket) {
        let why = format!("bucket {}", bucket.index());
        match news {
            News::Lost(cause) => {
                self.counters.add(StoreCount::Losses, 1);
                self.announcer.tell(StoreEvent::Lost(cause), &why);
                self.wake.notify_waiters();
            }
            News::Stands => self.announcer.tell(StoreEvent::Stands, &why),
            News::LostAndStands(cause) => {
                self.counters.add(StoreCount::Losses, 1);
                self.announcer.tell(StoreEvent::Lost(cause), &why);
                self.announcer.tell(StoreEvent::Stands, &why);
            }
        }
    }

    /// Notes that a server took a write of ours that was sent at `sent_at`.
    ///
    /// A primary counts its replicas once a second: one that was frozen goes on for a moment with
    /// the count of before. What it says of each replica is of now.
    pub(super) fn took(&self, bucket: Bucket, info: &ServerInfo, sent_at: Instant) -> Took {
        let counts = match self.rules.believed_for {
            Some(window) if self.guards.believed_lookup() => {
                let attached = info.lags.len();
                attached > 0 && info.replicas_within(window.as_secs()) == attached
            }
            Some(_) | None => true,
        };
        if !counts {
            self.refused(bucket, "replicas are behind `min-replicas-max-lag`, or there is none");
            return Took::Behind;
        }
        let needs = self.needs(bucket, info);
        if let Needs::Fewer { .. } = needs {
            return Took::Behind;
        }
        let Some(mut part) = self.part(bucket) else { return Took::Young };
        let taken = part.guard.accepted(info.server, sent_at, self.clock.now(), &self.guards);
        let refused = part.refuses.take();
        drop(part);
        if let Some((news, bytes)) = taken.void {
            self.announce(news, bucket);
            lock(&self.voids).push(Void { bucket, bytes });
            self.wake.notify_waiters();
        }
        if refused.is_some() {
            self.announcer.tell(StoreEvent::Takes, &format!("bucket {}", bucket.index()));
        }
        if taken.is_settled && needs == Needs::All { Took::Counts } else { Took::Young }
    }

    /// Notes that a server refused a write of ours, and is the primary all the same.
    pub(super) fn complains(&self, bucket: Bucket, code: &str, why: &str) {
        let Some(mut part) = self.part(bucket) else { return };
        let complaint = Complaint { code: code.to_owned(), why: why.to_owned() };
        let before = part.complains.replace(complaint);
        drop(part);
        if before.is_none() {
            self.announcer.tell(StoreEvent::Refuses, why);
        }
    }

    /// Notes that a server stored something of ours: what it takes without room is no record.
    pub(super) fn stored(&self, bucket: Bucket) {
        self.complaint_ends(bucket, |_| true);
    }

    /// Notes that a server took a heartbeat while no record waited for it.
    pub(super) fn beaten(&self, bucket: Bucket) {
        self.complaint_ends(bucket, Complaint::passes_with_heartbeats);
    }

    fn complaint_ends(&self, bucket: Bucket, ends: impl FnOnce(&mut Complaint) -> bool) {
        let before = self.part(bucket).and_then(|mut part| part.complains.take_if(ends));
        if before.is_some() {
            self.announcer.tell(StoreEvent::Takes, &format!("bucket {}", bucket.index()));
        }
    }

    /// Notes that a server refused a write of ours.
    pub(super) fn refused(&self, bucket: Bucket, why: &str) {
        let Some(mut part) = self.part(bucket) else { return };
        let refused = part.refuses.replace(why.to_owned());
        part.guard.refused();
        drop(part);
        if refused.is_none() {
            self.announcer.tell(StoreEvent::Refuses, why);
        }
    }

    /// Notes that a server has our scripts, or had lost them; returns the generations that are
    /// void by that.
    pub(super) fn ran_script(&self, server: Server, was_missing: bool) -> Vec<Void> {
        let mut scripted = lock(&self.scripted);
        if scripted.len() >= SERVERS_MAX {
            scripted.clear();
        }
        let is_new = scripted.insert(server);
        drop(scripted);
        if is_new || !was_missing {
            return Vec::new();
        }
        // Who removes scripts may have removed records, or restored older ones.
        let now = self.clock.now();
        let mut voids = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let mut part = lock(part);
            if part.server == Some(server)
                && let Some((news, bytes)) = part.guard.lost(LossCause::NoScript, now)
            {
                drop(part);
                let bucket = Bucket::nth(index);
                self.announce(news, bucket);
                voids.push(Void { bucket, bytes });
            }
        }
        if voids.is_empty() {
            // Another loss is being made good: this one ends with it, and is told all the same.
            self.announce(News::Lost(LossCause::NoScript), Bucket::nth(0));
        }
        voids
    }

    /// Generations that are void and may still be there.
    pub(super) fn take_voids(&self) -> Vec<Void> {
        std::mem::take(&mut *lock(&self.voids))
    }

    /// Offers a leader sample.
    pub(super) fn sampled(&self, key: ComponentKey, sample: Sample) {
        let mut is_due = false;
        for part in &self.parts {
            let mut part = lock(part);
            if part.guard.wants_sample(key, &self.guards).is_some() {
                part.guard.sampled(key, sample, &self.guards);
                is_due |= part.guard.due(self.clock.now(), &self.guards).is_some();
            }
        }
        if is_due {
            self.wake.notify_waiters();
        }
    }

    /// The generation that is to be written now: never by one whose fence is that of another
    /// store, as this was before it had its replicas or their settings.
    pub(super) fn due(&self, bucket: Bucket) -> Option<Write> {
        let part = self.part(bucket).filter(|part| part.is_fit)?;
        part.guard.due(self.clock.now(), &self.guards)
    }

    /// Whether a fence is up: then a record is promised to nobody elsewhere.
    pub(super) fn is_fenced(&self, bucket: Bucket) -> bool {
        let now = self.clock.now();
        self.part(bucket).is_none_or(|part| part.guard.fenced_until(now, &self.guards).is_some())
    }

    /// How the buckets stand, for operators.
    pub(super) fn standing(&self) -> Standing {
        let now = self.clock.now();
        let mut standing = Standing::default();
        for part in &self.parts {
            let part = lock(part);
            standing.lost += usize::from(!part.guard.stands());
            let complains = part.complains.as_ref().map(|complaint| &complaint.why);
            let refuses = part.refuses.as_ref().or(complains);
            standing.refuses = standing.refuses.or_else(|| refuses.cloned());
            standing.unfit = standing.unfit.or_else(|| part.unfit.clone());
            let ends = part.guard.fenced_until(now, &self.guards);
            standing.fenced_until = standing.fenced_until.max(ends);
        }
        standing
    }

    /// Whether what a server takes may be promised to nobody only because it was not heard of for
    /// long enough.
    pub(super) fn are_young(&self) -> bool {
        let now = self.clock.now();
        self.parts.iter().any(|part| {
            let part = lock(part);
            part.server.is_none()
                || part.refuses.is_none()
                    && part.unfit.is_none()
                    && part.guard.is_young(now, &self.guards)
        })
    }

    /// For how long they are, at most, while nothing else is wrong.
    pub(super) fn settles_within(&self) -> Duration {
        self.rules.believed_for.map_or(Duration::ZERO, |window| window + self.rules.recount)
    }

    /// How often each server must take a write of ours so that its answers are believed.
    pub(super) fn beat(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        self.rules.believed_for.map_or(LONGEST, |window| (window / 4).min(LONGEST))
    }
}
