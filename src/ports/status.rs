//! `StoreStatus` and `StoreHappened`: what operators are told of a token store.
//!
//! Nothing is decided by it: what a record may be believed comes with each answer.

use tidegate_core::instant::Instant;
use tidegate_core::store_guard::LossCause;
use tokio::sync::broadcast;

/// Events that a slow watcher may be behind before it misses some.
const EVENTS_KEPT: usize = 256;

/// What is known of a token store now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreStatus {
    /// What it is: `memory` or `redis`.
    pub kind: &'static str,
    /// Where it is, without secrets; empty: in this process.
    pub servers: String,
    /// What answers there; empty: nothing has.
    pub version: String,
    /// What keeps a deposed primary from being believed; empty: not known, or none is needed.
    pub redundancy: String,
    /// How it is.
    pub condition: StoreCondition,
    /// Why, where it is not well.
    pub problem: String,
    /// It refuses writes, whatever else befalls it.
    pub refuses: bool,
    /// When the last of its fences ends.
    pub fenced_until: Option<Instant>,
    /// Parts of it whose records are not believed, and all parts there are.
    pub lost_parts: (usize, usize),
    /// Subjects whose changes wait to be written, and how many may.
    pub pending: (u64, u64),
    /// What was counted since the start.
    pub counts: StoreCounts,
    /// What an operator may want to change, each a sentence.
    pub hints: Vec<String>,
}

/// How a store is; the later, the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StoreCondition {
    /// Its records are believed, besides what a barrier demands.
    Well,
    /// Its servers have not taken our writes for long enough to be believed.
    Unsettled,
    /// It refuses writes.
    Refuses,
    /// It lost something, and no barrier stands for all of it yet.
    Lost,
    /// It does not answer.
    Unreachable,
    /// It answers, and must not be used as it is.
    Unfit,
}

/// What a store counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreCounts {
    /// Subjects looked up.
    pub lookups: u64,
    /// Changes asked for.
    pub updates: u64,
    /// Calls to its servers, of whatever kind.
    pub round_trips: u64,
    /// Writes that came behind another one and were tried again.
    pub retries: u64,
    /// Losses announced.
    pub losses: u64,
    /// Records whose bytes were none.
    pub malformed: u64,
    /// Time without an answer.
    pub unreachable_millis: u64,
}

/// One thing that befell a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreHappened {
    /// When, in seconds since 1970.
    pub at_seconds: u64,
    /// What.
    pub what: StoreHappening,
    /// Why, for people; empty: it says itself.
    pub why: String,
}

/// What can befall a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreHappening {
    /// It lost something: no record of that part is believed.
    Lost(LossCause),
    /// A barrier covers all that it lost.
    Stands,
    /// It does not answer.
    Unreachable,
    /// It answers again.
    Reachable,
    /// It refuses writes.
    Refuses,
    /// It takes writes again.
    Takes,
    /// The bytes of a record are none.
    RecordMalformed,
    /// It answers, and must not be used as it is.
    Unfit,
}

impl StoreStatus {
    /// A store in this process, of which there is nothing to tell.
    pub const fn memory() -> Self {
        Self {
            kind: "memory",
            servers: String::new(),
            version: String::new(),
            redundancy: String::new(),
            condition: StoreCondition::Well,
            problem: String::new(),
            refuses: false,
            fenced_until: None,
            lost_parts: (0, 1),
            pending: (0, 0),
            counts: StoreCounts {
                lookups: 0,
                updates: 0,
                round_trips: 0,
                retries: 0,
                losses: 0,
                malformed: 0,
                unreachable_millis: 0,
            },
            hints: Vec::new(),
        }
    }
}

/// Tells whoever watches a store.
#[derive(Clone, Debug)]
pub struct StoreFeed(broadcast::Sender<StoreHappened>);

impl Default for StoreFeed {
    fn default() -> Self {
        Self(broadcast::Sender::new(EVENTS_KEPT))
    }
}

impl StoreFeed {
    /// Tells whoever watches.
    pub fn tell(&self, happened: StoreHappened) {
        // Nobody may be watching.
        _ = self.0.send(happened);
    }

    /// What happens from now on.
    pub fn watch(&self) -> broadcast::Receiver<StoreHappened> {
        self.0.subscribe()
    }
}
