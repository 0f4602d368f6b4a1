//! The statements this crate sends to a database. All are simple queries: one round trip each, and
//! nothing is prepared on a connection that is not ours.

use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

/// Behind the last commit of this connection.
const CAPTURE: &str = "SELECT tidegate.capture()";
/// Inside a writing transaction.
const BEFORE: &str = "SELECT tidegate.before()";
/// The life of the process behind this connection.
const INCARNATION: &str = "SELECT tidegate.incarnation()";
/// What a statement sees that starts after this one was answered or sees at most.
const SAMPLE: &str = "SELECT tidegate.sample()";
/// Behind what was read; and whether the connection is outside any transaction. A simple query
/// that begins its own transaction begins it at its own time.
const SAMPLE_OUTSIDE: &str =
    "SELECT tidegate.sample(), pg_catalog.now() = pg_catalog.statement_timestamp()";
const OUTSIDE: &str = "SELECT pg_catalog.now() = pg_catalog.statement_timestamp()";

pub(crate) async fn capture(client: &Client) -> Result<Option<String>, Error> {
    text(client, CAPTURE).await
}

pub(crate) async fn before(client: &Client) -> Result<Option<String>, Error> {
    text(client, BEFORE).await
}

pub(crate) async fn incarnation(client: &Client) -> Result<Option<String>, Error> {
    text(client, INCARNATION).await
}

pub(crate) async fn sample(client: &Client) -> Result<Option<String>, Error> {
    text(client, SAMPLE).await
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

async fn text(client: &Client, statement: &str) -> Result<Option<String>, Error> {
    Ok(row(client, statement).await?.and_then(|row| column(&row, 0)))
}

async fn row(client: &Client, statement: &str) -> Result<Option<SimpleQueryRow>, Error> {
    let messages = client.simple_query(statement).await?;
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            return Ok(Some(row));
        }
    }
    Ok(None)
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
