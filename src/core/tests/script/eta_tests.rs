//! Waits by prediction: what is worth one, what is not, and that nothing else rests on it.

use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::position::Lsn;
use tidegate_core::snapshot::Outlook;
use tidegate_core::trail::Floor;

use super::names::{epoch, node};
use super::stage::Stage;
use super::words::Told;

/// From one look at the servers to the next.
const STEP_MS: u64 = 100;
/// What the leader writes meanwhile.
const STEP_BYTES: u64 = 0x1000;
/// Where it began.
const BEGUN: u64 = 0x100_0000;

/// A leader that writes steadily, and one standby.
struct Pair {
    stage: Stage,
    steps: u64,
    standby_at: u64,
}

impl Pair {
    fn new() -> Self {
        Self { stage: Stage::with(Guards::on()), steps: 0, standby_at: BEGUN }
    }

    const fn leader_at(&self) -> u64 {
        BEGUN + self.steps * STEP_BYTES
    }

    /// Lets steps pass; after each the standby is seen where `applied` says, from the bytes that
    /// were written up to then.
    fn pass(&mut self, steps: u64, applied: impl Fn(u64) -> u64) {
        for _ in 0..steps {
            self.steps += 1;
            let written = self.steps * STEP_BYTES;
            self.standby_at = self.standby_at.max(BEGUN + applied(written).min(written));
            let (leads, follows) = (self.leader_at(), self.standby_at);
            self.stage.play(&format!("a leads 1:a1 at 0/{leads:X}"));
            self.stage.play(&format!("b follows b1 at 0/{follows:X} row 1:a1"));
            self.stage.play(&format!("pass {}ms", STEP_MS - 22));
        }
    }

    /// The leader is seen once more, after it wrote so many bytes; returns where it is.
    fn write(&mut self, bytes: u64) -> u64 {
        let written = self.leader_at() + bytes;
        self.stage.play(&format!("a leads 1:a1 at 0/{written:X}"));
        written
    }

    fn floor(&self, position: u64) -> Floor {
        let mut floor = Floor::none();
        floor.demand(epoch("1:a1"), Lsn::new(position).into());
        floor
    }

    fn outlook(&self, position: u64) -> Outlook {
        let node = node("b").expect("a node");
        self.stage.snapshot().outlook(node, &self.floor(position), self.stage.now())
    }

    fn eta(&self, position: u64) -> Option<Duration> {
        let snapshot = self.stage.snapshot();
        snapshot.eta(snapshot.nodes(), &self.floor(position), self.stage.now())
    }

    /// The plan for a session that depends on a position.
    fn ask(&mut self, position: u64, policy: &str) -> Vec<String> {
        let lines = [
            "another session".to_owned(),
            format!("mark 1:a1 0/{position:X} upto 0/{position:X}"),
            format!("ask session {policy}"),
        ];
        lines.iter().flat_map(|line| self.stage.tell(line, Told::Nothing)).collect()
    }
}

const fn seconds(of: u64) -> Duration {
    Duration::from_secs(of)
}

/// The bytes the leader writes in so many seconds.
const fn late_by(seconds: u64) -> u64 {
    seconds * 1_000 / STEP_MS * STEP_BYTES
}

#[test]
fn a_short_wait_for_a_replica_half_a_minute_late_is_skipped_at_once() {
    let mut pair = Pair::new();
    pair.pass(400, |written| written.saturating_sub(late_by(30)));
    let newest = pair.leader_at();
    let all = "wait 50ms fallback above 200ms stale refuse";
    let said = pair.ask(newest, all);
    assert_eq!(said[0], "leader a, if the cap permits");
    assert!(said[1].starts_with("stale b, 1228800 bytes and 30"), "{said:?}");
    assert_eq!(said[2..], ["refuse, NotCovered"]);
    let said = pair.ask(newest, "wait 40s");
    assert_eq!(said, ["wait 40000ms for b", "refuse, NotCovered"]);
    let eta = pair.eta(newest).expect("it moves");
    assert!(eta > seconds(29) && eta <= seconds(30), "{eta:?}");
    // What it has nearly reached is worth the wait.
    let near = pair.standby_at + STEP_BYTES / 2;
    assert_eq!(pair.ask(near, "wait 50ms")[0], "wait 50ms for b");
}

#[test]
fn a_replica_that_applies_late_and_in_jumps_is_waited_for_when_its_time_has_come() {
    // It applies two seconds late, a whole second's worth at a time: a lag that stays.
    let jumps = |written: u64| written.saturating_sub(late_by(2)) / late_by(1) * late_by(1);
    let mut pair = Pair::new();
    pair.pass(205, jumps);
    let (before, written) = (pair.standby_at, pair.leader_at());
    assert_eq!(pair.ask(written, "wait 50ms"), ["refuse, NotCovered"]);
    let eta = pair.eta(written).expect("it moves");
    let mut took = 0;
    while pair.standby_at < written {
        pair.pass(1, jumps);
        took += STEP_MS;
        if pair.standby_at == before {
            assert_ne!(pair.outlook(written), Outlook::Still(seconds(1)), "between two jumps");
        }
        let is_near = pair.standby_at + late_by(1) >= written;
        if is_near && pair.standby_at < written {
            let said = pair.ask(pair.standby_at + STEP_BYTES, "wait 1s");
            assert_eq!(said[0], "wait 1000ms for b", "after {took} ms");
        }
    }
    let took = Duration::from_millis(took);
    assert!(eta <= took && eta + seconds(1) >= took, "predicted {eta:?}, took {took:?}");
}

#[test]
fn a_replica_that_catches_up_is_judged_by_its_pace_and_not_by_its_lag() {
    let mut pair = Pair::new();
    pair.pass(300, |written| written.min(late_by(5)));
    let written = pair.leader_at();
    // It goes on ten times as fast as the leader writes.
    let begun = pair.steps;
    let quick = move |all: u64| late_by(5) + (all - begun * STEP_BYTES) * 10;
    pair.pass(5, quick);
    let left = written - pair.standby_at;
    let eta = pair.eta(written).expect("it moves");
    let right = Duration::from_millis(left * STEP_MS / STEP_BYTES / 10);
    assert!(eta <= right && eta + seconds(1) >= right, "{eta:?}, not {right:?}");
    assert_eq!(pair.ask(written, "wait 50ms"), ["refuse, NotCovered"]);
    assert_eq!(pair.ask(written, "wait 3s")[0], "wait 3000ms for b");
    pair.pass(17, quick);
    assert_eq!(pair.ask(written, "wait 500ms")[0], "wait 500ms for b");
}

#[test]
fn a_replica_that_was_never_seen_moving_is_always_waited_for() {
    let mut pair = Pair::new();
    pair.pass(300, |_| 0);
    let written = pair.leader_at();
    assert_eq!((pair.outlook(written), pair.eta(written)), (Outlook::Unknown, None));
    assert_eq!(pair.ask(written, "wait 50ms")[0], "wait 50ms for b");
}

#[test]
fn a_replica_that_stands_still_has_no_eta_and_short_waits_for_it_are_skipped() {
    let mut pair = Pair::new();
    pair.pass(50, |written| written);
    let stop = pair.leader_at() - BEGUN;
    pair.pass(5, |_| stop);
    let written = pair.leader_at();
    assert_eq!(pair.ask(written, "wait 5s")[0], "wait 5000ms for b", "no more than a breath");
    pair.pass(55, |_| stop);
    let Outlook::Still(still) = pair.outlook(written) else {
        panic!("{:?}", pair.outlook(written))
    };
    assert!(still > seconds(5) && still <= seconds(6), "{still:?}");
    assert_eq!(pair.eta(written), None);
    assert_eq!(pair.ask(written, "wait 50ms"), ["refuse, NotCovered"]);
    assert_eq!(pair.ask(written, "wait 5s")[0], "wait 5000ms for b", "it may go on by then");
    // It goes on.
    pair.pass(5, |written| written);
    let newest = pair.write(STEP_BYTES);
    assert_eq!(pair.ask(newest, "wait 50ms")[0], "wait 50ms for b");
}

#[test]
fn what_was_just_written_is_waited_for_on_a_replica_that_keeps_up() {
    let mut pair = Pair::new();
    pair.pass(100, |written| written);
    let newest = pair.write(0x10);
    assert_eq!(pair.ask(newest, "wait 50ms")[0], "wait 50ms for b");
    assert!(pair.eta(newest) < Some(Duration::from_millis(50)), "{:?}", pair.eta(newest));
    // A burst in one piece: it never had to show how fast it can be.
    let burst = pair.write(100 * late_by(1));
    assert_eq!(pair.ask(burst, "wait 50ms")[0], "wait 50ms for b");
}

#[test]
fn what_is_expected_serves_nobody() {
    let mut pair = Pair::new();
    pair.pass(100, |written| written);
    let newest = pair.write(0x10);
    assert_eq!(pair.outlook(newest), Outlook::Within(Duration::ZERO), "at any moment");
    assert_eq!(pair.ask(newest, "fallback")[0], "leader a, if the cap permits");
    let snapshot = pair.stage.snapshot();
    let b = node("b").expect("a node");
    assert!(!snapshot.satisfies(b, &pair.floor(newest), pair.stage.now()));
}

#[test]
fn all_of_the_nodes_are_expected_when_the_last_one_is() {
    let mut pair = Pair::new();
    pair.pass(200, |written| written.saturating_sub(late_by(3)));
    let (newest, stage) = (pair.leader_at(), &mut pair.stage);
    stage.play(&format!("c follows c1 at 0/{newest:X} row 1:a1"));
    let (floor, now) = (pair.floor(newest), pair.stage.now());
    let snapshot = pair.stage.snapshot();
    assert_eq!(snapshot.eta(snapshot.nodes(), &floor, now), Some(Duration::ZERO));
    let all = snapshot.eta_of_all(snapshot.nodes(), &floor, now).expect("both move, or have it");
    assert!(all > seconds(2) && all <= seconds(3), "{all:?}");
    assert_eq!(snapshot.eta_of_all(std::iter::empty(), &floor, now), None);
}
