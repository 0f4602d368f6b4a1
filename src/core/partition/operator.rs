//! The operator's word: which writable server counts, and which node may serve again.
//!
//! A word is kept with the facts. It makes no node fresh, and no position larger.

use std::sync::Arc;

use super::{Effect, Notable, Partition};
use crate::instant::Instant;
use crate::leader::Verdict;
use crate::lineage::{Epoch, Incarnation};
use crate::views::{NodeId, ViewRole};

impl Partition {
    /// An operator vouches for what `node` holds, except for what it is writable in now. Of a node
    /// that was not seen lately nobody knows what it is: nothing is taken for granted.
    pub(super) fn resume(&mut self, node: NodeId, now: Instant, effects: &mut Vec<Effect>) {
        let max_age = self.snapshot.settings.view_max_age;
        let Some(Some(view)) = self.snapshot.views.get_mut(node.index()) else { return };
        if now.since(view.sent_at) > max_age {
            return;
        }
        let role = view.role;
        Arc::make_mut(view).resume();
        let history = Arc::clone(&self.snapshot.history);
        // The restarts before the one it lives in are of the same log.
        let is_live = |epoch: Epoch| match role {
            ViewRole::Writable(own) => {
                own.timeline == epoch.timeline && history.descends(own, epoch)
            }
            ViewRole::Standby => false,
        };
        self.facts_dirty |= Arc::make_mut(&mut self.snapshot.facts).vouch(node, is_live);
        effects.push(Effect::Emit(Notable::Resumed(node)));
        self.after_a_word(now, effects);
    }

    /// An operator says which of the writable servers counts; the others no longer do.
    pub(super) fn resolve(
        &mut self,
        incarnation: Incarnation,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Ok((node, winner)) = self.snapshot.may_resolve(incarnation, now) else { return };
        let others = self.writable().into_iter().filter(|one| one.node != node);
        let aside = others.map(|one| one.epoch).filter(|epoch| *epoch != winner).collect();
        let words = self.snapshot.facts.words();
        let number = words.verdict().map_or(1, |verdict| verdict.number.saturating_add(1));
        let verdict = Verdict { number, winner, aside };
        let told = Notable::Verdict(winner, verdict.aside.iter().copied().collect());
        let facts = Arc::make_mut(&mut self.snapshot.facts);
        self.facts_dirty |= facts.words_mut().judge(verdict);
        effects.push(Effect::Emit(told));
        self.after_a_word(now, effects);
    }

    fn after_a_word(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let led = self.lead(effects);
        self.note_quarantines(effects);
        self.publish(effects);
        effects.extend(if led {
            self.waits.end_all()
        } else {
            self.waits.judge_all(&self.snapshot, now)
        });
    }
}
