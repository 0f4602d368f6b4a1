//! A store in this process: its start, a second loss, an instance beside it.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Belief, EmbeddedGuard};
use crate::guards::Guards;
use crate::instant::Instant;
use crate::lineage::{Epoch, Life};
use crate::position::Lsn;
use crate::token::{ComponentKey, PartitionId};
use crate::trail::Sample;

const D_MAX: u64 = 100;
const P: ComponentKey = ComponentKey { partition: PartitionId::new(1), system_tag: 7 };
const Q: ComponentKey = ComponentKey { partition: PartitionId::new(2), system_tag: 7 };
const EPOCH: Epoch = Epoch::new(1, Life { start: 5, reset: 3 });

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn sample(sent_at: u64, position: u64) -> Sample {
    Sample { sent_at: at(sent_at), epoch: EPOCH, position: Lsn::new(position).into() }
}

fn barrier(position: u64) -> Belief {
    Belief::Barrier(EPOCH, Lsn::new(position).into())
}

/// The belief in a store that started at instant 10, alone from then on.
fn started() -> EmbeddedGuard {
    let interval = Duration::from_nanos(u64::MAX / 4);
    let mut store = EmbeddedGuard::started(at(10), Duration::from_nanos(D_MAX), interval);
    for key in [P, Q] {
        store.looked(key, at(10), false, at(10));
    }
    store
}

fn belief(store: &EmbeddedGuard, now: u64) -> Belief {
    store.belief(P, at(now), &Guards::on())
}

#[test]
fn a_store_that_just_started_is_not_believed_however_long_that_lasts() {
    let store = started();
    assert_eq!(belief(&store, 10), Belief::Unknown);
    assert_eq!(belief(&store, u64::MAX / 4), Belief::Unknown);
    assert!(store.needs_sample(P));
}

#[test]
fn a_sample_sent_before_the_start_or_with_it_is_not_believed() {
    let mut store = started();
    assert!(!store.sampled(P, sample(9, 500)));
    assert!(!store.sampled(P, sample(10, 500)));
    assert_eq!(belief(&store, 20), Belief::Unknown);
}

#[test]
fn the_first_sample_sent_after_the_start_is_the_barrier() {
    let mut store = started();
    assert!(store.sampled(P, sample(11, 500)));
    assert!(!store.sampled(P, sample(12, 900)), "a later sample demands more than was lost");
    assert_eq!(belief(&store, 20), barrier(500));
    assert!(!store.needs_sample(P));
}

#[test]
fn a_barrier_is_of_one_partition() {
    let mut store = started();
    assert!(store.sampled(Q, sample(11, 500)));
    assert_eq!(belief(&store, 20), Belief::Unknown);
}

#[test]
fn a_barrier_ends_a_lifetime_after_its_sample_was_sent() {
    let mut store = started();
    assert!(store.sampled(P, sample(11, 500)));
    assert_eq!(belief(&store, 10 + D_MAX), barrier(500));
    assert_eq!(belief(&store, 11 + D_MAX), Belief::Clear);
}

#[test]
fn a_second_loss_starts_over() {
    let mut store = started();
    assert!(store.sampled(P, sample(11, 500)));
    store.lost(at(300));
    assert_eq!(belief(&store, 300), Belief::Unknown);
    assert!(!store.sampled(P, sample(299, 600)), "sent before the loss, received after it");
    assert!(store.sampled(P, sample(301, 700)));
    assert_eq!(belief(&store, 301), barrier(700));
}

#[test]
fn a_loss_told_late_does_not_believe_what_an_earlier_one_ruled_out() {
    let mut store = started();
    store.lost(at(5));
    assert_eq!(store.lost_at(), at(10));
    assert!(!store.sampled(P, sample(7, 500)));
}

/// Alone from 10 on, looking every 5; looked for at 12.
fn looking() -> EmbeddedGuard {
    let interval = Duration::from_nanos(5);
    let mut store = EmbeddedGuard::started(at(10), Duration::from_nanos(D_MAX), interval);
    store.looked(P, at(11), false, at(12));
    store.sampled(P, sample(11, 500));
    assert_eq!(belief(&store, 13), barrier(500));
    store
}

/// Looks that show nobody else, sent at each of `sent`.
fn looks_alone<const N: usize>(store: &mut EmbeddedGuard, sent: [u64; N]) {
    sent.into_iter().for_each(|sent| store.looked(P, at(sent), false, at(sent + 1)));
}

#[test]
fn beside_another_instance_nothing_is_believed_and_its_end_is_a_loss() {
    let mut store = looking();
    store.looked(P, at(19), true, at(20));
    assert_eq!(belief(&store, 20), Belief::Unknown);
    looks_alone(&mut store, [24, 29, 34, 39]);
    assert_eq!(belief(&store, 40), Belief::Unknown, "the barrier is still to be sampled");
    store.sampled(P, sample(41, 700));
    assert_eq!(belief(&store, 42), barrier(700));
}

/// Another instance recorded until 33: it was cut off from the leader at 23, and believed itself
/// alone for two intervals more.
#[test]
fn what_another_instance_records_after_it_was_last_seen_is_covered() {
    let mut store = looking();
    store.looked(P, at(19), true, at(20));
    store.sampled(P, sample(21, 210));
    looks_alone(&mut store, [24, 29, 34, 39]);
    store.sampled(P, sample(26, 260));
    assert_eq!(belief(&store, 40), Belief::Unknown, "both were sampled too early");
    store.sampled(P, sample(41, 410));
    assert_eq!(belief(&store, 42), barrier(410));
}

#[test]
fn another_instance_may_have_come_and_gone_while_nobody_looked() {
    let mut store = looking();
    looks_alone(&mut store, [40, 45, 50]);
    store.sampled(P, sample(46, 460));
    assert_eq!(belief(&store, 51), Belief::Unknown);
    looks_alone(&mut store, [52]);
    store.sampled(P, sample(54, 540));
    assert_eq!(belief(&store, 55), barrier(540));
}

#[test]
fn who_did_not_look_for_two_intervals_believes_nothing() {
    let interval = Duration::from_nanos(5);
    let mut store = EmbeddedGuard::started(at(10), Duration::from_nanos(D_MAX), interval);
    store.sampled(P, sample(11, 500));
    assert_eq!(belief(&store, 12), Belief::Unknown);
    store.looked(P, at(18), false, at(20));
    assert_eq!(belief(&store, 28), barrier(500));
    assert_eq!(belief(&store, 29), Belief::Unknown);
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("foreign_instance").expect("named");
        assert_eq!(store.belief(P, at(29), &off), barrier(500));
    }
}

/// A session wrote at 500 before the store started; a replica that applied 400 is asked for.
fn is_sent_to_the_stale_replica(guards: &Guards) -> bool {
    let mut store = started();
    let serves = |store: &EmbeddedGuard| match store.belief(P, at(50), guards) {
        Belief::Unknown => false,
        Belief::Barrier(_, demanded) => !demanded.covers(Lsn::new(401).into()),
        Belief::Clear => true,
    };
    let before_the_sample = serves(&store);
    store.sampled(P, sample(11, 510));
    before_the_sample || serves(&store)
}

#[test]
fn the_barrier_guard_keeps_a_forgotten_write_from_being_missed() {
    assert!(!is_sent_to_the_stale_replica(&Guards::on()));
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("barrier").expect("named");
        assert!(is_sent_to_the_stale_replica(&off), "without the guard the write is missed");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A sample whose answer takes the given time.
    Sample(u64),
    Lose,
}

proptest! {
    /// The leader's position is the time at which it was asked, so that a demand says how much it
    /// covers: all that was acknowledged before the last loss.
    #[test]
    fn what_is_demanded_after_a_loss_covers_all_that_was_acknowledged_before_it(
        steps in vec(
            (1..40_u64, prop_oneof![
                4 => (0..60_u64).prop_map(Step::Sample),
                1 => Just(Step::Lose),
            ]),
            0..60,
        ),
    ) {
        let (mut store, mut now, mut lost) = (started(), 10, 10);
        for (passed, step) in steps {
            now += passed;
            match step {
                Step::Sample(took) => {
                    let sent = now.saturating_sub(took);
                    store.sampled(P, sample(sent, sent));
                }
                Step::Lose => {
                    store.lost(at(now));
                    lost = now;
                }
            }
            match belief(&store, now) {
                Belief::Unknown => {}
                Belief::Barrier(_, mark) => prop_assert!(mark.covers(Lsn::new(lost + 1).into())),
                Belief::Clear => prop_assert!(now - D_MAX > lost),
            }
        }
    }
}
