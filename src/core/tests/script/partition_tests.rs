//! What a partition promises whoever performs its effects: rows, facts, paces, needs and waits.

use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::lineage::{Fork, Incarnation, LineageRow};
use tidegate_core::partition::{Effect, Event, Need, NeedId, Pace, RowOutcome, WaitEnd, WaitFor};
use tidegate_core::trail::Resolution;
use tidegate_core::wait::WaitId;

use super::names::{at, epoch, life, node};
use super::stage::{SYSTEM, Stage, moment};
use super::words::Told;

const SEEN: &str = "
    a leads 1:a1 at 0/412
    b follows b1 at 0/400 row 1:a1
    c follows c1 at 0/400 row 1:a1";

fn after(story: &str) -> Stage {
    Stage::after(Guards::on(), story)
}

fn wakes(effects: &[Effect]) -> Vec<(WaitId, WaitEnd)> {
    let wake = |effect: &Effect| {
        if let Effect::Wake(id, end) = effect { Some((*id, end.clone())) } else { None }
    };
    effects.iter().filter_map(wake).collect()
}

fn stores(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::StoreFacts(_))).count()
}

fn paces(effects: &[Effect]) -> Vec<(&'static str, Pace)> {
    let pace = |effect: &Effect| {
        if let Effect::Pace(node, pace) = effect {
            Some((super::names::node_name(*node), *pace))
        } else {
            None
        }
    };
    effects.iter().filter_map(pace).collect()
}

#[test]
fn the_first_leader_is_asked_for_a_root_row_once() {
    let mut stage = after("rows are kept back");
    let effects = stage.play("a leads 1:a1 at 0/412");
    let asked = effects.iter().find_map(|effect| {
        let Effect::WriteRow { node, incarnation, row } = effect else { return None };
        Some((*node, *incarnation, *row))
    });
    let (asked_node, incarnation, row) = asked.expect("a row to write");
    assert_eq!(Some(asked_node), node("a"));
    assert_eq!(incarnation, Incarnation { system: SYSTEM, life: life("a1") });
    assert_eq!((row.epoch, row.parent, row.n), (epoch("1:a1"), None, 1));
    let again = stage.play("a leads 1:a1 at 0/413");
    assert!(!again.iter().any(|effect| matches!(effect, Effect::WriteRow { .. })));
}

#[test]
fn a_refused_row_is_not_asked_for_with_every_poll() {
    let mut stage = after("rows are refused\na leads 1:a1 at 0/412");
    assert!(stage.tell("a leads 1:a1 at 0/413", Told::Notables).is_empty());
    stage.play("pass 2s");
    let told = stage.tell("a leads 1:a1 at 0/414", Told::Notables);
    assert_eq!(told, ["a leads: write row 1:a1 on a"]);
}

#[test]
fn a_row_that_stands_and_is_not_shown_is_not_asked_for_with_every_poll() {
    let (led, fork) = (epoch("1:a1"), Fork::Unknown);
    let row = LineageRow { epoch: led, parent: None, fork, n: 1 };
    for outcome in [RowOutcome::Stands(row), RowOutcome::NotThere] {
        let mut stage = after("rows are kept back\na leads 1:a1 at 0/412");
        stage.handle(Event::RowWritten { epoch: epoch("1:a1"), outcome });
        let asked = |effects: &[Effect]| {
            effects.iter().any(|effect| matches!(effect, Effect::WriteRow { .. }))
        };
        assert!(!asked(&stage.play("a leads 1:a1 at 0/413")), "{outcome:?}");
        stage.play("pass 2s");
        assert!(asked(&stage.play("a leads 1:a1 at 0/414")), "{outcome:?}");
    }
}

#[test]
fn facts_are_stored_at_most_once_a_second_and_not_forgotten() {
    let mut stage = Stage::new();
    assert_eq!(stores(&stage.play("a leads 1:a1 at 0/400")), 1);
    for _ in 0..20 {
        assert_eq!(stores(&stage.play("a leads 1:a1 at 0/400")), 0, "nothing changed");
    }
    let mut grown = 0;
    for position in 0x401..0x441 {
        grown += stores(&stage.play(&format!("a leads 1:a1 at 0/{position:X}")));
    }
    assert_eq!(grown, 0, "within the first second");
    let due = stage.partition().poll_timeout().expect("facts wait to be stored");
    assert_eq!(due, moment(11 + 1000));
    stage.play("pass 1s");
    assert_eq!(stores(&stage.play("tick")), 1);
    assert_eq!(stage.partition().poll_timeout(), None);
}

#[test]
fn a_need_is_met_by_the_first_poll_sent_after_it_and_hurries_only_the_leader() {
    let mut stage = after(SEEN);
    let since = stage.now();
    let id = NeedId::new(1);
    let effects = stage.handle(Event::Need { id, need: Need::Leader, since });
    let [(name, pace)] = paces(&effects)[..] else { panic!("one node is hurried: {effects:?}") };
    assert_eq!((name, pace.sample_after), ("a", Some(since)));
    let met = |effects: &[Effect]| effects.iter().any(|e| matches!(e, Effect::Sampled(_)));
    assert!(!met(&stage.play("a leads 1:a1 at 0/412 sent 20")));
    assert!(!met(&stage.play("b follows b1 at 0/412 row 1:a1")));
    let effects = stage.play("a leads 1:a1 at 0/413");
    assert!(met(&effects));
    assert_eq!(paces(&effects).first().map(|(_, pace)| pace.sample_after), Some(None));
    let sampled = effects.iter().position(|e| matches!(e, Effect::Sampled(_)));
    let published = effects.iter().position(|e| matches!(e, Effect::Publish(_)));
    assert!(published < sampled, "what was needed is published first");
}

#[test]
fn every_node_is_polled_fast_exactly_while_somebody_waits() {
    let mut stage = after(SEEN);
    let busy = stage.play("park 1 on b for 1s floor 1:a1 0/412");
    assert_eq!(paces(&busy).len(), 3, "the leader too, for its flush");
    assert!(paces(&busy).iter().all(|(_, p)| p.interval == Duration::from_millis(5)));
    assert!(paces(&stage.play("park 2 on c for 1s floor 1:a1 0/412")).is_empty());
    assert!(paces(&stage.play("unpark 1")).is_empty());
    let idle = stage.play("c follows c1 at 0/412 row 1:a1");
    assert!(paces(&idle).iter().all(|(_, p)| p.interval == Duration::from_millis(250)));
    assert_eq!(paces(&idle).len(), 3);
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let mut stage = after(SEEN);
    let parked_at = stage.now();
    stage.play("park 1 on b for 50ms floor 1:a1 0/412");
    let due = stage.partition().poll_timeout().expect("a deadline");
    assert!(due <= parked_at + Duration::from_millis(50));
    stage.play("pass 49ms");
    assert!(wakes(&stage.play("tick")).is_empty());
    stage.play("pass 1ms");
    assert_eq!(wakes(&stage.play("tick")), [(WaitId::new(1), WaitEnd::Expired)]);
    assert!(wakes(&stage.play("tick")).is_empty());
}

#[test]
fn a_change_of_leader_ends_every_wait_and_judges_it_again() {
    let mut stage = after(SEEN);
    stage.play("park 1 on b for 1s floor 1:a1 0/412");
    stage.play("park 2 all on b c for 1s floor 1:a1 0/412");
    let ended = wakes(&stage.play("b leads 2:b1 at 0/450 replay 0/400 row 1:a1"));
    let judge = |id| (WaitId::new(id), WaitEnd::Judge);
    assert_eq!(ended, [judge(1), judge(2)]);
}

#[test]
fn a_dispute_over_a_fork_ends_every_wait_and_judges_it_again() {
    let mut stage = after(
        "written 1:a1
         written 2:b1 after 1:a1 fork 0/400 0/400
         b leads 2:b1 at 0/450
         park 1 on c for 1s floor 1:a1 0/400
         written 2:b1 after 1:a1 fork 0/300 0/300",
    );
    let ended = wakes(&stage.play("c follows c1 at 0/450 row 2:b1"));
    assert_eq!(ended, [(WaitId::new(1), WaitEnd::Judge)]);
}

#[test]
fn a_floor_judged_for_one_leader_is_not_parked_or_served_under_another() {
    let mut stage = after(SEEN);
    stage.tell("mark 1:a1 0/412 upto 0/412", Told::Nothing);
    let Resolution::Ready(ready) = stage.resolve() else { panic!("it is known") };
    // Between the judgement and the parking, b was promoted without the write, and c follows b.
    stage.play("b leads 2:b1 at 0/450 replay 0/400 row 1:a1");
    stage.play("b leads 2:b1 at 0/450");
    stage.play("c follows c1 at 0/450 row 2:b1");
    let event = Event::Park {
        id: WaitId::new(1),
        floor: ready.floor.clone(),
        nodes: vec![node("c").expect("a node")],
        wait_for: WaitFor::Any,
        deadline: stage.now() + Duration::from_secs(1),
    };
    assert_eq!(wakes(&stage.handle(event)), [(WaitId::new(1), WaitEnd::Judge)]);
    let (now, snapshot) = (stage.now(), stage.snapshot());
    assert!(snapshot.nodes().all(|node| !snapshot.satisfies(node, &ready.floor, now)));
}

#[test]
fn a_drained_only_node_ends_the_wait_and_another_may_still_come() {
    let mut stage = after(SEEN);
    stage.play("park 1 on b for 1s floor 1:a1 0/412");
    stage.play("park 2 on b c for 1s floor 1:a1 0/412");
    assert_eq!(wakes(&stage.play("drain b")), [(WaitId::new(1), WaitEnd::Gone)]);
    let fresh = WaitEnd::Fresh(vec![node("c").expect("a node")]);
    assert_eq!(wakes(&stage.play("c follows c1 at 0/412 row 1:a1")), [(WaitId::new(2), fresh)]);
}

#[test]
fn a_promotion_keeps_what_was_flushed_before_it_and_ends_where_the_replay_froze() {
    let mut stage = after(
        "a leads 1:a1 at 0/430 flush 0/405
         b follows b1 at 0/400 row 1:a1
         b leads 2:b1 at 0/450 replay 0/420 row 1:a1",
    );
    let origin = stage.snapshot().history.origin(epoch("2:b1"));
    let fork = Fork::between(at("0/405"), at("0/420"));
    assert_eq!(origin, Some((Some(epoch("1:a1")), fork)));
    let leader = stage.snapshot().named_leader(stage.now()).expect("a leader");
    assert_eq!(leader.epoch, epoch("2:b1"));
    // a still runs, or is seen again: it gives way all the same.
    stage.play("a leads 1:a1 at 0/440 flush 0/440");
    assert_eq!(stage.snapshot().leadership.leader(), Some(leader));
    let origin = stage.snapshot().history.origin(epoch("2:b1"));
    assert_eq!(origin, Some((Some(epoch("1:a1")), fork)), "a later flush of a proves nothing");
}

#[test]
fn an_old_standby_serves_the_new_line_only_with_its_row_and_timeline() {
    let mut stage = after(SEEN);
    stage.play("b leads 2:b1 at 0/450 replay 0/400 row 1:a1");
    stage.play("b leads 2:b1 at 0/450");
    stage.tell("mark 2:b1 0/450 upto 0/450", Told::Nothing);
    for (line, answer) in [
        ("c follows c1 at 0/400 row 1:a1", "refuse, NotCovered"),
        ("c follows c1 at 0/400 row 1:a1 from 2", "refuse, NotCovered"),
        ("c follows c1 at 0/450 row 2:b1 from 1", "refuse, NotCovered"),
        ("c follows c1 at 0/450 row 2:b1 from 2", "replica c"),
    ] {
        stage.play(line);
        assert_eq!(stage.tell("ask session", Told::Nothing), [answer], "{line}");
    }
}

#[test]
fn one_epoch_under_two_nodes_proves_nothing() {
    let mut stage = after(
        "a leads 1:a1 at 0/412
         b leads 1:a1 at 0/500
         c follows c1 at 0/500 row 1:a1
         mark 1:a1 0/412 upto 0/412",
    );
    assert_eq!(stage.tell("ask session fallback", Told::Nothing), ["refuse, Split"]);
}

#[test]
fn a_late_answer_of_an_ended_life_teaches_nothing() {
    let mut stage = after(
        "a leads 1:a1 at 0/412
         b follows b1 at 0/400 row 1:a1
         b follows b2 at 0/300 row 1:a1",
    );
    let told = stage.tell("b leads 2:b1 at 0/450 replay 0/400 row 1:a1 sent 25", Told::Notables);
    assert!(told.is_empty(), "{told:?}");
    assert!(!stage.snapshot().history.knows(epoch("2:b1")));
}

#[test]
fn a_leader_that_went_back_leads_again_once_an_operator_vouches_for_it() {
    let mut stage = after(SEEN);
    stage.play("a leads 1:a1 at 0/300");
    assert!(stage.snapshot().named_leader(stage.now()).is_none(), "it went back");
    stage.play("resume a");
    for line in ["a leads 1:a1 at 0/301", "a leads 1:a1 at 0/302"] {
        stage.play(line);
        let leader = stage.snapshot().named_leader(stage.now());
        assert!(leader.is_some(), "resumed, and out again: {:?}", stage.snapshot().views[0]);
    }
}
