//! `CapShare`: the freshness fallbacks that one instance may send to a leader: all that the cap
//! allows, or its share of that.

use super::book::{QuotaBook, rate_and_burst, static_share};
use super::{Quota, QuotaKind};
use crate::guards::Guards;
use crate::instant::Instant;
use crate::routing::{CapFull, FallbackCap};
use std::time::Duration;

/// Demand is not measured over less: it would be that of single reads.
const MEASURED_LEAST: Duration = Duration::from_millis(50);
/// Who has no share asks again when shares may have moved.
const NO_SHARE_FOR: Duration = Duration::from_secs(1);

/// How much of the cap is this instance's.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    /// All of it: nobody else is there.
    Whole,
    /// What each of so many may have: others are there and share no book.
    Beside,
    /// What the book says, which others share.
    Leased(Box<Quota>),
}

/// The fallbacks of one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapShare {
    /// Of all instances, per second.
    reads_per_second: u32,
    /// How many may be there that know nothing of each other.
    instances: u32,
    part: Part,
    cap: FallbackCap,
    /// Until when what is in force was followed.
    followed_to: Instant,
    /// What was asked for until when it was measured last.
    measured: (u64, Instant),
    demand: u32,
}

impl CapShare {
    /// All of a cap, or what each of so many `instances` may have while others are there.
    pub fn whole(reads_per_second: u32, instances: u32) -> Self {
        let burst = FallbackCap::default_burst(reads_per_second);
        Self {
            reads_per_second,
            instances,
            part: Part::Whole,
            cap: FallbackCap::new(reads_per_second, burst),
            followed_to: Instant::default(),
            measured: (0, Instant::default()),
            demand: 0,
        }
    }

    /// The share of a cap that a book will say.
    pub fn leased(quota: Quota, now: Instant) -> Self {
        let (reads_per_second, instances) = (quota.cap, quota.rules.fallback_instances);
        let part = Part::Leased(Box::new(quota));
        let (cap, measured) = (FallbackCap::new(0, 1), (0, now));
        let (followed_to, demand) = (now, 0);
        let mut share =
            Self { reads_per_second, instances, part, cap, followed_to, measured, demand };
        share.follow(now);
        share
    }

    /// Admits one read to the leader.
    ///
    /// # Errors
    /// [`CapFull`], with the time until one read fits again.
    pub fn try_admit(&mut self, now: Instant, guards: &Guards) -> Result<(), CapFull> {
        self.follow(now);
        self.cap.try_admit(now, guards).map_err(|full| match self.reads_per_second {
            0 => full,
            _ => CapFull { retry_after: full.retry_after.or(Some(NO_SHARE_FOR)) },
        })
    }

    /// Goes by another cap, for all instances.
    pub fn set_cap(&mut self, reads_per_second: u32, now: Instant) {
        self.follow(now);
        self.reads_per_second = reads_per_second;
        if let Part::Leased(quota) = &mut self.part {
            quota.set_cap(reads_per_second);
        }
        self.apply(now);
    }

    /// Others are there, or are not, with whom no book is shared.
    pub fn beside_others(&mut self, are_there: bool, now: Instant) {
        match self.part {
            Part::Leased(_) => return,
            Part::Whole | Part::Beside => {
                self.part = if are_there { Part::Beside } else { Part::Whole };
            }
        }
        self.apply(now);
    }

    /// As [`Quota::propose`]; `None` where there is no book.
    pub fn propose(
        &mut self,
        read: Option<&QuotaBook>,
        (asked_at, now): (Instant, Instant),
    ) -> Option<QuotaBook> {
        self.follow(now);
        self.measure(now);
        let Part::Leased(quota) = &mut self.part else { return None };
        let book = quota.propose(read, self.demand, (asked_at, now));
        self.apply(now);
        Some(book)
    }

    /// As [`Quota::confirmed`].
    pub fn confirmed(&mut self, book: &QuotaBook, sent_at: Instant, now: Instant) {
        self.change(now, |quota| quota.confirmed(book, sent_at, now));
    }

    /// As [`Quota::failed`].
    pub fn failed(&mut self, now: Instant) {
        self.change(now, |quota| quota.failed(now));
    }

    /// As [`Quota::leave`]; `None` where there is no book.
    pub fn leave(&mut self, read: &QuotaBook, now: Instant) -> Option<QuotaBook> {
        let mut left = None;
        self.change(now, |quota| left = Some(quota.leave(read)));
        left
    }

    /// Reads per second that this instance admits now, and by what.
    pub fn in_force(&mut self, now: Instant) -> (u32, QuotaKind) {
        self.follow(now);
        let kind = match &self.part {
            Part::Whole => QuotaKind::Whole,
            Part::Beside => QuotaKind::Static,
            Part::Leased(quota) => quota.in_force(now).1,
        };
        (self.cap.reads_per_second(), kind)
    }

    /// The cap of all instances, in reads per second.
    pub const fn reads_per_second(&self) -> u32 {
        self.reads_per_second
    }

    fn change(&mut self, now: Instant, change: impl FnOnce(&mut Quota)) {
        self.follow(now);
        if let Part::Leased(quota) = &mut self.part {
            change(quota);
        }
        self.apply(now);
    }

    /// Lets what ended since the last call have ended when it did.
    fn follow(&mut self, now: Instant) {
        while let Part::Leased(quota) = &self.part
            && let Some(at) = quota.changes_after(self.followed_to)
            && at <= now
        {
            self.apply(at);
        }
        self.apply(now);
    }

    fn apply(&mut self, at: Instant) {
        // A clock that goes back takes nothing back.
        self.followed_to = self.followed_to.max(at);
        let cap = self.reads_per_second;
        let (rate, burst) = match &self.part {
            Part::Whole => (cap, FallbackCap::default_burst(cap)),
            Part::Beside => rate_and_burst(static_share(cap, self.instances)),
            Part::Leased(quota) => rate_and_burst(quota.in_force(self.followed_to).0),
        };
        self.cap.set_rate(rate, burst, self.followed_to);
    }

    fn measure(&mut self, now: Instant) {
        let (before, since) = self.measured;
        let span = now.since(since);
        if span < MEASURED_LEAST {
            return;
        }
        let asked = self.cap.admitted().saturating_add(self.cap.refused());
        let count = u128::from(asked.saturating_sub(before));
        let rate = count * Duration::from_secs(1).as_nanos() / span.as_nanos();
        // Above the cap all are asked equally much, and soon asked for less.
        let rate = u32::try_from(rate).unwrap_or(u32::MAX).min(self.reads_per_second);
        // Grows at once, and falls by half a time: a pause is no end.
        self.demand = rate.max(rate / 2 + self.demand / 2);
        self.measured = (asked, now);
    }
}
