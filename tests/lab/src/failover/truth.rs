//! What is true after a failover, as plain values: read on the servers themselves.
//!
//! A marker is a row with the evidence its writer got. Whether it is there is asked of each server,
//! and from where a timeline forked is read in the history file that PostgreSQL itself wrote.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::postgres::{Lsn, Server, without_header};

/// One life of one leader on one timeline, as its server names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EpochId {
    /// The timeline.
    pub timeline: u32,
    /// When the server started, in microseconds.
    pub start: i64,
    /// When its statistics were last reset, in microseconds.
    pub reset: i64,
}

impl EpochId {
    /// Reads `TIMELINE.START.RESET`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let [timeline, start, reset] = parts[..] else {
            anyhow::bail!("{text} is no epoch");
        };
        Ok(Self { timeline: timeline.parse()?, start: start.parse()?, reset: reset.parse()? })
    }
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.timeline, self.start, self.reset)
    }
}

impl From<EpochId> for String {
    fn from(epoch: EpochId) -> Self {
        epoch.to_string()
    }
}

impl TryFrom<String> for EpochId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|error| error.to_string())
    }
}

/// One acknowledged row, with the evidence of its writer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Marker {
    /// Its number in the table `failover_marker`.
    pub id: i64,
    /// Who took it.
    pub server: String,
    /// In which epoch.
    pub epoch: EpochId,
    /// Its commit ended past this byte of the log.
    pub after: u64,
    /// Its commit ended at or before this byte of the log.
    pub upto: u64,
    /// It was acknowledged before it was flushed.
    pub unflushed: bool,
    /// When it had been acknowledged, in nanoseconds of the boot-time clock.
    pub at: u64,
}

/// What one running server shows: asked of the server, and read in its folder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Census {
    /// Which server.
    pub server: String,
    /// The epoch it writes; none in recovery.
    pub writes: Option<EpochId>,
    /// Its start and reset time, whatever its role.
    pub life: (i64, i64),
    /// The markers it shows.
    pub markers: BTreeSet<i64>,
    /// Of a writable server: the timelines before its own, and the byte at which each was left.
    pub history: Vec<(u32, u64)>,
    /// When it was asked, in nanoseconds of the boot-time clock.
    pub asked_at: u64,
}

/// One thing that was done to the servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// When it had been done, in nanoseconds of the boot-time clock.
    pub at: u64,
    /// What it was.
    pub what: String,
}

/// What is true after one failover.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Played {
    /// The name of its kind.
    pub kind: String,
    /// When it began and was over, in nanoseconds of the boot-time clock.
    pub span: (u64, u64),
    /// The server that leads now.
    pub leader: String,
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// The rows that were written and acknowledged.
    pub markers: Vec<Marker>,
    /// What the servers showed, at several moments; the last of each server is the end.
    pub censuses: Vec<Census>,
    /// The servers that the repair must make standbys again.
    pub broken: Vec<String>,
}

impl Played {
    /// The markers that the leader does not show in the end: acknowledged and lost.
    #[must_use]
    pub fn lost(&self) -> Vec<&Marker> {
        let Some(end) = self.censuses.iter().rev().find(|c| c.server == self.leader) else {
            return Vec::new();
        };
        self.markers.iter().filter(|marker| !end.markers.contains(&marker.id)).collect()
    }
}

/// A marker from what its writer was answered inside and after its transaction.
pub(super) fn marker(
    id: i64,
    server: &Server,
    (before, capture): (&str, &str),
    unflushed: bool,
    at: u64,
) -> Result<Marker> {
    let field = |text: &str, number: usize| {
        let field = text.split('|').nth(number).filter(|field| !field.is_empty());
        field.map(str::to_owned).with_context(|| format!("no field {number} in {text}"))
    };
    let insert = |text: &str| anyhow::Ok(position(&field(text, 8)?)?);
    let epoch = EpochId {
        timeline: field(capture, 4)?.parse()?,
        start: field(capture, 5)?.parse()?,
        reset: field(capture, 6)?.parse()?,
    };
    let (after, upto) = (insert(before)?, insert(capture)?);
    Ok(Marker { id, server: server.name().to_owned(), epoch, after, upto, unflushed, at })
}

fn position(text: &str) -> Result<u64> {
    let lsn: Lsn = text.parse().ok().with_context(|| format!("no position: {text}"))?;
    Ok(u64::from(without_header(lsn)))
}

/// Asks a server what it shows.
pub(super) async fn census(server: &Server, asked_at: u64) -> Result<Census> {
    const QUESTION: &str = "select pg_is_in_recovery(), \
        (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, \
        (extract(epoch from pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint, \
        coalesce(array_agg(id), '{}') from failover_marker";
    let row = server.row(QUESTION).await?;
    let (recovers, start, reset): (bool, i64, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let markers: Vec<i64> = row.try_get(3)?;
    let writes = if recovers {
        None
    } else {
        Some(EpochId { timeline: server.timeline().await?, start, reset })
    };
    let history = match writes {
        Some(epoch) if epoch.timeline > 1 => history(server, epoch.timeline)?,
        Some(_) | None => Vec::new(),
    };
    let (server, markers) = (server.name().to_owned(), markers.into_iter().collect());
    Ok(Census { server, writes, life: (start, reset), markers, history, asked_at })
}

/// What the history file of a timeline says: each timeline before it, and where that was left.
fn history(server: &Server, timeline: u32) -> Result<Vec<(u32, u64)>> {
    let file = server.data_dir().join(format!("pg_wal/{timeline:08X}.history"));
    let text = fs::read_to_string(&file)?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains('\t'));
    let parsed = lines.map(|line| {
        let mut fields = line.split('\t');
        let timeline = fields.next().unwrap_or_default().trim().parse()?;
        Ok((timeline, position(fields.next().unwrap_or_default())?))
    });
    parsed.collect()
}
