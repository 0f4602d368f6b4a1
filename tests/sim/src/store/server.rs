//! `Server`: one server of a shared store. Atomic scripts, asynchronous replication, a count of
//! replicas that is renewed once in a while, records that expire and are evicted.
//!
//! It knows no rule of Tidegate: records and the generation are bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_core::lineage::Epoch;
use tidegate_core::store_guard::{Reply, Server as ServerId};

use crate::world::log::Rec;

/// What a record was made of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Held {
    pub(crate) tips: BTreeSet<Rec>,
    /// Epochs whose marks did not fit, and what it was made of then.
    pub(crate) fifth: BTreeMap<Epoch, BTreeSet<Rec>>,
}

impl Held {
    /// The same with what came to it.
    pub(crate) fn with(&self, tips: &[Rec], fifth: &[Epoch]) -> Self {
        let mut held = self.clone();
        held.tips.extend(tips);
        for epoch in fifth {
            held.fifth.entry(*epoch).or_default().extend(&held.tips);
        }
        held
    }
}

/// A record: its bytes, and what the checker knows was recorded in them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) body: Vec<u8>,
    pub(crate) held: Held,
    pub(crate) expires_at: u64,
}

/// What a server keeps.
#[derive(Clone, Default, Debug)]
pub(crate) struct Data {
    pub(crate) records: BTreeMap<usize, Record>,
    pub(crate) generation: Option<Vec<u8>>,
}

/// What is replicated.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(usize, Record),
    Delete(usize),
    Generation(Option<Vec<u8>>),
    Flush,
}

impl Data {
    pub(crate) fn apply(&mut self, op: Op) {
        match op {
            Op::Set(subject, record) => drop(self.records.insert(subject, record)),
            Op::Delete(subject) => drop(self.records.remove(&subject)),
            Op::Generation(bytes) => self.generation = bytes,
            Op::Flush => *self = Self::default(),
        }
    }
}

/// A compare-and-set of one record.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    pub(crate) subject: usize,
    pub(crate) expected: Option<Vec<u8>>,
    /// `None`: it goes.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) tips: Vec<Rec>,
    /// The caller could not read what is there, and writes something instead.
    pub(crate) replaces: bool,
    /// Epochs whose marks do not fit any more.
    pub(crate) fifth: Vec<Epoch>,
}

/// What became of a swap.
#[derive(Clone, Debug)]
pub(crate) enum Swapped {
    /// It is as asked; `wrote` says whether that took a write.
    Done { wrote: bool, held: Held },
    /// Something else is there.
    Differs(Option<Vec<u8>>),
}

/// Why a server does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Too few replicas were heard of lately.
    FewReplicas,
    /// It is a replica.
    ReadOnly,
    /// It does not know the script.
    NoScript,
}

#[derive(Debug)]
pub(crate) struct Server {
    /// Which history it has; a primary's is its own.
    pub(crate) history: u64,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    /// Whom it follows; `None`: it is a primary, or spare and not in use.
    pub(crate) upstream: Option<usize>,
    pub(crate) data: Data,
    pub(crate) evicted: u64,
    /// It knows the scripts.
    pub(crate) scripts: bool,
    /// Its clock is ahead.
    pub(crate) ahead: u64,
    /// What is under way to it.
    pub(crate) inbox: VecDeque<(u64, Op)>,
    /// What a write takes to get here.
    pub(crate) delay: u64,
    /// The network to whom it follows is cut.
    pub(crate) cut: bool,
    /// It has to be sent everything first.
    pub(crate) must_sync: bool,
    /// When each replica was last heard of.
    pub(crate) heard: BTreeMap<usize, u64>,
    /// Replicas counted last, and when.
    pub(crate) good: usize,
    pub(crate) counted_at: u64,
    /// Swaps whose callers have given up, which it takes in once it runs again.
    pub(crate) queued: Vec<Swap>,
}

impl Server {
    pub(crate) fn new(history: u64, upstream: Option<usize>) -> Self {
        Self {
            history,
            up: true,
            frozen: false,
            upstream,
            data: Data::default(),
            evicted: 0,
            scripts: false,
            ahead: 0,
            inbox: VecDeque::new(),
            delay: 0,
            cut: false,
            must_sync: false,
            heard: BTreeMap::new(),
            good: usize::MAX,
            counted_at: 0,
            queued: Vec::new(),
        }
    }

    pub(crate) const fn runs(&self) -> bool {
        self.up && !self.frozen
    }

    /// The name of its history, as it prints it.
    pub(crate) fn id(&self) -> ServerId {
        let mut id = [7; 20];
        for (byte, value) in id.iter_mut().zip(self.history.to_le_bytes()) {
            *byte = value;
        }
        ServerId::new(id)
    }

    /// What comes with each answer.
    pub(crate) fn reply(&self) -> Reply {
        Reply {
            server: self.id(),
            is_primary: self.upstream.is_none(),
            evicted: self.evicted,
            generation: self.data.generation.clone(),
        }
    }

    /// A record that has not expired, by its own clock.
    pub(crate) fn record(&self, subject: usize, now: u64) -> Option<&Record> {
        let stands = |record: &&Record| now + self.ahead < record.expires_at;
        self.data.records.get(&subject).filter(stands)
    }

    pub(crate) fn takes_writes(&self, min_replicas: usize) -> Result<(), Refused> {
        if self.upstream.is_some() {
            return Err(Refused::ReadOnly);
        }
        if self.good < min_replicas { Err(Refused::FewReplicas) } else { Ok(()) }
    }
}
