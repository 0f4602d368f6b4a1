//! A store in this process: its start, a second loss, an instance beside it.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Belief, EmbeddedGuard, Look};
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
    EmbeddedGuard::started(at(10), Duration::from_nanos(D_MAX), None)
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

/// The interval of looks: each counts 10, and others count as gone after 20.
const INTERVAL: Duration = Duration::from_nanos(5);

/// A store that started at instant 10, and looks.
fn looking() -> EmbeddedGuard {
    EmbeddedGuard::started(at(10), Duration::from_nanos(D_MAX), Some(INTERVAL))
}

/// Looks at the leader of P each 5 from `from` to `to`, answered 1 later, and samples it 2 later.
fn look(store: &mut EmbeddedGuard, (from, to): (u64, u64), others: bool, guards: &Guards) {
    for sent in (from..=to).step_by(5) {
        let look = Look { sent_at: at(sent), visible_since: at(11), others };
        store.looked(P, look, at(sent + 1), guards);
        store.sampled(P, sample(sent + 2, sent + 2));
    }
}

/// Alone from 10 on.
fn alone() -> EmbeddedGuard {
    let mut store = looking();
    look(&mut store, (11, 21), false, &Guards::on());
    assert_eq!(belief(&store, 24), barrier(23));
    store
}

#[test]
fn who_looks_first_may_have_come_after_others_went() {
    let mut store = looking();
    assert!(!store.sampled(P, sample(11, 11)));
    look(&mut store, (12, 17), false, &Guards::on());
    assert_eq!(belief(&store, 20), Belief::Unknown, "one that was cut off may still record");
    look(&mut store, (21, 21), false, &Guards::on());
    assert_eq!(belief(&store, 24), Belief::Unknown, "it was not long enough ago");
    look(&mut store, (22, 22), false, &Guards::on());
    assert_eq!(belief(&store, 25), barrier(24));
}

#[test]
fn who_did_not_look_for_two_intervals_believes_nothing() {
    let store = alone();
    assert_eq!(belief(&store, 31), barrier(23));
    assert_eq!(belief(&store, 32), Belief::Unknown);
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("foreign_instance").expect("named");
        assert_eq!(store.belief(P, at(32), &off), barrier(23));
    }
}

#[test]
fn another_instance_may_have_come_and_gone_while_nobody_looked() {
    let mut store = alone();
    look(&mut store, (30, 30), false, &Guards::on());
    assert_eq!(belief(&store, 33), barrier(23), "no gap: the first sample still covers all");
    // Answered 11 after the look before it was sent: one may have come, recorded and gone.
    look(&mut store, (40, 45), false, &Guards::on());
    assert_eq!(belief(&store, 48), Belief::Unknown);
    look(&mut store, (50, 55), false, &Guards::on());
    assert_eq!(belief(&store, 58), barrier(52));
}

/// Others come at 26 and are last seen at 36. What is believed while they are there, while they
/// may merely be reconnecting, and when they are gone.
fn beside_others(guards: &Guards) -> [Belief; 3] {
    let mut store = looking();
    look(&mut store, (11, 21), false, guards);
    look(&mut store, (26, 36), true, guards);
    let during = store.belief(P, at(38), guards);
    look(&mut store, (41, 56), false, guards);
    let briefly = store.belief(P, at(59), guards);
    look(&mut store, (61, 61), false, guards);
    [during, briefly, store.belief(P, at(64), guards)]
}

#[test]
fn beside_others_nothing_is_believed_and_their_end_is_a_loss() {
    let seen = beside_others(&Guards::on());
    assert_eq!(seen, [Belief::Unknown, Belief::Unknown, barrier(63)]);
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("foreign_instance").expect("named");
        assert_eq!(beside_others(&off), [barrier(23); 3], "what others record is missed");
    }
}

#[test]
fn others_on_a_standby_are_there_for_every_partition() {
    let mut store = alone();
    store.saw_others(at(25));
    assert!(store.is_beside_others());
    look(&mut store, (26, 41), false, &Guards::on());
    assert_eq!(belief(&store, 44), Belief::Unknown);
    look(&mut store, (46, 46), false, &Guards::on());
    assert!(!store.is_beside_others());
    assert_eq!(belief(&store, 49), barrier(48));
}

#[test]
fn a_start_waits_until_no_look_of_others_counts_that_did_not_see_it() {
    let mut store = looking();
    assert!(!store.may_start(P, false, at(13)));
    assert!(store.may_start(P, true, at(13)), "no leader is reached: nobody waits for ever");
    look(&mut store, (12, 17), false, &Guards::on());
    assert!(!store.may_start(P, true, at(20)), "seen for 9");
    assert!(store.may_start(P, true, at(21)));
    assert!(!store.may_start(P, false, at(21)), "nothing it looks up would be believed");
    look(&mut store, (22, 27), false, &Guards::on());
    assert!(store.may_start(P, false, at(30)));
    assert!(!store.may_start(P, false, at(38)), "nobody knows whether it still is seen");
}

#[test]
fn a_start_beside_others_waits_for_their_end_and_then_goes_on() {
    let mut store = looking();
    look(&mut store, (12, 22), true, &Guards::on());
    assert!(!store.may_start(P, false, at(24)), "a predecessor is about to go");
    assert!(store.may_start(P, true, at(24)));
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
