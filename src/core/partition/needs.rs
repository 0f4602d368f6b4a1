//! `Needs`: the requests for observations that stand, by whose observation it is.
//!
//! Each question is answered without a look at the other requests: thousands may stand at once. It
//! knows no snapshot and wakes nobody.

use std::collections::{BTreeMap, BTreeSet};

use super::{Need, NeedId};
use crate::instant::Instant;
use crate::lineage::Incarnation;

/// Requests that may stand at once.
const NEEDS_MAX: usize = 65_536;

/// Requests of one kind, by the time their observation must not be sent before.
type Queue = BTreeSet<(Instant, NeedId)>;

/// The requests for observations that stand.
///
/// Invariant: each request of `asked` is in the queues of its kind, and in no other.
#[derive(Debug, Default)]
pub(super) struct Needs {
    asked: BTreeMap<NeedId, (Need, Instant)>,
    /// For the leader's.
    leader: Queue,
    /// For those of any life.
    lives: Queue,
    /// The same, by the life.
    by_life: BTreeMap<Incarnation, Queue>,
}

impl Needs {
    /// Notes that somebody needs an observation. Without room the oldest request goes: its caller
    /// has long given up.
    pub(super) fn need(&mut self, id: NeedId, need: Need, since: Instant) {
        self.unneed(id);
        while self.asked.len() >= NEEDS_MAX
            && let Some((oldest, _)) = self.asked.first_key_value()
        {
            self.unneed(*oldest);
        }
        self.asked.insert(id, (need, since));
        match need {
            Need::Leader => {
                self.leader.insert((since, id));
            }
            Need::Incarnation(life) => {
                self.lives.insert((since, id));
                self.by_life.entry(life).or_default().insert((since, id));
            }
        }
    }

    pub(super) fn unneed(&mut self, id: NeedId) {
        let Some((need, since)) = self.asked.remove(&id) else { return };
        match need {
            Need::Leader => {
                self.leader.remove(&(since, id));
            }
            Need::Incarnation(life) => {
                self.lives.remove(&(since, id));
                if let Some(queue) = self.by_life.get_mut(&life) {
                    queue.remove(&(since, id));
                    if queue.is_empty() {
                        self.by_life.remove(&life);
                    }
                }
            }
        }
    }

    /// Takes out the requests that an observation sent at `sent_at` satisfies.
    pub(super) fn meet(&mut self, need: Need, sent_at: Instant) -> Vec<NeedId> {
        let queue = match need {
            Need::Leader => Some(&self.leader),
            Need::Incarnation(life) => self.by_life.get(&life),
        };
        let met = queue.into_iter().flatten().take_while(|(since, _)| *since <= sent_at);
        let met: Vec<NeedId> = met.map(|(_, id)| *id).collect();
        for id in &met {
            self.unneed(*id);
        }
        met
    }

    /// The latest time that any request about a node must not be sent before: of one that may
    /// lead, and lives this life; `None`: which one it lives was never seen.
    pub(super) fn latest(&self, may_lead: bool, life: Option<Incarnation>) -> Option<Instant> {
        let of_life = match life {
            Some(life) => self.by_life.get(&life),
            None => Some(&self.lives),
        };
        let leader = may_lead.then_some(&self.leader);
        let queues = leader.into_iter().chain(of_life);
        queues.filter_map(|queue| queue.last()).map(|(since, _)| *since).max()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::lineage::{Life, SystemId};

    /// Requests in one list, of which every question looks at each.
    #[derive(Default)]
    struct Naive(BTreeMap<NeedId, (Need, Instant)>);

    impl Naive {
        fn meet(&mut self, need: Need, sent_at: Instant) -> Vec<NeedId> {
            let is_met = |(one, since): &(Need, Instant)| *one == need && *since <= sent_at;
            let met: Vec<_> = self.0.iter().filter(|(_, one)| is_met(one)).collect();
            let met: Vec<NeedId> = met.into_iter().map(|(id, _)| *id).collect();
            self.0.retain(|id, _| !met.contains(id));
            met
        }

        fn latest(&self, may_lead: bool, life: Option<Incarnation>) -> Option<Instant> {
            let concerns = |need: &Need| match need {
                Need::Leader => may_lead,
                Need::Incarnation(own) => life.is_none_or(|life| life == *own),
            };
            self.0.values().filter(|(need, _)| concerns(need)).map(|(_, since)| *since).max()
        }
    }

    fn life(number: u8) -> Incarnation {
        let life = Life { start: i64::from(number), reset: 0 };
        Incarnation { system: SystemId::new(1), life }
    }

    fn need(number: u8) -> Need {
        if number == 0 { Need::Leader } else { Need::Incarnation(life(number)) }
    }

    proptest! {
        #[test]
        fn requests_are_what_one_list_of_them_is(
            steps in vec((0_u8..4, 0_u64..24, 0_u8..4, 0_u64..40), 1..200),
        ) {
            let (mut needs, mut naive) = (Needs::default(), Naive::default());
            for (what, id, whose, at) in steps {
                let (id, at) = (NeedId::new(id), Instant::from_nanos(at));
                match what {
                    0 | 1 => {
                        needs.need(id, need(whose), at);
                        naive.0.insert(id, (need(whose), at));
                    }
                    2 => {
                        needs.unneed(id);
                        naive.0.remove(&id);
                    }
                    _ => {
                        let mut met = needs.meet(need(whose), at);
                        met.sort_unstable();
                        prop_assert_eq!(met, naive.meet(need(whose), at));
                    }
                }
                for may_lead in [false, true] {
                    for life in [None, Some(life(1)), Some(life(2)), Some(life(9))] {
                        let latest = naive.latest(may_lead, life);
                        prop_assert_eq!(needs.latest(may_lead, life), latest);
                    }
                }
                prop_assert_eq!(needs.asked.len(), naive.0.len());
                let by_life: usize = needs.by_life.values().map(BTreeSet::len).sum();
                prop_assert_eq!(by_life, needs.lives.len());
                prop_assert_eq!(needs.leader.len() + by_life, naive.0.len());
            }
        }
    }

    #[test]
    fn beyond_the_limit_the_oldest_request_goes() {
        let mut needs = Needs::default();
        for id in 0..=NEEDS_MAX as u64 {
            needs.need(NeedId::new(id), Need::Leader, Instant::from_nanos(id));
        }
        assert_eq!((needs.asked.len(), needs.leader.len()), (NEEDS_MAX, NEEDS_MAX));
        assert_eq!(needs.meet(Need::Leader, Instant::from_nanos(1)), [NeedId::new(1)]);
    }
}
