//! Looks for other instances of the same installation on one server, by the names under which it
//! lists connections.
//!
//! It concludes nothing: what others there mean is for the core's `EmbeddedGuard` to say.

use std::time::Duration;

use tidegate_core::instant::Instant;
use tokio_postgres::{Client, Error, Row, Statement};

use super::failure::from_driver;
use super::target::Target;
use crate::clock::Clock;
use crate::ports::{Fault, LOOK_INTERVAL, Look, SourceError};

/// Looks at a writable server in one interval: one that is late costs nothing.
const LOOKS_PER_INTERVAL: u32 = 2;
/// Intervals between two looks at a standby, which only shows who cannot reach the leader.
const INTERVALS_AT_STANDBY: u32 = 4;

/// Others that are named; more are no news.
const OTHERS_MAX: usize = 4;

/// Bytes of a name that PostgreSQL keeps.
const NAME_BYTES: usize = 63;
/// Letters that tell two processes apart.
const TAG_LETTERS: usize = 8;

/// Whether this session sees itself, whether it can see others, and who is there: under a name of
/// the same beginning that is not its own.
const LOOK: &str = "select
    coalesce(pg_catalog.bool_or(a.application_name = $1), false),
    coalesce(pg_catalog.bool_or(a.application_name is null), false),
    coalesce(pg_catalog.array_agg(distinct a.application_name) filter (
        where pg_catalog.starts_with(a.application_name, $2)
        and a.application_name <> $1), '{}')
    from pg_catalog.pg_stat_activity a";

/// What tells the connections of one process from those of all others, also of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag([char; TAG_LETTERS]);

impl Tag {
    /// A tag that another process has once in 2^37.
    pub fn random() -> Self {
        // Each process begins at a place of its own, which the system's randomness gives.
        Self(std::array::from_fn(|_| fastrand::lowercase()))
    }
}

/// What the name of every instance begins with.
fn beginning(cluster: &str) -> String {
    format!("tidegate/{cluster}/")
}

/// The name a connection is listed under: `tidegate/CLUSTER/INSTANCE`; with a tag
/// `tidegate/CLUSTER/INSTANCE/TAG`, where the instance is cut to what PostgreSQL keeps.
pub(super) fn name(cluster: &str, instance: &str, tag: Option<Tag>) -> String {
    let mut name = beginning(cluster);
    let Some(Tag(tag)) = tag else { return name + instance };
    let room = NAME_BYTES.saturating_sub(name.len() + 1 + TAG_LETTERS);
    name.extend(instance.chars().take(room));
    name.push('/');
    name.extend(tag);
    name
}

/// The looks on one connection.
pub(super) struct Looks<'a> {
    target: &'a Target,
    own: String,
    beginning: String,
    look: Option<Statement>,
    /// Since when this instance is surely listed there.
    visible_since: Option<Instant>,
    sent_at: Option<Instant>,
    fault: Option<Fault>,
}

impl<'a> Looks<'a> {
    /// Looks for a target that is to look; it asks nothing yet.
    pub(super) fn new(target: &'a Target) -> Self {
        Self {
            target,
            own: target.application_name(),
            beginning: beginning(&target.cluster),
            look: None,
            visible_since: None,
            sent_at: None,
            fault: None,
        }
    }

    /// When the next one is due, at a server that was polled writable or not; `None`: never.
    pub(super) fn due_at(&self, is_writable: bool) -> Option<Instant> {
        self.target.tag?;
        let apart: Duration = if is_writable {
            LOOK_INTERVAL / LOOKS_PER_INTERVAL
        } else {
            LOOK_INTERVAL * INTERVALS_AT_STANDBY
        };
        Some(self.sent_at.map_or_else(Instant::default, |sent_at| sent_at + apart))
    }

    /// What keeps it from seeing others.
    pub(super) const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Looks once; `None`: it cannot see others, and says so with the next poll.
    pub(super) async fn look(
        &mut self,
        client: &Client,
        clock: Clock,
    ) -> Result<Option<Look>, SourceError> {
        let sent_at = clock.now();
        self.sent_at = Some(sent_at);
        let row = match self.ask(client).await {
            Ok(row) => row,
            Err(error) if error.as_db_error().is_some() => {
                self.fault = Some(Fault::OthersHidden);
                return Ok(None);
            }
            Err(error) => return Err(from_driver(&self.target.address, &error)),
        };
        let received_at = clock.now();
        let failed = |error| from_driver(&self.target.address, &error);
        let (sees_itself, hidden): (bool, bool) =
            (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        if hidden || !sees_itself {
            self.fault = Some(Fault::OthersHidden);
            return Ok(None);
        }
        self.fault = None;
        let mut others: Vec<String> = row.try_get(2).map_err(failed)?;
        others.truncate(OTHERS_MAX);
        let visible_since = *self.visible_since.get_or_insert(received_at);
        Ok(Some(Look { sent_at, received_at, visible_since, others }))
    }

    async fn ask(&mut self, client: &Client) -> Result<Row, Error> {
        let look = match &self.look {
            Some(look) => look,
            None => self.look.insert(client.prepare(LOOK).await?),
        };
        client.query_one(look, &[&self.own, &self.beginning]).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag(['t'; TAG_LETTERS]);

    #[test]
    fn a_name_keeps_its_cluster_and_its_tag_however_long_it_is() {
        let long = "x".repeat(32);
        assert_eq!(name("shop", "a", None), "tidegate/shop/a");
        assert_eq!(name("shop", "a", Some(TAG)), "tidegate/shop/a/tttttttt");
        let cut = name(&long, &long, Some(TAG));
        assert_eq!(cut, format!("tidegate/{long}/{}/tttttttt", "x".repeat(12)));
        assert_eq!(cut.len(), NAME_BYTES);
        assert!(cut.starts_with(&beginning(&long)));
    }

    #[test]
    fn two_processes_of_one_name_have_two() {
        let names = [Tag::random(), Tag::random()].map(|tag| name("shop", "a", Some(tag)));
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.starts_with(&beginning("shop"))), "{names:?}");
        assert!(!names[0].starts_with(&beginning("sho")), "another cluster");
    }
}
