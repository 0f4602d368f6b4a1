//! What each safety rule prevents: the same story with the rule in force, and without it.
//!
//! An ordinary build cannot switch a rule off; then only the first half is shown.

use tidegate_core::guards::Guards;

use super::stage::Stage;
use super::words::Told;

/// Asks after a story with every rule in force, and again without `guard`.
fn compare(guard: &str, story: &str, question: &str, with: &[&str], without: &[&str]) {
    let mut stage = Stage::new();
    let answers = |stage: &mut Stage| -> Vec<String> {
        let lines = story.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.for_each(|line| drop(stage.tell(line, Told::Nothing)));
        stage.tell(question, Told::Nothing)
    };
    assert_eq!(answers(&mut stage), with, "with {guard}");
    if let Some(guards) = switched_off(guard) {
        assert_eq!(answers(&mut Stage::with(guards)), without, "without {guard}");
    }
}

#[cfg(feature = "unsafe-guards")]
fn switched_off(guard: &str) -> Option<Guards> {
    Some(Guards::without(guard).expect("a guard of that name"))
}

#[cfg(not(feature = "unsafe-guards"))]
fn switched_off(_: &str) -> Option<Guards> {
    None
}

#[test]
fn the_incarnation_guard_keeps_a_restarted_standby_from_what_it_had() {
    let story = "
        a leads 1:a1 at 0/412
        b follows b1 at 0/412 row 1:a1
        b follows b2 at 0/300 row 1:a1
        mark 1:a1 0/412 upto 0/412";
    compare("incarnation", story, "ask session", &["refuse, NotCovered"], &["replica b"]);
}

#[test]
fn the_late_observation_guard_keeps_a_healthy_node_from_being_thrown_out() {
    let story = "
        a leads 1:a1 at 0/412
        b follows b1 at 0/300 row 1:a1
        b follows b2 at 0/412 row 1:a1
        b follows b1 at 0/412 row 1:a1 sent 25
        mark 1:a1 0/412 upto 0/412";
    compare("late_observation", story, "ask session", &["replica b"], &["refuse, NotCovered"]);
}

#[test]
fn the_regression_guard_keeps_a_node_that_went_back_from_serving() {
    let story = "
        a leads 1:a1 at 0/412
        b follows b1 at 0/412 row 1:a1
        b follows b1 at 0/300 row 1:a1
        mark 1:a1 0/412 upto 0/412";
    compare("regression", story, "ask session", &["refuse, NotCovered"], &["replica b"]);
}

#[test]
fn the_shared_id_guard_keeps_one_of_two_servers_from_answering_for_the_other() {
    let story = "
        a leads 1:a1 at 0/412
        b follows b1 at 0/412 row 1:a1
        c follows b1 at 0/300 row 1:a1
        mark 1:a1 0/412 upto 0/412";
    compare("shared_id", story, "ask session", &["refuse, NotCovered"], &["replica b"]);
}

#[test]
fn the_insert_lsn_guard_keeps_an_asynchronous_commit_from_being_missed() {
    let story = "
        a leads 1:a1 at 0/400
        b follows b1 at 0/400 row 1:a1
        call arrives
        a leads 1:a1 at 0/412 flush 0/400";
    compare("insert_lsn", story, "ask global", &["refuse, NotCovered"], &["replica b"]);
}

#[test]
fn the_place_counts_guard_keeps_a_position_of_nobody_knows_which_line_from_counting() {
    let story = "
        a leads 1:a1 at 0/412
        b follows b1 at 0/412 row 1:a1 from -
        mark 1:a1 0/412 upto 0/412";
    compare("place_counts", story, "ask session", &["refuse, NotCovered"], &["replica b"]);
}

#[test]
fn the_durability_guard_keeps_a_position_nobody_flushed_from_being_covered() {
    let story = "
        a leads 1:a1 at 0/412 flush 0/400
        b follows b1 at 0/412 row 1:a1
        mark 1:a1 0/412 upto 0/412";
    compare("durability", story, "ask session", &["refuse, NotCovered"], &["replica b"]);
}

/// b was promoted at 0/420; what a had acknowledged past that is gone; c was cloned from b.
const LOST: &str = "
    a leads 1:a1 at 0/430
    b follows b1 at 0/420 row 1:a1
    b leads 2:b1 at 0/450 replay 0/420 row 1:a1
    pass 6s
    b leads 2:b1 at 0/450
    c follows c2 at 0/450 row 2:b1
    mark 1:a1 0/425 after 0/420 upto 0/425";

#[test]
fn the_leader_first_guard_keeps_a_lost_write_from_being_called_covered() {
    let told = [
        "demand 2:b1 0/450",
        "tell WriteLost of 1:a1, now 2:b1",
        "drop the mark of 1:a1",
        "join 2:b1 0/450 saw 0/420",
    ];
    let story = format!("{LOST}\ncall arrives\nb leads 2:b1 at 0/450");
    compare("leader_first", &story, "resolve", &told, &["demand 1:a1 0/425"]);
    let needed = ["needs a leader sample sent after the call"];
    compare("leader_first", LOST, "ask session", &needed, &["replica c"]);
}

#[test]
fn the_unknown_upward_guard_keeps_ignorance_from_meaning_nothing() {
    let seen = "
        a leads 1:a1 at 0/412
        b follows b1 at 0/100 row 1:a1";
    let needed = ["needs a leader sample sent after the call"];
    for unknown in ["unknown session", "unresolved", "mark 1:b7 0/500 upto 0/500"] {
        let story = format!("{seen}\n{unknown}");
        compare("unknown_upward", &story, "ask session", &needed, &["replica b"]);
    }
}

#[test]
fn the_gate_guard_keeps_an_expired_session_from_an_old_replica() {
    let story = "
        a leads 1:a1 at 0/300
        pass 1s
        a leads 1:a1 at 0/412
        b follows b1 at 0/200 row 1:a1
        gate 1h";
    compare("gate", story, "ask session", &["refuse, NotCovered"], &["replica b"]);
}

#[test]
fn the_trail_sent_at_guard_keeps_a_poll_under_way_from_answering_for_later() {
    let story = "
        a leads 1:a1 at 0/412
        b follows b1 at 0/412 row 1:a1
        pass 100ms
        call arrives
        a leads 1:a1 at 0/412 sent 90";
    let needed = ["needs a leader sample sent after the call"];
    compare("trail_sent_at", story, "ask global", &needed, &["replica b"]);
}

#[test]
fn the_diverged_guard_keeps_a_node_past_the_end_of_its_line_from_serving() {
    let story = "
        a leads 1:a1 at 0/430
        b follows b1 at 0/400 row 1:a1
        c follows c1 at 0/425 row 1:a1
        b leads 2:b1 at 0/450 replay 0/420 row 1:a1
        mark 1:a1 0/400 upto 0/400";
    compare("diverged", story, "ask session", &["refuse, NotCovered"], &["replica c"]);
}

#[test]
fn the_two_branches_guard_keeps_a_node_with_rows_of_both_twins_from_serving() {
    let story = "
        a leads 1:a1 at 0/400
        b follows b1 at 0/400 row 1:a1
        b leads 2:b1 at 0/450 replay 0/400 row 1:a1
        written 2:c1 after 1:a1 fork 0/400 0/400
        b leads 2:b1 at 0/450
        c follows c1 at 0/500 row 2:b1 also 2:c1
        mark 2:b1 0/450 upto 0/450";
    compare("two_branches", story, "ask session", &["refuse, NotCovered"], &["replica c"]);
}

#[test]
fn the_former_twin_guard_keeps_a_wiped_row_from_hiding_a_branch() {
    let story = "
        a leads 1:a1 at 0/400
        b follows b1 at 0/400 row 1:a1
        c follows c1 at 0/400 row 1:a1
        c leads 2:c1 at 0/450 replay 0/400 row 1:a1
        b leads 2:b1 at 0/450 replay 0/400 row 1:a1
        c follows c2 at 0/440 row 1:a1
        b leads 2:b1 at 0/500 row 1:a1
        b leads 2:b1 at 0/500
        c follows c2 at 0/500 row 2:b1
        mark 2:b1 0/450 upto 0/450";
    compare("former_twin", story, "ask session", &["refuse, NotCovered"], &["replica c"]);
}

#[test]
fn the_split_guard_keeps_the_line_of_one_head_from_counting_for_all() {
    let story = "
        a leads 1:a1 at 0/412
        b leads 5:b1 at 0/900
        c follows c1 at 0/412 row 1:a1
        mark 1:a1 0/412 upto 0/412";
    compare("split", story, "ask session", &["refuse, Split"], &["replica c"]);
}

#[test]
fn the_torn_record_guard_keeps_a_busy_crash_from_putting_all_in_doubt() {
    let story = "
        a leads 1:a1 at 0/2050 flush 0/2000
        b follows b1 at 0/1FC8 row 1:a1
        a leads 1:a2 at 0/1FD0 replay 0/1FC8 row 1:a1
        b follows b1 at 0/1FD0 row 1:a2
        mark 1:a1 0/1FC0 upto 0/1FC0";
    let needed = ["needs a leader sample sent after the call"];
    compare("torn_record", story, "ask session", &["replica b"], &needed);
}

#[test]
fn the_restored_guard_keeps_a_copy_that_has_grown_from_vouching_for_what_it_lacks() {
    // The copy was of 0/300; what it wrote since then has come as far as 0/420.
    let story = "
        a leads 1:a1 at 0/430
        b follows b1 at 0/430 row 1:a1
        a leads 1:a2/a1 at 0/420 row 1:a1
        a leads 1:a2/a1 at 0/440
        b follows b2 at 0/440 row 1:a2/a1
        mark 1:a1 0/410 upto 0/410";
    let needed = ["needs a leader sample sent after the call"];
    compare("restored", story, "ask session", &needed, &["replica b"]);
}

#[test]
fn the_yielded_guard_keeps_a_line_that_gave_way_from_blocking_its_sessions() {
    let story = "
        a leads 1:a1 at 0/400
        b follows b1 at 0/400 row 1:a1
        b leads 2:b1 at 0/450 replay 0/400 row 1:a1
        b follows b2 at 0/400 row 1:a1
        c follows c1 at 0/400 row 1:a1
        mark 2:b1 0/450 upto 0/450
        call arrives
        a leads 1:a1 at 0/400";
    let refused = ["refuse, UnknownEpoch"];
    compare("yielded", story, "ask session", &["replica c"], &refused);
}
