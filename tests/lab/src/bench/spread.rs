//! `Spread`: what repeated measurements of one thing say together. Measures nothing.

use std::fmt;

/// The median of some measurements, with the smallest and the largest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// How many there are.
    pub n: u64,
}

impl Spread {
    /// What these measurements say; of none, `NaN`, which meets no bar.
    #[must_use]
    pub fn of(measured: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = measured.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let (half, odd) = (sorted.len() / 2, sorted.len() % 2 == 1);
        let median = if odd { at(half) } else { f64::midpoint(at(half.wrapping_sub(1)), at(half)) };
        let most = at(sorted.len().wrapping_sub(1));
        Self { median, least: at(0), most, n: sorted.len() as u64 }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.median.abs() < 100.0 { 3 } else { 0 };
        let Self { median, least, most, .. } = self;
        write!(f, "{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }
}

/// The value below which so many hundredths of `sorted` lie; zero of none.
#[must_use]
pub fn percentile(sorted: &[u64], hundredths: usize) -> u64 {
    let index = sorted.len().saturating_mul(hundredths) / 100;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_meets_no_bar() {
        let spread = Spread::of([]);
        assert_eq!(spread.n, 0);
        assert!(spread.median.is_nan() && spread.least.is_nan() && spread.most.is_nan());
    }

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        let cases: [(&[f64], f64, f64, f64); 4] = [
            (&[7.0], 7.0, 7.0, 7.0),
            (&[3.0, 1.0], 2.0, 1.0, 3.0),
            (&[9.0, 1.0, 2.0], 2.0, 1.0, 9.0),
            (&[4.0, 100.0, 1.0, 2.0], 3.0, 1.0, 100.0),
        ];
        for (measured, median, least, most) in cases {
            let spread = Spread::of(measured.iter().copied());
            assert_eq!((spread.median, spread.least, spread.most), (median, least, most));
            assert_eq!(spread.n, measured.len() as u64);
        }
    }

    #[test]
    fn one_wild_measurement_moves_the_spread_and_not_the_median() {
        let spread = Spread::of([1.0, 1.0, 1.0, 1.0, 50.0]);
        assert_eq!(spread.to_string(), "1.000 (1.000-50.000)");
    }

    #[test]
    fn percentiles_of_little_are_in_it() {
        assert_eq!(percentile(&[], 50), 0);
        assert_eq!((percentile(&[5], 50), percentile(&[5], 99)), (5, 5));
        let hundred: Vec<u64> = (0..100).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (50, 99));
    }
}
