//! Notices that nothing justifies: what they are about surely survived, or nobody gave it up.

use tidegate_core::leader::Facts;
use tidegate_core::lineage::{Epoch, History};
use tidegate_core::position::Position;
use tidegate_core::token::{Change, Mark, Notice};

use super::{Breach, Check, Deps};
use crate::world::World;
use crate::world::log::page_start;

/// What a session is told, by whom, and what it depends on.
#[derive(Debug)]
pub(crate) struct Telling<'a> {
    pub(crate) change: &'a Change,
    pub(crate) deps: &'a Deps,
    /// The epoch the instance held for the leader's.
    pub(crate) leader: Option<Epoch>,
    /// What it knows of epochs.
    pub(crate) history: &'a History,
    /// What each instance knows from polls.
    pub(crate) facts: Vec<&'a Facts>,
}

impl Check {
    /// Looks at each loss that was judged just now.
    pub(crate) fn justified(&mut self, telling: &Telling<'_>, world: &World, now: u64) {
        for notice in &telling.change.tell {
            let concerned = |dep: &&super::Dep| dep.epoch == Some(notice.lost);
            let mut of_it = telling.deps.all.iter().filter(concerned).peekable();
            let kept = world.line(notice.child);
            let is_some = of_it.peek().is_some();
            if is_some && of_it.all(|dep| world.tree.is_in(dep.tip, kept)) {
                self.figures.notices_needless += 1;
            }
            self.survivor(notice, telling, world, now);
            // One whose row was read is judged by that row.
            if !telling.history.has_row(notice.lost) {
                self.given_up(notice, telling.leader, world, now);
            }
        }
    }

    fn survivor(&mut self, notice: &Notice, telling: &Telling<'_>, world: &World, now: u64) {
        let marks = telling.change.drop.iter().filter(|(_, epoch, _)| *epoch == notice.lost);
        let mut marks = marks.map(|(_, _, mark)| mark).peekable();
        if marks.peek().is_none() {
            return;
        }
        let claimed = match telling.history.origin(notice.child) {
            Some((Some(parent), fork)) if parent == notice.lost => fork.at_least(),
            Some(_) | None => Some(Position::START),
        };
        let proven = self.surely_kept(notice, telling, world);
        let limit = match (claimed, proven) {
            (Some(claimed), Some(proven)) => Some(claimed.join(proven)),
            (claimed, None) => claimed,
            (None, Some(_)) => None,
        };
        if marks.all(|mark| survives(mark, limit)) {
            let Telling { change, deps, .. } = telling;
            let text = format!("{notice:?} though {limit:?} survived: {change:?} {deps:?}");
            self.broken(now, Breach::SurvivorTold, text);
        }
    }

    /// Up to where a crash on the same timeline surely kept an epoch, by what every instance polled
    /// of it before.
    fn surely_kept(
        &self,
        notice: &Notice,
        telling: &Telling<'_>,
        world: &World,
    ) -> Option<Position> {
        let (lost, child) = (notice.lost, notice.child);
        let unsure = self.restarts > 0
            || self.restored.is_any()
            || !self.needs_word.is_empty()
            || self.figures.mixed_up();
        if lost.timeline != child.timeline || unsure {
            return None;
        }
        let branch = world.tree.branch_of(child)?;
        let parent = world.tree.branches[branch].parent?;
        // Known to have grown from it only where that one's row was written.
        if world.tree.epoch(parent) != lost || world.tree.row_before(branch) != Some(lost) {
            return None;
        }
        let recovered = world.tree.record(parent).end;
        let mut seen = telling.facts.iter().map(|facts| facts.flush_seen(lost));
        let first = seen.next()??;
        let flushed = seen.try_fold(first, |least, seen| Some(least.meet(seen?)))?.scalar();
        let torn = flushed == page_start(flushed);
        let kept = match flushed.cmp(&recovered) {
            std::cmp::Ordering::Less | std::cmp::Ordering::Equal => flushed,
            std::cmp::Ordering::Greater if torn => recovered,
            std::cmp::Ordering::Greater => return None,
        };
        Some(tidegate_core::position::Lsn::new(kept).into())
    }

    /// Whoever leads on a line ahead of the leader in view must not be given up for it.
    fn given_up(&mut self, notice: &Notice, leader: Option<Epoch>, world: &World, now: u64) {
        let ahead = leader.is_some_and(|leader| notice.lost.timeline > leader.timeline);
        let asked = self.verdicts > 0 || !self.needs_word.is_empty();
        if ahead && !asked && self.is_true(notice.lost, world) {
            self.broken(now, Breach::GivenUp, format!("{notice:?} for {leader:?}"));
        }
    }
}

/// Says whether nothing of a mark lies past `limit`; `None`: there is no limit.
fn survives(mark: &Mark, limit: Option<Position>) -> bool {
    if mark.write_end_is_unknown() {
        return false;
    }
    let mut ends = [mark.upto, mark.saw].into_iter().flatten().peekable();
    ends.peek().is_some() && ends.all(|end| limit.is_none_or(|limit| limit.covers(end)))
}
