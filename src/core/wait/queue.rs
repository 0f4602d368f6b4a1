//! `WaitQueue`: reads parked on scalars, in the order of what they wait for.
//!
//! It owns no timer and wakes nobody: positions and instants come in, ids go out. It does not know
//! what a wait demands: a reached scalar is a reason to judge again, never an answer.

use crate::instant::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// The name of one wait, chosen by the caller and unique among the waits parked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaitId(u64);

impl WaitId {
    /// The wait numbered `value`.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number of this wait.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// The queue holds as many waits as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{limit} reads wait already, which is the limit: try again later, or raise the limit")]
pub struct QueueFull {
    /// The number of waits that fit.
    pub limit: usize,
}

/// Reads that wait, each for any one of its slots `(axis, scalar)`, and at most until its deadline.
///
/// `K` names an axis, on which scalars only grow: what one node applied, what the leader flushed.
/// `W` is what the caller needs to judge a wait again.
///
/// Invariant: at most `limit` waits; each leaves exactly once, by [`Self::take`] or
/// [`Self::expire`], and leaves nothing behind. An id that is not parked is answered with nothing,
/// so that a cancel and a wake may race.
#[derive(Debug)]
pub struct WaitQueue<K, W> {
    limit: usize,
    waits: BTreeMap<WaitId, Parked<K, W>>,
    /// One set for all axes: an axis on which nobody waits takes no room.
    slots: BTreeSet<(K, u64, WaitId)>,
    deadlines: BTreeSet<(Instant, WaitId)>,
}

#[derive(Debug)]
struct Parked<K, W> {
    deadline: Instant,
    /// What `slots` holds of this wait: without it a leaving wait could not be found there.
    slots: Vec<(K, u64)>,
    wait: W,
}

impl<K: Copy + Ord, W> WaitQueue<K, W> {
    /// A queue of at most `limit` waits.
    pub const fn new(limit: usize) -> Self {
        Self { limit, waits: BTreeMap::new(), slots: BTreeSet::new(), deadlines: BTreeSet::new() }
    }

    /// Parks `wait` until one of `slots` is reached or `deadline` has come.
    ///
    /// Without slots it only leaves when it is taken or expires. A slot that was reached before is
    /// found by the next [`Self::advance`] of its axis: judge before parking.
    ///
    /// # Errors
    /// [`QueueFull`] at the limit; nothing is kept of `wait` then. An id that is parked already is
    /// a broken invariant of the caller: the new wait is refused likewise, the old one stays.
    pub fn park(
        &mut self,
        id: WaitId,
        deadline: Instant,
        slots: impl IntoIterator<Item = (K, u64)>,
        wait: W,
    ) -> Result<(), QueueFull> {
        let parked_twice = self.waits.contains_key(&id);
        debug_assert!(!parked_twice, "{id:?} is parked already");
        if parked_twice || self.waits.len() >= self.limit {
            return Err(QueueFull { limit: self.limit });
        }
        let slots = self.enter(id, slots);
        self.deadlines.insert((deadline, id));
        self.waits.insert(id, Parked { deadline, slots, wait });
        self.debug_assert_sizes();
        Ok(())
    }

    /// The waits with a slot on `axis` at or below `reached`, lowest scalar first, each once.
    ///
    /// Those slots are consumed; the waits stay, for the caller to judge again and then to
    /// [`Self::repark`] or [`Self::take`].
    pub fn advance(&mut self, axis: K, reached: u64) -> Vec<WaitId> {
        let mut woken = Vec::new();
        while let Some((_, scalar, id)) = self.first_on(axis).filter(|slot| slot.1 <= reached) {
            // All its reached slots go at once, so that no wait is named twice.
            if let Some(parked) = self.waits.get_mut(&id) {
                let is_reached = |slot: &mut (K, u64)| slot.0 == axis && slot.1 <= reached;
                for (axis, scalar) in parked.slots.extract_if(.., is_reached) {
                    self.slots.remove(&(axis, scalar, id));
                }
                woken.push(id);
            }
            let left_over = self.slots.remove(&(axis, scalar, id));
            debug_assert!(!left_over, "a slot of {id:?} outlived it");
        }
        self.debug_assert_sizes();
        woken
    }

    /// Replaces all slots of a wait, keeping its deadline; `false` if it is not parked.
    pub fn repark(&mut self, id: WaitId, slots: impl IntoIterator<Item = (K, u64)>) -> bool {
        let Some(parked) = self.waits.get_mut(&id) else {
            return false;
        };
        let old = std::mem::take(&mut parked.slots);
        self.leave(id, old);
        let new = self.enter(id, slots);
        if let Some(parked) = self.waits.get_mut(&id) {
            parked.slots = new;
        }
        self.debug_assert_sizes();
        true
    }

    /// What is kept of a parked wait.
    pub fn get(&self, id: WaitId) -> Option<&W> {
        self.waits.get(&id).map(|parked| &parked.wait)
    }

    /// What is kept of a parked wait, to be changed in place.
    pub fn edit(&mut self, id: WaitId) -> Option<&mut W> {
        self.waits.get_mut(&id).map(|parked| &mut parked.wait)
    }

    /// Removes a wait that is served, refused or cancelled; `None` if it has left already.
    pub fn take(&mut self, id: WaitId) -> Option<W> {
        let parked = self.waits.remove(&id)?;
        let had_deadline = self.deadlines.remove(&(parked.deadline, id));
        debug_assert!(had_deadline, "{id:?} had no deadline");
        self.leave(id, parked.slots);
        self.debug_assert_sizes();
        Some(parked.wait)
    }

    /// Removes the waits whose deadline is `now` or earlier, earliest first.
    pub fn expire(&mut self, now: Instant) -> Vec<(WaitId, W)> {
        let mut expired = Vec::new();
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            match self.take(id) {
                Some(wait) => expired.push((id, wait)),
                None => {
                    debug_assert!(false, "a deadline of {id:?} outlived it");
                    self.deadlines.remove(&(deadline, id));
                }
            }
        }
        expired
    }

    /// When [`Self::expire`] next has something to do; `None` while nobody waits.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The lowest scalar anybody waits for on `axis`: a source need not hurry without one.
    pub fn lowest(&self, axis: K) -> Option<u64> {
        self.first_on(axis).map(|(_, scalar, _)| scalar)
    }

    /// Whether anybody waits on `axis`.
    pub fn waits_on(&self, axis: K) -> bool {
        self.first_on(axis).is_some()
    }

    /// All parked waits, lowest id first: for the pass that judges every wait again.
    pub fn ids(&self) -> Vec<WaitId> {
        self.waits.keys().copied().collect()
    }

    /// The number of parked waits.
    pub fn len(&self) -> usize {
        self.waits.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    fn first_on(&self, axis: K) -> Option<(K, u64, WaitId)> {
        let first = (axis, u64::MIN, WaitId(u64::MIN));
        let last = (axis, u64::MAX, WaitId(u64::MAX));
        self.slots.range(first..=last).next().copied()
    }

    /// Enters `slots` and returns them without repetition.
    fn enter(&mut self, id: WaitId, slots: impl IntoIterator<Item = (K, u64)>) -> Vec<(K, u64)> {
        let mut entered: Vec<_> = slots.into_iter().collect();
        entered.sort_unstable();
        entered.dedup();
        self.slots.extend(entered.iter().map(|&(axis, scalar)| (axis, scalar, id)));
        entered
    }

    fn leave(&mut self, id: WaitId, slots: Vec<(K, u64)>) {
        for (axis, scalar) in slots {
            let was_there = self.slots.remove(&(axis, scalar, id));
            debug_assert!(was_there, "a slot of {id:?} was lost");
        }
    }

    fn debug_assert_sizes(&self) {
        debug_assert!(self.waits.len() <= self.limit, "more waits than the limit");
        debug_assert_eq!(self.waits.len(), self.deadlines.len(), "one deadline for each wait");
        debug_assert!(!self.waits.is_empty() || self.slots.is_empty(), "slots without a wait");
    }

    /// Panics unless the three structures name the same waits and slots. Reads all of them.
    #[cfg(test)]
    pub(super) fn assert_coherent(&self) {
        let waits = self.waits.iter();
        let deadlines: BTreeSet<_> = waits.clone().map(|(&id, p)| (p.deadline, id)).collect();
        let slots: BTreeSet<_> = waits
            .flat_map(|(&id, p)| p.slots.iter().map(move |&(axis, scalar)| (axis, scalar, id)))
            .collect();
        assert_eq!(deadlines, self.deadlines);
        assert!(slots == self.slots, "slots without a wait, or waits without their slots");
        assert_eq!(self.waits.values().map(|p| p.slots.len()).sum::<usize>(), self.slots.len());
    }

    /// The number of entries kept in all structures together.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.waits.len() + self.slots.len() + self.deadlines.len()
    }
}
