//! `QuotaBook`: who may use how much of a partition's fallback cap, as all instances read it.
//!
//! Plain values, and how shares follow demand. Whether an entry still counts is for whoever reads
//! the book, by a clock of its own: `Quota`.

/// Shares smaller than this admit no read: one of it is the burst.
pub(super) const SHARE_LEAST: u32 = 2;
/// An instance that nobody asks keeps this part of an even share, for the moment it is asked.
const RESERVED: u32 = 8;
/// This part of a cap is given to nobody for long: who comes finds a share there at once.
const FOR_NEWCOMERS: u32 = 32;
/// Of so many reads in one second one is the burst, the others are the rate.
const BURST_EVERY: u32 = 11;

/// One life of one instance, at random: who restarts is another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstanceLife(u64);

impl InstanceLife {
    /// The life of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Which book it is: another one after what kept it lost it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BookId {
    /// Who opened it.
    pub by: InstanceLife,
    /// With which of its exchanges.
    pub seq: u64,
}

/// What one instance has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaEntry {
    /// Whose it is.
    pub life: InstanceLife,
    /// Grows with each exchange of that instance: one that stands still is nobody's.
    pub seq: u64,
    /// Reads it may admit in any one second.
    pub share: u32,
    /// Reads it was asked for in the last second.
    pub demand: u32,
    /// The cap it goes by, in reads per second.
    pub cap: u32,
    /// It was found silent: its share is gone, and what it may use without a store is left.
    pub is_silent: bool,
}

/// The shares of one partition's cap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaBook {
    /// Which book it is.
    pub id: BookId,
    /// Shares of the book before it may be in use, and instances may use static ones that are not
    /// in it yet; until somebody has seen it for so long that they have come or are not there.
    pub is_new: bool,
    /// By life.
    pub entries: Vec<QuotaEntry>,
}

impl QuotaBook {
    /// A book that knows nobody.
    pub const fn new(id: BookId) -> Self {
        Self { id, is_new: true, entries: Vec::new() }
    }

    /// What this instance has.
    pub fn entry(&self, life: InstanceLife) -> Option<&QuotaEntry> {
        self.entries.iter().find(|entry| entry.life == life)
    }

    /// Puts an entry in the place of an earlier one of the same life.
    pub fn put(&mut self, entry: QuotaEntry) {
        match self.entries.binary_search_by_key(&entry.life, |entry| entry.life) {
            Ok(at) => self.entries[at] = entry,
            Err(at) => self.entries.insert(at, entry),
        }
    }

    /// Removes what this instance has.
    pub fn remove(&mut self, life: InstanceLife) {
        self.entries.retain(|entry| entry.life != life);
    }

    /// Reads that all shares admit in one second.
    pub fn leased(&self) -> u32 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.share))
    }
}

/// Reads that a cap admits in any one second: a tenth more than its rate, for bursts and shares
/// that move, and at least one more.
pub(super) fn reads_in_a_second(cap: u32) -> u32 {
    if cap == 0 { 0 } else { cap.saturating_add((cap / 10).max(1)) }
}

/// What a share admits: reads per second, and of those at once; together no more than the share.
pub(super) fn rate_and_burst(share: u32) -> (u32, u32) {
    let rate = u64::from(share) * u64::from(BURST_EVERY - 1) / u64::from(BURST_EVERY);
    // No more than what went in.
    let rate = u32::try_from(rate).unwrap_or(u32::MAX);
    (rate, (share / BURST_EVERY).max(1))
}

/// What an instance may admit in one second when it cannot ask how much others do.
pub(super) fn static_share(cap: u32, instances: u32) -> u32 {
    reads_in_a_second(cap) / instances.max(1)
}

/// What those that divide `total` reads leave free, where it is enough for that.
pub(super) fn left_for_newcomers(total: u32) -> u32 {
    // Of less than this one share would be more than a tenth.
    if total < 10 * SHARE_LEAST { 0 } else { (total / FOR_NEWCOMERS).max(SHARE_LEAST) }
}

/// Divides `available` reads among instances by what each is asked for: each gets a reserved part,
/// then all get equally much as long as they need it, then all get equally much of what is left.
///
/// `demands` are by life; so are the shares that come back.
pub(super) fn divide(available: u32, demands: &[u32]) -> Vec<u32> {
    let count = u32::try_from(demands.len()).unwrap_or(u32::MAX);
    let mut shares = vec![0; demands.len()];
    // Who needs least comes first, so that what it leaves goes to the others.
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|&at| (demands[at], at));
    if count == 0 || available / SHARE_LEAST < count {
        // Not all can have one: those that are asked most.
        let holders = usize::try_from(available / SHARE_LEAST).unwrap_or(usize::MAX);
        order.iter().rev().take(holders).for_each(|&at| shares[at] = SHARE_LEAST);
        return shares;
    }
    let reserved = (available / count / RESERVED).max(SHARE_LEAST);
    let mut left = available - reserved * count;
    shares.fill(reserved);
    let mut waiting = count;
    for &at in &order {
        let given = needed(demands[at]).saturating_sub(reserved).min(left / waiting);
        shares[at] += given;
        left -= given;
        waiting -= 1;
    }
    let (each, over) = (left / count, usize::try_from(left % count).unwrap_or(0));
    for (at, share) in shares.iter_mut().enumerate() {
        *share += each + u32::from(at < over);
    }
    shares
}

/// The share whose rate is the demand.
fn needed(demand: u32) -> u32 {
    let (parts, whole) = (u64::from(demand) * u64::from(BURST_EVERY), u64::from(BURST_EVERY - 1));
    u32::try_from(parts.div_ceil(whole)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_whole_cap_is_its_rate_and_a_tenth_of_it_at_once() {
        for cap in [1, 5, 9, 10, 100, 1_500, 10_000_000] {
            let (rate, burst) = rate_and_burst(reads_in_a_second(cap));
            assert_eq!((rate, burst), (cap, (cap / 10).max(1)), "{cap}");
        }
        assert_eq!(reads_in_a_second(0), 0);
        assert_eq!(rate_and_burst(0).0, 0);
        assert_eq!(static_share(100, 4), 27);
    }

    #[test]
    fn those_that_are_asked_most_hold_a_cap_that_is_too_small_for_all() {
        assert_eq!(divide(5, &[0, 7, 3, 1]), [0, 2, 2, 0]);
        assert_eq!(divide(1, &[9]), [0]);
        assert_eq!(divide(0, &[]), Vec::<u32>::new());
    }

    #[test]
    fn a_storm_at_one_gets_all_but_what_is_reserved_for_the_others() {
        assert_eq!(divide(110, &[1_000, 0]), [104, 6]);
        assert_eq!(divide(110, &[1_000, 1_000]), [55, 55]);
        assert_eq!(divide(110, &[0, 0]), [55, 55], "nobody is asked");
        assert_eq!(divide(110, &[10, 1_000, 30]), [11, 66, 33]);
    }

    proptest! {
        #[test]
        fn all_is_divided_and_no_more(
            available in 0..20_000_u32,
            demands in vec(prop_oneof![Just(0), 0..100_u32, 0..100_000_u32], 1..24),
        ) {
            let shares = divide(available, &demands);
            let sum: u32 = shares.iter().sum();
            prop_assert!(sum <= available);
            if shares.iter().all(|share| *share > 0) {
                prop_assert_eq!(sum, available);
                prop_assert!(shares.iter().all(|share| *share >= SHARE_LEAST));
            }
            for (share, demand) in shares.iter().zip(&demands) {
                let asked_more = shares.iter().zip(&demands).filter(|(_, more)| *more > demand);
                for (other, more) in asked_more {
                    // Who is asked more gets no less, but for what does not divide.
                    prop_assert!(*share <= other + 1, "{demand} against {more}: {shares:?}");
                }
            }
        }

        #[test]
        fn rate_and_burst_are_no_more_than_the_share(share in 1..100_000_u32) {
            let (rate, burst) = rate_and_burst(share);
            prop_assert!(rate + burst <= share);
            prop_assert!(rate + burst + 1 >= share);
        }
    }
}
