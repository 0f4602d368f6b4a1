//! Lineage rows as the table holds them: read from text, written as columns.
//!
//! What a row means is the core's; here is only the form.

use tidegate_core::lineage::{Epoch, Fork, LineageRow};
use tidegate_core::position::{Lsn, Position};
use tokio_postgres::types::PgLsn;

/// Parses `EPOCH|PARENT|AT_LEAST|AT_MOST|N`; `None` if it is anything else.
pub(super) fn parse_row(text: &str) -> Option<LineageRow> {
    let mut fields = text.split('|');
    let mut field = || fields.next();
    let (epoch, parent, at_least, at_most, n) = (field()?, field()?, field()?, field()?, field()?);
    let optional = |text: &str| match text {
        "" => Some(None),
        text => Lsn::parse(text).ok().map(|lsn| Some(Position::from(lsn))),
    };
    let fork = match (optional(at_least)?, optional(at_most)?) {
        (None, None) => Fork::Unbounded,
        (Some(at_least), Some(at_most)) => Fork::between(at_least, at_most),
        (Some(_), None) | (None, Some(_)) => Fork::Unknown,
    };
    let parent = match parent {
        "" => None,
        text => Some(Epoch::parse(text).ok()?),
    };
    Some(LineageRow { epoch: Epoch::parse(epoch).ok()?, parent, fork, n: n.parse().ok()? })
}

/// The values of one row's columns, in the order of the table.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) timeline: i64,
    pub(super) start: i64,
    pub(super) reset: i64,
    pub(super) parent_timeline: Option<i64>,
    pub(super) parent_start: Option<i64>,
    pub(super) parent_reset: Option<i64>,
    pub(super) at_least: Option<PgLsn>,
    pub(super) at_most: Option<PgLsn>,
    pub(super) n: i64,
}

impl From<&LineageRow> for Columns {
    fn from(row: &LineageRow) -> Self {
        let (at_least, at_most) = match row.fork {
            Fork::Unbounded => (None, None),
            Fork::Unknown => (Some(Position::START), None),
            Fork::Between { at_least, at_most } => (Some(at_least), Some(at_most)),
        };
        let lsn = |position: Position| PgLsn::from(position.scalar());
        Self {
            timeline: row.epoch.timeline.into(),
            start: row.epoch.life.start,
            reset: row.epoch.life.reset,
            parent_timeline: row.parent.map(|parent| parent.timeline.into()),
            parent_start: row.parent.map(|parent| parent.life.start),
            parent_reset: row.parent.map(|parent| parent.life.reset),
            at_least: at_least.map(lsn),
            at_most: at_most.map(lsn),
            // Rows are numbered from 0 or 1 by one per life of a leader.
            n: i64::try_from(row.n).unwrap_or(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_row_is_refused() {
        for text in [
            "",
            "1.2.3||||",
            "1.2.3|||1",
            "1.2||||1",
            "1.2.3|1.2|||1",
            "1.2.3||x||1",
            "1.2.3||0/1|-|1",
            "1.2.3||||-1",
        ] {
            assert_eq!(parse_row(text), None, "{text:?} was accepted");
        }
    }

    #[test]
    fn null_and_zero_tell_apart_what_continues_and_what_is_unknown() {
        let fork = |text: &str| parse_row(text).map(|row| row.fork);
        let at = |value: u64| Position::from(Lsn::new(value));
        assert_eq!(fork("1.2.3|1.1.1|||2"), Some(Fork::Unbounded));
        assert_eq!(fork("1.2.3||0/0||1"), Some(Fork::Unknown));
        assert_eq!(fork("1.2.3|1.1.1||0/9|2"), Some(Fork::Unknown));
        assert_eq!(fork("2.2.3|1.1.1|0/8|0/9|2"), Some(Fork::between(at(8), at(9))));
        assert_eq!(fork("2.2.3|1.1.1|0/9|0/8|2"), Some(Fork::Unknown));
    }

    #[test]
    fn every_fork_comes_back_as_it_was_written() {
        let epoch = |text: &str| Epoch::parse(text).expect("well formed");
        let at = |value: u64| Position::from(Lsn::new(value));
        for fork in [Fork::Unbounded, Fork::Unknown, Fork::between(at(0), at(1 << 40))] {
            let row =
                LineageRow { epoch: epoch("2.5.6"), parent: Some(epoch("1.2.3")), fork, n: 7 };
            let columns = Columns::from(&row);
            let lsn = |lsn: Option<PgLsn>| lsn.map_or(String::new(), |lsn| lsn.to_string());
            let text = format!(
                "{}|{}|{}|{}|{}",
                row.epoch,
                epoch("1.2.3"),
                lsn(columns.at_least),
                lsn(columns.at_most),
                columns.n
            );
            assert_eq!(parse_row(&text), Some(row));
        }
    }
}
