//! What a session depends on: records, each standing for everything before it.

use std::collections::BTreeSet;

use tidegate_core::lineage::{Epoch, Life};
use tidegate_core::token::Mark;

use super::Corner;
use crate::store::{Held, Promise};
use crate::world::World;
use crate::world::log::Rec;

/// Marks of a component.
pub(crate) type Marks = [(Epoch, Mark)];

/// Something a session wrote or saw, and told the service of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dep {
    /// The last record of it.
    pub(crate) tip: Rec,
    /// It wrote it.
    pub(crate) wrote: bool,
    /// The epoch its mark was made in; `None` if no mark could be made.
    pub(crate) epoch: Option<Epoch>,
    /// The life it was read in.
    pub(crate) life: Option<Life>,
    /// The store forgot it.
    pub(crate) forgotten: bool,
    /// The session was told that it may be gone; that it stayed then was not for it to know.
    pub(crate) told: bool,
    /// Why no mark stands for it any more, if none does.
    pub(crate) unmarked: Option<Corner>,
    /// To whom it is promised.
    pub(crate) promise: Promise,
}

impl Dep {
    /// What a session has just written, or seen.
    pub(crate) const fn new(tip: Rec, wrote: bool, epoch: Option<Epoch>, life: Life) -> Self {
        Self {
            tip,
            wrote,
            epoch,
            life: Some(life),
            forgotten: false,
            told: false,
            unmarked: None,
            promise: Promise::All,
        }
    }
}

/// All that one holder depends on.
#[derive(Clone, Default, Debug)]
pub(crate) struct Deps {
    pub(crate) all: Vec<Dep>,
    /// The epochs of writes that are gone, and were told of.
    pub(crate) gone: BTreeSet<Epoch>,
}

impl Deps {
    pub(crate) fn add(&mut self, dep: Dep, world: &World) {
        // What was seen earlier on the same line is in it.
        self.all.retain(|old| {
            let plain = !old.wrote && old.unmarked.is_none() && !old.forgotten && !old.told;
            let promised = dep.promise == Promise::All || dep.promise == old.promise;
            let same = old.epoch == dep.epoch && plain && dep.unmarked.is_none() && promised;
            !(same && world.tree.is_in(old.tip, Some(dep.tip)))
        });
        if !self.all.contains(&dep) {
            self.all.push(dep);
        }
        if self.all.len() > 48 {
            self.thin(world);
        }
    }

    /// Writes of one epoch go but the last.
    fn thin(&mut self, world: &World) {
        let all = self.all.clone();
        let covered = |dep: &Dep| {
            all.iter().any(|later| {
                later != dep
                    && later.wrote == dep.wrote
                    && later.epoch == dep.epoch
                    && later.forgotten == dep.forgotten
                    && later.unmarked == dep.unmarked
                    && later.told == dep.told
                    && later.promise == dep.promise
                    && later.tip != dep.tip
                    && world.tree.is_in(dep.tip, Some(later.tip))
            })
        };
        self.all.retain(|dep| !covered(dep));
    }

    pub(crate) fn join(&mut self, other: &Self, world: &World) {
        for dep in &other.all {
            self.add(*dep, world);
        }
        self.gone.extend(&other.gone);
    }

    /// The store has no record any more.
    pub(crate) fn forget(&mut self) {
        for dep in &mut self.all {
            dep.forgotten = true;
        }
    }

    /// What the store forgot since it was looked up is in no holder of a call that has raised the
    /// record since, but in its token.
    pub(crate) fn forget_as(&mut self, record: &Self, carried: Option<&Self>, world: &World) {
        // A write may have been thinned out since: a later one of its epoch stands for it.
        let stands = |held: &Self, dep: &Dep, forgotten: bool| {
            held.all.iter().any(|one| {
                let later = one.epoch == dep.epoch && world.tree.is_in(dep.tip, Some(one.tip));
                let same = one.wrote == dep.wrote && (one.tip == dep.tip || dep.wrote && later);
                same && one.forgotten == forgotten
            })
        };
        for dep in &mut self.all {
            let kept =
                stands(record, dep, false) || carried.is_some_and(|own| stands(own, dep, false));
            dep.forgotten |= stands(record, dep, true) && !kept;
        }
    }

    /// What a record that was found does not stand for was forgotten; `None`: none could be read.
    ///
    /// It stands for all that was recorded in it, and for what the session wrote or saw by a mark
    /// that is left. A demand alone is told to nobody when it is lost.
    pub(crate) fn forget_but(
        &mut self,
        held: Option<(&Held, &Marks)>,
        carried: Option<&Self>,
        world: &World,
    ) {
        for dep in &mut self.all {
            // A token that dropped its mark for size tells nobody either.
            let stands =
                |own: &Dep| (own.tip, own.wrote) == (dep.tip, dep.wrote) && own.unmarked.is_none();
            if carried.is_some_and(|own| own.all.iter().any(stands)) {
                continue;
            }
            let Some((held, marks)) = held else {
                dep.forgotten = true;
                dep.unmarked.get_or_insert(Corner::Unread);
                continue;
            };
            let end = world.tree.record(dep.tip).end;
            let marked = marks.iter().any(|(epoch, mark)| {
                let mut known = [mark.upto, mark.saw].into_iter().flatten();
                known.any(|known| known.scalar() >= end)
                    && world.tree.is_in(dep.tip, world.line(*epoch))
            });
            dep.forgotten |= !held.tips.contains(&dep.tip) && !marked;
            let is_of = |epoch: Epoch| world.tree.is_in(dep.tip, world.line(epoch));
            if held.fifth.iter().any(|(epoch, tips)| tips.contains(&dep.tip) && is_of(*epoch)) {
                dep.unmarked.get_or_insert(Corner::FifthLife);
            }
        }
    }

    /// Notes that the marks of an epoch are gone without being judged.
    pub(crate) fn unmark(&mut self, epoch: Option<Epoch>, why: Corner, world: &World) {
        let line = epoch.and_then(|epoch| world.line(epoch));
        for dep in &mut self.all {
            let touched = epoch.is_none() || world.tree.is_in(dep.tip, line);
            if touched {
                dep.unmarked.get_or_insert(why);
            }
        }
    }
}
