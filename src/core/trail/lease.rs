//! `Lease`: how old a sample may be for a bound, and how long an answer by it may be used.
//!
//! Two clocks take part, and neither knows the other: ours measures how old the sample was when we
//! answered, the caller's how long ago it asked. Either may run too slowly by the drift. So an age
//! is stretched, a validity shortened, and what is left is given only where it is worth having.

use std::time::Duration;

use crate::guards::Guards;

const MILLION: u64 = 1_000_000;
/// The least validity is this share of the bound: an answer by a sample that is nearly as old as
/// the bound would be void before its caller has it, and of a bound that is met nine tenths remain.
const LEAST_SHARE: u64 = 10;
/// No more than this is kept, however large the bound: an answer's way between zones, and the
/// checkout of a connection.
const LEAST_MAX_NANOS: u64 = 50 * MILLION;

/// By how much the rate of a clock may be off, ours or a caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockDrift {
    parts_per_million: u64,
}

impl ClockDrift {
    /// So many parts per million. A clock that may stand still shows nothing: less than all.
    pub const fn parts_per_million(parts: u32) -> Self {
        let parts_per_million = if parts < 999_999 { parts as u64 } else { 999_999 };
        Self { parts_per_million }
    }

    /// The longest time that may have passed while a clock showed `shown` nanoseconds.
    const fn stretched(self, shown: u64) -> u64 {
        let rate = MILLION - self.parts_per_million;
        let whole = (shown / rate).saturating_mul(self.parts_per_million);
        let rest = (shown % rate * self.parts_per_million).div_ceil(rate);
        shown.saturating_add(whole).saturating_add(rest)
    }

    /// What a clock may show at most for no more than `span` nanoseconds to have passed.
    const fn shortened(self, span: u64) -> u64 {
        let whole = span / MILLION * self.parts_per_million;
        let rest = (span % MILLION * self.parts_per_million).div_ceil(MILLION);
        span - whole - rest
    }
}

/// What a bound allows under the rules in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    bound: u64,
    /// `None`: clocks are believed, and nothing is kept for the answer's way.
    drift: Option<ClockDrift>,
}

impl Lease {
    /// What `bound` allows.
    pub fn of(bound: Duration, drift: ClockDrift, guards: &Guards) -> Self {
        let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        Self { bound, drift: guards.lease().then_some(drift) }
    }

    /// The least validity that is given.
    fn least(self) -> u64 {
        (self.bound / LEAST_SHARE).min(LEAST_MAX_NANOS)
    }

    /// How old by our clock a sample may be for an answer to be given by it.
    pub fn age_max(self) -> Duration {
        let Some(drift) = self.drift else { return Duration::from_nanos(self.bound) };
        let spent = self.bound.saturating_sub(drift.stretched(self.least()));
        Duration::from_nanos(drift.shortened(spent))
    }

    /// How long, by the caller's clock and from its own send, an answer may be used that rests on
    /// a sample of this age; `None`: too short to be given.
    ///
    /// Invariant: it is given exactly for ages up to [`Self::age_max`].
    pub fn valid_for(self, age: Duration) -> Option<Duration> {
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let Some(drift) = self.drift else {
            return Some(Duration::from_nanos(self.bound.saturating_sub(age)));
        };
        let left = drift.shortened(self.bound.checked_sub(drift.stretched(age))?);
        (left >= self.least()).then_some(Duration::from_nanos(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIFT: ClockDrift = ClockDrift::parts_per_million(500);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn lease(bound: Duration) -> Lease {
        Lease::of(bound, DRIFT, &Guards::on())
    }

    /// Real time passed at most while a clock that is slow by `parts` showed this much.
    fn passed(shown: Duration, parts: u32) -> f64 {
        shown.as_secs_f64() / (1.0 - f64::from(parts) / 1e6)
    }

    /// What passed between a sample and the last read an answer allows, by two slow clocks.
    fn oldest_read(lease: Lease, age: Duration) -> Option<f64> {
        Some(passed(age, 500) + passed(lease.valid_for(age)?, 500))
    }

    #[test]
    fn an_hour_of_a_slow_clock_is_stretched_and_shortened_back() {
        let hour = 3_600_000_000_000;
        assert_eq!(DRIFT.stretched(hour), 3_601_800_900_451);
        assert_eq!(DRIFT.shortened(hour), 3_598_200_000_000);
        for drift in [0, 1, 500, 10_000, 999_999, u32::MAX].map(ClockDrift::parts_per_million) {
            for span in [0, 1, 7, 999_999, 1_000_001, hour, hour * 24 * 30, u64::MAX / 2] {
                let shown = drift.shortened(span);
                assert!(drift.stretched(shown) <= span, "{drift:?} {span}");
                assert!(drift.stretched(shown + 1) > span, "{drift:?} {span}: it could be more");
            }
        }
    }

    #[test]
    fn two_slow_clocks_never_outlast_the_bound() {
        for bound in [1, 3, 20, 250, 1_500, 60_000, 86_400_000] {
            let (lease, bound) = (lease(millis(bound)), millis(bound));
            for tenth in 0..=10 {
                let age = lease.age_max() * tenth / 10;
                let oldest = oldest_read(lease, age).expect("no older than it may be");
                let nanosecond = 1e-9;
                assert!(oldest <= bound.as_secs_f64() + nanosecond, "{bound:?} {age:?}: {oldest}");
            }
        }
    }

    #[test]
    fn what_is_given_is_worth_having_and_ends_where_the_demand_does() {
        for bound in [1, 3, 20, 250, 1_500, 60_000, 86_400_000].map(millis) {
            let lease = lease(bound);
            let least = (bound / 10).min(millis(50));
            let oldest = lease.age_max();
            assert!(lease.valid_for(oldest) >= Some(least), "{bound:?}");
            assert_eq!(lease.valid_for(oldest + Duration::from_nanos(1)), None, "{bound:?}");
            assert!(oldest >= bound * 8 / 10, "{bound:?} leaves {oldest:?}");
            assert!(lease.valid_for(Duration::ZERO) < Some(bound));
        }
    }

    #[test]
    fn absurd_bounds_are_no_trouble() {
        for bound in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let lease = lease(bound);
            assert!(lease.age_max() <= bound);
            assert!(lease.valid_for(Duration::ZERO).is_some());
            assert_eq!(lease.valid_for(Duration::MAX), None);
        }
    }

    #[cfg(feature = "unsafe-guards")]
    #[test]
    fn the_lease_guard_keeps_two_slow_clocks_from_outlasting_the_bound() {
        let (bound, age) = (millis(60_000), millis(30_000));
        let off = Guards::without("lease").expect("named");
        let unguarded = Lease::of(bound, DRIFT, &off);
        let outlasts = |lease| oldest_read(lease, age).expect("young") > bound.as_secs_f64();
        assert!(outlasts(unguarded) && !outlasts(lease(bound)));
        // And what is void before it arrives is given all the same.
        assert_eq!(unguarded.valid_for(bound), Some(Duration::ZERO));
        assert_eq!(lease(bound).valid_for(bound), None);
    }
}
