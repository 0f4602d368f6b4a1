//! Whether what is known of a session is all there is.

use tidegate_core::trail::Known;

use super::*;

const ON: Guards = Guards::on();

/// A token that had to drop components, and names the first partition.
fn overflowed() -> SessionToken {
    let mut token = saw(KEY1, 5);
    token.overflow = true;
    token
}

#[tokio::test]
async fn a_subject_is_unknown_until_a_leader_sample_sent_after_the_start_and_then_has_a_barrier() {
    let world = starting();
    let holder = world.holder("alice", &[]).await;
    assert_eq!(holder.ignorance(KEY1, &ON), Some(Ignorance::StoreLost));
    assert_eq!(holder.barrier(KEY1), None);

    world.sessions.sampled(KEY1, sample(Instant::default()));
    let early = world.holder("alice", &[]).await;
    assert_eq!(early.ignorance(KEY1, &ON), Some(Ignorance::StoreLost), "sent before the start");
    let first = sample(world.started_at + Duration::from_millis(1));
    world.sessions.sampled(KEY1, first);
    world.sessions.sampled(KEY1, sample(first.sent_at + Duration::from_secs(1)));
    let after = world.holder("alice", &[]).await;
    assert_eq!(after.known(KEY1, &ON), Known::Yes);
    assert_eq!(after.barrier(KEY1), Some((first.epoch, first.position)), "the first one stands");
    assert_eq!(after.ignorance(KEY2, &ON), Some(Ignorance::StoreLost), "of its own partition");
    assert_eq!(holder.ignorance(KEY1, &ON), Some(Ignorance::StoreLost), "as it was looked up");
}

#[tokio::test]
async fn a_record_raised_meanwhile_is_worth_what_the_store_is_by_then() {
    let world = starting();
    let looked_up = world.holder("alice", &[]).await;
    let first = sample(world.started_at + Duration::from_millis(1));
    world.sessions.sampled(KEY1, first);
    let change = Change::joining(saw(KEY1, 5));
    let raised = world.sessions.adopt(looked_up.clone(), change).await.expect("it answers");
    assert_eq!(raised.known(KEY1, &ON), Known::Yes);
    let barrier = Some((first.epoch, first.position));
    assert_eq!(raised.barrier(KEY1), barrier, "what is kept now is believed no further");
    assert_eq!(looked_up.ignorance(KEY1, &ON), Some(Ignorance::StoreLost));
}

#[tokio::test]
async fn the_barrier_binds_only_those_who_name_a_subject() {
    let world = starting();
    let tokens = [world.sealed(&saw(KEY1, 5))];
    let holder = world.holder("", &tokens).await;
    assert_eq!((holder.known(KEY1, &ON), holder.barrier(KEY1)), (Known::Yes, None));
}

#[tokio::test]
async fn the_gate_spares_only_what_was_carried_without_a_subject() {
    let world = world();
    let token = world.sealed(&saw(KEY1, 5));
    world.writes("alice", &[], wrote(KEY1, 9)).await;
    let table = [
        ("", vec![], true),
        ("", vec![token.clone()], false),
        ("alice", vec![], true),
        ("alice", vec![token], true),
    ];
    for (subject, tokens, binds) in table {
        let holder = world.holder(subject, &tokens).await;
        assert_eq!(holder.gate_binds(KEY1), binds, "{subject:?} with {} tokens", tokens.len());
        assert!(holder.gate_binds(KEY2), "nothing is carried of the second partition");
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_makes_a_session_unknown_and_never_new() {
    let world = world();
    world.writes("alice", &[], wrote(KEY1, 9)).await;
    world.store.fails(true);
    let holder = world.holder("alice", &[]).await;
    assert_eq!(holder.ignorance(KEY1, &ON), Some(Ignorance::StoreUnavailable));
    assert!(holder.store_error().is_some());
    assert_eq!(world.sessions.resolve_session(&holder).state, SessionState::Unknown);
    let tokens = [world.sealed(&saw(KEY1, 5))];
    assert_eq!(world.holder("", &tokens).await.known(KEY1, &ON), Known::Yes, "carried ones work");
}

#[tokio::test]
async fn a_dropped_component_is_unknown_whatever_the_record_has() {
    let world = world();
    let tokens = [world.sealed(&overflowed())];
    world.writes("alice", &[], wrote(KEY2, 9)).await;
    let table = [
        ("", KEY1, None),
        ("", KEY2, Some(Ignorance::Overflow)),
        // The record may lack what a read raised in the token alone.
        ("alice", KEY2, Some(Ignorance::Overflow)),
        ("bob", KEY2, Some(Ignorance::Overflow)),
    ];
    for (subject, key, ignorance) in table {
        let holder = world.holder(subject, &tokens).await;
        assert_eq!(holder.ignorance(key, &ON), ignorance, "{subject:?} in {key:?}");
    }
}

#[tokio::test]
async fn a_record_that_is_not_believed_makes_up_for_no_dropped_component() {
    let world = starting();
    world.writes("alice", &[], wrote(KEY2, 9)).await;
    let holder = world.holder("alice", &[world.sealed(&overflowed())]).await;
    assert_eq!(holder.ignorance(KEY2, &ON), Some(Ignorance::StoreLost));
}

#[tokio::test]
async fn a_record_that_dropped_components_is_not_made_up_for_by_a_token() {
    let world = world();
    let mut dropped = wrote(KEY1, 9);
    dropped.overflow = true;
    world.writes("alice", &[], dropped).await;
    let holder = world.holder("alice", &[world.sealed(&saw(KEY2, 5))]).await;
    assert_eq!(holder.ignorance(KEY1, &ON), None);
    assert_eq!(holder.ignorance(KEY2, &ON), Some(Ignorance::Overflow));
}

/// A token dropped the component of a write; is its session taken for one that never wrote?
async fn is_taken_for_new(guards: &Guards) -> bool {
    let world = world();
    let holder = world.holder("", &[world.sealed(&overflowed())]).await;
    holder.known(KEY2, guards) == Known::Yes && holder.component(KEY2).is_none()
}

#[tokio::test]
async fn the_overflow_guard_keeps_a_dropped_component_from_meaning_none() {
    assert!(!is_taken_for_new(&ON).await);
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("overflow").unwrap_or_default();
        assert!(is_taken_for_new(&off).await, "without the guard the write is forgotten");
    }
}

#[tokio::test]
async fn a_low_read_does_not_stand_in_for_a_dropped_write() {
    let world = world();
    let tokens = [world.sealed(&overflowed())];
    for (join, complete) in [
        (saw(KEY2, 3), false),
        (wrote(KEY2, 9), false),
        (marked(KEY2, 1, Mark::demand(lsn(99))), true),
    ] {
        let holder = world.holder("", &tokens).await;
        let read = Whom::Read(RaiseWhom::TokenOrRecord);
        let committed = world.sessions.commit(&holder, Change::joining(join), read).await;
        let token = committed.expect("no store").token;
        let after = world.holder("", &[token]).await;
        let component = after.component(KEY2).expect("it was raised");
        assert_eq!(component.unresolved, !complete, "{component:?}");
    }
}

#[tokio::test]
async fn marks_of_a_former_database_are_told_apart_from_those_of_today() {
    let world = world();
    let former = ComponentKey::new(P1, SystemId::new(70));
    let tokens = [world.sealed(&joined(&[saw(former, 5), saw(KEY1, 6), saw(KEY2, 7)]))];
    let holder = world.holder("", &tokens).await;
    let found: Vec<ComponentKey> = holder.former(KEY1).map(|(key, _)| key).collect();
    assert_eq!(found, [former]);
    assert_eq!(holder.former(KEY2).count(), 0);
}

#[tokio::test]
async fn a_session_is_none_only_if_nothing_can_have_been_forgotten() {
    let (starting, world) = (starting(), world());
    let token = world.sealed(&saw(KEY1, 5));
    let mut all = saw(KEY2, 5);
    all.join(&overflowed());
    let (partly, all) = (world.sealed(&overflowed()), world.sealed(&all));
    world.writes("alice", &[], wrote(KEY1, 9)).await;
    let table = [
        (&world, "", vec![], SessionState::None, None),
        (&world, "", vec![token.clone()], SessionState::Known, None),
        (&world, "", vec![partly], SessionState::Unknown, None),
        (&world, "", vec![all], SessionState::Known, None),
        // As long as the barrier stands, a token that left the store demands what it does.
        (&world, "alice", vec![], SessionState::Known, Some(true)),
        (&world, "bob", vec![], SessionState::Unknown, Some(false)),
        (&starting, "alice", vec![], SessionState::Unknown, Some(false)),
        (&starting, "", vec![], SessionState::None, None),
    ];
    for (number, (world, subject, tokens, state, says)) in table.into_iter().enumerate() {
        let holder = world.holder(subject, &tokens).await;
        let resolved = world.sessions.resolve_session(&holder);
        assert_eq!(resolved.state, state, "row {number}");
        let Some(has_marks) = says else {
            assert_eq!(resolved.token, "", "row {number}");
            continue;
        };
        let token = world.opened(&resolved.token);
        assert!(token.overflow, "row {number}");
        assert_eq!(token.components().count() > 0, has_marks, "row {number}");
        assert!(token.components().all(|(_, own)| own.unresolved), "row {number}");
    }
    let two = [token, world.sealed(&saw(KEY2, 4))];
    let resolved = world.sessions.resolve_session(&world.holder("", &two).await);
    assert_eq!(world.opened(&resolved.token), joined(&[saw(KEY1, 5), saw(KEY2, 4)]));
}
