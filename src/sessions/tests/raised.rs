//! Who is raised, told and settled by a call.

use super::*;

const READ: Whom = Whom::Read(RaiseWhom::TokenOrRecord);
const READ_ALL: Whom = Whom::Read(RaiseWhom::All);
const READ_NONE: Whom = Whom::Read(RaiseWhom::None);

#[tokio::test]
async fn who_is_raised_by_what() {
    // Whether the answer has a token that was raised, and whether the record was.
    let table = [
        (Whom::Write, "", false, (true, false)),
        (Whom::Write, "", true, (true, false)),
        (Whom::Write, "alice", false, (true, true)),
        (Whom::Write, "alice", true, (true, true)),
        (READ, "", false, (true, false)),
        (READ, "", true, (true, false)),
        (READ, "alice", false, (false, true)),
        (READ, "alice", true, (true, false)),
        (READ_ALL, "", false, (true, false)),
        (READ_ALL, "", true, (true, false)),
        (READ_ALL, "alice", false, (false, true)),
        (READ_ALL, "alice", true, (true, true)),
        (READ_NONE, "", true, (false, false)),
        (READ_NONE, "alice", false, (false, false)),
        (READ_NONE, "alice", true, (false, false)),
    ];
    for (whom, subject, carries, (token, record)) in table {
        let case = format!("{whom:?} by {subject:?}, a token carried: {carries}");
        let world = world();
        let carried = saw(KEY2, 5);
        let tokens = if carries { vec![world.sealed(&carried)] } else { vec![] };
        let holder = world.holder(subject, &tokens).await;
        let change = Change::joining(wrote(KEY1, 9));
        let committed = world.sessions.commit(&holder, change, whom).await.expect("it answers");
        assert_eq!(!committed.token.is_empty(), token, "{case}");
        if token {
            let raised = world.opened(&committed.token);
            assert!(raised.component(KEY1).is_some(), "{case}");
            assert_eq!(raised.component(KEY2).is_some(), carries, "{case}");
        }
        assert_eq!(committed.stored, record.then_some(Stored::Memory), "{case}");
        let kept = if record { Some(wrote(KEY1, 9)) } else { None };
        assert_eq!(world.record("alice").await, kept, "{case}: only what was raised is kept");
    }
}

#[tokio::test]
async fn what_changes_nothing_writes_nothing() {
    let world = world();
    let committed = world.writes("alice", &[], wrote(KEY1, 9)).await;
    let tokens = [committed.token];
    let asked = world.store.updates();
    for whom in [READ, READ_ALL, READ_NONE, Whom::Write] {
        for change in
            [Change::default(), Change::joining(saw(KEY1, 8)), Change::joining(wrote(KEY1, 9))]
        {
            if whom == Whom::Write && !change.is_empty() {
                continue;
            }
            let holder = world.holder("alice", &tokens).await;
            let seen_already = change.join != saw(KEY1, 8);
            let committed = world.sessions.commit(&holder, change, whom).await.expect("answers");
            if seen_already {
                assert_eq!(committed.token, "", "{whom:?}");
                assert_eq!(committed.stored, None);
            }
        }
    }
    assert_eq!(world.store.updates(), asked + 1, "once, by the read at 8 that raised all");
}

#[tokio::test]
async fn a_write_repeated_says_again_where_it_is_kept() {
    let world = world();
    let first = world.writes("alice", &[], wrote(KEY1, 9)).await;
    let again = world.writes("alice", &[first.token], wrote(KEY1, 9)).await;
    assert_eq!((again.stored, again.token.as_str()), (Some(Stored::Memory), ""));
}

#[tokio::test]
async fn a_write_that_cannot_be_kept_is_refused_and_a_read_raises_its_token_instead() {
    let world = world();
    world.store.fails(true);
    let holder = world.holder("alice", &[]).await;
    let change = Change::joining(wrote(KEY1, 9));
    let refused = world.sessions.commit(&holder, change.clone(), Whom::Write).await;
    assert!(matches!(refused, Err(SessionError::Store(_))), "{refused:?}");
    assert!(world.sessions.adopt(holder.clone(), change).await.is_err());

    let change = Change::joining(saw(KEY1, 8));
    let committed = world.sessions.commit(&holder, change, READ).await.expect("reads go on");
    assert!(committed.unkept.is_some() && committed.stored.is_none());
    assert_eq!(world.opened(&committed.token).component(KEY1), saw(KEY1, 8).component(KEY1));

    world.store.fails(false);
    assert_eq!(world.record("alice").await, None);
}

#[tokio::test]
async fn a_record_is_raised_before_the_answer_and_holds_what_others_raised_meanwhile() {
    let world = world();
    let holder = world.holder("alice", &[]).await;
    world.writes("alice", &[], wrote(KEY2, 50)).await;
    let change = Change::joining(wrote(KEY1, 9));
    world.sessions.commit(&holder, change, Whom::Write).await.expect("it answers");
    assert_eq!(world.record("alice").await, Some(joined(&[wrote(KEY1, 9), wrote(KEY2, 50)])));
}

/// The change of a read that judged the mark at 9 of the first line lost: replaced and told.
fn replaced(judged: &SessionToken) -> Change {
    let component = judged.component(KEY1).expect("it is judged");
    let mark = component.mark(epoch(1)).expect("it is judged");
    Change {
        drop: vec![(KEY1, epoch(1), mark)],
        join: marked(KEY1, 2, Mark::demand(lsn(20))),
        tell: vec![lost_in(P1)],
        ..Change::default()
    }
}

#[tokio::test]
async fn a_lost_mark_is_replaced_and_told_in_every_holder_that_has_it_and_in_no_other() {
    let world = world();
    let by_token = world.sealed(&wrote(KEY1, 9));
    for (subject, in_record) in [("alice", wrote(KEY1, 7)), ("bob", wrote(KEY2, 7))] {
        world.writes(subject, &[], in_record.clone()).await;
        let holder = world.holder(subject, std::slice::from_ref(&by_token)).await;
        let change = replaced(holder.merged());
        let committed = world.sessions.commit(&holder, change, READ).await.expect("it answers");
        assert_eq!(committed.notices, [lost_in(P1)]);
        let mut fresh = marked(KEY1, 2, Mark::demand(lsn(20)));
        fresh.tell(lost_in(P1));
        assert_eq!(world.opened(&committed.token), fresh);
        let kept = if subject == "alice" { fresh } else { in_record };
        assert_eq!(world.record(subject).await, Some(kept), "{subject}");
    }
}

#[tokio::test]
async fn a_read_that_raises_nobody_is_told_all_the_same() {
    let world = world();
    let tokens = [world.sealed(&wrote(KEY1, 9))];
    let holder = world.holder("", &tokens).await;
    let change = replaced(holder.merged());
    let committed = world.sessions.commit(&holder, change, READ_NONE).await.expect("no store");
    assert_eq!((committed.notices, committed.token.as_str()), (vec![lost_in(P1)], ""));
}

#[tokio::test]
async fn an_unresolved_demand_is_settled_in_each_holder_though_both_were_judged_as_one() {
    let world = world();
    let unresolved = SessionToken::of(KEY1, Component::unresolved());
    let in_record = joined(&[unresolved.clone(), wrote(KEY1, 7)]);
    world.writes("alice", &[], in_record).await;
    let holder = world.holder("alice", &[world.sealed(&unresolved)]).await;
    let judged = holder.component(KEY1).expect("it is carried").clone();
    let change = Change {
        settle: vec![(KEY1, judged)],
        join: marked(KEY1, 1, Mark::demand(lsn(20))),
        ..Change::default()
    };
    let committed = world.sessions.commit(&holder, change, READ).await.expect("it answers");
    let settled = |token: &SessionToken| {
        let component = token.component(KEY1).expect("it is held");
        let covered = component.mark(epoch(1)).is_some_and(|mark| mark.floor.covers(lsn(20)));
        !component.unresolved && covered
    };
    assert!(settled(&world.opened(&committed.token)));
    assert!(settled(&world.record("alice").await.expect("it is kept")));
}

#[tokio::test]
async fn what_a_call_brings_counts_before_it_is_judged_and_is_in_its_token() {
    let world = world();
    for subject in ["", "alice"] {
        let holder = world.holder(subject, &[]).await;
        let brought = Change::joining(wrote(KEY1, 9));
        let holder = world.sessions.adopt(holder, brought).await.expect("it answers");
        assert_eq!(holder.merged(), &wrote(KEY1, 9));
        let committed = world.sessions.commit(&holder, Change::default(), READ).await;
        let token = committed.expect("it answers").token;
        if subject.is_empty() {
            assert_eq!(world.opened(&token), wrote(KEY1, 9));
        } else {
            assert_eq!(token, "");
            assert_eq!(world.record(subject).await, Some(wrote(KEY1, 9)));
        }
    }
}

#[tokio::test]
async fn a_notice_is_told_until_it_is_acknowledged_and_never_again() {
    let world = world();
    let mut told = wrote(KEY1, 9);
    told.tell(lost_in(P1));
    world.writes("alice", &[], told.clone()).await;
    let carried = world.sealed(&told);
    let holder = world.holder("alice", std::slice::from_ref(&carried)).await;
    assert_eq!(world.sessions.resolve_session(&holder).notices, [lost_in(P1)]);

    let id = lost_in(P1).id();
    let token = world.sessions.acknowledge(&holder, &[id]).await.expect("it answers");
    for (subject, tokens) in [("alice", vec![]), ("", vec![token.clone()]), ("alice", vec![token])]
    {
        let holder = world.holder(subject, &tokens).await;
        assert_eq!(world.sessions.resolve_session(&holder).notices, []);
        let change = Change { tell: vec![lost_in(P1)], ..Change::default() };
        let committed = world.sessions.commit(&holder, change, READ_ALL).await;
        assert_eq!(committed.expect("it answers").notices, [], "it was told before");
        let again = world.sessions.acknowledge(&holder, &[id]).await.expect("it answers");
        assert_eq!(again, "");
    }
    let nobody = world.holder("", &[]).await;
    assert_eq!(world.sessions.acknowledge(&nobody, &[id]).await.expect("no store"), "");
    // The token from before still tells it: it was not told of the acknowledgement.
    let other = world.holder("", &[carried]).await;
    assert_eq!(world.sessions.resolve_session(&other).notices, [lost_in(P1)]);
}

#[tokio::test]
async fn a_write_past_what_was_acknowledged_as_lost_is_told_again() {
    let world = world();
    let upto = |end| Notice { upto: lsn(end), ..lost_in(P1) };
    let tells = async |token: &[String], end: u64| {
        let holder = world.holder("alice", token).await;
        let change = Change { tell: vec![upto(end)], ..Change::default() };
        world.sessions.commit(&holder, change, READ_ALL).await.expect("it answers")
    };
    let token = [world.sealed(&wrote(KEY1, 9))];
    let first = tells(&token, 9).await;
    assert_eq!(first.notices, [upto(9)]);
    let carried = [first.token];
    let holder = world.holder("alice", &carried).await;
    let token = world.sessions.acknowledge(&holder, &[upto(9).id()]).await.expect("it answers");
    let carried = [token];
    assert_eq!(tells(&carried, 8).await.notices, [], "it heard of more");
    assert_eq!(tells(&carried, 10).await.notices, [upto(10)], "a leader that was lost took more");
}

#[tokio::test]
async fn a_notice_that_was_found_is_told_though_its_record_is_lost_before_the_write() {
    let (world, emptied) = (world(), world());
    let mut told = wrote(KEY1, 9);
    told.tell(lost_in(P1));
    world.writes("alice", &[], told).await;
    let holder = world.holder("alice", &[]).await;
    let change = || Change::joining(wrote(KEY1, 12));
    let written = emptied.sessions.commit(&holder, change(), Whom::Write).await;
    assert_eq!(written.expect("it answers").notices, [lost_in(P1)], "found, and lost since");
    let adopted = emptied.sessions.adopt(holder.clone(), change()).await.expect("it answers");
    let read = emptied.sessions.commit(&adopted, Change::default(), READ).await;
    assert_eq!(read.expect("it answers").notices, [lost_in(P1)], "lost before it was judged");

    let other = world.holder("alice", &[]).await;
    world.sessions.acknowledge(&other, &[lost_in(P1).id()]).await.expect("it answers");
    let written = world.sessions.commit(&holder, change(), Whom::Write).await;
    assert_eq!(written.expect("it answers").notices, [], "acknowledged since");
}
