//! `Incarnation`: one life of one server process. Not a node, not an address, not a role.

use std::fmt;

use thiserror::Error;

/// The identity all physical copies of one database cluster share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SystemId(u64);

impl SystemId {
    /// Wraps the identifier PostgreSQL's control file shows.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The identifier as a number.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Its low four bytes, which tokens carry to tell an upgraded database from the old one.
    pub const fn tag(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

impl fmt::Display for SystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a server process began to live: postmaster start and last crash restart.
///
/// Microseconds since 1970 by the server's own clock; compared for equality only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Life {
    /// When the postmaster started.
    pub start: i64,
    /// When its statistics were last reset, which every crash restart does.
    pub reset: i64,
}

/// One life of one server process. Positions read from it say nothing about another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation {
    /// The database cluster it serves.
    pub system: SystemId,
    /// Which of its lives.
    pub life: Life,
}

/// The text is not an incarnation.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "`{text}` is not an incarnation: pass what `SELECT tidegate.incarnation()` returned, as it is"
)]
pub struct IncarnationError {
    /// What was given, cut to 80 characters.
    text: String,
}

impl Incarnation {
    /// Parses `SYSTEM.START.RESET`, the text `tidegate.incarnation()` returns.
    ///
    /// # Errors
    /// [`IncarnationError`] if it is anything else.
    pub fn parse(text: &str) -> Result<Self, IncarnationError> {
        let fail = || IncarnationError { text: text.chars().take(80).collect() };
        let mut parts = text.split('.');
        let (Some(system), Some(start), Some(reset), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(fail());
        };
        let parsed = (decimal(system), signed(start), signed(reset));
        let (Some(system), Some(start), Some(reset)) = parsed else { return Err(fail()) };
        Ok(Self { system: SystemId(system), life: Life { start, reset } })
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.system, self.life.start, self.life.reset)
    }
}

/// Parses digits only: no sign, no spaces, at most 20 of them.
pub(crate) fn decimal<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let plain = (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = if plain { text.parse().ok()? } else { return None };
    T::try_from(number).ok()
}

/// Parses digits with an optional leading minus.
pub(crate) fn signed(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    decimal(digits).and_then(|_: u64| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_incarnation_is_refused() {
        for text in ["", "1", "1.2", "1.2.3.4", "1.2.", "x.1.2", "-1.2.3", "1.+2.3", "1. 2.3"] {
            assert!(Incarnation::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn it_prints_as_the_database_does() {
        let text = "7321987654321098765.1730000000123456.1730000000654321";
        let parsed = Incarnation::parse(text).map(|i| i.to_string());
        assert_eq!(parsed.as_deref(), Ok(text));
    }

    #[test]
    fn the_tag_is_the_low_four_bytes() {
        assert_eq!(SystemId::new(0x1122_3344_5566_7788).tag(), 0x5566_7788);
    }
}
