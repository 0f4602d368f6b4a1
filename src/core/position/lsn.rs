//! `Lsn`: a byte position in PostgreSQL's write-ahead log.
//!
//! Parses both printed forms strictly and moves positions that name the first byte behind a page
//! header back to where the record before it ended. It knows nothing of timelines.

use std::fmt;

use thiserror::Error;

/// Size of a log page, as every PostgreSQL build we accept has it.
const PAGE_BYTES: u64 = 8192;
/// Bytes of the header at the start of a page.
const SHORT_HEADER_BYTES: u64 = 24;
/// Bytes of the header at the start of a segment.
const LONG_HEADER_BYTES: u64 = 40;

/// A log position: the number of bytes of log before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

/// The text is not a log position.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{text}` is not a log position: it should look like 0/3034AB8")]
pub struct LsnError {
    /// What was given, cut to 40 characters.
    text: String,
}

impl Lsn {
    /// The position after `bytes` bytes of log.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes of log before it.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Parses `HIGH/LOW`: two hexadecimal numbers of 1 to 8 digits, padded or not.
    ///
    /// # Errors
    /// [`LsnError`] for anything else; signs, spaces and prefixes are refused.
    pub fn parse(text: &str) -> Result<Self, LsnError> {
        let halves = text.split_once('/').and_then(|(high, low)| Some((half(high)?, half(low)?)));
        match halves {
            Some((high, low)) => Ok(Self(u64::from(high) << 32 | u64::from(low))),
            None => Err(LsnError { text: text.chars().take(40).collect() }),
        }
    }

    /// Moves a position directly behind a page header back to the end of the last record.
    ///
    /// An idle leader reports where its next record would *start*; replicas report where the last
    /// one *ended*. No record ends inside a header, so the shorter form loses nothing.
    #[must_use]
    pub const fn normalised(self, segment_bytes: u64) -> Self {
        if segment_bytes > 0 && self.0 % segment_bytes == LONG_HEADER_BYTES {
            Self(self.0 - LONG_HEADER_BYTES)
        } else if self.0 % PAGE_BYTES == SHORT_HEADER_BYTES {
            Self(self.0 - SHORT_HEADER_BYTES)
        } else {
            self
        }
    }

    /// Says whether the position is the first byte of a page.
    pub const fn starts_page(self) -> bool {
        self.0.is_multiple_of(PAGE_BYTES)
    }
}

fn half(digits: &str) -> Option<u32> {
    let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u32::from_str_radix(digits, 16).ok() } else { None }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    #[test]
    fn text_that_is_no_position_is_refused() {
        for text in [
            "",
            "/",
            "0",
            "0/",
            "/0",
            "0/0/0",
            "+1/0",
            "1/+0",
            "-1/0",
            " 0/0",
            "0/0 ",
            "0x1/0",
            "123456789/0",
            "0/123456789",
            "g/0",
            "0\\0",
            "０/1",
        ] {
            assert!(Lsn::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn both_printed_forms_mean_the_same() {
        assert_eq!(Lsn::parse("0/3034AB8"), Lsn::parse("0/03034AB8"));
        assert_eq!(Lsn::parse("0/3034ab8").map(Lsn::value), Ok(0x0303_4AB8));
        assert_eq!(Lsn::parse("FFFFFFFF/FFFFFFFF").map(Lsn::value), Ok(u64::MAX));
    }

    #[test]
    fn printing_is_canonical() {
        assert_eq!(Lsn::new(0x1_0303_4AB8).to_string(), "1/3034AB8");
    }

    #[test]
    fn a_position_behind_a_header_moves_before_it() {
        let table = [
            (0x0500_0028, 0x0500_0000), // segment start, long header
            (0x0500_4018, 0x0500_4000), // page start, short header
            (0x0500_0018, 0x0500_0000), // inside a long header: short rule applies
            (0x0500_4028, 0x0500_4028), // 40 bytes into an ordinary page is a record
            (0x0500_0030, 0x0500_0030),
            (0x0500_4000, 0x0500_4000),
        ];
        for (raw, want) in table {
            assert_eq!(Lsn::new(raw).normalised(SEGMENT), Lsn::new(want), "{raw:x}");
        }
    }

    #[test]
    fn normalising_twice_changes_nothing() {
        for offset in 0..64 {
            for page in [0, PAGE_BYTES, SEGMENT, SEGMENT + PAGE_BYTES] {
                let once = Lsn::new(SEGMENT + page + offset).normalised(SEGMENT);
                assert_eq!(once.normalised(SEGMENT), once);
            }
        }
    }
}
