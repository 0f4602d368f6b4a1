//! What the shell asks of the outside, as traits: positions of a node, tokens of a subject, facts.
//!
//! Types of drivers and of the wire stay behind them. The channels of a source are tokio's; nothing
//! else of the runtime is named here.

mod quota;
mod status;

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::time::Duration;

use thiserror::Error;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::lineage::{Epoch, Incarnation, LineageRow};
use tidegate_core::position::Lsn;
use tidegate_core::store_guard::Worth;
use tidegate_core::token::{Change, ComponentKey, PartitionId, SessionToken};
use tidegate_core::trail::Sample;
use tidegate_core::views::{NodeId, Observation};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use quota::{QuotaError, QuotaRead, QuotaStore, Quotas};
pub use status::{
    StoreCondition, StoreCounts, StoreFeed, StoreHappened, StoreHappening, StoreStatus,
};

/// How often a node is to be asked; the newest value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The time between two polls, counted from when they were sent.
    pub interval: Duration,
    /// Ask at once, unless a poll was sent at or after this.
    pub sample_after: Option<Instant>,
}

/// What a source is to do once, besides polling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Insert one lineage row.
    WriteRow {
        /// The incarnation that was polled writable: no other may get the row.
        incarnation: Incarnation,
        /// The row.
        row: LineageRow,
    },
}

/// How often instances look for each other, as long as each keeps records of its own: an instance
/// that starts waits for two of them, and one that cannot look for two believes no record.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Who else is connected to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// When it was asked.
    pub sent_at: Instant,
    /// When it had answered.
    pub received_at: Instant,
    /// Since when this instance surely is connected.
    pub visible_since: Instant,
    /// Some of the others, as the server lists them.
    pub others: Vec<String>,
}

/// What a source has to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    /// The node answered.
    Observed {
        /// What it said.
        observation: Observation,
        /// What keeps it from saying more.
        faults: Vec<Fault>,
    },
    /// The node did not answer, or not as a node of this partition should.
    Unreachable {
        /// Why.
        error: SourceError,
        /// When it was asked.
        sent_at: Instant,
        /// When that had failed.
        received_at: Instant,
    },
    /// The node said who else is connected to it.
    Looked(Look),
    /// A [`Command::WriteRow`] was carried out or not.
    RowWritten {
        /// Of the row.
        epoch: Epoch,
        /// What became of it.
        result: Result<RowOutcome, SourceError>,
    },
}

/// What became of a row that was to be inserted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowOutcome {
    /// The row stands there, as given or as another instance wrote it before.
    Stands(LineageRow),
    /// The server is in recovery or of another incarnation than polled: nothing was written.
    Refused,
    /// The table it belongs into does not exist there: nothing was written.
    NoTable,
}

/// What an observed node lacks; each says what to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Error)]
pub enum Fault {
    /// The table or its schema does not exist in the database.
    #[error("the schema `tidegate` is missing in this database: run `tidegate sql | psql`")]
    SchemaMissing,
    /// The table exists, but the role may not read it.
    #[error("the role may not read `tidegate.lineage`: run `tidegate sql | psql`")]
    SchemaUnreadable,
    /// Somebody holds a lock on the table that shuts the role out.
    #[error("`tidegate.lineage` is locked: end the session that holds it, see `pg_locks`")]
    SchemaLocked,
    /// The objects are older than this program.
    #[error(
        "the objects of schema `tidegate` have version {found}, this program needs {needed}: \
         run `tidegate sql | psql` again"
    )]
    SchemaBehind {
        /// Their version; 0 if they do not tell.
        found: u32,
        /// What this program needs.
        needed: u32,
    },
    /// The timeline a standby follows is hidden from the role.
    #[error("the role may not see WAL receivers: run `GRANT pg_read_all_stats TO` this role")]
    GrantMissing,
    /// Who else is connected is hidden from the role.
    #[error(
        "the role may not see who else is connected, so records in memory are not believed: run \
         `GRANT pg_read_all_stats TO` this role"
    )]
    OthersHidden,
    /// The server's own history file is none; it is ignored.
    #[error(
        "pg_wal/{timeline:08X}.history makes no sense and is ignored: copy it from a standby or \
         the archive, standbys of this server need it too"
    )]
    HistoryMalformed {
        /// The timeline whose file it should be.
        timeline: u32,
    },
}

/// Why a source has no reading.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{address}: {text}")]
pub struct SourceError {
    /// What kind of failure it is.
    pub class: SourceErrorClass,
    /// Whom it was asked of.
    pub address: String,
    /// What happened and what to do, for people.
    pub text: String,
}

/// Kinds of failure of a source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SourceErrorClass {
    /// No connection, or it broke.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// It starts, stops, or does not accept connections yet; expected around restarts.
    NotReady,
    /// Wrong password, no such role or database, or no entry in `pg_hba.conf`.
    Denied,
    /// TLS could not be agreed on.
    Tls,
    /// A major version Tidegate does not work with.
    ServerTooOld,
    /// Another database cluster than the partition's.
    ForeignSystem,
    /// The statement failed, or its answer has not the form it should have.
    Rejected,
}

/// Asks one node, on its own connection, until told to stop.
pub trait PositionSource: Send + 'static {
    /// Polls as `demand` says and does what `commands` ask; ends when `stop` is cancelled or nobody
    /// takes the readings any more.
    fn run(
        self,
        demand: watch::Receiver<Demand>,
        commands: mpsc::Receiver<Command>,
        readings: mpsc::Sender<(NodeId, Reading)>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send;
}

/// Where a timeline ended, as a tool of the operator says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimelineEnd {
    /// The timeline that ended.
    pub timeline: u32,
    /// Its last position that the next timeline holds.
    pub at: Lsn,
}

/// Takes what a tool of the operator says. Hints only: none decides who leads or where a fork lies.
pub trait HintTaker: Send + Sync + 'static {
    /// Leader or timeline changed, says the tool: fresh observations of every node are welcome.
    fn hurry(&self);

    /// Says whether the end of a timeline fits the fork that was placed there, and counts that;
    /// `None`: none was placed yet.
    fn fits(&self, end: TimelineEnd) -> Option<bool>;
}

/// Takes who else is connected to the servers of a partition, where that matters to the records.
pub trait LookTaker: fmt::Debug + Send + Sync + 'static {
    /// Takes one look; says whether others count as being there.
    ///
    /// `leads`: it was at the leader, the only server that shows that nobody is there.
    fn looked(&self, key: ComponentKey, look: &Look, leads: bool) -> bool;
}

/// The keyed hash a subject is stored under. The raw subject never leaves the request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubjectKey([u8; 16]);

impl SubjectKey {
    /// Wraps a keyed hash.
    pub const fn new(hash: [u8; 16]) -> Self {
        Self(hash)
    }

    /// The bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl Hash for SubjectKey {
    /// Half of it: what is a keyed hash already needs no mixing, and `Eq` compares the whole.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [first, ..] = self.0.as_chunks::<8>().0 else { return };
        state.write_u64(u64::from_le_bytes(*first));
    }
}

impl fmt::Debug for SubjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SubjectKey(..)")
    }
}

/// Where a change was kept when the store answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// In the memory of this instance.
    Memory,
    /// On the primary of the store.
    PrimaryOnly,
    /// On a replica of the store too.
    Replicated,
}

/// What a store said of one subject.
#[derive(Clone, Debug)]
pub struct Looked {
    /// What is kept; `None`: nothing.
    pub record: Option<SessionToken>,
    /// What that may be believed.
    pub worth: Worth,
}

/// A record after a change.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What the record holds now.
    pub record: SessionToken,
    /// Where it was kept.
    pub stored: Stored,
    /// What that may be believed.
    pub worth: Worth,
}

/// Why a store did not answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StoreError {
    /// It holds as many subjects as it may, and none of them can be forgotten safely.
    #[error("the token store is full ({limit} subjects): raise `limits.subjects`")]
    Full {
        /// Subjects it may hold.
        limit: usize,
    },
    /// It could not be reached in time.
    #[error("the token store cannot be reached: {0}")]
    Unreachable(String),
}

/// Keeps, per subject, what its sessions depend on. One conformance suite holds for all kinds.
pub trait TokenStore: Send + Sync + 'static {
    /// As [`Self::lookup`] at `now`, from a store that needs to ask nobody; `None`: this one does.
    fn lookup_at_once(&self, key: SubjectKey, now: Instant) -> Option<Result<Looked, StoreError>> {
        let _ = (key, now);
        None
    }

    /// What is kept for a subject, and what that is worth.
    ///
    /// # Errors
    /// [`StoreError`]: then nothing may be concluded, least of all "none".
    fn lookup(&self, key: SubjectKey) -> impl Future<Output = Result<Looked, StoreError>> + Send;

    /// Applies one change atomically; idempotent.
    ///
    /// # Errors
    /// [`StoreError`]: then the change may have been applied or not.
    fn update(
        &self,
        key: SubjectKey,
        change: &Change,
    ) -> impl Future<Output = Result<Kept, StoreError>> + Send;

    /// Whether a record may be behind and nobody sees it: what rests on records alone is then not
    /// promised.
    fn is_async(&self) -> bool {
        false
    }

    /// What is known of it, for operators.
    fn status(&self) -> StoreStatus {
        StoreStatus::memory()
    }

    /// What befalls it from now on, for operators; ended at once where nothing does.
    fn watch(&self) -> broadcast::Receiver<StoreHappened> {
        StoreFeed::default().watch()
    }

    /// Offers a poll of a partition's leader; it may become the barrier of what the store forgot.
    fn sampled(&self, key: ComponentKey, sample: Sample);
}

/// Facts could not be kept or read back.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{place}: {text}")]
pub struct FactError {
    /// The file, or whatever holds them.
    pub place: String,
    /// What happened and what to do.
    pub text: String,
}

/// What an exchange of facts will have brought.
pub type Exchanged<'a> = Pin<Box<dyn Future<Output = Result<Facts, FactError>> + Send + 'a>>;

/// Shares the facts of each partition among instances.
pub trait FactSharer: fmt::Debug + Send + Sync + 'static {
    /// Joins `own` into what is kept for all of them; brings what is kept then. `nodes` are as for
    /// [`FactStore::load`].
    fn exchange<'a>(
        &'a self,
        partition: PartitionId,
        nodes: &'a [String],
        own: &'a Facts,
    ) -> Exchanged<'a>;

    /// What befalls that which keeps them.
    fn watch(&self) -> broadcast::Receiver<StoreHappened>;
}

/// Keeps the facts of each partition across restarts.
pub trait FactStore: Send + Sync + 'static {
    /// The facts kept of a partition; none if none were. `nodes` are the configured names by
    /// [`NodeId`]; facts of other nodes keep no node.
    ///
    /// # Errors
    /// [`FactError`] if there are some and they cannot be read.
    fn load(
        &self,
        partition: PartitionId,
        nodes: &[String],
    ) -> impl Future<Output = Result<Facts, FactError>> + Send;

    /// Keeps facts instead of those kept before, durably and at once.
    ///
    /// # Errors
    /// [`FactError`] if that failed; what was kept before is then still there.
    fn save(
        &self,
        partition: PartitionId,
        nodes: &[String],
        facts: &Facts,
    ) -> impl Future<Output = Result<(), FactError>> + Send;
}
