//! What keeps the records: one memory for all, servers as of Redis, or each instance for itself.
//!
//! - [`options`]: what a seed makes of it
//! - [`memory`]: records in one process
//! - [`server`], [`servers`]: a shared store; no rule of Tidegate
//! - [`link`], [`client`], [`pending`], [`upkeep`]: the shell's side of it, around the core's
//!   `SharedGuard`
//! - [`own`]: memories of several instances, and how those look for each other
//! - [`version`]: what the version before reads and writes
//! - [`faults`]: what breaks
//!
//! What a subject was promised is kept here too, apart from all records: it is what is checked.

mod client;
pub(crate) mod faults;
pub(crate) mod link;
mod memory;
mod options;
pub(crate) mod own;
mod pending;
mod server;
mod servers;
pub(crate) mod upkeep;
pub(crate) mod version;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::lineage::Epoch;
use tidegate_core::store_guard::Worth;
use tidegate_core::token::{Change, SessionToken};

pub(crate) use memory::Memory;
pub(crate) use options::{LIFETIME, MIN_REPLICAS};
pub use options::{StoreKind, StoreOptions};
pub(crate) use server::Held;
use servers::Servers;

use crate::check::{Corner, Deps};
use crate::options::Options;
use crate::sim::{Sim, State};
use crate::world::log::Rec;

/// To whom a record is promised that is found by its subject alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Promise {
    /// To everybody.
    All,
    /// To those who ask the instance that kept it, in that life; to others from then on.
    Here { by: (usize, u64), from: u64, why: Corner },
}

/// What a store said of a subject.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    pub(crate) record: Option<SessionToken>,
    pub(crate) worth: Worth,
    /// What the record was made of; `None`: the store of this world does not say.
    pub(crate) held: Option<Held>,
    /// To whom what is found is promised.
    pub(crate) promise: Promise,
    /// There was no answer.
    pub(crate) failed: bool,
}

/// A record after a change.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) before: SessionToken,
    pub(crate) record: SessionToken,
    pub(crate) worth: Worth,
    pub(crate) held: Option<Held>,
    pub(crate) promise: Promise,
    pub(crate) failed: bool,
}

#[derive(Debug)]
pub(crate) struct Store {
    /// What each subject depends on, whatever any store remembers of it.
    pub(crate) deps: Vec<Deps>,
    /// What each subject ever wrote and asked to record, and in which epoch.
    pub(crate) writes: Vec<BTreeMap<Rec, Epoch>>,
    /// The one memory for all.
    told: Memory,
    pub(crate) servers: Servers,
    /// Until then servers of the store fail over, or settle after that.
    scene_until: u64,
}

impl Store {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            deps: vec![Deps::default(); options.subjects],
            writes: vec![BTreeMap::new(); options.subjects],
            told: Memory::default(),
            servers: Servers::new(&options.store),
            scene_until: 0,
        }
    }
}

impl State {
    /// What a subject that asks an instance by its name alone was promised by now.
    pub(crate) fn owed(&self, subject: usize, at: usize) -> Deps {
        let mut owed = self.store.deps[subject].clone();
        let own = (at, self.instances[at].life);
        for dep in &mut owed.all {
            if let Promise::Here { by, from, .. } = dep.promise
                && (by == own || self.now >= from)
            {
                dep.promise = Promise::All;
            }
        }
        owed
    }

    fn worth_told(&self, at: usize) -> Worth {
        Worth::Embedded(Arc::new(self.instances[at].guard.clone()))
    }

    fn expire(&mut self, at: usize, subject: usize) {
        let (now, lifetime) = (self.now, self.options.store.lifetime);
        if self.options.store.kind == StoreKind::Own {
            self.instances[at].memory.expire(subject, lifetime, now);
        } else if self.store.told.expire(subject, lifetime, now) {
            self.store.deps[subject].forget();
        }
    }

    fn memory(&mut self, at: usize) -> &mut Memory {
        match self.options.store.kind {
            StoreKind::Own => &mut self.instances[at].memory,
            StoreKind::Told | StoreKind::Shared => &mut self.store.told,
        }
    }

    fn looked_up(&mut self, at: usize, subject: usize) -> Looked {
        self.expire(at, subject);
        let now = self.now;
        let found = self.memory(at).lookup(subject, now);
        let (record, held) = found.unzip();
        let own = self.options.store.kind == StoreKind::Own;
        let held = own.then(|| held.unwrap_or_default());
        // Read after the lookup: what the store forgot before it is known by then.
        let worth = self.worth_told(at);
        let promise = self.promised(at, &worth);
        Looked { record, worth, held, promise, failed: false }
    }

    fn updated(&mut self, at: usize, subject: usize, change: &Change, tips: &[Rec]) -> Kept {
        self.expire(at, subject);
        let now = self.now;
        let memory = self.memory(at);
        // Somebody else may have raised it since: what is there is what the store says.
        let before = memory.lookup(subject, now).unwrap_or_default().0;
        let (record, held) = memory.update(subject, change, tips, now);
        let own = self.options.store.kind == StoreKind::Own;
        let promise = if own { self.promised_by_memory(at) } else { Promise::All };
        let held = own.then_some(held);
        Kept { before, record, worth: self.worth_told(at), held, promise, failed: false }
    }

    /// The one memory for all forgets everything, and every instance is told.
    pub(crate) fn forget(&mut self) {
        self.store.told.lose();
        self.store.deps.iter_mut().for_each(Deps::forget);
        let now = self.instant();
        for instance in &mut self.instances {
            instance.guard.lost(now);
        }
    }
}

/// What is kept of a subject.
pub(crate) async fn lookup(sim: &Sim, at: usize, subject: usize) -> Looked {
    match sim.with(|state| state.options.store.kind) {
        StoreKind::Told | StoreKind::Own => sim.with(|state| state.looked_up(at, subject)),
        StoreKind::Shared => client::lookup(sim, at, subject).await,
    }
}

/// Applies one change to what is kept of a subject; `tips` are the records it stands for.
pub(crate) async fn update(
    sim: &Sim,
    at: usize,
    subject: usize,
    change: &Change,
    tips: &[Rec],
) -> Kept {
    match sim.with(|state| state.options.store.kind) {
        StoreKind::Told | StoreKind::Own => {
            sim.with(|state| state.updated(at, subject, change, tips))
        }
        StoreKind::Shared => client::update(sim, at, subject, change, tips).await,
    }
}
