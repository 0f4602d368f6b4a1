//! Tables and laws of the `WaitQueue`, the laws against a naive list of waits.

use super::{QueueFull, WaitId, WaitQueue};
use crate::instant::Instant;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn id(value: u64) -> WaitId {
    WaitId::new(value)
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn ids(values: impl IntoIterator<Item = u64>) -> Vec<WaitId> {
    values.into_iter().map(id).collect()
}

/// Parks waits that all end at instant 100.
fn queue(waits: &[(u64, &[(char, u64)])]) -> WaitQueue<char, &'static str> {
    let mut queue = WaitQueue::new(1_000);
    for &(value, slots) in waits {
        assert_eq!(queue.park(id(value), at(100), slots.iter().copied(), "read"), Ok(()));
    }
    queue
}

#[test]
fn a_full_queue_refuses_and_keeps_nothing() {
    let mut queue = WaitQueue::new(1);
    assert_eq!(queue.park(id(1), at(10), [('a', 5)], "first"), Ok(()));
    assert_eq!(queue.park(id(2), at(9), [('a', 4)], "second"), Err(QueueFull { limit: 1 }));
    assert_eq!(queue.ids(), ids([1]));
    assert_eq!(queue.lowest('a'), Some(5));
    assert_eq!(queue.next_deadline(), Some(at(10)));

    assert_eq!(queue.take(id(1)), Some("first"));
    assert_eq!(queue.park(id(2), at(9), [('a', 4)], "second"), Ok(()));
}

#[test]
fn a_queue_of_limit_zero_parks_nobody() {
    let mut queue = WaitQueue::new(0);
    assert_eq!(queue.park(id(1), at(10), [('a', 5)], ()), Err(QueueFull { limit: 0 }));
    assert!(queue.is_empty());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is parked already")]
fn an_id_is_not_parked_twice() {
    let mut queue = queue(&[(1, &[('a', 5)])]);
    let _ = queue.park(id(1), at(10), [], "again");
}

#[test]
fn an_id_that_is_not_parked_is_answered_with_nothing() {
    let mut queue = queue(&[(1, &[('a', 5)])]);
    assert_eq!(queue.get(id(2)), None);
    assert_eq!(queue.edit(id(2)), None);
    assert_eq!(queue.take(id(2)), None);
    assert!(!queue.repark(id(2), [('a', 1)]));
    assert_eq!(queue.lowest('a'), Some(5));
}

#[test]
fn a_scalar_reached_exactly_wakes_and_one_below_does_not() {
    let mut queue = queue(&[(1, &[('a', 5)])]);
    assert_eq!(queue.advance('a', 4), ids([]));
    assert_eq!(queue.advance('a', 5), ids([1]));
    assert_eq!(queue.advance('a', 9), ids([]), "a slot wakes once");
    assert_eq!(queue.len(), 1, "a woken wait stays until it is taken");
}

#[test]
fn the_ends_of_the_scale_are_scalars_like_others() {
    let mut queue = queue(&[(0, &[('a', 0)]), (u64::MAX, &[('a', u64::MAX)])]);
    assert_eq!(queue.advance('a', 0), ids([0]));
    assert_eq!(queue.advance('a', u64::MAX - 1), ids([]));
    assert_eq!(queue.advance('a', u64::MAX), ids([u64::MAX]));
}

#[test]
fn waits_are_woken_in_the_order_of_their_scalars() {
    let mut queue = queue(&[(1, &[('a', 30)]), (2, &[('a', 10)]), (3, &[('a', 20)])]);
    assert_eq!(queue.advance('a', 25), ids([2, 3]));
    assert_eq!(queue.lowest('a'), Some(30));
}

#[test]
fn one_axis_does_not_wake_the_waits_of_another() {
    let mut queue = queue(&[(1, &[('a', 5)]), (2, &[('b', 5)]), (3, &[('c', 5)])]);
    assert_eq!(queue.advance('b', 100), ids([2]));
    assert!(queue.waits_on('a') && !queue.waits_on('b') && queue.waits_on('c'));
}

#[test]
fn a_wait_for_any_of_several_nodes_is_woken_by_each() {
    let mut queue = queue(&[(1, &[('a', 5), ('b', 7)])]);
    assert_eq!(queue.advance('b', 7), ids([1]));
    assert_eq!(queue.lowest('a'), Some(5), "the slot on the other node stands");
    assert_eq!(queue.take(id(1)), Some("read"));
    assert_eq!(queue.advance('a', 5), ids([]));
}

#[test]
fn several_slots_on_one_axis_name_the_wait_once() {
    let mut queue = queue(&[(1, &[('a', 5), ('a', 6), ('a', 5), ('a', 9)])]);
    assert_eq!(queue.advance('a', 6), ids([1]));
    assert_eq!(queue.lowest('a'), Some(9));
}

#[test]
fn reparking_replaces_all_slots_and_keeps_the_deadline() {
    let mut queue = queue(&[(1, &[('a', 5), ('b', 7)])]);
    assert!(queue.repark(id(1), [('c', 8)]));
    assert!(!queue.waits_on('a') && !queue.waits_on('b'));
    assert_eq!(queue.advance('c', 8), ids([1]));
    assert_eq!(queue.next_deadline(), Some(at(100)));
}

#[test]
fn a_wait_without_slots_is_only_found_by_judging_all_or_by_time() {
    let mut queue = queue(&[(1, &[])]);
    assert_eq!(queue.advance('a', u64::MAX), ids([]));
    assert_eq!(queue.ids(), ids([1]));
    assert_eq!(queue.expire(at(100)), [(id(1), "read")]);
}

#[test]
fn a_wait_expires_at_its_deadline_and_not_before() {
    let mut queue = queue(&[(1, &[('a', 5)])]);
    assert_eq!(queue.park(id(2), at(99), [('a', 5)], "sooner"), Ok(()));
    assert_eq!(queue.next_deadline(), Some(at(99)));
    assert_eq!(queue.expire(at(98)), []);
    assert_eq!(queue.expire(at(100)), [(id(2), "sooner"), (id(1), "read")]);
    assert_eq!(queue.next_deadline(), None);
    assert_eq!(queue.expire(at(200)), []);
}

#[test]
fn what_is_kept_of_a_wait_can_be_changed() {
    let mut queue = queue(&[(1, &[('a', 5)])]);
    assert_eq!(queue.edit(id(1)).map(|wait| std::mem::replace(wait, "judged")), Some("read"));
    assert_eq!(queue.get(id(1)), Some(&"judged"));
}

/// A lag spike: nothing advances, all waits leave by other ways.
#[test]
fn ten_thousand_waits_leave_nothing_behind() {
    let mut queue = WaitQueue::new(10_000);
    for n in 0..10_000 {
        let slots = ['a', 'b', 'c'].map(|axis| (axis, 1_000 + n % 97));
        assert_eq!(queue.park(id(n), at(n % 10), slots, n), Ok(()));
    }
    assert_eq!(queue.entries(), 50_000);
    for n in (0..10_000).step_by(3) {
        assert_eq!(queue.take(id(n)), Some(n));
    }
    queue.assert_coherent();
    let woken = queue.advance('b', 1_048);
    for &woken in &woken {
        assert!(queue.take(woken).is_some());
    }
    queue.assert_coherent();
    let expired = queue.expire(at(9)).len();
    assert_eq!(3_334 + woken.len() + expired, 10_000);
    assert!(!woken.is_empty() && expired > 0);
    assert_eq!(queue.entries(), 0);
}

/// The naive queue: a list that is searched from end to end.
#[derive(Default)]
struct Naive(Vec<NaiveWait>);

struct NaiveWait {
    id: u64,
    deadline: u64,
    slots: Vec<(u8, u64)>,
}

impl Naive {
    fn parked(&self, id: u64) -> bool {
        self.0.iter().any(|wait| wait.id == id)
    }

    fn lowest(&self, axis: u8) -> Option<u64> {
        let slots = self.0.iter().flat_map(|wait| &wait.slots);
        slots.filter(|slot| slot.0 == axis).map(|slot| slot.1).min()
    }

    /// Consumes what was reached, and names each wait by the lowest scalar it had there.
    fn advance(&mut self, axis: u8, reached: u64) -> Vec<WaitId> {
        let mut woken = Vec::new();
        for wait in &mut self.0 {
            let hit = |slot: &&(u8, u64)| slot.0 == axis && slot.1 <= reached;
            if let Some(lowest) = wait.slots.iter().filter(hit).map(|slot| slot.1).min() {
                woken.push((lowest, wait.id));
                wait.slots.retain(|slot| !hit(&slot));
            }
        }
        woken.sort_unstable();
        ids(woken.into_iter().map(|(_, id)| id))
    }

    fn expire(&mut self, now: u64) -> Vec<(WaitId, u64)> {
        let mut expired: Vec<_> = self
            .0
            .extract_if(.., |wait| wait.deadline <= now)
            .map(|w| (w.deadline, w.id))
            .collect();
        expired.sort_unstable();
        expired.into_iter().map(|(_, value)| (id(value), value)).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Park { id: u64, deadline: u64, slots: Vec<(u8, u64)> },
    Advance { axis: u8, reached: u64 },
    Repark { id: u64, slots: Vec<(u8, u64)> },
    Take { id: u64 },
    Expire { now: u64 },
}

const AXES: u8 = 3;
const LIMIT: usize = 8;

/// Few ids, axes and scalars, so that steps meet each other.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slots = || vec((0..AXES, 0..20_u64), 0..4);
    let step = prop_oneof![
        4 => (0..12_u64, 0..30_u64, slots())
            .prop_map(|(id, deadline, slots)| Step::Park { id, deadline, slots }),
        3 => (0..AXES, 0..20_u64).prop_map(|(axis, reached)| Step::Advance { axis, reached }),
        2 => (0..12_u64, slots()).prop_map(|(id, slots)| Step::Repark { id, slots }),
        1 => (0..12_u64).prop_map(|id| Step::Take { id }),
        1 => (0..30_u64).prop_map(|now| Step::Expire { now }),
    ];
    vec(step, 0..80)
}

/// Takes one step in both queues; what each answers must agree.
fn step_both(step: Step, queue: &mut WaitQueue<u8, u64>, naive: &mut Naive, ledger: &mut Ledger) {
    match step {
        // The queue calls a second wait of one id a broken invariant.
        Step::Park { id: value, .. } if naive.parked(value) => {}
        Step::Park { id: value, deadline, slots } => {
            let parked = queue.park(id(value), at(deadline), slots.iter().copied(), value);
            assert_eq!(parked.is_ok(), naive.0.len() < LIMIT);
            if parked.is_ok() {
                naive.0.push(NaiveWait { id: value, deadline, slots });
                ledger.entered(value);
            }
        }
        Step::Advance { axis, reached } => {
            assert_eq!(queue.advance(axis, reached), naive.advance(axis, reached));
        }
        Step::Repark { id: value, slots } => {
            assert_eq!(queue.repark(id(value), slots.iter().copied()), naive.parked(value));
            naive.0.iter_mut().filter(|w| w.id == value).for_each(|w| w.slots.clone_from(&slots));
        }
        Step::Take { id: value } => {
            assert_eq!(queue.take(id(value)), naive.parked(value).then_some(value));
            if naive.parked(value) {
                ledger.left(value);
            }
            naive.0.retain(|wait| wait.id != value);
        }
        Step::Expire { now } => {
            let expired = queue.expire(at(now));
            assert_eq!(expired, naive.expire(now));
            expired.iter().for_each(|(_, value)| ledger.left(*value));
        }
    }
}

/// How often each id entered and left.
#[derive(Default)]
struct Ledger(BTreeMap<u64, (u32, u32)>);

impl Ledger {
    fn entered(&mut self, id: u64) {
        self.0.entry(id).or_default().0 += 1;
    }

    fn left(&mut self, id: u64) {
        self.0.entry(id).or_default().1 += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_queue_answers_like_a_naive_list_and_every_wait_leaves_exactly_once(steps in steps()) {
        let (mut queue, mut naive) = (WaitQueue::new(LIMIT), Naive::default());
        let mut ledger = Ledger::default();
        for step in steps {
            step_both(step, &mut queue, &mut naive, &mut ledger);
            queue.assert_coherent();
            prop_assert_eq!(queue.len(), naive.0.len());
            let mut parked: Vec<_> = naive.0.iter().map(|wait| wait.id).collect();
            parked.sort_unstable();
            prop_assert_eq!(queue.ids(), ids(parked));
            let deadline = naive.0.iter().map(|wait| wait.deadline).min();
            prop_assert_eq!(queue.next_deadline(), deadline.map(at));
            for axis in 0..AXES {
                prop_assert_eq!(queue.lowest(axis), naive.lowest(axis));
                prop_assert_eq!(queue.waits_on(axis), naive.lowest(axis).is_some());
            }
        }
        for (_, value) in queue.expire(at(u64::MAX)) {
            ledger.left(value);
        }
        prop_assert_eq!(queue.entries(), 0);
        for (entered, left) in ledger.0.into_values() {
            prop_assert_eq!(entered, left);
        }
    }

    #[test]
    fn no_wait_is_woken_below_its_scalar_and_none_sleeps_above_it(
        scalars in vec(any::<u64>(), 1..60),
        reached in vec(any::<u64>(), 1..20),
    ) {
        let mut queue = WaitQueue::new(scalars.len());
        for (n, &scalar) in (0..).zip(&scalars) {
            prop_assert_eq!(queue.park(id(n), at(1), [((), scalar)], scalar), Ok(()));
        }
        let mut highest = 0;
        for reached in reached {
            highest = highest.max(reached);
            for woken in queue.advance((), reached) {
                prop_assert!(queue.take(woken).is_some_and(|scalar| scalar <= reached));
            }
            prop_assert!(queue.lowest(()).is_none_or(|lowest| lowest > highest));
        }
        let asleep = scalars.iter().filter(|&&scalar| scalar > highest).count();
        prop_assert_eq!(queue.len(), asleep);
    }
}
