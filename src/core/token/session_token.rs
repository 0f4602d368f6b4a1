//! `SessionToken`: per partition a set of marks, one per epoch. A join-semilattice.
//!
//! Everything here only goes up: marks are joined, flags are set, notices added. A mark leaves only
//! when another covers it, when it became a notice, or when it is the fifth, and then a flag says
//! that something is missing.

use std::collections::BTreeMap;

use super::{Mark, Notice, NoticeId};
use crate::few::Few;
use crate::lineage::{Epoch, SystemId};
use crate::position::Position;

/// Marks a component keeps; one more leaves it unresolved.
pub(crate) const MARKS_MAX: usize = 4;
/// Notices, and acknowledged ids, a holder keeps: the latest by id.
pub(crate) const NOTICES_MAX: usize = 8;
/// Components a token keeps in memory.
pub(crate) const COMPONENTS_MAX: usize = 64;

/// The number of a partition, from the config; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId(u32);

impl PartitionId {
    /// Wraps the number the config gives.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// The number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// What a component is about: a partition, and the low bytes of its system id.
///
/// A partition moved to another database keeps its id; marks of the old one must not be taken for
/// marks of the new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ComponentKey {
    /// The partition.
    pub partition: PartitionId,
    /// [`SystemId::tag`] of its database.
    pub system_tag: u32,
}

impl ComponentKey {
    /// The key of `partition` while it is served by `system`.
    pub const fn new(partition: PartitionId, system: SystemId) -> Self {
        Self { partition, system_tag: system.tag() }
    }
}

/// What a session depends on in one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Component {
    /// Demands a leader sample sent after the call: a position could not be learned or kept.
    pub unresolved: bool,
    /// Each epoch once, in storage order; one as a rule, which lies in place.
    marks: Few<(Epoch, Mark)>,
}

impl Component {
    /// The component of one mark.
    pub fn of(epoch: Epoch, mark: Mark) -> Self {
        Self { unresolved: false, marks: Few::one((epoch, mark)) }
    }

    /// A component that demands a leader sample sent after the call.
    pub const fn unresolved() -> Self {
        Self { unresolved: true, marks: Few::none() }
    }

    /// Its marks, by epoch in storage order.
    pub fn marks(&self) -> impl Iterator<Item = (Epoch, Mark)> + '_ {
        self.marks.iter().copied()
    }

    /// Its marks where they stand, for who only looks.
    pub(crate) fn marks_held(&self) -> impl ExactSizeIterator<Item = (&Epoch, &Mark)> + '_ {
        self.marks.iter().map(|(epoch, mark)| (epoch, mark))
    }

    /// Where the mark of `epoch` lies, or where it would.
    fn place(&self, epoch: Epoch) -> Result<usize, usize> {
        self.marks.binary_search_by(|(own, _)| own.cmp(&epoch))
    }

    /// The mark of `epoch`.
    pub fn mark(&self, epoch: Epoch) -> Option<Mark> {
        let place = self.place(epoch).ok()?;
        self.marks.get(place).map(|(_, mark)| *mark)
    }

    /// Says whether it demands nothing.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && !self.unresolved
    }

    /// Joins one mark in. The fifth epoch drops the first in storage order and is remembered.
    pub fn raise(&mut self, epoch: Epoch, mark: Mark) {
        match self.place(epoch) {
            Ok(place) => {
                if let Some((_, own)) = self.marks.get_mut(place) {
                    *own = own.join(mark);
                }
            }
            Err(place) => self.marks.insert(place, (epoch, mark)),
        }
        if self.marks.len() > MARKS_MAX {
            self.marks.remove(0);
            self.unresolved = true;
        }
    }

    /// Takes a mark out that was replaced or covered by another.
    pub fn drop_mark(&mut self, epoch: Epoch) -> Option<Mark> {
        let place = self.place(epoch).ok()?;
        self.marks.remove(place).map(|(_, mark)| mark)
    }

    /// Demands what either does.
    pub fn join(&mut self, other: &Self) {
        self.unresolved |= other.unresolved;
        for (epoch, mark) in other.marks() {
            self.raise(epoch, mark);
        }
    }
}

/// What one session depends on, over all partitions. What a store keeps per subject is one too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionToken {
    /// Components were dropped: every partition without one is unknown.
    pub overflow: bool,
    /// Each key once, in order; one as a rule, which lies in place.
    components: Few<(ComponentKey, Component)>,
    /// By their losses.
    notices: BTreeMap<u64, Notice>,
    /// Losses, and how far of each the holder has heard.
    acknowledged: BTreeMap<u64, Position>,
}

impl SessionToken {
    /// A token that demands nothing.
    pub const fn new() -> Self {
        Self {
            overflow: false,
            components: Few::none(),
            notices: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    /// The token of one component.
    pub fn of(key: ComponentKey, component: Component) -> Self {
        let mut token = Self::new();
        token.join_component(key, &component);
        token
    }

    /// Says whether it demands and tells nothing.
    pub fn is_empty(&self) -> bool {
        !self.overflow
            && self.components.is_empty()
            && self.notices.is_empty()
            && self.acknowledged.is_empty()
    }

    /// Its components by partition.
    pub fn components(&self) -> impl Iterator<Item = (ComponentKey, &Component)> + '_ {
        self.components.iter().map(|(key, component)| (*key, component))
    }

    /// The component of one key.
    pub fn component(&self, key: ComponentKey) -> Option<&Component> {
        let place = self.place(key).ok()?;
        self.components.get(place).map(|(_, component)| component)
    }

    /// Where the component of `key` lies, or where it would.
    fn place(&self, key: ComponentKey) -> Result<usize, usize> {
        self.components.binary_search_by_key(&key, |(own, _)| *own)
    }

    /// The components of one partition, those of former databases included.
    pub fn partition(
        &self,
        id: PartitionId,
    ) -> impl Iterator<Item = (ComponentKey, &Component)> + '_ {
        self.components().filter(move |(key, _)| key.partition == id)
    }

    /// Notices not acknowledged yet, by id.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> + '_ {
        self.notices.values()
    }

    /// Ids acknowledged lately.
    pub fn acknowledged(&self) -> impl Iterator<Item = NoticeId> + '_ {
        self.acknowledged.iter().map(|(loss, upto)| NoticeId::new(*loss, *upto))
    }

    /// Joins a component in.
    pub fn join_component(&mut self, key: ComponentKey, component: &Component) {
        if component.is_empty() {
            return;
        }
        match self.place(key) {
            Ok(place) => {
                if let Some((_, own)) = self.components.get_mut(place) {
                    own.join(component);
                }
            }
            Err(place) => {
                self.components.insert(place, (key, component.clone()));
                self.keep_bound();
            }
        }
    }

    /// Replaces the component of `key`, as after marks were judged; an empty one goes.
    pub fn replace_component(&mut self, key: ComponentKey, component: Component) {
        match (self.place(key), component.is_empty()) {
            (Ok(place), true) => drop(self.components.remove(place)),
            (Err(_), true) => {}
            (Ok(place), false) => {
                if let Some((_, own)) = self.components.get_mut(place) {
                    *own = component;
                }
            }
            (Err(place), false) => {
                self.components.insert(place, (key, component));
                self.keep_bound();
            }
        }
    }

    fn keep_bound(&mut self) {
        while self.components.len() > COMPONENTS_MAX {
            self.components.remove(0);
            self.overflow = true;
        }
    }

    /// Drops a component for size and remembers that something is missing.
    pub fn shed(&mut self, key: ComponentKey) {
        if let Ok(place) = self.place(key) {
            self.components.remove(place);
            self.overflow = true;
        }
    }

    /// Adds a notice unless as much was acknowledged; the gravest kind stands.
    pub fn tell(&mut self, notice: Notice) {
        let id = notice.id();
        let heard = self.acknowledged.get(&id.loss());
        if heard.is_some_and(|upto| upto.covers(id.upto())) {
            return;
        }
        let joined = self.notices.get(&id.loss()).map_or(notice, |own| own.join(notice));
        self.notices.insert(id.loss(), joined);
        while self.notices.len() > NOTICES_MAX {
            self.notices.pop_first();
        }
    }

    /// Takes a notice out for good, as far as it was heard of.
    pub fn acknowledge(&mut self, id: NoticeId) {
        if self.notices.get(&id.loss()).is_some_and(|notice| id.covers(notice.id())) {
            self.notices.remove(&id.loss());
        }
        let upto = id.upto();
        let heard = self.acknowledged.entry(id.loss()).or_insert(upto);
        *heard = heard.join(upto);
        while self.acknowledged.len() > NOTICES_MAX {
            self.acknowledged.pop_first();
        }
    }

    /// Demands and tells what either does.
    pub fn join(&mut self, other: &Self) {
        self.overflow |= other.overflow;
        for (key, component) in other.components() {
            self.join_component(key, component);
        }
        for id in other.acknowledged() {
            self.acknowledge(id);
        }
        for notice in other.notices() {
            self.tell(*notice);
        }
    }
}
