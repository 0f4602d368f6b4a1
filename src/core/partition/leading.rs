//! Who leads, where its epoch has its place in history, and the row that says so.
//!
//! What an observation proves of one node is not decided here, nor who may serve.

use std::sync::Arc;

use super::{Effect, Notable, Partition, RowOutcome};
use crate::evidence::Role;
use crate::instant::Instant;
use crate::leader::{Contender, EpochFacts, Facts, Leadership, Origin, Placed};
use crate::lineage::{Epoch, Fork, History, LineageRow};
use crate::trail::Sample;
use crate::views::{Observation, ViewRole};

/// The tree as it was told before this instance started, until rows are read.
pub(super) fn history_of(facts: &Facts) -> History {
    let mut history = History::new();
    let parent_of = |epoch: &Epoch| facts.of(*epoch)?.origin?.parent;
    for (epoch, origin) in facts.iter().filter_map(|(epoch, facts)| Some((epoch, facts.origin?))) {
        // A row that is read says better how deep it is. False facts may go round in circles.
        let before = std::iter::successors(origin.parent, parent_of).take(History::EPOCHS_MAX);
        let n = 1 + before.count() as u64;
        let row = LineageRow { epoch, parent: origin.parent, fork: origin.fork, n };
        // Each epoch comes once, so nothing can contradict it.
        _ = history.place(row);
        history.share(epoch, origin.parent, origin.shared);
    }
    history
}

impl Partition {
    /// Says whether a row contradicts what is known: then marks must be judged again.
    pub(super) fn read_rows(&mut self, seen: &Observation, effects: &mut Vec<Effect>) -> bool {
        let mut disputed = false;
        for row in seen.rows.iter().flatten() {
            if Arc::make_mut(&mut self.snapshot.history).read_row(*row).is_err() {
                effects.push(Effect::Emit(Notable::RowConflict(row.epoch)));
                disputed = true;
            }
        }
        disputed
    }

    /// Gives the epoch of a writable node its place, the first time it is seen.
    pub(super) fn place_epoch(&mut self, seen: &Observation, effects: &mut Vec<Effect>) {
        let Some(epoch) = seen.evidence.epoch() else { return };
        let history = &self.snapshot.history;
        // Rows that were not read yet say more than could be guessed without them.
        let unread = seen.evidence.row.is_some_and(|row| !history.knows(row));
        // Somebody wrote its row before it was seen here: what it froze at counts as well. Where it
        // shows none, its own writes must not vouch for the parent's.
        let of_others = seen.evidence.row == Some(epoch)
            && seen.evidence.replay.is_some()
            && self.is_first_seen(seen);
        let is_placed = history.knows(epoch) && !of_others && !self.is_misplaced(seen, epoch);
        if unread || is_placed {
            return;
        }
        let known = history.origin(epoch);
        let parent =
            if of_others { known.and_then(|(parent, _)| parent) } else { seen.evidence.row };
        let view = self.snapshot.view(seen.node);
        let settings = &self.snapshot.settings;
        let is_durable = settings.async_commits_never;
        let (facts, guards) = (&self.snapshot.facts, &settings.guards);
        let placed = Origin::of(seen, parent, view, facts, is_durable, guards);
        let Some(Placed { origin, is_restored }) = placed else { return };
        let history = &self.snapshot.history;
        let lacks_rows = origin.parent.is_some_and(|parent| {
            parent.timeline == epoch.timeline && history.went_on_without(parent, epoch)
        });
        let is_restored = is_restored || (lacks_rows && guards.restored());
        let origin = if is_restored { origin.doubted() } else { origin };
        if known == Some((origin.parent, origin.fork)) && history.shared(epoch) == origin.shared {
            return;
        }
        let history = Arc::make_mut(&mut self.snapshot.history);
        let had_rows = history.rows().any(|row| history.has_row(row.epoch));
        history.unplace(epoch);
        // A root in a database that shows rows must be its last one too.
        let last = origin.parent.or(seen.evidence.row);
        let n = last.and_then(|last| history.depth(last)).unwrap_or(0) + 1;
        let row = LineageRow { epoch, parent: origin.parent, fork: origin.fork, n };
        if history.place(row).is_err() {
            effects.push(Effect::Emit(Notable::RowConflict(epoch)));
        }
        history.share(epoch, origin.parent, origin.shared);
        if is_restored {
            history.distrust(epoch);
            self.restored = Some(epoch);
        }
        if !of_others {
            let unknown = origin.parent.is_some() && origin.fork == Fork::Unknown;
            effects.push(Effect::Emit(Notable::NewEpoch { row, unknown }));
        }
        // Rows that cannot be read are not gone.
        let is_read = seen.evidence.row.is_some() || seen.rows.is_some();
        if is_restored || (origin.parent.is_none() && is_read && had_rows && !of_others) {
            effects.push(Effect::Emit(Notable::Restored(seen.node, epoch)));
        }
    }

    /// Says whether the node is seen writable in this life for the first time.
    fn is_first_seen(&self, seen: &Observation) -> bool {
        let view = self.snapshot.view(seen.node);
        let same = view.filter(|view| view.incarnation == seen.evidence.incarnation);
        same.is_none_or(|view| view.first_writable.is_none())
    }

    /// Says whether an epoch was taken for a root because no row could be read, and now one can.
    fn is_misplaced(&self, seen: &Observation, epoch: Epoch) -> bool {
        let history = &self.snapshot.history;
        let is_root = history.origin(epoch).is_some_and(|(parent, _)| parent.is_none());
        is_root && !history.has_row(epoch) && seen.evidence.row.is_some_and(|row| row != epoch)
    }

    pub(super) fn learn_facts(&mut self, seen: &Observation) {
        let facts = Arc::make_mut(&mut self.snapshot.facts);
        let changed = match (seen.evidence.role, seen.evidence.epoch()) {
            (Role::Writable { flush, flush_starts_page, .. }, Some(epoch)) => {
                let replay = Some(seen.evidence.replay);
                let node = Some(seen.node);
                let (flush_seen, ended) = (flush, false);
                let (origin, shared) = {
                    let history = &self.snapshot.history;
                    (history.origin(epoch), history.shared(epoch))
                };
                let origin = origin.map(|(parent, fork)| Origin { parent, fork, shared });
                let is_restored = self.restored == Some(epoch);
                let shown = EpochFacts {
                    node,
                    flush_seen,
                    flush_starts_page,
                    replay,
                    origin,
                    is_restored,
                    ended,
                };
                facts.join(epoch, shown)
            }
            (Role::Writable { .. }, None) | (Role::Standby { .. }, _) => {
                facts.end_all_of(seen.node)
            }
        };
        self.trim_facts();
        self.facts_dirty |= changed;
    }

    /// Who leads under a timeline number it led another line of before was made anew between: a
    /// log that went on past that line's end would have another number. Nothing is left of it.
    /// That is not so where it goes on from what another node led under that number: it may have
    /// been attached to that one as it was, and started writable there.
    pub(super) fn overwrite(&mut self, seen: &Observation) {
        let Some(leader) = self.snapshot.leadership.leader() else { return };
        if leader.node != seen.node || seen.evidence.epoch() != Some(leader.epoch) {
            return;
        }
        let (leads, history) = (leader.epoch, &self.snapshot.history);
        let facts = &self.snapshot.facts;
        let mut before = history.chain(leads).filter(|epoch| *epoch != leads);
        let is_own =
            |epoch: Epoch| facts.of(epoch).is_some_and(|known| known.node == Some(seen.node));
        if !before.all(|epoch| epoch.timeline != leads.timeline || is_own(epoch)) {
            return;
        }
        // Another instance may have told of a life that began after this poll was sent.
        let is_gone = |(epoch, known): &(Epoch, EpochFacts)| {
            known.node == Some(seen.node)
                && epoch.timeline == leads.timeline
                && epoch.life.start < leads.life.start
                && !history.descends(leads, *epoch)
                && !facts.words().is_resumed(epoch.life)
        };
        let gone: Vec<Epoch> = facts.iter().filter(is_gone).map(|(epoch, _)| epoch).collect();
        for epoch in gone {
            let facts = Arc::make_mut(&mut self.snapshot.facts);
            self.facts_dirty |= facts.words_mut().resume(epoch.life);
        }
    }

    /// Forgets the facts of epochs that the current one has grown from, where there are many:
    /// nothing is decided by them any more.
    pub(super) fn trim_facts(&mut self) {
        let (history, heads) = (&self.snapshot.history, self.snapshot.leadership.heads());
        Arc::make_mut(&mut self.snapshot.facts)
            .trim(|epoch| heads.iter().any(|h| *h != epoch && history.descends(*h, epoch)));
    }

    /// The nodes that count as writable before the operator's word: one that cannot be reached
    /// still does.
    pub(super) fn writable(&self) -> Vec<Contender> {
        let epoch = |node| match self.snapshot.view(node).map(|view| view.role) {
            Some(ViewRole::Writable(epoch)) => Some(epoch),
            Some(ViewRole::Standby) => None,
            None => self.snapshot.facts.last_led_by(node),
        };
        let nodes = self.snapshot.nodes();
        nodes.filter_map(|node| Some(Contender { node, epoch: epoch(node)? })).collect()
    }

    /// Judges who leads; says whether the leading epoch changed.
    pub(super) fn lead(&mut self, effects: &mut Vec<Effect>) -> bool {
        let mut contenders = self.writable();
        contenders.retain(|one| !self.snapshot.is_set_aside(one.epoch));
        let history = &self.snapshot.history;
        let guards = self.snapshot.settings.guards;
        let leadership = Leadership::of(&contenders, self.last, history, &guards);
        let leader = leadership.leader().map(|leader| leader.epoch);
        let changed = leader.is_some() && leader != self.last;
        if changed && let Some(leader) = leadership.leader() {
            let view = self.snapshot.view(leader.node);
            let in_recovery_at = view.and_then(|view| view.in_recovery_at);
            let history = Arc::clone(&self.snapshot.history);
            Arc::make_mut(&mut self.snapshot.trail).change_leader(
                leader.epoch,
                in_recovery_at,
                &history,
                &guards,
            );
            self.last = Some(leader.epoch);
            self.snapshot.row_unwritable = false;
        }
        let moved = leadership != self.snapshot.leadership;
        if moved {
            effects.push(Effect::Emit(Notable::Leadership(leadership.clone())));
            self.snapshot.leadership = leadership;
        }
        moved
    }

    /// A poll of the leader is a sample of what it had when the poll was sent.
    pub(super) fn sample(&mut self, seen: &Observation) {
        let Some(leader) = self.snapshot.leadership.leader() else { return };
        let Role::Writable { insert, flush, .. } = seen.evidence.role else { return };
        if leader.node != seen.node || seen.evidence.epoch() != Some(leader.epoch) {
            return;
        }
        let guards = self.snapshot.settings.guards;
        let sent_at = if guards.trail_sent_at() { seen.sent_at } else { seen.received_at };
        let position = if guards.insert_lsn() { insert } else { flush };
        let sample = Sample { sent_at, epoch: leader.epoch, position };
        Arc::make_mut(&mut self.snapshot.trail).push(sample);
    }

    /// The leader's epoch is written down in its own log, once.
    pub(super) fn write_row(
        &mut self,
        seen: &Observation,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(leader) = self.snapshot.leadership.leader() else { return };
        let written = seen.evidence.row == Some(leader.epoch);
        let polled = leader.node == seen.node && seen.evidence.epoch() == Some(leader.epoch);
        if polled && written {
            // Whoever wrote it: it stands.
            self.snapshot.row_unwritable = false;
        }
        let tried = self.row_due.filter(|(epoch, _)| *epoch == leader.epoch);
        let too_early = tried.is_some_and(|(_, due)| now < due);
        if !polled || written || self.writing == Some(leader.epoch) || too_early {
            return;
        }
        let Some((parent, fork)) = self.snapshot.history.origin(leader.epoch) else { return };
        let n = self.snapshot.history.depth(leader.epoch).unwrap_or(1);
        self.writing = Some(leader.epoch);
        effects.push(Effect::WriteRow {
            node: leader.node,
            incarnation: seen.evidence.incarnation,
            row: LineageRow { epoch: leader.epoch, parent, fork, n },
        });
    }

    pub(super) fn row_written(
        &mut self,
        epoch: Epoch,
        outcome: RowOutcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        self.writing = self.writing.filter(|writing| *writing != epoch);
        // A row that stands may yet not be the last one shown: asking at once again is of no use.
        self.row_due = Some((epoch, now + self.snapshot.settings.store_interval));
        let mut disputed = false;
        match outcome {
            RowOutcome::Stands(row) => {
                self.snapshot.row_unwritable = false;
                if Arc::make_mut(&mut self.snapshot.history).read_row(row).is_err() {
                    effects.push(Effect::Emit(Notable::RowConflict(row.epoch)));
                    disputed = true;
                }
            }
            RowOutcome::NotThere => return,
            RowOutcome::NoTable => {
                self.snapshot.row_unwritable = false;
            }
            RowOutcome::Failed => {
                if !self.snapshot.row_unwritable {
                    effects.push(Effect::Emit(Notable::RowUnwritable(epoch)));
                }
                self.snapshot.row_unwritable = true;
            }
        }
        self.publish(effects);
        effects.extend(if disputed {
            self.waits.end_all()
        } else {
            self.waits.judge_all(&self.snapshot, now)
        });
    }
}
