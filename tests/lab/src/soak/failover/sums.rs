//! What all rounds of a run have shown, and the claims that come of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ROUNDS_USUAL;
use super::judge::Verdict;
use super::play::Round;
use super::schedule::{EVENTS, Plan};
use super::tally::Tally;
use crate::claims::{Claims, Op};

/// Acknowledged writes that a round must lose, on average.
const LOST_PER_ROUND: u64 = 2;
/// Two poll intervals of an idle node.
const COVERED_WITHIN: Duration = Duration::from_millis(500);

/// What all rounds of a run have shown.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Sums {
    /// Rounds that were played to their end.
    pub rounds: u64,
    /// Rounds in which a server did not do what it was told.
    pub broken_off: Vec<String>,
    /// What was lost and told.
    pub verdict: Verdict,
    /// What sessions did.
    pub tally: Tally,
    /// How often each event happened.
    pub events: BTreeMap<&'static str, u64>,
    /// Ordinary failovers, and those among them after which no operator was called.
    pub ordinary: (u64, u64),
    /// Times an operator was called.
    pub operator: u64,
    /// How long each node took to have a fresh write after a repair.
    pub covered: Vec<Duration>,
    /// The longest time the machine stood still.
    pub stall: Duration,
}

impl Sums {
    pub(super) fn add(&mut self, plan: &Plan, round: Round) {
        self.rounds += 1;
        if plan.kind.is_ordinary() {
            self.ordinary.0 += 1;
            self.ordinary.1 += u64::from(round.operator == 0);
        }
        self.operator += round.operator;
        for event in round.events {
            *self.events.entry(event).or_default() += 1;
        }
        self.covered.extend(round.covered);
        self.tally += round.tally;
        self.verdict.add(round.verdict);
    }

    /// How often the rarest event happened.
    #[must_use]
    pub fn rarest(&self) -> u64 {
        EVENTS.iter().map(|event| self.events.get(event).copied().unwrap_or(0)).min().unwrap_or(0)
    }

    /// The time within which nine of ten nodes had a fresh write.
    #[must_use]
    pub fn covered_p90(&self) -> Duration {
        let mut covered = self.covered.clone();
        covered.sort_unstable();
        let at = (covered.len() * 9).div_ceil(10).saturating_sub(1);
        covered.get(at).copied().unwrap_or_default()
    }

    /// Promises that were broken.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.verdict.broken().len() as u64 + self.tally.waits_open
    }

    /// Claims that no promise was broken.
    pub fn claim_promises(&self, claims: &mut Claims) {
        let Self { verdict, tally, .. } = self;
        let judged = tally.by_replica + tally.by_leader;
        let count = |claims: &mut Claims, name: &str, words: &[String], n: u64| {
            claims.count(name, words.len() as u64, 0, n);
        };
        count(claims, "stale reads unflagged", &verdict.stale, judged);
        count(claims, "sessions with lost writes never told", &verdict.untold, verdict.losers);
        let survived = tally.writes - verdict.lost.min(tally.writes);
        count(claims, "false WRITE_LOST for a surviving write", &verdict.false_lost, survived);
        count(claims, "notices for what surely survived", &verdict.needless, verdict.marked);
        claims.count("waits that never ended", tally.waits_open, 0, tally.waits);
        let (ordinary, alone) = self.ordinary;
        claims.count("ordinary failovers without an operator", alone, ordinary, ordinary);
        count(claims, "rounds that broke off", &self.broken_off, self.rounds);
    }

    /// Claims that promises could have been broken.
    pub fn claim_power(&self, claims: &mut Claims) {
        let Self { verdict, tally, .. } = self;
        let least = LOST_PER_ROUND * self.rounds;
        at_least(claims, "acknowledged writes really lost", least, verdict.lost, tally.writes);
        let fair = percent(tally.fair_by_replica, tally.fair);
        let name = "percent of reads in fair weather by a replica, unflagged";
        claims.claim(name, fair, Op::AtLeast, 50.0, tally.fair);
        let lacking = percent(tally.lacking, tally.probes);
        let name = "percent of writes some standby lacked at the read";
        claims.claim(name, lacking, Op::AtLeast, 20.0, tally.probes);
        let (name, rarest) = ("times the rarest event happened", self.rarest());
        // Fewer rounds need not hold each event.
        if self.rounds + self.broken_off.len() as u64 >= ROUNDS_USUAL {
            at_least(claims, name, 1, rarest, EVENTS.len() as u64);
        } else {
            claims.figure(name, rarest);
        }
    }

    /// Claims how soon all is well and how seldom nobody had to be told; a busy machine may be
    /// slower than that.
    pub fn claim_pace(&self, claims: &mut Claims) {
        let limit = (COVERED_WITHIN + self.stall * 3).as_secs_f64() * 1e3;
        let measured = self.covered_p90().as_secs_f64() * 1e3;
        let name = "ms until a fresh write is covered after the dust, p90";
        claims.claim(name, measured, Op::AtMost, limit, self.covered.len() as u64);
        let (needless, notices) = (self.verdict.without_cause(), self.verdict.notices());
        let name = "percent of notices POSSIBLY_LOST without any cause";
        claims.claim(name, percent(needless, notices), Op::AtMost, 10.0, notices);
    }

    /// Adds figures without a bar.
    pub fn figures(&self, claims: &mut Claims) {
        let Self { verdict, tally, .. } = self;
        let possibly: u64 = verdict.possibly_lost.values().sum();
        for (name, value) in [
            ("rounds", self.rounds),
            ("acknowledged writes", tally.writes),
            ("reads judged", tally.by_replica + tally.by_leader),
            ("reads by a replica, unflagged", tally.by_replica),
            ("reads by the leader, unflagged", tally.by_leader),
            ("reads flagged", tally.flagged),
            ("reads refused", tally.refused),
            ("reads broken off", tally.broken),
            ("jobs with a carried token", tally.jobs),
            ("waits", tally.waits),
            ("waits ended by a loss", tally.waits_lost),
            ("sessions that lost writes", verdict.losers),
            ("told: WRITE_LOST", verdict.write_lost),
            ("told: OBSERVED_STATE_LOST", verdict.observed_lost),
            ("told: POSSIBLY_LOST", possibly),
            ("operator called", self.operator),
        ] {
            claims.figure(name, value);
        }
        for (cause, count) in &verdict.possibly_lost {
            let name = format!("percent of POSSIBLY_LOST: {}", cause.words());
            claims.figure(&name, percent(*count, possibly));
        }
        for (event, count) in &self.events {
            claims.figure(&format!("event: {event}"), *count);
        }
        claims.figure("longest wait, ms", tally.longest_wait.as_secs_f64() * 1e3);
        claims.figure("longest stall, ms", self.stall.as_secs_f64() * 1e3);
    }
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
fn at_least(claims: &mut Claims, name: &str, bar: u64, count: u64, n: u64) {
    claims.claim(name, count as f64, Op::AtLeast, bar as f64, n);
}
