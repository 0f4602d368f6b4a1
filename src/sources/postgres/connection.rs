//! `Connection`: one connection to one server, with its prepared poll.
//!
//! It asks and translates. It has no timer, is never repaired and judges nothing: whoever owns it
//! limits the time and drops it after an error.

use std::time::Duration;

use tidegate_core::evidence::{Evidence, Role};
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, Incarnation, LineageRow};
use tidegate_core::views::Observation;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row, Statement};
use tokio_util::task::AbortOnDropHandle;

use super::connect;
use super::failure::{failure, from_driver, table_fault};
use super::history_file::HistoryFile;
use super::lineage::{self, Columns};
use super::look::Looks;
use super::schema;
use super::statements;
use super::target::Target;
use crate::clock::Clock;
use crate::ports::{Fault, Look, RowOutcome, SourceError, SourceErrorClass as Class};

/// The oldest `server_version_num` that is polled without the operator's word.
const OLDEST_SERVER: u32 = 150_000;

/// How soon a missing or old schema is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A connection that is ready to poll.
pub(super) struct Connection<'a> {
    target: &'a Target,
    clock: Clock,
    client: Client,
    table: Table,
    /// When rows were brought last: under which incarnation, and which was the last of them.
    rows_of: Option<(Incarnation, Option<Epoch>)>,
    looks: Looks<'a>,
    /// What the last poll showed.
    is_writable: bool,
    _driver: AbortOnDropHandle<()>,
}

/// The lineage table of the server, with the poll that goes with it.
struct Table {
    poll: Statement,
    /// `None` where the table is missing or may not be read.
    with_rows: Option<Statement>,
    fault: Option<Fault>,
    looked_at: Instant,
}

impl<'a> Connection<'a> {
    /// Connects, refuses a server that is too old, and prepares the poll.
    pub(super) async fn open(target: &'a Target, clock: Clock) -> Result<Self, SourceError> {
        let (client, driver) = connect::open(target).await?;
        let failed = |error| from_driver(&target.address, &error);
        let row = client.query_one("show server_version_num", &[]).await.map_err(failed)?;
        let version: &str = row.try_get(0).map_err(failed)?;
        let accepted = |version: u32| target.accepted_majors.contains(&(version / 10_000));
        let too_old = |version| version < OLDEST_SERVER && !accepted(version);
        if version.parse::<u32>().is_ok_and(too_old) {
            let text = format!(
                "this server has version number {version}, Tidegate needs PostgreSQL 15 or \
                 later: upgrade it, take the node out of the configuration, or name its major \
                 in `accepted_majors` of the partition, as your word that it may serve untested"
            );
            return Err(failure(&target.address, Class::ServerTooOld, text));
        }
        let table = Table::inspect(&client, clock).await.map_err(failed)?;
        let looks = Looks::new(target);
        let (rows_of, is_writable) = (None, false);
        Ok(Self { target, clock, client, table, rows_of, looks, is_writable, _driver: driver })
    }

    /// Asks once. Brings all rows whenever the last one was not seen on this connection before, and
    /// what the history file of a promoted server says.
    pub(super) async fn poll(
        &mut self,
        file: &mut HistoryFile,
    ) -> Result<(Observation, Vec<Fault>), SourceError> {
        let target = self.target;
        let failed = |error| from_driver(&target.address, &error);
        let again_at = self.table.looked_at + LOOK_AGAIN;
        if self.table.fault.is_some() && self.clock.now() >= again_at {
            self.table = Table::inspect(&self.client, self.clock).await.map_err(failed)?;
        }
        let mut sent_at = self.clock.now();
        let row = match self.client.query_one(&self.table.poll, &[]).await {
            // The table, or the right to it, went away under the prepared statement.
            Err(error) if table_fault(&error).is_some() => {
                self.table = Table::inspect(&self.client, self.clock).await.map_err(failed)?;
                sent_at = self.clock.now();
                self.client.query_one(&self.table.poll, &[]).await
            }
            answer => answer,
        };
        let mut row = row.map_err(failed)?;
        let mut evidence = self.evidence(&row)?;
        let mut rows = None;
        if let Some(with_rows) = &self.table.with_rows
            && self.rows_of != Some((evidence.incarnation, evidence.row))
        {
            // The rows come with evidence of their own, of the same statement: so they are of the
            // incarnation and the snapshot that the evidence shows.
            sent_at = self.clock.now();
            row = self.client.query_one(with_rows, &[]).await.map_err(failed)?;
            evidence = self.evidence(&row)?;
            rows = Some(self.rows(&row)?);
            self.rows_of = Some((evidence.incarnation, evidence.row));
        }
        let sees_receivers: bool = row.try_get(1).map_err(failed)?;
        let grant = (!sees_receivers).then_some(Fault::GrantMissing);
        let (node, received_at) = (target.node, self.clock.now());
        // Only now: where the server stopped following is read before anything else.
        let pace = (self.clock, target.timeouts.poll);
        let (switches, malformed) = file.switches(&evidence, &self.client, pace).await;
        self.is_writable = matches!(evidence.role, Role::Writable { .. });
        let hidden = self.looks.fault();
        let faults = self.table.fault.into_iter().chain(grant).chain(hidden).chain(malformed);
        let observation = Observation { node, evidence, rows, switches, sent_at, received_at };
        Ok((observation, faults.collect()))
    }

    /// When it is to look who else is there; `None`: never.
    pub(super) fn look_due_at(&self) -> Option<Instant> {
        self.looks.due_at(self.is_writable)
    }

    /// Looks who else is there; `None`: that is hidden, which the next poll says.
    pub(super) async fn look(&mut self) -> Result<Option<Look>, SourceError> {
        self.looks.look(&self.client, self.clock).await
    }

    /// Inserts one row, if the server still is `polled` and writable, and reads back what stands.
    pub(super) async fn write_row(
        &mut self,
        polled: Incarnation,
        row: &LineageRow,
    ) -> Result<RowOutcome, SourceError> {
        let target = self.target;
        let failed = |error| from_driver(&target.address, &error);
        if let Some(fault) = self.table.fault.filter(|_| self.table.with_rows.is_none())
            && fault != Fault::SchemaMissing
        {
            // What the row should follow cannot be read.
            return Err(failure(&target.address, Class::Rejected, fault.to_string()));
        }
        let columns = Columns::from(row);
        let system = polled.system.to_string();
        let own = target.guards.guarded_insert();
        // Local: the row is no promise to anybody, and must not wait for a standby that is gone.
        let insert = self.client.build_transaction().read_only(false).start();
        let transaction = insert.await.map_err(failed)?;
        transaction.batch_execute("set local synchronous_commit = local").await.map_err(failed)?;
        let inserted = transaction
            .execute(
                &statements::insert_row(own),
                &[
                    &system,
                    &columns.timeline,
                    &columns.start,
                    &columns.reset,
                    &columns.parent_timeline,
                    &columns.parent_start,
                    &columns.parent_reset,
                    &columns.at_least,
                    &columns.at_most,
                    &columns.n,
                    &target.instance,
                    &polled.life.start,
                    &polled.life.reset,
                ],
            )
            .await;
        match inserted {
            Ok(_) => transaction.commit().await.map_err(failed)?,
            Err(error) if table_fault(&error) == Some(Fault::SchemaMissing) => {
                transaction.rollback().await.map_err(failed)?;
                return Ok(RowOutcome::NoTable);
            }
            Err(error) => return Err(failed(error)),
        }
        self.read_back(&system, &columns).await
    }

    /// Says whether the server or the network has ended it.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn read_back(&self, system: &str, row: &Columns) -> Result<RowOutcome, SourceError> {
        let failed = |error| from_driver(&self.target.address, &error);
        let found = self
            .client
            .query_opt(&statements::row_of(), &[&system, &row.timeline, &row.start, &row.reset])
            .await
            .map_err(failed)?;
        let Some(found) = found else { return Ok(RowOutcome::Refused) };
        let text: &str = found.try_get(0).map_err(failed)?;
        self.row(text).map(RowOutcome::Stands)
    }

    fn evidence(&self, row: &Row) -> Result<Evidence, SourceError> {
        let address = &self.target.address;
        let text: &str = row.try_get(0).map_err(|error| from_driver(address, &error))?;
        let evidence = Evidence::parse(text, &self.target.guards).map_err(|error| {
            failure(
                address,
                Class::Rejected,
                format!("the poll was answered with `{text}`: {error}"),
            )
        })?;
        let found = evidence.incarnation.system;
        match self.target.system {
            Some(own) if own != found => {
                let text = format!(
                    "this server belongs to database cluster {found}, the partition is {own}: \
                     correct the node's address, or the partition's system_id"
                );
                Err(failure(address, Class::ForeignSystem, text))
            }
            Some(_) | None => Ok(evidence),
        }
    }

    fn rows(&self, row: &Row) -> Result<Vec<LineageRow>, SourceError> {
        let texts: Vec<&str> =
            row.try_get(2).map_err(|error| from_driver(&self.target.address, &error))?;
        texts.into_iter().map(|text| self.row(text)).collect()
    }

    fn row(&self, text: &str) -> Result<LineageRow, SourceError> {
        lineage::parse_row(text).ok_or_else(|| {
            let text = format!(
                "`tidegate.lineage` holds a row that Tidegate did not write, `{text}`: delete it"
            );
            failure(&self.target.address, Class::Rejected, text)
        })
    }
}

impl Table {
    /// Looks whether the table and the functions are there, by using them.
    async fn inspect(client: &Client, clock: Clock) -> Result<Self, tokio_postgres::Error> {
        let looked_at = clock.now();
        match Self::read(client).await {
            Ok((poll, with_rows)) => {
                let fault = version_fault(client).await?;
                Ok(Self { poll, with_rows: Some(with_rows), fault, looked_at })
            }
            Err(error) => {
                let fault = Some(table_fault(&error).ok_or(error)?);
                let poll = client.prepare(&statements::poll_without_table()).await?;
                Ok(Self { poll, with_rows: None, fault, looked_at })
            }
        }
    }

    async fn read(client: &Client) -> Result<(Statement, Statement), tokio_postgres::Error> {
        let poll = client.prepare(&statements::poll()).await?;
        // The right to the table is checked only when the statement runs.
        client.query_one(&poll, &[]).await?;
        Ok((poll, client.prepare(&statements::poll_with_rows()).await?))
    }
}

async fn version_fault(client: &Client) -> Result<Option<Fault>, tokio_postgres::Error> {
    let found = match client.query_one("select tidegate.version()", &[]).await {
        Ok(row) => u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or(0),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_FUNCTION) => 0,
        Err(error) if table_fault(&error).is_some() => 0,
        Err(error) => return Err(error),
    };
    let needed = schema::VERSION;
    Ok((found < needed).then_some(Fault::SchemaBehind { found, needed }))
}
