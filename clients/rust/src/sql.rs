//! The statements this crate sends to a database. All are simple queries: nothing is prepared on a
//! connection that is not ours, and what is sent in one of them runs on one server connection,
//! whatever pooler is between.

use std::pin::pin;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow, SimpleQueryStream};
use tokio_stream::StreamExt;

/// The life of the process behind this connection, and that process.
const IDENTITY: &str = "SELECT tidegate.incarnation(), pg_catalog.pg_backend_pid()";
/// What a statement sees that starts after this one was answered or sees at most.
const SAMPLE: &str = "SELECT tidegate.sample()";
/// Behind what was read; and whether the connection is outside any transaction. A simple query
/// that begins its own transaction begins it at its own time.
const SAMPLE_OUTSIDE: &str =
    "SELECT tidegate.sample(), pg_catalog.now() = pg_catalog.statement_timestamp()";
const OUTSIDE: &str = "SELECT pg_catalog.now() = pg_catalog.statement_timestamp()";
/// One transaction of one server connection: its process, and when it began.
macro_rules! transaction {
    () => {
        "pg_catalog.pg_backend_pid() || ' ' || pg_catalog.extract('epoch', pg_catalog.now())"
    };
}
/// Begins a transaction and says where, in which one, and whether this really began it.
const BEGIN: &str = concat!(
    "BEGIN READ ONLY; SELECT tidegate.incarnation(), ",
    transaction!(),
    ", pg_catalog.now() = pg_catalog.statement_timestamp()"
);
/// As [`BEGIN`], where a leader was named.
const BEGIN_LEADER: &str = concat!(
    "BEGIN READ ONLY; SELECT tidegate.incarnation(), ",
    transaction!(),
    ", pg_catalog.now() = pg_catalog.statement_timestamp(), tidegate.sample()"
);
/// What [`BEGIN_LEADER`] says, in a transaction begun just before.
const BEGUN: &str =
    concat!("SELECT tidegate.incarnation(), ", transaction!(), ", true, tidegate.sample()");
/// Behind what was read, still in its transaction.
const END: &str = concat!("SELECT tidegate.sample(), ", transaction!());
const END_COMMIT: &str = concat!("SELECT tidegate.sample(), ", transaction!(), "; COMMIT");
/// Behind the commit: a statement of its own, on the server connection that committed.
///
/// The statement before COMMIT fails in a transaction that PostgreSQL aborted; COMMIT alone would
/// roll it back and call that success.
const COMMIT: &str = "SELECT ''; COMMIT; SELECT tidegate.capture()";
const BEFORE_COMMIT: &str = "SELECT tidegate.before(); COMMIT; SELECT tidegate.capture()";

/// What a reading transaction says where it begins.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The life of the process it runs in.
    pub(crate) incarnation: Option<String>,
    /// Names the transaction.
    pub(crate) transaction: Option<String>,
    /// It was not open before.
    pub(crate) fresh: bool,
    /// The timeline its server writes.
    pub(crate) writes: Option<u32>,
}

/// What a reading transaction says where it ends.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Behind everything read.
    pub(crate) sample: Option<String>,
    /// Names the transaction.
    pub(crate) transaction: Option<String>,
}

/// A commit that was acknowledged, and what else its batch said.
#[derive(Debug)]
pub(crate) struct Committed {
    /// What `before()` returned, if it was asked.
    pub(crate) before: String,
    /// What `capture()` returned.
    pub(crate) capture: Result<Option<String>, Error>,
}

/// The incarnation and the process behind a connection.
pub(crate) async fn identity(client: &Client) -> Result<(Option<String>, Option<i32>), Error> {
    let row = row(client, IDENTITY).await?;
    let pid = |row| column(row, 1).and_then(|pid| pid.parse().ok());
    Ok(row.as_ref().map_or((None, None), |row| (column(row, 0), pid(row))))
}

pub(crate) async fn sample(client: &Client) -> Result<Option<String>, Error> {
    Ok(row(client, SAMPLE).await?.and_then(|row| column(&row, 0)))
}

/// A sample, and whether the connection is outside any transaction.
pub(crate) async fn sample_outside(client: &Client) -> Result<(Option<String>, bool), Error> {
    let row = row(client, SAMPLE_OUTSIDE).await?;
    Ok(row.map_or((None, false), |row| (column(&row, 0), column(&row, 1).as_deref() == Some("t"))))
}

/// Says whether the connection is outside any transaction.
pub(crate) async fn is_outside(client: &Client) -> Result<bool, Error> {
    let row = row(client, OUTSIDE).await?;
    Ok(row.and_then(|row| column(&row, 0)).as_deref() == Some("t"))
}

/// Sends the beginning of a reading transaction; its answer is for [`begun`].
pub(crate) async fn begin(client: &Client, leader: bool) -> Result<SimpleQueryStream, Error> {
    client.simple_query_raw(if leader { BEGIN_LEADER } else { BEGIN }).await
}

/// Sends the question that [`begin`] asks, in a transaction that the driver just began.
pub(crate) async fn ask_begun(client: &Client) -> Result<SimpleQueryStream, Error> {
    client.simple_query_raw(BEGUN).await
}

pub(crate) async fn begun(answer: SimpleQueryStream) -> Result<Begun, Error> {
    let row = last_row(answer).await?;
    let text = |at| row.as_ref().and_then(|row| column(row, at));
    Ok(Begun {
        incarnation: text(0),
        transaction: text(1),
        fresh: text(2).as_deref() == Some("t"),
        writes: text(3).as_deref().and_then(written_timeline),
    })
}

/// Sends the end of a reading transaction; its answer is for [`ended`].
pub(crate) async fn end(client: &Client, commit: bool) -> Result<SimpleQueryStream, Error> {
    client.simple_query_raw(if commit { END_COMMIT } else { END }).await
}

pub(crate) async fn ended(answer: SimpleQueryStream) -> Result<Ended, Error> {
    let row = last_row(answer).await?;
    let text = |at| row.as_ref().and_then(|row| column(row, at));
    Ok(Ended { sample: text(0), transaction: text(1) })
}

/// Commits and captures in one batch, which no pooler can part.
///
/// # Errors
/// If COMMIT was not acknowledged. What fails behind it is part of the value.
pub(crate) async fn commit(client: &Client, before: bool) -> Result<Committed, Error> {
    let batch = if before { BEFORE_COMMIT } else { COMMIT };
    let mut answer = pin!(client.simple_query_raw(batch).await?);
    let mut committed = Committed { before: String::new(), capture: Ok(None) };
    // COMMIT is the last statement but one.
    let mut until_commit = 2;
    while let Some(message) = answer.next().await {
        match message {
            Ok(SimpleQueryMessage::CommandComplete(_)) if until_commit > 0 => until_commit -= 1,
            Ok(SimpleQueryMessage::Row(row)) if until_commit > 0 => {
                committed.before = column(&row, 0).unwrap_or_default();
            }
            Ok(SimpleQueryMessage::Row(row)) => committed.capture = Ok(column(&row, 0)),
            Ok(_) => {}
            Err(error) if until_commit > 0 => return Err(error),
            Err(error) => {
                committed.capture = Err(error);
                break;
            }
        }
    }
    Ok(committed)
}

/// What is wrong with statement pooling, and what to do.
pub(crate) const STATEMENT_POOLING: &str = "the pooler pools by statement, so no transaction can \
     say where it runs: set `pool_mode = transaction` or `session` there, or connect directly";

/// Says whether an attempt to begin a transaction was refused by a pooler that pools by statement.
///
/// pgbouncer gives everything it says the same code, so its words decide.
pub(crate) fn is_statement_pooling(error: &Error) -> bool {
    error.as_db_error().is_some_and(|told| {
        *told.code() == SqlState::PROTOCOL_VIOLATION && told.message().contains("statement pooling")
    })
}

/// Ends an open transaction without a trace.
pub(crate) async fn rollback(client: &Client) -> Result<(), Error> {
    client.batch_execute("ROLLBACK").await
}

async fn row(client: &Client, statement: &str) -> Result<Option<SimpleQueryRow>, Error> {
    last_row(client.simple_query_raw(statement).await?).await
}

/// The last row of an answer, read to its end.
async fn last_row(answer: SimpleQueryStream) -> Result<Option<SimpleQueryRow>, Error> {
    let mut answer = pin!(answer);
    let mut last = None;
    while let Some(message) = answer.next().await {
        if let SimpleQueryMessage::Row(row) = message? {
            last = Some(row);
        }
    }
    Ok(last)
}

fn column(row: &SimpleQueryRow, at: usize) -> Option<String> {
    row.try_get(at).ok().flatten().map(str::to_owned)
}

/// The timeline a server writes, out of an evidence string; `None`: it is in recovery, or the
/// string is not understood.
pub(crate) fn written_timeline(evidence: &str) -> Option<u32> {
    let fields: Vec<&str> = evidence.split('|').collect();
    match fields.as_slice() {
        ["tge1", _, _, _, timeline, _, _, "0", ..] => timeline.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::written_timeline;

    #[test]
    fn only_a_writable_server_names_the_timeline_it_writes() {
        let leader = "tge1|sample|150018|7321|3|1730|1731|0|0/5|0/5|||1.1.1|16777216|on";
        assert_eq!(written_timeline(leader), Some(3));
        let standby = "tge1|sample|150018|7321||1730|1731|1|||0/5|3|1.1.1|16777216|on";
        assert_eq!(written_timeline(standby), None);
        for broken in ["", "tge1", "tge2|sample|1|1|3|1|1|0|", "tge1|sample|1|1|x|1|1|0|0/5"] {
            assert_eq!(written_timeline(broken), None, "{broken}");
        }
    }
}
