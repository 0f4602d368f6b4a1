//! When a node is first seen writable in a new life or on a new timeline, by asking every
//! millisecond.
//!
//! It asks on connections of its own and knows nothing of Tidegate or Patroni.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::super::Node;

const PAUSE: Duration = Duration::from_millis(1);
/// What one question may take, and what waiting for a new leader may.
const QUESTION_LIMIT: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(60);

const QUESTION: &str = "select \
    (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, \
    case when not pg_is_in_recovery() then \
        ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint end";

/// Who is writable: which node, since which start, on which timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writable {
    /// The number of the node.
    pub(super) node: usize,
    /// When its server started, in microseconds.
    pub(super) start: i64,
    pub(super) timeline: i64,
}

/// Waits until some node is writable in another life, or on another timeline, than `old` was.
pub(super) async fn new_leader(nodes: &[Node], old: Writable) -> Result<(Writable, Instant)> {
    let watches = nodes.iter().enumerate().map(|(number, node)| Box::pin(watch(number, node, old)));
    let first = futures::future::select_all(watches);
    let (found, ..) = timeout(LIMIT, first).await.context("no node became writable")?;
    Ok(found)
}

/// Who is writable now.
pub(super) async fn leader(nodes: &[Node]) -> Result<Writable> {
    let nobody = Writable { node: usize::MAX, start: 0, timeline: 0 };
    new_leader(nodes, nobody).await.map(|(leader, _)| leader)
}

async fn watch(number: usize, node: &Node, old: Writable) -> (Writable, Instant) {
    let mut known: Option<Client> = None;
    loop {
        if known.as_ref().is_none_or(Client::is_closed) {
            known = timeout(QUESTION_LIMIT, node.connect()).await.ok().and_then(Result::ok);
        }
        if let Some(client) = &known {
            // An error: it promotes just now, or it went away.
            if let Ok(Ok(row)) = timeout(QUESTION_LIMIT, client.query_one(QUESTION, &[])).await {
                let (start, timeline) = (row.try_get(0), row.try_get::<_, Option<i64>>(1));
                if let (Ok(start), Ok(Some(timeline))) = (start, timeline) {
                    let seen = Writable { node: number, start, timeline };
                    if seen != old {
                        return (seen, Instant::now());
                    }
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
