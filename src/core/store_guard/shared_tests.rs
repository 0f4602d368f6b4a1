//! A store of many instances: what is a loss, the fence, the barrier, the deposed primary.

use std::time::Duration;

use super::{
    Belief, Generation, LossCause, News, Reply, Server, SharedGuard, SharedRules, Unbelieved, Worth,
};
use crate::guards::Guards;
use crate::instant::Instant;
use crate::lineage::{Epoch, Life};
use crate::position::Lsn;
use crate::token::{ComponentKey, PartitionId};
use crate::trail::Sample;

const D_MAX: u64 = 1_000;
const FENCE: u64 = 100;
const GRACE: u64 = 20;
const SECOND: u64 = 1_000_000_000;
const WINDOW: u64 = 10 * SECOND;
const P: ComponentKey = ComponentKey { partition: PartitionId::new(1), system_tag: 7 };
const Q: ComponentKey = ComponentKey { partition: PartitionId::new(2), system_tag: 7 };
const EPOCH: Epoch = Epoch::new(1, Life { start: 5, reset: 3 });
const OLD: Server = Server::new([1; 20]);
const NEW: Server = Server::new([2; 20]);
const ON: Guards = Guards::on();

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn sample(sent_at: u64, position: u64) -> Sample {
    Sample { sent_at: at(sent_at), epoch: EPOCH, position: Lsn::new(position).into() }
}

fn barrier(position: u64) -> Belief {
    Belief::Barrier(EPOCH, Lsn::new(position).into())
}

fn rules() -> SharedRules {
    let nanos = Duration::from_nanos;
    SharedRules {
        d_max: nanos(D_MAX),
        fence: nanos(FENCE),
        believed_for: None,
        recount: Duration::from_secs(2),
        grace: nanos(GRACE),
    }
}

fn guard(keys: &[ComponentKey]) -> SharedGuard {
    SharedGuard::new(rules(), keys.to_vec())
}

fn reply(server: Server, evicted: u64, generation: Option<&Generation>) -> Reply {
    let generation = generation.map(Generation::encode);
    Reply { server, is_primary: true, evicted, generation }
}

fn numbered(server: Server, number: u64, evicted: u64, position: u64) -> Generation {
    Generation::new(server, number, evicted).with(P, EPOCH, Lsn::new(position).into())
}

/// The first of all.
fn generation(server: Server, evicted: u64, position: u64) -> Generation {
    numbered(server, 1, evicted, position)
}

/// What one answer is worth.
fn told(store: &mut SharedGuard, reply: &Reply, now: u64) -> (Belief, Option<News>) {
    let (worth, news) = store.replied(reply, at(now), &ON);
    (worth.belief(P, at(now), &ON), news)
}

/// An empty store is heard of, and what fills its key; what it answers then.
fn filled(store: &mut SharedGuard, evicted: u64, now: u64) -> Reply {
    told(store, &reply(OLD, evicted, None), now);
    assert_eq!(store.wants_sample(P, &ON), None, "another loss would not be seen");
    let write = store.due(at(now), &ON).expect("it is due at once");
    assert_eq!((write.expected, write.generation.barriers().count()), (None, 0));
    let filled = reply(OLD, evicted, Some(&write.generation));
    assert_eq!(told(store, &filled, now), (Belief::Unknown, None), "it vouches for nobody");
    filled
}

#[test]
fn a_store_without_a_generation_is_lost_until_a_barrier_sampled_after_the_fence_is_written() {
    let mut store = guard(&[P]);
    let empty = reply(OLD, 0, None);
    let lost = Some(News::Lost(LossCause::NoGeneration));
    assert_eq!(told(&mut store, &empty, 5), (Belief::Unknown, lost));
    assert_eq!(told(&mut store, &empty, 6), (Belief::Unknown, None), "it is told once");
    let filled = filled(&mut store, 0, 6);
    assert_eq!(store.wants_sample(P, &ON), Some(at(5 + FENCE)));
    store.sampled(P, sample(5 + FENCE, 400), &ON);
    assert_eq!(store.due(at(110), &ON), None, "it was sent within the fence");
    store.sampled(P, sample(6 + FENCE, 500), &ON);
    let write = store.due(at(110), &ON).expect("the fence is over and the barrier is there");
    let expected = numbered(OLD, 2, 0, 500);
    assert_eq!((write.expected, &write.generation), (filled.generation, &expected));

    let stands = reply(OLD, 0, Some(&write.generation));
    assert_eq!(told(&mut store, &stands, 112), (barrier(500), Some(News::Stands)));
    assert_eq!(told(&mut store, &stands, 111 + D_MAX).0, barrier(500));
    assert_eq!(told(&mut store, &stands, 112 + D_MAX).0, Belief::Clear);
    assert_eq!((store.wants_sample(P, &ON), store.due(at(9_999), &ON)), (None, None));
}

#[test]
fn what_another_instance_wrote_is_obeyed_at_once() {
    let mut store = guard(&[P]);
    let stands = reply(OLD, 3, Some(&generation(OLD, 3, 500)));
    assert_eq!(told(&mut store, &stands, 5), (barrier(500), None), "an instance that starts");

    told(&mut store, &reply(NEW, 0, Some(&generation(OLD, 3, 500))), 50);
    let of_other = reply(NEW, 0, Some(&numbered(NEW, 2, 0, 900)));
    assert_eq!(told(&mut store, &of_other, 51), (barrier(900), Some(News::Stands)));
}

#[test]
fn a_promoted_replica_an_eviction_and_bytes_that_are_none_are_losses() {
    let whole = generation(OLD, 3, 500);
    let torn = Reply { generation: Some(vec![1, 2, 3]), ..reply(OLD, 3, None) };
    let losses = [
        (reply(NEW, 3, Some(&whole)), LossCause::OtherServer),
        (reply(OLD, 4, Some(&whole)), LossCause::Evicted),
        (reply(OLD, 2, Some(&whole)), LossCause::Evicted),
        (reply(OLD, 3, None), LossCause::NoGeneration),
        (torn, LossCause::Malformed),
    ];
    for (reply, cause) in losses {
        let mut store = guard(&[P]);
        let good = self::reply(OLD, 3, Some(&whole));
        assert_eq!(told(&mut store, &good, 5).0, barrier(500));
        let news = Some(News::Lost(cause));
        assert_eq!(told(&mut store, &reply, 6), (Belief::Unknown, news), "{reply:?}");
        let is_empty = reply.generation.is_none();
        let reply = if is_empty { filled(&mut store, 3, 6) } else { reply };
        store.sampled(P, sample(7 + FENCE, 900), &ON);
        let write = store.due(at(7 + FENCE), &ON).expect("it is due");
        assert_eq!(write.expected, reply.generation);
        let number = if is_empty { 3 } else { 2 };
        assert_eq!(write.generation, numbered(reply.server, number, reply.evicted, 900));
    }
}

#[test]
fn a_second_loss_starts_the_fence_anew() {
    let mut store = guard(&[P]);
    filled(&mut store, 0, 5);
    store.sampled(P, sample(106, 500), &ON);
    let (_, news) = told(&mut store, &reply(OLD, 1, None), 107);
    assert_eq!(news, Some(News::Lost(LossCause::NoGeneration)));
    filled(&mut store, 1, 107);
    assert_eq!(store.due(at(150), &ON), None);
    assert_eq!(store.fenced_until(at(150), &ON), Some(at(107 + FENCE)));
}

#[test]
fn a_store_that_is_emptied_again_before_its_barrier_is_written_needs_a_later_one() {
    let mut store = guard(&[P]);
    filled(&mut store, 0, 5);
    store.sampled(P, sample(106, 500), &ON);
    assert!(store.due(at(106), &ON).is_some());
    // Something was recorded, and it is flushed before that is written.
    filled(&mut store, 0, 108);
    assert_eq!(store.due(at(109), &ON), None, "the sample is older than what was lost");
    assert_eq!(store.wants_sample(P, &ON), Some(at(108)));
    store.sampled(P, sample(109, 700), &ON);
    let write = store.due(at(109), &ON).expect("it is due");
    assert_eq!(write.generation, numbered(OLD, 3, 0, 700));
}

#[test]
fn a_store_that_is_emptied_while_an_older_generation_is_void_needs_a_later_barrier_too() {
    let mut store = guard(&[P]);
    let before = reply(NEW, 0, Some(&generation(OLD, 0, 500)));
    told(&mut store, &before, 5);
    store.sampled(P, sample(106, 600), &ON);
    told(&mut store, &reply(NEW, 0, None), 107);
    let write = store.due(at(107), &ON).expect("it is filled first");
    assert_eq!((write.expected, write.generation.barriers().count()), (None, 0));
    told(&mut store, &reply(NEW, 0, Some(&write.generation)), 108);
    assert_eq!(store.due(at(109), &ON), None, "the sample is older than what was lost");
}

#[test]
fn a_partition_without_a_leader_is_waited_for_and_then_gets_its_barrier_later() {
    let mut store = guard(&[P, Q]);
    filled(&mut store, 0, 5);
    store.sampled(P, sample(106, 500), &ON);
    assert_eq!(store.due(at(5 + FENCE + GRACE - 1), &ON), None);
    let write = store.due(at(5 + FENCE + GRACE), &ON).expect("it is waited for no longer");
    let stands = reply(OLD, 0, Some(&write.generation));
    assert_eq!(told(&mut store, &stands, 130).0, barrier(500));
    let (worth, _) = store.replied(&stands, at(130), &ON);
    assert_eq!(worth.belief(Q, at(130), &ON), Belief::Unknown);

    assert_eq!(store.wants_sample(Q, &ON), Some(at(130)));
    store.sampled(Q, sample(131, 70), &ON);
    let more = store.due(at(132), &ON).expect("it is due");
    assert_eq!(more.expected, stands.generation);
    let stands = reply(OLD, 0, Some(&more.generation));
    let (worth, news) = store.replied(&stands, at(140), &ON);
    assert_eq!((worth.belief(Q, at(140), &ON), news), (barrier(70), None));
    assert_eq!(worth.belief(P, at(130 + D_MAX), &ON), Belief::Clear, "its term goes on");
}

#[test]
fn a_loss_that_another_instance_dealt_with_between_two_answers_is_told_once() {
    let causes = [
        (generation(OLD, 3, 500), numbered(NEW, 2, 0, 900), Some(LossCause::OtherServer)),
        (generation(OLD, 3, 500), numbered(OLD, 2, 4, 900), Some(LossCause::Evicted)),
        (generation(OLD, 3, 500), numbered(OLD, 2, 3, 900), Some(LossCause::Told)),
        // Flushed, while nobody wrote to the leader.
        (generation(OLD, 3, 500), numbered(OLD, 2, 3, 500), Some(LossCause::Told)),
        // A partition whose leader gave no sample before has its barrier now.
        (
            generation(OLD, 3, 500),
            numbered(OLD, 2, 3, 500).with(Q, EPOCH, Lsn::new(70).into()),
            None,
        ),
    ];
    for (before, next, cause) in causes {
        let mut store = guard(&[P, Q]);
        let Generation { server, evicted, .. } = next;
        told(&mut store, &reply(OLD, 3, Some(&before)), 5);
        let stands = reply(server, evicted, Some(&next));
        let (belief, news) = told(&mut store, &stands, 6);
        assert_ne!(belief, Belief::Unknown, "{next:?}");
        assert_eq!(news, cause.map(News::LostAndStands), "{next:?}");
        assert_eq!(told(&mut store, &stands, 7).1, None, "once");
    }
}

/// The belief in a store whose primary refuses writes once its replicas are behind.
fn fenced() -> SharedGuard {
    let believed_for = Some(Duration::from_nanos(WINDOW));
    let d_max = Duration::from_nanos(1_000 * SECOND);
    SharedGuard::new(SharedRules { believed_for, d_max, ..rules() }, vec![P])
}

/// A write every second, in seconds.
fn writes(store: &mut SharedGuard, server: Server, seconds: std::ops::Range<u64>) {
    for second in seconds {
        let (sent_at, now) = (at(second * SECOND), at(second * SECOND + 1));
        store.accepted(server, sent_at, now, &ON);
    }
}

fn believes(store: &mut SharedGuard, reply: &Reply, now: u64, guards: &Guards) -> bool {
    let (worth, _) = store.replied(reply, at(now), guards);
    assert!(matches!(worth, Worth::Believed(_) | Worth::Unknown(Unbelieved::Deposed)), "{worth:?}");
    matches!(worth, Worth::Believed(_))
}

#[test]
fn an_answer_is_believed_once_its_server_took_our_writes_for_a_window_and_while_it_does() {
    let mut store = fenced();
    let stands = reply(OLD, 0, Some(&generation(OLD, 0, 500)));
    assert!(!store.is_young(at(4), &ON), "it was not heard of, so nothing is waited for");
    assert!(!believes(&mut store, &stands, 5, &ON), "nothing was written yet");
    writes(&mut store, OLD, 1..14);
    assert!(!believes(&mut store, &stands, 14 * SECOND, &ON), "it may be deposed since long");
    assert!(store.is_young(at(14 * SECOND), &ON));
    writes(&mut store, OLD, 14..15);
    assert!(believes(&mut store, &stands, 14 * SECOND + 1, &ON));
    assert!(!store.is_young(at(14 * SECOND + 1), &ON));
    assert!(believes(&mut store, &stands, 14 * SECOND + WINDOW, &ON));
    assert!(!believes(&mut store, &stands, 14 * SECOND + WINDOW + 1, &ON));
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("believed_lookup").expect("named");
        assert!(believes(&mut store, &stands, 14 * SECOND + WINDOW + 1, &off));
    }
}

#[test]
fn what_a_server_takes_after_a_silence_is_promised_to_nobody_until_it_has_settled_again() {
    let mut store = fenced();
    writes(&mut store, OLD, 1..20);
    let taken = |store: &mut SharedGuard, sent_at, now| {
        store.accepted(OLD, at(sent_at), at(now), &ON).is_settled
    };
    assert!(taken(&mut store, 20 * SECOND, 20 * SECOND + 1));
    // Frozen meanwhile: it was sent in time, and heard of too late.
    assert!(!taken(&mut store, 21 * SECOND, 31 * SECOND));
    writes(&mut store, OLD, 32..44);
    assert!(!taken(&mut store, 44 * SECOND, 44 * SECOND + 1), "heard of since the 32nd second");
    assert!(taken(&mut store, 45 * SECOND, 45 * SECOND + 1));
    assert!(!store.accepted(NEW, at(46 * SECOND), at(46 * SECOND), &ON).is_settled, "another one");
}

#[test]
fn a_server_that_refused_our_writes_has_lost_something_once_it_takes_them_again() {
    let mut store = fenced();
    let stands = reply(OLD, 0, Some(&generation(OLD, 0, 500)));
    writes(&mut store, OLD, 1..20);
    assert!(believes(&mut store, &stands, 20 * SECOND, &ON));
    store.refused();
    assert!(!believes(&mut store, &stands, 20 * SECOND, &ON));
    let taken = store.accepted(OLD, at(21 * SECOND), at(21 * SECOND), &ON);
    let void = stands.generation.clone().expect("it shows one");
    assert_eq!(taken.void, Some((News::Lost(LossCause::Refused), void)));
    assert!(!taken.is_settled);
    let again = store.accepted(OLD, at(22 * SECOND), at(22 * SECOND), &ON);
    assert_eq!(again.void, None, "once");
}

/// What an answer is worth of a store that is believed without writes, once it refused one.
fn single_that_refused(guards: &Guards) -> (SharedGuard, Reply, bool) {
    let mut store = guard(&[P]);
    let stands = reply(OLD, 0, Some(&generation(OLD, 0, 500)));
    assert!(believes(&mut store, &stands, 5, guards), "nobody can be promoted");
    store.refused();
    let believed = believes(&mut store, &stands, 6, guards);
    (store, stands, believed)
}

#[test]
fn a_single_store_that_refuses_writes_is_not_believed() {
    let (mut store, stands, believed) = single_that_refused(&ON);
    assert!(!believed, "it may be deposed");
    assert!(!believes(&mut store, &stands, 1_000 * SECOND, &ON), "for as long as it does");
    let taken = store.accepted(OLD, at(1_001 * SECOND), at(1_001 * SECOND), &ON);
    let void = stands.generation.clone().expect("it shows one");
    assert_eq!(taken.void, Some((News::Lost(LossCause::Refused), void)));
    assert!(taken.is_settled, "who takes writes is no deposed one");
    let worth = told(&mut store, &stands, 1_002 * SECOND);
    assert_eq!(worth, (Belief::Unknown, None), "others may have recorded elsewhere meanwhile");
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("believed_lookup").expect("named");
        assert!(single_that_refused(&off).2, "a deposed primary would be believed");
    }
}

/// A replica was promoted, took records, and follows its old primary again, which never changed.
fn believes_after_an_undone_promotion(guards: &Guards) -> bool {
    let mut store = guard(&[P]);
    let (before, after) = (generation(OLD, 0, 500), numbered(NEW, 2, 0, 900));
    store.replied(&reply(OLD, 0, Some(&before)), at(5), guards);
    store.replied(&reply(NEW, 0, Some(&after)), at(9), guards);
    let (worth, _) = store.replied(&reply(OLD, 0, Some(&before)), at(50), guards);
    matches!(worth, Worth::Believed(_))
}

#[test]
fn an_older_generation_than_one_seen_before_is_a_loss() {
    assert!(!believes_after_an_undone_promotion(&ON));
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("generation").expect("named");
        assert!(believes_after_an_undone_promotion(&off));
    }
}

#[test]
fn whoever_saw_the_promotion_alone_does_not_believe_the_old_primary_either() {
    let mut store = guard(&[P]);
    let before = generation(OLD, 0, 500);
    // It starts on the promoted server, which still shows the generation of the old one.
    told(&mut store, &reply(NEW, 0, Some(&before)), 5);
    let (belief, news) = told(&mut store, &reply(OLD, 0, Some(&before)), 50);
    assert_eq!((belief, news), (Belief::Unknown, Some(News::Lost(LossCause::Undone))));
    store.sampled(P, sample(51 + FENCE, 900), &ON);
    let write = store.due(at(51 + FENCE), &ON).expect("it is due");
    assert_eq!(write.generation, numbered(OLD, 2, 0, 900));
    let stands = reply(OLD, 0, Some(&write.generation));
    assert_eq!(told(&mut store, &stands, 200), (barrier(900), Some(News::Stands)));
}

#[test]
fn a_replica_is_not_believed_and_tells_of_no_loss() {
    let mut store = guard(&[P]);
    let replica = Reply { is_primary: false, ..reply(OLD, 0, None) };
    let (worth, news) = store.replied(&replica, at(5), &ON);
    assert!(matches!(worth, Worth::Unknown(Unbelieved::Replica)));
    assert_eq!((news, store.due(at(9_999), &ON)), (None, None));
}

#[test]
fn a_loss_that_the_generation_does_not_show_voids_it_for_good() {
    let mut store = guard(&[P]);
    let stands = reply(OLD, 0, Some(&generation(OLD, 0, 500)));
    told(&mut store, &stands, 5);
    let (news, void) = store.lost(LossCause::NoScript, at(6)).expect("it stood");
    assert_eq!(news, News::Lost(LossCause::NoScript));
    assert_eq!(Some(&void), stands.generation.as_ref());
    assert_eq!(store.lost(LossCause::NoScript, at(7)), None, "once");
    assert_eq!(told(&mut store, &stands, 8), (Belief::Unknown, None));
    assert_eq!(told(&mut store, &reply(OLD, 0, None), 9), (Belief::Unknown, None));
    assert_eq!(store.fenced_until(at(10), &ON), Some(at(6 + FENCE)));
}

/// A replica was promoted at 10; another instance goes on recording on the old primary until 40,
/// when the leader is at 400. Here the loss is seen at 20.
fn demands_what_the_other_recorded(guards: &Guards) -> bool {
    let mut store = guard(&[P]);
    let promoted = reply(NEW, 0, Some(&generation(OLD, 0, 5)));
    store.replied(&promoted, at(20), guards);
    for (sent_at, position) in [(21, 210), (60, 600), (121, 1_210)] {
        store.sampled(P, sample(sent_at, position), guards);
    }
    let Some(write) = store.due(at(122), guards) else { return true };
    let stands = reply(NEW, 0, Some(&write.generation));
    let (worth, _) = store.replied(&stands, at(122), guards);
    match worth.belief(P, at(122), guards) {
        Belief::Unknown => true,
        Belief::Barrier(_, demanded) => demanded.covers(Lsn::new(400).into()),
        Belief::Clear => false,
    }
}

#[test]
fn the_fence_guard_keeps_the_barrier_from_being_sampled_too_early() {
    assert!(demands_what_the_other_recorded(&ON));
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("fence").expect("named");
        assert!(!demands_what_the_other_recorded(&off), "without the fence it is missed");
    }
}

#[test]
fn the_generation_guard_tells_a_promoted_replica_from_its_primary() {
    let promoted = reply(NEW, 0, Some(&generation(OLD, 0, 5)));
    let believes = |guards: &Guards| {
        let mut store = guard(&[P]);
        let (worth, _) = store.replied(&promoted, at(5), guards);
        matches!(worth, Worth::Believed(_))
    };
    assert!(!believes(&ON));
    #[cfg(feature = "unsafe-guards")]
    assert!(believes(&Guards::without("generation").expect("named")));
}

#[test]
fn a_replica_that_copied_everything_anew_may_have_been_the_primary() {
    let stands = generation(OLD, 3, 500);
    for (evicted, copied, cause) in [
        (3, 1, LossCause::Undone),
        (4, 0, LossCause::Evicted),
        (4, 1, LossCause::Evicted),
        (0, 0, LossCause::Evicted),
    ] {
        let mut store = guard(&[P]);
        told(&mut store, &reply(OLD, 3, Some(&stands)), 5);
        let reply = reply(OLD, Reply::counts(evicted, copied), Some(&stands));
        let news = Some(News::Lost(cause));
        assert_eq!(told(&mut store, &reply, 6), (Belief::Unknown, news), "{evicted} {copied}");
    }
}

#[test]
fn whoever_lost_something_and_may_be_deposed_is_relied_on_as_little_as_any_deposed_primary() {
    let mut store = fenced();
    let empty = reply(OLD, 0, None);
    let (worth, _) = store.replied(&empty, at(5), &ON);
    assert!(matches!(worth, Worth::Unknown(Unbelieved::Deposed)), "{worth:?}");
    writes(&mut store, OLD, 1..15);
    let (worth, _) = store.replied(&empty, at(14 * SECOND + 1), &ON);
    assert!(matches!(worth, Worth::Unknown(Unbelieved::Lost)), "{worth:?}");
}
