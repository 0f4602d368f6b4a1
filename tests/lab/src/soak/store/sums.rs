//! What all rounds of a run have shown, and the claims that come of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fault::Kind;
use super::play::Round;
use super::tally::Tally;
use crate::claims::{Claims, Op};

/// Percent of reads for which no leader sample may come within their 50 ms, on a busy machine.
const LATE_MAX: f64 = 2.0;
/// Two poll intervals of an idle node: one lag, as it is seen.
const NORMAL_WITHIN: Duration = Duration::from_millis(500);

/// What all rounds of a run have shown.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Sums {
    /// Rounds that were played to their end.
    pub rounds: u64,
    /// Rounds in which a server or an instance did not do what it was told.
    pub broken_off: Vec<String>,
    /// Reads that lacked what they had promised to show.
    pub stale: Vec<String>,
    /// Instances that had to announce a loss.
    pub losses: u64,
    /// Those that did not.
    pub unannounced: Vec<String>,
    /// What sessions did.
    pub tally: Tally,
    /// Rounds in which the late standby lacked a row that had just been written.
    pub lacking: u64,
    /// How often each fault was played, and how many records it lost.
    pub faults: BTreeMap<Kind, (u64, u64)>,
    /// From the end of a fault until an instance believed its store again.
    pub fenced: Vec<Duration>,
    /// From then until it named a replica for a session known by its name.
    pub normal: Vec<Duration>,
    /// The longest time the machine stood still.
    pub stall: Duration,
}

impl Sums {
    pub(super) fn add(&mut self, kind: Kind, round: Round) {
        self.rounds += 1;
        let fault = self.faults.entry(kind).or_default();
        *fault = (fault.0 + 1, fault.1 + round.lost);
        self.lacking += u64::from(round.tally.lacking > 0);
        self.losses += round.losses;
        self.stale.extend(round.stale);
        self.unannounced.extend(round.unannounced);
        self.fenced.extend(round.fenced);
        self.normal.extend(round.normal);
        self.tally += round.tally;
    }

    /// Promises that were broken.
    #[must_use]
    pub fn broken(&self) -> Vec<&str> {
        self.stale.iter().chain(&self.unannounced).map(String::as_str).collect()
    }

    /// Claims that no promise was broken.
    pub fn claim_promises(&self, claims: &mut Claims) {
        let Self { tally, .. } = self;
        let count = |claims: &mut Claims, name: &str, words: &[String], n: u64| {
            claims.count(name, words.len() as u64, 0, n);
        };
        let judged = tally.judged + tally.carried;
        count(claims, "stale reads unflagged", &self.stale, judged);
        count(claims, "losses of the store not announced", &self.unannounced, self.losses);
        let calls = tally.carried + tally.carried_failed + tally.carried_late;
        claims.count("failed calls with a carried token", tally.carried_failed, 0, calls);
        let late = percent(tally.carried_late, calls);
        let name = "percent of calls with a carried token that the leader kept waiting";
        claims.claim(name, late, Op::AtMost, LATE_MAX, calls);
        count(claims, "rounds that broke off", &self.broken_off, self.rounds);
    }

    /// Claims that promises could have been broken.
    pub fn claim_power(&self, claims: &mut Claims) {
        let Self { tally, .. } = self;
        let fair = percent(tally.fair_by_replica, tally.fair);
        let name = "percent of reads in fair weather by a replica, unflagged";
        claims.claim(name, fair, Op::AtLeast, 50.0, tally.fair);
        let lacking = percent(self.lacking, self.rounds);
        let name = "percent of rounds in which a standby lacked the row";
        claims.claim(name, lacking, Op::AtLeast, 20.0, self.rounds);
        let rarest = Kind::ALL.iter().map(|kind| self.played(*kind)).min().unwrap_or(0);
        let name = "times the rarest fault happened";
        // Fewer rounds need not hold each fault.
        if self.rounds + self.broken_off.len() as u64 >= Kind::ALL.len() as u64 {
            #[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
            claims.claim(name, rarest as f64, Op::AtLeast, 1.0, Kind::ALL.len() as u64);
        } else {
            claims.figure(name, rarest);
        }
    }

    fn played(&self, kind: Kind) -> u64 {
        self.faults.get(&kind).map_or(0, |fault| fault.0)
    }

    /// Claims how soon reads are normal; a busy machine may be slower than that.
    pub fn claim_pace(&self, claims: &mut Claims) {
        let limit = (NORMAL_WITHIN + self.stall * 3).as_secs_f64() * 1e3;
        let name = "ms until reads are normal after the barrier, p90";
        let measured = tenths(&self.normal, 9);
        claims.claim(name, measured, Op::AtMost, limit, self.normal.len() as u64);
    }

    /// Adds figures without a bar.
    pub fn figures(&self, claims: &mut Claims) {
        let Self { tally, .. } = self;
        for (name, value) in [
            ("rounds", self.rounds),
            ("recorded writes", tally.writes),
            ("records left out until settled: in memory", tally.in_memory),
            ("records left out until settled: in a loss window", tally.in_window),
            ("writes left out: not recorded", tally.unrecorded),
            ("writes left out: not acknowledged", tally.unwritten),
            ("reads judged, by name alone", tally.judged),
            ("reads judged, by a carried token", tally.carried),
            ("reads judged, store not believed", tally.unknown),
            ("rows that were due in them", tally.rows),
            ("reads flagged", tally.flagged),
            ("reads refused", tally.refused),
            ("reads broken off", tally.broken),
        ] {
            claims.figure(name, value);
        }
        for (kind, (rounds, lost)) in &self.faults {
            claims.figure(&format!("fault: {}: rounds", kind.name()), *rounds);
            claims.figure(&format!("fault: {}: records lost", kind.name()), *lost);
        }
        claims.figure("ms until the store is believed after a fault, p50", tenths(&self.fenced, 5));
        claims.figure("ms until the store is believed after a fault, p90", tenths(&self.fenced, 9));
        claims.figure("longest stall, ms", self.stall.as_secs_f64() * 1e3);
    }
}

/// The time within which so many tenths lie, in milliseconds.
fn tenths(times: &[Duration], tenths: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * tenths).div_ceil(10).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default().as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
