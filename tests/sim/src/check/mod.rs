//! The checker: what was promised, compared with what servers really have.
//!
//! - [`breach`]: how a promise can be broken
//! - [`corner`]: what may be missing and is no breach
//! - [`deps`]: what a session depends on, as records
//! - [`figures`]: how much was really tried
//! - [`justified`]: notices that nothing justifies
//! - [`reads`]: answers of reads and waits
//! - [`restored`]: who could tell that a leader was restored
//! - [`told`]: notices against what became of writes
//!
//! It knows records and promises, and no rule by which the core keeps them.

mod breach;
mod corner;
mod deps;
mod figures;
mod justified;
mod reads;
mod restored;
mod told;

use std::collections::{BTreeMap, BTreeSet};

pub use breach::Breach;
pub use corner::Corner;
pub(crate) use deps::{Dep, Deps};
pub use figures::Figures;
pub(crate) use justified::Telling;
pub(crate) use reads::ReadCheck;
use restored::Restored;

use tidegate_core::lineage::{Epoch, Incarnation, Life, SystemId};
use tidegate_core::views::Observation;

use crate::trace::Trace;
use crate::world::SYSTEM;
use crate::world::log::Rec;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When, in nanoseconds of the world.
    pub at: u64,
    /// How.
    pub kind: Breach,
    /// What exactly.
    pub text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Check {
    pub(crate) trace: Trace,
    pub(crate) figures: Figures,
    pub(crate) violation: Option<Violation>,
    /// The only kinds that count, where a guard is switched off.
    pub(crate) harms: Option<&'static [Breach]>,
    /// Commits acknowledged, in order of time.
    pub(crate) acknowledged: Vec<(u64, Rec)>,
    /// The losses behind the notices that were acknowledged.
    pub(crate) losses: BTreeMap<u64, (Epoch, Epoch)>,
    /// When a fault last began or ended.
    pub(crate) fault_until: u64,
    /// Lives of running servers that were taken back, and when each instance saw them since.
    pub(crate) reverted: BTreeMap<Life, (u64, BTreeSet<usize>)>,
    /// Lives that two servers live, and the nodes each instance has seen them under since.
    pub(crate) copied: BTreeMap<Life, (u64, BTreeMap<usize, BTreeSet<usize>>)>,
    /// Epochs an instance has polled.
    pub(crate) polled: BTreeSet<(usize, Epoch)>,
    /// The rows an incarnation has shown an instance.
    pub(crate) shown: BTreeMap<(usize, Incarnation), BTreeSet<Epoch>>,
    /// Promotions.
    pub(crate) moves: usize,
    /// Instances that restarted.
    pub(crate) restarts: usize,
    /// One of them lost its facts.
    pub(crate) forgot: bool,
    /// Verdicts of operators.
    pub(crate) verdicts: usize,
    /// Leaders that were restored from older copies.
    pub(crate) restored: Restored,
    /// Nodes an operator vouched for who was not asked.
    pub(crate) vouched: BTreeSet<usize>,
    /// Nodes that stay out until an operator vouches for them.
    pub(crate) needs_word: BTreeSet<usize>,
    /// When fallbacks were admitted, by instance.
    pub(crate) fallbacks: Vec<Vec<u64>>,
}

impl Check {
    pub(crate) fn new(instances: usize, harms: Option<&'static [Breach]>) -> Self {
        let restored = Restored::of(instances);
        Self { harms, fallbacks: vec![Vec::new(); instances], restored, ..Self::default() }
    }

    pub(crate) const fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    pub(crate) fn broken(&mut self, at: u64, kind: Breach, text: String) {
        self.trace.say(at, || format!("BROKEN {kind}: {text}"));
        if self.harms.is_some_and(|harms| !harms.contains(&kind)) {
            return;
        }
        self.violation.get_or_insert(Violation { at, kind, text });
    }

    /// Notes what an instance can know from now on.
    pub(crate) fn seen(&mut self, instance: usize, seen: &Observation) {
        let incarnation = seen.evidence.incarnation;
        if incarnation.system != SystemId::new(SYSTEM) {
            return;
        }
        if let Some(epoch) = seen.evidence.epoch() {
            self.polled.insert((instance, epoch));
            self.restored.seen((instance, seen.node.index()), epoch, &seen.evidence);
        }
        if let Some((since, by)) = self.reverted.get_mut(&incarnation.life)
            && seen.sent_at.as_nanos() >= *since
        {
            by.insert(instance);
        }
        if let Some((since, by)) = self.copied.get_mut(&incarnation.life)
            && seen.sent_at.as_nanos() >= *since
        {
            by.entry(instance).or_default().insert(seen.node.index());
        }
        let shown = self.shown.entry((instance, incarnation)).or_default();
        shown.extend(seen.rows.iter().flatten().map(|row| row.epoch));
    }
}
