//! `Epoch`: one life of one leader on one timeline. Derived from what the server shows, never
//! minted.

use std::fmt;

use thiserror::Error;

use super::incarnation::{decimal, signed};
use super::{Incarnation, Life, SystemId};

/// One life of one leader on one timeline, within its partition's system id.
///
/// Epochs have no order in time. `Ord` is a storage order only: by start, reset, timeline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Epoch {
    /// The timeline its leader writes.
    pub timeline: u32,
    /// The life of its leader.
    pub life: Life,
}

/// The text is not an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{text}` is not an epoch: it should read TIMELINE.START.RESET")]
pub struct EpochError {
    /// What was given, cut to 80 characters.
    text: String,
}

impl Epoch {
    /// The epoch of a leader of life `life` on `timeline`.
    pub const fn new(timeline: u32, life: Life) -> Self {
        Self { timeline, life }
    }

    /// The incarnation of its leader.
    pub const fn incarnation(self, system: SystemId) -> Incarnation {
        Incarnation { system, life: self.life }
    }

    /// Parses `TIMELINE.START.RESET`.
    ///
    /// # Errors
    /// [`EpochError`] if it is anything else.
    pub fn parse(text: &str) -> Result<Self, EpochError> {
        let fail = || EpochError { text: text.chars().take(80).collect() };
        let mut parts = text.split('.');
        let (Some(timeline), Some(start), Some(reset), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(fail());
        };
        let parsed = (decimal(timeline), signed(start), signed(reset));
        let (Some(timeline), Some(start), Some(reset)) = parsed else { return Err(fail()) };
        Ok(Self { timeline, life: Life { start, reset } })
    }
}

impl Ord for Epoch {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.life, self.timeline).cmp(&(other.life, other.timeline))
    }
}

impl PartialOrd for Epoch {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.timeline, self.life.start, self.life.reset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_epoch_is_refused() {
        for text in ["", "1.2", "1.2.3.4", "-1.2.3", "4294967296.1.1", "a.1.2", "1..2"] {
            assert!(Epoch::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn it_prints_as_the_lineage_row_does() {
        let text = "2.1730000000123456.1730000000654321";
        assert_eq!(Epoch::parse(text).map(|e| e.to_string()).as_deref(), Ok(text));
    }
}
