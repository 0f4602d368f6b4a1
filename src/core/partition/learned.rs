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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guards::Guards;
    use crate::leader::{EpochFacts, Origin, Verdict};
    use crate::lineage::{Fork, Life, SystemId};
    use crate::partition::Event;
    use crate::position::{Lsn, Position};
    use crate::snapshot::{NodeSettings, Settings};
    use crate::token::PartitionId;
    use crate::trail::ClockDrift;
    use crate::views::NodeId;
    use std::time::Duration;

    fn epoch(timeline: u32) -> Epoch {
        let start = i64::from(timeline);
        Epoch::new(timeline, Life { start, reset: start })
    }

    fn lsn(value: u64) -> Position {
        Lsn::new(value).into()
    }

    /// What is known of an epoch led by a node, up to `flush_seen`, which grew from the one before
    /// it at 50.
    fn led(timeline: u32, flush_seen: u64) -> EpochFacts {
        let parent = (timeline > 1).then(|| epoch(timeline - 1));
        let fork = Fork::between(lsn(50), lsn(50));
        EpochFacts {
            node: Some(NodeId::new(0)),
            flush_seen: lsn(flush_seen),
            flush_starts_page: false,
            replay: Some(None),
            origin: Some(Origin { parent, fork, shared: lsn(50) }),
            is_restored: false,
            ended: timeline == 1,
        }
    }

    fn partition() -> Partition {
        let second = Duration::from_secs(1);
        let settings = Settings {
            nodes: vec![NodeSettings::default(), NodeSettings::default()],
            view_max_age: second,
            gate: second,
            clock_drift: ClockDrift::parts_per_million(500),
            idle_interval: second,
            busy_interval: second,
            store_interval: second,
            waits_max: 1,
            async_commits_never: false,
            accepted_majors: vec![15],
            upgraded_from: None,
            guards: Guards::on(),
        };
        let (id, system) = (PartitionId::new(1), SystemId::new(7));
        Partition::new(id, system, Arc::new(settings), Facts::new())
    }

    #[test]
    fn an_epoch_only_others_saw_gets_its_place_and_its_leader_counts() {
        let mut told = Facts::new();
        // The child comes before its parent in no order that matters.
        told.join(epoch(2), led(2, 90));
        told.join(epoch(1), led(1, 60));
        told.words_mut().judge(Verdict { number: 3, winner: epoch(2), aside: [].into() });
        let told = Arc::new(told);
        let mut partition = partition();
        let now = Instant::from_nanos(5);
        let effects = partition.handle(Event::Learned(Arc::clone(&told)), now);
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Publish(_))));
        assert!(effects.iter().any(|effect| matches!(effect, Effect::StoreFacts(_))));
        let snapshot = partition.snapshot();
        assert_eq!(snapshot.history.origin(epoch(2)), led(2, 0).origin.map(|o| (o.parent, o.fork)));
        assert_eq!(snapshot.history.depth(epoch(2)), Some(2));
        assert_eq!(snapshot.facts.flush_seen(epoch(2)), Some(lsn(90)));
        let leader = snapshot.leadership.leader().map(|leader| leader.epoch);
        assert_eq!(leader, Some(epoch(2)), "it was seen writable by others, and not its end");
        assert!(snapshot.verdict_stands(), "the words of operators travel with the facts");

        let again = partition.handle(Event::Learned(told), now);
        assert!(!again.iter().any(|effect| matches!(effect, Effect::Publish(_))), "no news");
    }

    #[test]
    fn what_was_flushed_is_the_most_anybody_saw_and_a_contradiction_is_told() {
        let mut partition = partition();
        let mut told = Facts::new();
        told.join(epoch(1), led(1, 60));
        told.join(epoch(2), led(2, 90));
        let now = Instant::from_nanos(5);
        partition.handle(Event::Learned(Arc::new(told)), now);
        let mut other = Facts::new();
        let fork = Fork::between(lsn(70), lsn(70));
        let origin = Origin { parent: Some(epoch(1)), fork, shared: lsn(70) };
        other.join(epoch(2), EpochFacts { origin: Some(origin), ..led(2, 80) });
        let effects = partition.handle(Event::Learned(Arc::new(other)), now);
        let conflict = Notable::RowConflict(epoch(2));
        let is_conflict = |effect: &Effect| matches!(effect, Effect::Emit(n) if *n == conflict);
        assert!(effects.iter().any(is_conflict), "{effects:?}");
        let snapshot = partition.snapshot();
        assert_eq!(snapshot.history.origin(epoch(2)), Some((Some(epoch(1)), Fork::Unknown)));
        assert_eq!(snapshot.facts.flush_seen(epoch(2)), Some(lsn(90)));
    }
}
