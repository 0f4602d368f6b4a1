//! `FallbackCap`: how many freshness fallbacks the leader is asked to bear.
//!
//! A leaky bucket whose only state is one instant (GCRA): no tokens are refilled and no task runs.
//! It does not know who asks or why, and it does not count the reads that policy sends to the
//! leader anyway.

use crate::guards::Guards;
use crate::instant::Instant;
use std::time::Duration;

/// One second in nanoseconds: what one read costs in *parts*, see [`FallbackCap`].
const READ_PARTS: u128 = 1_000_000_000;

/// No fallback fits now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the leader takes no more freshness fallbacks: {}", advice(*retry_after))]
pub struct CapFull {
    /// The time until one read fits again, exact if nobody else asks meanwhile; `None` where no
    /// fallback is ever allowed.
    pub retry_after: Option<Duration>,
}

fn advice(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(span) => format!("retry in {span:?}"),
        None => "the configured cap is 0 reads per second, wait for a replica instead".to_owned(),
    }
}

/// Freshness fallbacks allowed per second.
///
/// In any window of one second, its end excluded, it admits at most `reads_per_second +
/// burst_reads - 1` reads; with [`Self::default_burst`] that is at most 1.1 x `reads_per_second`.
/// In the long run it admits `reads_per_second`, without rounding: time is counted in *parts*, of
/// which one nanosecond has `reads_per_second`, so that one read takes 10^9 of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FallbackCap {
    reads_per_second: u32,
    /// What may come at once, in parts; `booked_until` may lie ahead by one read less.
    burst: u128,
    /// When the reads admitted so far would end if each took its share of a second; in parts.
    booked_until: u128,
    admitted: u64,
    refused: u64,
}

impl FallbackCap {
    /// A cap of `reads_per_second`, of which `burst_reads` may come at once.
    ///
    /// `reads_per_second` of 0 allows no fallback at all. A burst of 0 counts as 1: with less, no
    /// read would ever fit.
    pub fn new(reads_per_second: u32, burst_reads: u32) -> Self {
        Self {
            reads_per_second,
            burst: burst_parts(reads_per_second, burst_reads),
            booked_until: 0,
            admitted: 0,
            refused: 0,
        }
    }

    /// The burst that keeps every second within 1.1 x the rate: a tenth of it, and at least 1.
    pub fn default_burst(reads_per_second: u32) -> u32 {
        (reads_per_second / 10).max(1)
    }

    /// Admits one read to the leader.
    ///
    /// A clock that goes back admits nothing that it would not have admitted at the later instant.
    ///
    /// # Errors
    /// [`CapFull`], with the time until one read fits again.
    pub fn try_admit(&mut self, now: Instant, guards: &Guards) -> Result<(), CapFull> {
        let now_parts = u128::from(now.as_nanos()) * u128::from(self.reads_per_second);
        let fits = self.reads_per_second > 0 && self.booked_until <= now_parts + self.ahead();
        if guards.cap() && !fits {
            self.refused = self.refused.saturating_add(1);
            return Err(CapFull { retry_after: self.retry_after(now) });
        }
        self.booked_until = self.booked_until.max(now_parts) + READ_PARTS;
        self.admitted = self.admitted.saturating_add(1);
        Ok(())
    }

    /// Admits `reads_per_second` from `at` on, of which `burst_reads` may come at once.
    ///
    /// What was admitted before counts on as so many reads: nothing is forgiven. Nor is anything
    /// given: a larger burst must be saved up, or a share of the cap that goes from one instance to
    /// another would bring one with it each time. `at` must not lie before that of an earlier call.
    pub fn set_rate(&mut self, reads_per_second: u32, burst_reads: u32, at: Instant) {
        let at_parts = |rate: u32| u128::from(at.as_nanos()) * u128::from(rate);
        let owed = self.booked_until.saturating_sub(at_parts(self.reads_per_second));
        let burst = burst_parts(reads_per_second, burst_reads);
        let owed = (owed + burst).saturating_sub(self.burst);
        self.booked_until = at_parts(reads_per_second) + owed;
        (self.reads_per_second, self.burst) = (reads_per_second, burst);
    }

    /// The number of reads admitted so far.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    /// The number of reads refused so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The cap in force, in reads per second; 0 allows none.
    pub fn reads_per_second(&self) -> u32 {
        self.reads_per_second
    }

    const fn ahead(&self) -> u128 {
        self.burst.saturating_sub(READ_PARTS)
    }

    fn retry_after(&self, now: Instant) -> Option<Duration> {
        let fits_from_parts = self.booked_until.saturating_sub(self.ahead());
        if self.reads_per_second == 0 {
            return None;
        }
        // Rounded up: one nanosecond earlier the read would not fit yet.
        let fits_from = fits_from_parts.div_ceil(u128::from(self.reads_per_second));
        let fits_from = Instant::from_nanos(u64::try_from(fits_from).unwrap_or(u64::MAX));
        Some(fits_from.since(now))
    }
}

/// Without a rate nothing comes at once either.
fn burst_parts(reads_per_second: u32, burst_reads: u32) -> u128 {
    let reads = if reads_per_second == 0 { 0 } else { burst_reads.max(1) };
    u128::from(reads) * READ_PARTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn capped(reads_per_second: u32) -> FallbackCap {
        FallbackCap::new(reads_per_second, FallbackCap::default_burst(reads_per_second))
    }

    /// The instants of `calls` at which a read was admitted.
    fn admissions(cap: &mut FallbackCap, guards: &Guards, calls: &[u64]) -> Vec<u64> {
        calls.iter().copied().filter(|&call| cap.try_admit(at(call), guards).is_ok()).collect()
    }

    /// The most admissions in any window of one second, its end excluded.
    fn busiest_second(admitted: &[u64]) -> u64 {
        let (mut busiest, mut first) = (0, 0);
        for (last, call) in admitted.iter().enumerate() {
            while call - admitted[first] >= SECOND {
                first += 1;
            }
            busiest = busiest.max(last + 1 - first);
        }
        busiest as u64
    }

    #[test]
    fn a_cap_of_zero_admits_nothing_and_names_no_time_to_retry() {
        let mut cap = FallbackCap::new(0, 5);
        let refusal = cap.try_admit(at(7), &Guards::on());
        assert_eq!(refusal, Err(CapFull { retry_after: None }));
        assert_eq!((cap.admitted(), cap.refused()), (0, 1));
    }

    #[test]
    fn a_burst_of_zero_counts_as_one() {
        assert_eq!(FallbackCap::new(10, 0), FallbackCap::new(10, 1));
        assert_eq!(FallbackCap::default_burst(3), 1);
        assert_eq!(FallbackCap::default_burst(1_500), 150);
    }

    #[test]
    fn a_burst_is_admitted_at_once_and_the_next_read_when_its_share_has_passed() {
        let (mut cap, guards) = (FallbackCap::new(10, 2), Guards::on());
        assert_eq!(cap.try_admit(at(0), &guards), Ok(()));
        assert_eq!(cap.try_admit(at(0), &guards), Ok(()));
        let tenth = Some(Duration::from_millis(100));
        assert_eq!(cap.try_admit(at(0), &guards), Err(CapFull { retry_after: tenth }));
        assert_eq!(cap.try_admit(at(SECOND / 10), &guards), Ok(()));
        assert_eq!((cap.admitted(), cap.refused()), (3, 1));
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_loses_nothing_to_rounding() {
        let (mut cap, guards) = (FallbackCap::new(3, 2), Guards::on());
        let mut now = at(0);
        for _ in 0..3_002 {
            if let Err(full) = cap.try_admit(now, &guards) {
                now = now + full.retry_after.unwrap_or_default();
                assert_eq!(cap.try_admit(now, &guards), Ok(()));
            }
        }
        assert_eq!(now, at(1_000 * SECOND));
    }

    #[test]
    fn the_message_says_what_to_do() {
        let soon = CapFull { retry_after: Some(Duration::from_millis(2)) }.to_string();
        assert!(soon.ends_with("retry in 2ms"), "{soon}");
        let never = CapFull { retry_after: None }.to_string();
        assert!(never.ends_with("wait for a replica instead"), "{never}");
    }

    /// A storm of 10,000 reads per second for four seconds against the cap of 1,500.
    fn storm(guards: &Guards) -> Vec<u64> {
        let calls: Vec<u64> = (0..40_000).map(|n| n * SECOND / 10_000).collect();
        admissions(&mut capped(1_500), guards, &calls)
    }

    #[test]
    fn a_storm_gets_the_whole_rate_and_no_more() {
        let admitted = storm(&Guards::on());
        assert_eq!(busiest_second(&admitted), 1_649);
        assert!((6_000..6_150).contains(&admitted.len()), "{}", admitted.len());
    }

    #[test]
    fn the_cap_guard_keeps_a_storm_from_the_leader() {
        assert!(busiest_second(&storm(&Guards::on())) <= 1_650);
        #[cfg(feature = "unsafe-guards")]
        {
            let off = Guards::without("cap").unwrap_or_default();
            assert_eq!(busiest_second(&storm(&off)), 10_000, "without the guard all come through");
            let mut closed = FallbackCap::new(0, 1);
            assert_eq!(closed.try_admit(at(0), &off), Ok(()));
        }
    }

    /// A rate, and calls at gaps around the share of one read, with crowds and pauses.
    fn schedule() -> impl Strategy<Value = (u32, Vec<u64>)> {
        (1..120_u32, 0..SECOND).prop_flat_map(|(rate, start)| {
            let share = SECOND / u64::from(rate);
            let gap = prop_oneof![
                3 => Just(0),
                3 => 0..share,
                2 => 0..=share * 2,
                1 => share * 2..SECOND * 3,
            ];
            let calls = vec(gap, 1..400).prop_map(move |gaps| {
                let mut now = start;
                gaps.into_iter()
                    .map(|gap| {
                        now += gap;
                        now
                    })
                    .collect()
            });
            (Just(rate), calls)
        })
    }

    proptest! {
        #[test]
        fn any_second_admits_at_most_a_tenth_more_than_the_rate((rate, calls) in schedule()) {
            let admitted = admissions(&mut capped(rate), &Guards::on(), &calls);
            prop_assert!(!admitted.is_empty());
            prop_assert!(busiest_second(&admitted) * 10 <= u64::from(rate) * 11);
        }

        #[test]
        fn any_second_admits_at_most_rate_and_burst_less_one(
            (rate, calls) in schedule(),
            burst in 1..60_u32,
        ) {
            let mut cap = FallbackCap::new(rate, burst);
            let admitted = admissions(&mut cap, &Guards::on(), &calls);
            prop_assert!(busiest_second(&admitted) < u64::from(rate + burst));
            prop_assert_eq!(cap.admitted() + cap.refused(), calls.len() as u64);
        }

        #[test]
        fn it_answers_like_a_bucket_that_leaks(
            (rate, calls) in schedule(),
            burst in 1..20_u32,
        ) {
            let mut cap = FallbackCap::new(rate, burst);
            // In billionths of a read, so that the model rounds nothing either.
            let (mut level, mut last) = (0_u64, calls[0]);
            for call in calls {
                level = level.saturating_sub((call - last).saturating_mul(u64::from(rate)));
                last = call;
                let fits = level + SECOND <= u64::from(burst) * SECOND;
                level += if fits { SECOND } else { 0 };
                prop_assert_eq!(cap.try_admit(at(call), &Guards::on()).is_ok(), fits);
            }
        }

        #[test]
        fn a_new_rate_neither_forgives_what_is_owed_nor_gives_a_burst(
            (rate, calls) in schedule(),
            rates in vec((0..240_u32, 1..30_u32), 1..8),
            change_every in 1..40_usize,
        ) {
            let mut cap = FallbackCap::new(rate, 1);
            // As above; what is free stays as it is when the bucket is exchanged for another.
            let (mut level, mut last, mut now) = (0_u64, calls[0], (rate, 1));
            let size = |(rate, burst): (u32, u32)| if rate == 0 { 0 } else { u64::from(burst) };
            for (number, call) in calls.into_iter().enumerate() {
                level = level.saturating_sub((call - last).saturating_mul(u64::from(now.0)));
                last = call;
                if number % change_every == 0 {
                    let next = rates[number / change_every % rates.len()];
                    level = (level + size(next) * SECOND).saturating_sub(size(now) * SECOND);
                    now = next;
                    cap.set_rate(now.0, now.1, at(call));
                }
                let fits = now.0 > 0 && level + SECOND <= u64::from(now.1) * SECOND;
                level += if fits { SECOND } else { 0 };
                prop_assert_eq!(cap.try_admit(at(call), &Guards::on()).is_ok(), fits);
                prop_assert_eq!(cap.reads_per_second(), now.0);
            }
        }

        #[test]
        fn the_same_rate_again_changes_nothing((rate, calls) in schedule(), burst in 1..20_u32) {
            let mut cap = FallbackCap::new(rate, burst);
            let mut other = cap.clone();
            for call in calls {
                other.set_rate(rate, burst, at(call));
                let guards = Guards::on();
                let admitted = cap.try_admit(at(call), &guards);
                prop_assert_eq!(admitted, other.try_admit(at(call), &guards));
            }
        }

        #[test]
        fn the_time_to_retry_is_exact((rate, calls) in schedule(), burst in 1..20_u32) {
            let mut cap = FallbackCap::new(rate, burst);
            for call in calls {
                let Err(full) = cap.try_admit(at(call), &Guards::on()) else { continue };
                let Some(span) = full.retry_after else { panic!("no time to retry") };
                let then = at(call) + span;
                prop_assert_eq!(cap.clone().try_admit(then, &Guards::on()), Ok(()));
                let just_before = then - Duration::from_nanos(1);
                prop_assert!(cap.clone().try_admit(just_before, &Guards::on()).is_err());
            }
        }

        #[test]
        fn a_clock_that_goes_back_admits_no_more(
            rate in 1..2_000_u32,
            burst in 1..20_u32,
            calls in vec(0..SECOND, 1..400),
        ) {
            let latest = |n: usize| calls[..=n].iter().copied().max().unwrap_or(0);
            let steady: Vec<u64> = (0..calls.len()).map(latest).collect();
            let back = admissions(&mut FallbackCap::new(rate, burst), &Guards::on(), &calls);
            let kept = admissions(&mut FallbackCap::new(rate, burst), &Guards::on(), &steady);
            prop_assert!(back.len() <= kept.len());
        }
    }
}
