//! `TimelineHistory`: what a server's own history file says of the timelines its log came by.
//!
//! It parses text; who read it, and whether it may be believed, is decided elsewhere.

use thiserror::Error;

use crate::position::{Lsn, Position};

/// Timelines one history may name.
const ENTRIES_MAX: usize = 4_096;
/// Characters of a bad line that are shown.
const SHOWN_MAX: usize = 80;

/// Where each earlier timeline of a server's log ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimelineHistory {
    /// Timeline and switch point, in the order of the file: timelines only grow.
    entries: Vec<(u32, Position)>,
}

/// The text is not a history file.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TimelineHistoryError {
    /// A line is not `TIMELINE <tab> POSITION <tab> reason`.
    #[error("line {number} reads `{text}`, not `TIMELINE <tab> POSITION <tab> reason`")]
    Line {
        /// Counted from 1.
        number: usize,
        /// The line, cut to 80 characters.
        text: String,
    },
    /// A timeline does not follow the one before it.
    #[error("timeline {timeline} on line {number} is not above the one before it")]
    Order {
        /// Counted from 1.
        number: usize,
        /// The timeline named there.
        timeline: u32,
    },
    /// It names too many timelines.
    #[error("it names more than {ENTRIES_MAX} timelines")]
    TooLong,
}

impl TimelineHistory {
    /// Parses the content of a file `pg_wal/NNNNNNNN.history`.
    ///
    /// Empty lines and those that begin with `#` say nothing. The reason may be missing.
    ///
    /// # Errors
    /// [`TimelineHistoryError`] names the first line that is wrong; then nothing of it counts.
    pub fn parse(text: &str) -> Result<Self, TimelineHistoryError> {
        let mut entries: Vec<(u32, Position)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let (number, line) = (index + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((timeline, position)) = entry(line) else {
                let text = line.chars().take(SHOWN_MAX).collect();
                return Err(TimelineHistoryError::Line { number, text });
            };
            if timeline == 0 || entries.last().is_some_and(|(before, _)| *before >= timeline) {
                return Err(TimelineHistoryError::Order { number, timeline });
            }
            if entries.len() == ENTRIES_MAX {
                return Err(TimelineHistoryError::TooLong);
            }
            entries.push((timeline, position));
        }
        Ok(Self { entries })
    }

    /// Where the server's log left `timeline`; `None` if it never was on it, or still is.
    pub fn switch_of(&self, timeline: u32) -> Option<Position> {
        let found = self.entries.iter().find(|(named, _)| *named == timeline);
        found.map(|(_, position)| *position)
    }

    /// Every earlier timeline with its end, the first one first.
    pub fn entries(&self) -> &[(u32, Position)] {
        &self.entries
    }
}

fn entry(line: &str) -> Option<(u32, Position)> {
    let mut fields = line.split_whitespace();
    let timeline = fields.next().filter(|field| field.bytes().all(|b| b.is_ascii_digit()))?;
    let position = Lsn::parse(fields.next()?).ok()?;
    Some((timeline.parse().ok()?, position.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_chain_is_read_past_blank_lines_and_comments() {
        let text = "# made by hand\n1\t0/5C58468\tno recovery target specified\n\n2\t0/5C76F10\n";
        let history = TimelineHistory::parse(text).expect("it is one");
        assert_eq!(history.switch_of(1), Some(Lsn::new(0x5C5_8468).into()));
        assert_eq!(history.switch_of(2), Some(Lsn::new(0x5C7_6F10).into()));
        assert_eq!(history.switch_of(3), None);
        assert_eq!(history.entries().len(), 2);
    }

    #[test]
    fn an_empty_file_names_nothing() {
        assert_eq!(TimelineHistory::parse(""), Ok(TimelineHistory::default()));
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        for (text, number) in [
            ("garbage", 1),
            ("1", 1),
            ("1\t5C58468", 1),
            ("-1\t0/5C58468", 1),
            ("1\t0/5C58468\tfine\nnot\tthis", 2),
            ("99999999999\t0/1", 1),
        ] {
            let error = TimelineHistory::parse(text).expect_err("it is none");
            let TimelineHistoryError::Line { number: found, .. } = error else {
                panic!("{text:?}: {error}");
            };
            assert_eq!(found, number, "{text:?}");
        }
        for text in ["2\t0/1\n1\t0/2", "1\t0/1\n1\t0/2", "0\t0/1"] {
            let error = TimelineHistory::parse(text).expect_err("it goes back");
            assert!(matches!(error, TimelineHistoryError::Order { .. }), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_history_without_end_is_refused() {
        let text: String = (1..=5_000).map(|n| format!("{n}\t0/{n:X}\n")).collect();
        assert_eq!(TimelineHistory::parse(&text), Err(TimelineHistoryError::TooLong));
    }
}
