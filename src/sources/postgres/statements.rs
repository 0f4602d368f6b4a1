//! The SQL a source runs all the time, in three variants of one poll, the insert of a row, and the
//! question for a history file.
//!
//! The text is fixed: nothing from outside is ever put into it but numbers.

use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;

/// What stands in the place of the last lineage row.
const LAST_ROW: &str = "(select pg_catalog.format('%s.%s.%s', l.timeline, l.start_us, l.reset_us)
            from tidegate.lineage l where l.system_id = s.own_system
            order by l.n desc limit 1)";

/// One row as text: `EPOCH|PARENT|AT_LEAST|AT_MOST|N`, where null is empty.
const ROW_TEXT: &str = "pg_catalog.format('%s.%s.%s|%s|%s|%s|%s',
            l.timeline, l.start_us, l.reset_us,
            case when l.parent_timeline is not null then pg_catalog.format('%s.%s.%s',
                l.parent_timeline, l.parent_start_us, l.parent_reset_us) end,
            l.at_least, l.at_most, l.n)";

/// Rows read at once, the newest first; a database has one per failover or restart of its leader.
pub(super) const ROWS_MAX: usize = 1024;

/// The poll of every day.
pub(super) fn poll() -> String {
    fill(LAST_ROW, "null::text[]")
}

/// The poll where the table is missing or may not be read.
pub(super) fn poll_without_table() -> String {
    fill("null::text", "null::text[]")
}

/// The poll that also brings the rows: of one snapshot, hence of one line of leaders.
pub(super) fn poll_with_rows() -> String {
    let rows = format!(
        "array(select {ROW_TEXT}
        from tidegate.lineage l where l.system_id = s.own_system
        order by l.n desc limit {ROWS_MAX})"
    );
    fill(LAST_ROW, &rows)
}

fn fill(last_row: &str, rows: &str) -> String {
    let sql = include_str!("poll.sql").lines().filter(|line| !line.starts_with("--"));
    let sql: Vec<&str> = sql.collect();
    sql.join("\n").replace("LAST_ROW", last_row).replace("ROWS", rows)
}

/// The insert of one row; `guarded` says whether only the polled incarnation may get it.
pub(super) fn insert_row(guarded: bool) -> String {
    let guarded = if guarded { "true" } else { "false" };
    include_str!("insert.sql").replace("GUARDED", guarded)
}

/// Reads back the row of one epoch of one system.
pub(super) fn row_of() -> String {
    format!(
        "select {ROW_TEXT} from tidegate.lineage l
        where l.system_id = $1::text::numeric
        and l.timeline = $2 and l.start_us = $3 and l.reset_us = $4"
    )
}

/// Bytes of a history file that are taken in: thousands of timelines fit.
pub(super) const HISTORY_BYTES: usize = 256 * 1024;

/// Asks for the history file of a timeline: the begin of a transaction that is rolled back later,
/// and the question. The server gives up after `limit`.
pub(super) fn history_file(timeline: u32, limit: Duration) -> (String, String) {
    let millis = limit.as_millis().max(1);
    // One character more than is taken in tells a longer file.
    let characters = HISTORY_BYTES + 1;
    (
        format!("begin read only; set local statement_timeout = {millis}"),
        format!(
            "select pg_catalog.left(pg_catalog.pg_read_file('pg_wal/{timeline:08X}.history'), \
             {characters})"
        ),
    )
}

/// The first text of a row.
pub(super) fn first_text(message: &SimpleQueryMessage) -> Option<&str> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    row.get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled_in() {
        for sql in [poll(), poll_without_table(), poll_with_rows(), insert_row(true)] {
            for place in ["LAST_ROW", "ROWS", "not GUARDED"] {
                assert!(!sql.contains(place), "{place} in {sql}");
            }
        }
    }

    #[test]
    fn only_one_variant_does_without_the_table() {
        assert!(!poll_without_table().contains("tidegate"));
        assert!(poll().contains("tidegate.lineage") && poll_with_rows().contains("array("));
    }
}
