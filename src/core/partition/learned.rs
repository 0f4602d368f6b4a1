//! What other instances have learned of the partition: their facts, joined into its own.
//!
//! They polled leaders that were never seen here. No node becomes fresher by what they say than its
//! own polls show, and rows that were read in a database stand against it.

use std::sync::Arc;

use super::{Effect, Notable, Partition, leading};
use crate::instant::Instant;
use crate::leader::Facts;
use crate::lineage::{Epoch, LineageRow};

impl Partition {
    /// Takes in the facts of others. An epoch that only they knew gets its place.
    pub(super) fn learn(&mut self, told: &Facts, now: Instant, effects: &mut Vec<Effect>) {
        let copies = self.new_copies(told);
        if !Arc::make_mut(&mut self.snapshot.facts).merge(told) {
            return;
        }
        self.facts_dirty = true;
        let mut disputed = !copies.is_empty();
        let origins = leading::history_of(told);
        let mut rows: Vec<LineageRow> = origins.rows().collect();
        // Parents first: how deep an epoch is follows from its parent.
        rows.sort_by_key(|row| row.n);
        let history = Arc::make_mut(&mut self.snapshot.history);
        for row in rows {
            let known = history.origin(row.epoch);
            if known.is_some_and(|(parent, _)| parent != row.parent) {
                continue;
            }
            let depth = row.parent.and_then(|parent| history.depth(parent));
            let n = depth.map_or(row.n, |depth| depth + 1);
            if history.place(LineageRow { n, ..row }).is_err() {
                effects.push(Effect::Emit(Notable::RowConflict(row.epoch)));
                disputed = true;
            }
            history.share(row.epoch, row.parent, origins.shared(row.epoch));
        }
        copies.into_iter().for_each(|epoch| history.distrust(epoch));
        self.trim_facts();
        let led = self.lead(effects);
        self.note_quarantines(effects);
        self.publish(effects);
        effects.extend(if led || disputed {
            self.waits.end_all()
        } else {
            self.waits.judge_all(&self.snapshot, now)
        });
    }

    /// Epochs whose leader others saw come back as a copy of an older day, which is news.
    fn new_copies(&self, told: &Facts) -> Vec<Epoch> {
        let known = |epoch| self.snapshot.facts.of(epoch).is_some_and(|facts| facts.is_restored);
        let copies = told.iter().filter(|(epoch, facts)| facts.is_restored && !known(*epoch));
        copies.map(|(epoch, _)| epoch).collect()
    }
}
