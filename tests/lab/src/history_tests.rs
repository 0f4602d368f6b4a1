//! What the checker finds and what it must not find. Starts no server.

use super::*;

fn replica() -> Answer {
    Answer::Replica("r1".to_owned())
}

fn read(checker: &Checker, session: &str, seen: Option<u64>, answer: &Answer) -> bool {
    let read = checker.begin(session, "cart");
    checker.end(read, seen, answer)
}

fn broken(checker: &Checker) -> Vec<Promise> {
    checker.violations().iter().map(|violation| violation.promise).collect()
}

#[test]
fn a_missing_row_after_an_acknowledged_write_breaks_read_your_writes() {
    let checker = Checker::new();
    checker.wrote("ann", "cart", 7);
    assert!(!read(&checker, "ann", None, &replica()));
    assert!(!read(&checker, "ann", Some(6), &replica()));
    assert!(read(&checker, "ann", Some(7), &replica()));
    assert_eq!(broken(&checker), [Promise::ReadYourWrites; 2]);
    let text = checker.violations()[0].to_string();
    assert_eq!(
        text,
        "ReadYourWrites: session ann read cart on r1, was promised version 7 and saw no row"
    );
}

#[test]
fn going_back_breaks_monotonic_reads_even_without_writes() {
    let checker = Checker::new();
    assert!(read(&checker, "bob", Some(3), &replica()));
    assert!(!read(&checker, "bob", Some(2), &replica()));
    assert_eq!(broken(&checker), [Promise::MonotonicReads]);
}

#[test]
fn the_leader_is_judged_like_any_other_node() {
    let checker = Checker::new();
    checker.wrote("ann", "cart", 1);
    assert!(!read(&checker, "ann", None, &Answer::Leader("l".to_owned())));
}

#[test]
fn another_session_is_promised_nothing() {
    let checker = Checker::new();
    checker.wrote("ann", "cart", 7);
    assert!(read(&checker, "bob", None, &replica()));
}

#[test]
fn a_flagged_answer_neither_breaks_nor_raises_a_promise() {
    let checker = Checker::new();
    checker.wrote("ann", "cart", 7);
    assert!(read(&checker, "ann", Some(9), &Answer::Flagged("r1".to_owned())));
    assert!(read(&checker, "ann", Some(7), &replica()));
    assert_eq!(checker.figures().flagged_reads, 1);
}

#[test]
fn a_read_owes_only_what_was_acknowledged_before_it_began() {
    let checker = Checker::new();
    let early = checker.begin("ann", "cart");
    checker.wrote("ann", "cart", 7);
    assert!(checker.end(early, None, &replica()));
}

#[test]
fn a_session_told_of_a_loss_is_owed_what_survived() {
    let checker = Checker::new();
    checker.wrote("ann", "cart", 7);
    let running = checker.begin("ann", "cart");
    checker.told("ann", "write lost");
    checker.lost("ann", "cart", Some(4));
    assert!(checker.end(running, Some(4), &replica()));
    assert!(!read(&checker, "ann", Some(3), &replica()));
    assert_eq!(checker.notices("ann"), ["write lost"]);
    assert_eq!(checker.promised("ann", "cart"), Some(4));
}

#[test]
fn only_reads_wholly_outside_faults_are_calm() {
    let checker = Checker::new();
    assert!(read(&checker, "ann", None, &replica()));
    let across = checker.begin("ann", "cart");
    drop(checker.fault("crash"));
    assert!(checker.end(across, None, &replica()));
    let window = checker.fault("crash");
    assert!(read(&checker, "ann", None, &replica()));
    drop(window);
    assert!(read(&checker, "ann", None, &replica()));
    let figures = checker.figures();
    assert_eq!((figures.calm_replica_reads, figures.replica_reads), (2, 4));
    assert_eq!(figures.faults.get("crash"), Some(&2));
}
