//! What other systems got wrong in their rules, told as stories: each has the right answer here.
//!
//! Whose complaint each of them was, and what else was tried, is in `docs/proof.md`.

use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::snapshot::Lag;

use super::names::node;
use super::stage::Stage;
use super::words::Told;

/// A leader and two standbys that have everything.
const CAUGHT_UP: &str = "
    a leads 1:a1 at 0/412
    b follows b1 at 0/412 row 1:a1
    c follows c1 at 0/412 row 1:a1";

/// What the lines of a story say, one after the other.
fn said(story: &str) -> Vec<String> {
    go_on(&mut Stage::with(Guards::on()), story, Told::Nothing)
}

fn go_on(stage: &mut Stage, story: &str, told: Told) -> Vec<String> {
    let lines = story.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.flat_map(|line| stage.tell(line, told)).collect()
}

fn lag(stage: &Stage, name: &str) -> Option<Lag> {
    stage.snapshot().lag(node(name).expect("a node"), stage.now())
}

#[test]
fn one_fresh_replica_does_not_end_what_a_session_demands() {
    let said = said(
        "a leads 1:a1 at 0/412
        b follows b1 at 0/412 row 1:a1
        c follows c1 at 0/400 row 1:a1
        mark 1:a1 0/412 upto 0/412
        ask session
        drain b
        ask session",
    );
    assert_eq!(said, ["replica b", "refuse, NotCovered"]);
}

#[test]
fn whichever_replica_has_it_is_named_and_the_leader_is_not() {
    let positions = [None, Some(0x400), Some(0x411), Some(0x412), Some(0x413)];
    for (at_b, at_c) in positions.into_iter().flat_map(|b| positions.map(|c| (b, c))) {
        let mut story = "a leads 1:a1 at 0/412\n".to_owned();
        for (name, at) in [("b", at_b), ("c", at_c)] {
            if let Some(at) = at {
                story.push_str(&format!("{name} follows {name}1 at 0/{at:X} row 1:a1\n"));
            }
        }
        let has_it = |at: Option<u32>| at.is_some_and(|at| at >= 0x412);
        for pick in 0..4 {
            let ask = format!("mark 1:a1 0/412 upto 0/412\nask session fallback pick {pick}");
            let said = said(&format!("{story}{ask}"));
            let right = match said[0].as_str() {
                "replica b" => has_it(at_b),
                "replica c" => has_it(at_c),
                "leader a, if the cap permits" => !has_it(at_b) && !has_it(at_c),
                other => panic!("{other} with {at_b:?} and {at_c:?}"),
            };
            assert!(right, "{said:?} with {at_b:?} and {at_c:?}");
        }
    }
}

#[test]
fn a_standby_that_shows_no_position_has_nothing() {
    for silent in ["b follows b1 row 1:a1", "b follows b1 row 1:a1 from -"] {
        let story = format!(
            "a leads 1:a1 at 0/412
            {silent}
            mark 1:a1 0/1 upto 0/1
            ask session
            another session
            pass 1s
            a leads 1:a1 at 0/412
            {silent}
            ask bounded bound 4s"
        );
        assert_eq!(said(&story), ["refuse, NotCovered", "refuse, NotCovered"], "{silent}");
    }
}

#[test]
fn replicas_that_are_all_too_old_are_labelled_or_refused_and_never_let_back_in() {
    let said = said(
        "a leads 1:a1 at 0/400
        b follows b1 at 0/400 row 1:a1
        c follows c1 at 0/3F0 row 1:a1
        a leads 1:a1 at 0/410
        pass 2s
        a leads 1:a1 at 0/412
        b follows b1 at 0/400 row 1:a1
        c follows c1 at 0/3F0 row 1:a1
        ask bounded bound 1s
        ask bounded bound 1s above stale
        ask bounded bound 1s",
    );
    assert_eq!(said[0], "refuse, NotCovered");
    assert!(said[1].starts_with("stale b, 18 bytes and 2"), "{said:?}");
    assert_eq!(said[2..], ["refuse, NotCovered", "refuse, NotCovered"]);
}

#[test]
fn a_day_of_idleness_expires_nothing_and_moves_nobody() {
    let mut stage = Stage::after(Guards::on(), CAUGHT_UP);
    go_on(&mut stage, "mark 1:a1 0/412 upto 0/412", Told::Nothing);
    for _ in 0..24 * 60 * 60 / 4 {
        let said = go_on(&mut stage, CAUGHT_UP, Told::Notables);
        assert_eq!(said, Vec::<String>::new(), "nothing happens to an idle partition");
        stage.play("pass 3900ms");
    }
    let said = go_on(
        &mut stage,
        "ask session pick 0
        ask session pick 1
        gate 1h
        ask bounded bound 5s pick 0",
        Told::Nothing,
    );
    assert_eq!(said, ["replica b", "replica c", "replica b"]);
}

#[test]
fn a_position_ahead_of_its_leader_waits_for_nobody() {
    let story = format!(
        "{CAUGHT_UP}
        mark 1:a1 0/900 upto 0/900
        call arrives
        ask session wait 30s
        a leads 1:a1 at 0/412
        ask session wait 30s pick 0"
    );
    assert_eq!(said(&story), ["needs a leader sample sent after the call", "replica b"]);
}

#[test]
fn a_wait_under_steady_writes_ends_at_its_own_position() {
    let mut stage = Stage::after(Guards::on(), CAUGHT_UP);
    stage.play("a leads 1:a1 at 0/500");
    stage.play("park 1 on b for 10s floor 1:a1 0/500");
    for step in 1..20_u32 {
        stage.play(&format!("a leads 1:a1 at 0/{:X}", 0x500 + step * 0x100));
        let applied = 0x412 + step * 0x10;
        let told = stage.tell(&format!("b follows b1 at 0/{applied:X} row 1:a1"), Told::Waits);
        let ended = told.iter().any(|words| words.contains("wait 1: fresh on b"));
        assert_eq!(ended, (0x500..0x510).contains(&applied), "at {applied:X}: {told:?}");
    }
}

#[test]
fn an_idle_leader_makes_no_lag_and_a_cut_link_does() {
    let mut stage = Stage::after(Guards::on(), CAUGHT_UP);
    for _ in 0..900 {
        go_on(&mut stage, CAUGHT_UP, Told::Nothing);
        stage.play("pass 3900ms");
        let lag = lag(&stage, "b").expect("it is known");
        assert_eq!(lag.bytes, 0, "nothing is missing while nothing is written");
        assert!(lag.time < Duration::from_secs(5), "{lag:?} of a leader at rest");
    }
    for second in 1..100_u64 {
        // The link is cut: what the standby shows stands still, and looks well by itself.
        let leads = format!("a leads 1:a1 at 0/{:X}", 0x412 + second * 0x10);
        go_on(&mut stage, &leads, Told::Nothing);
        go_on(&mut stage, "b follows b1 at 0/412 row 1:a1 from -\npass 967ms", Told::Nothing);
        let lag = lag(&stage, "b").expect("it is known");
        assert_eq!(lag.bytes, second * 0x10);
        assert!(lag.time >= Duration::from_secs(second - 1), "{lag:?} after {second} s");
    }
}

#[test]
fn clocks_of_servers_decide_nothing() {
    // The numbers of lives are when servers started, by clocks of their own.
    let said_with = |clocks: [u64; 3]| {
        let [a, b, c] = clocks;
        said(&format!(
            "a leads 1:a{a} at 0/412
            b follows b{b} at 0/412 row 1:a{a}
            c follows c{c} at 0/40F row 1:a{a}
            mark 1:a{a} 0/412 upto 0/412
            ask session
            pass 2s
            a leads 1:a{a} at 0/420
            c follows c{c} at 0/420 row 1:a{a}
            ask bounded bound 1s
            b leads 2:b{b} at 0/500 replay 0/412 row 1:a{a}
            c follows c{c} at 0/420 row 1:a{a}
            ask session fallback
            ask leader"
        ))
    };
    let expected = said_with([1, 1, 1]);
    assert_eq!(expected[..2], ["replica b", "replica c"], "{expected:?}");
    let decade = 315_360_000_000_000;
    for clocks in [[decade, 1, 1], [1, decade, 1], [1, 1, decade], [7, decade, 2 * decade]] {
        assert_eq!(said_with(clocks), expected, "{clocks:?}");
    }
}

#[test]
fn the_writes_of_one_session_pin_no_other() {
    let said = said(
        "a leads 1:a1 at 0/412
        b follows b1 at 0/40F row 1:a1
        mark 1:a1 0/412 upto 0/412
        ask session fallback
        another session
        ask session fallback",
    );
    assert_eq!(said, ["leader a, if the cap permits", "refuse, NotCovered", "replica b"]);
}

#[test]
fn positions_of_two_timelines_are_never_subtracted() {
    let mut stage = Stage::after(
        Guards::on(),
        "a leads 1:a1 at 0/412
        b follows b1 at 0/412 row 1:a1
        c follows c1 at 0/412 row 1:a1
        b leads 2:b1 at 0/900 replay 0/412 row 1:a1
        a leads 1:a1 at 0/1000
        c follows c1 at 0/1000 row 1:a1",
    );
    // Both are past the end of their line: how far "behind" they are has no meaning.
    assert_eq!((lag(&stage, "a"), lag(&stage, "c")), (None, None));
    let said = go_on(&mut stage, "ask session", Told::Nothing);
    assert_eq!(said, ["refuse, NotCovered"]);
}

#[test]
fn a_read_that_may_not_fall_back_is_refused_and_never_redirected() {
    let said = said(
        "a leads 1:a1 at 0/412
        b follows b1 at 0/40F row 1:a1
        mark 1:a1 0/412 upto 0/412
        ask session above refuse
        ask session wait 50ms above refuse",
    );
    assert_eq!(said, ["refuse, NotCovered", "wait 50ms for b", "refuse, NotCovered"]);
}

#[test]
fn a_replica_that_can_never_come_is_not_waited_for() {
    // c went past the end of its line: no wait can help it.
    let said = said(
        "a leads 1:a1 at 0/500
        b follows b1 at 0/412 row 1:a1
        c follows c1 at 0/500 row 1:a1
        b leads 2:b1 at 0/600 replay 0/412 row 1:a1
        b leads 2:b1 at 0/600 replay 0/412
        c follows c1 at 0/500 row 1:a1
        mark 2:b1 0/600 upto 0/600
        ask session wait 30s fallback",
    );
    assert_eq!(said, ["leader b, if the cap permits", "refuse, NotCovered"]);
}

/// Whether a session with this mark is told something, or has to wait for a leader's sample: in
/// any case not simply served by the number.
fn is_in_doubt(said: &[String]) -> bool {
    said.iter().any(|words| words.starts_with("tell ") || words.starts_with("needs a leader"))
        || said.iter().any(|words| words.starts_with("cannot be proven"))
}

#[test]
fn two_crashes_between_two_polls_leave_no_exact_end() {
    // The first recovery ended below the mark and its row was lost; the second ended above it.
    let said = said(
        "a leads 1:a1 at 0/1524F30 flush 0/1524E20
        b follows b1 at 0/1524E20 row 1:a1
        a leads 1:a3 at 0/1530000 replay 0/152EF80 row 1:a1
        a leads 1:a3 at 0/1530000 replay 0/152EF80
        b follows b1 at 0/1530000 row 1:a3
        mark 1:a1 0/1524F30 upto 0/1524F30
        resolve",
    );
    assert!(is_in_doubt(&said), "{said:?}");
}

#[test]
fn a_torn_record_below_the_flushed_position_throws_no_leader_out() {
    let said = said(
        "a leads 1:a1 at 0/2050 flush 0/2000
        b follows b1 at 0/1FC8 row 1:a1
        a leads 1:a2 at 0/1FD0 replay 0/1FC8 row 1:a1
        a leads 1:a2 at 0/1FD0 replay 0/1FC8
        b follows b1 at 0/1FD0 row 1:a2
        ask leader
        ask session
        mark 1:a1 0/2050 upto 0/2050
        resolve",
    );
    assert_eq!(said[..2], ["leader a", "replica b"], "{said:?}");
    assert!(is_in_doubt(&said[2..]), "{said:?}");
}

#[test]
fn a_promotion_nobody_polled_makes_no_later_one_exact() {
    // b was promoted and c moved to it, both unseen; then c itself, on timeline 3.
    let said = said(
        "a leads 1:a1 at 0/4000138
        b follows b1 at 0/4000000 row 1:a1
        c follows c1 at 0/4000000 row 1:a1
        pass 6s
        c leads 3:c1 at 0/4009930 replay 0/4009920 row 1:a1
        c leads 3:c1 at 0/4009930 replay 0/4009920
        mark 1:a1 0/4000138 upto 0/4000138
        resolve
        another session
        mark 1:a1 0/4000000 upto 0/4000000
        resolve",
    );
    let ruler = said.iter().position(|words| words == "demand 1:a1 0/4000000");
    let ruler = ruler.expect("what c had proven survives");
    assert!(is_in_doubt(&said[..ruler]), "{said:?}");
    assert!(!is_in_doubt(&said[ruler..]), "{said:?}");
}

#[test]
fn another_server_on_the_same_timeline_number_is_no_restart_of_the_first() {
    let said = said(
        "a leads 1:a1 at 0/4000000
        b follows b1 at 0/4000000 row 1:a1
        c follows c1 at 0/4000000 row 1:a1
        b leads 2:b1 at 0/4000100 replay 0/4000000 row 1:a1
        b leads 2:b1 at 0/4000168
        mark 2:b1 0/4000168 upto 0/4000168
        c leads 2:c1 at 0/400C9C0 replay 0/4000000 row 1:a1
        c leads 2:c1 at 0/400C9C0 replay 0/4000000
        resolve
        ask session fallback",
    );
    assert!(is_in_doubt(&said), "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("refuse, Split"), "{said:?}");
}
