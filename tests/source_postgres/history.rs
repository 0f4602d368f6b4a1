//! The history file of a promoted server: read where it may be, ignored where it makes no sense,
//! and never in the way of a poll.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tidegate::ports::Fault;
use tidegate_core::lineage::{Fork, LineageRow};
use tidegate_core::views::Observation;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, Server};

use crate::on_both_versions;
use crate::running::{Running, prepared, target};

const GRANT: &str = "grant execute on function pg_catalog.pg_read_file(text) to tidegate";

on_both_versions! {
    granted =>
        the_first_answer_after_a_promotion_brings_the_switch_point_pg15,
        the_first_answer_after_a_promotion_brings_the_switch_point_pg18;
    several_steps =>
        a_history_of_several_steps_brings_each_of_them_pg15,
        a_history_of_several_steps_brings_each_of_them_pg18;
    not_granted =>
        a_role_that_may_not_read_the_file_asks_once_for_each_connection_pg15,
        a_role_that_may_not_read_the_file_asks_once_for_each_connection_pg18;
    nonsense =>
        a_file_that_makes_no_sense_is_told_and_brings_nothing_pg15,
        a_file_that_makes_no_sense_is_told_and_brings_nothing_pg18;
    hanging =>
        a_file_that_cannot_be_read_to_its_end_costs_one_connection_pg15,
        a_file_that_cannot_be_read_to_its_end_costs_one_connection_pg18;
}

/// A leader with its first row and a standby that shows it.
async fn with_a_row(major: Major, grant: &str) -> Cluster {
    let cluster = prepared(major, 1).await;
    cluster.leader().sql(grant).await.expect("as the test wants");
    let mut source = Running::start(target(cluster.leader()));
    source.write_root().await;
    source.end().await;
    cluster.catch_up().await.expect("the standby has it too");
    cluster
}

fn is_promoted(seen: &Observation) -> bool {
    seen.evidence.epoch().is_some_and(|epoch| epoch.timeline > 1)
}

fn file(server: &Server, timeline: u32) -> PathBuf {
    server.data_dir().join(format!("pg_wal/{timeline:08X}.history"))
}

async fn granted(major: Major) {
    let cluster = with_a_row(major, GRANT).await;
    let standby = cluster.standby(0);
    let mut source = Running::start(target(standby));
    let (before, _) = source.observed().await;
    assert_eq!(before.switches, None, "a standby tells no history");
    standby.promote().await.expect("it is promoted");
    let (seen, faults) = source.observed_when("promoted", |seen, _| is_promoted(seen)).await;
    let switches = seen.switches.clone().expect("the first answer brings it");
    assert_eq!(switches.switch_of(1), seen.evidence.replay, "it stopped where it says");
    assert_eq!((switches.entries().len(), faults.as_slice()), (1, [].as_slice()));
    // A later answer brings it too: the first one may not have been taken.
    assert_eq!(source.observed().await.0.switches, seen.switches);

    let epoch = seen.evidence.epoch().expect("a leader");
    let row = LineageRow { epoch, parent: seen.evidence.row, fork: Fork::Unknown, n: 2 };
    source.write(seen.evidence.incarnation, row).await.expect("the row is written");
    let has_row = |seen: &Observation, _: &[Fault]| seen.evidence.row == Some(epoch);
    let (seen, _) = source.observed_when("with its row", has_row).await;
    assert_eq!(seen.switches, None, "its place is written down");
    source.end().await;
}

async fn several_steps(major: Major) {
    let mut cluster = with_a_row(major, GRANT).await;
    let first = cluster.standby(0).clone();
    first.promote().await.expect("it is promoted");
    let second = cluster.add_standby("r2", &first).await.expect("a clone follows it");
    second.await_streaming().await.expect("it follows");
    second.promote().await.expect("it is promoted too");
    let mut source = Running::start(target(&second));
    let (seen, _) = source.observed().await;
    assert_eq!(seen.evidence.row.map(|row| row.timeline), Some(1), "nobody saw timeline 2");
    assert_eq!(seen.evidence.epoch().map(|epoch| epoch.timeline), Some(3));
    let switches = seen.switches.expect("the first answer brings it");
    let timelines: Vec<u32> = switches.entries().iter().map(|(timeline, _)| *timeline).collect();
    assert_eq!(timelines, [1, 2]);
    assert_eq!(switches.switch_of(2), seen.evidence.replay);
    let (one, two) = (switches.switch_of(1), switches.switch_of(2));
    assert!(one.zip(two).is_some_and(|(one, two)| two.covers(one) && one != two), "{switches:?}");
    source.end().await;
}

async fn not_granted(major: Major) {
    let cluster = with_a_row(major, "select 1").await;
    let standby = cluster.standby(0);
    standby.promote().await.expect("it is promoted");
    let denials = || {
        let log = fs::read_to_string(standby.log_file()).expect("a log");
        log.matches("permission denied for function pg_read_file").count()
    };
    let mut source = Running::start(target(standby));
    for _ in 0..20 {
        let (seen, faults) = source.observed().await;
        assert!(is_promoted(&seen) && seen.switches.is_none());
        assert_eq!(faults, [], "nothing is wrong without it");
    }
    assert_eq!(denials(), 1, "asked once on this connection");

    standby.sql(GRANT).await.expect("granted");
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'tidegate'";
    standby.sql(end).await.expect("the connection ends");
    let (seen, _) = source.observed_when("readable", |seen, _| seen.switches.is_some()).await;
    assert_eq!(seen.switches.and_then(|said| said.switch_of(1)), seen.evidence.replay);
    assert_eq!(denials(), 1);
    source.end().await;
}

async fn nonsense(major: Major) {
    let cluster = with_a_row(major, GRANT).await;
    let standby = cluster.standby(0);
    standby.promote().await.expect("it is promoted");
    let file = file(standby, 2);
    let real = fs::read(&file).expect("a history file");
    let real_text = String::from_utf8(real.clone()).expect("a text");
    let many: String = (1..5_000).map(|n| format!("{n}\t0/{n:X}\treason\n")).collect();
    let told = Fault::HistoryMalformed { timeline: 2 };
    for (what, content) in [
        ("garbage", b"garbage\n".to_vec()),
        ("a line too many", format!("{real_text}1\t0/1\tagain\n").into_bytes()),
        ("what is no text", vec![0xff, 0xfe, 0x00, 0x80]),
        ("too many timelines", many.into_bytes()),
        ("a line without an end", vec![b'1'; 3 * 1024 * 1024]),
        ("comments without an end", b"# nothing\n".repeat(1024 * 1024)),
    ] {
        fs::write(&file, content).expect("it is written over");
        let mut source = Running::start(target(standby));
        for _ in 0..3 {
            let (seen, faults) = source.observed().await;
            assert!(is_promoted(&seen) && seen.evidence.replay.is_some(), "{what}");
            assert_eq!((seen.switches, faults.as_slice()), (None, [told].as_slice()), "{what}");
        }
        source.end().await;
    }
    let advice = told.to_string();
    assert!(advice.starts_with("pg_wal/00000002.history makes no sense"), "{advice}");

    let commented = format!("# by hand\n\n{real_text}\n   \n#\n");
    for (what, content) in [("comments", Some(commented)), ("nothing at all", None)] {
        match &content {
            Some(text) => fs::write(&file, text).expect("it is written over"),
            None => fs::remove_file(&file).expect("it is removed"),
        }
        let mut source = Running::start(target(standby));
        let (seen, faults) = source.observed().await;
        assert_eq!(faults, [], "{what}");
        let switch = seen.switches.and_then(|said| said.switch_of(1));
        assert_eq!(switch, content.and(seen.evidence.replay), "{what}");
        source.end().await;
    }
    fs::write(&file, real).expect("it is as it was");
}

async fn hanging(major: Major) {
    let cluster = with_a_row(major, GRANT).await;
    let standby = cluster.standby(0);
    standby.promote().await.expect("it is promoted");
    let file = file(standby, 2);
    fs::remove_file(&file).expect("it is removed");
    // Opening a pipe waits until somebody writes into it, whatever the server's limits say.
    let made = Command::new("mkfifo").args(["-m", "666"]).arg(&file).status().expect("mkfifo");
    assert!(made.success(), "a pipe in its place");
    let mut source = Running::start(target(standby));
    let (seen, faults) = source.observed().await;
    assert!(seen.evidence.replay.is_some(), "the poll itself is answered");
    assert_eq!((seen.switches, faults.as_slice()), (None, [].as_slice()));
    source.failed().await;
    for _ in 0..100 {
        let (seen, faults) = source.observed().await;
        assert_eq!((seen.switches, faults.as_slice()), (None, [].as_slice()));
    }
    let stuck = "select count(*) from pg_stat_activity where query like '%pg_read_file%' \
                 and usename = 'tidegate' and state = 'active'";
    assert_eq!(standby.value::<i64>(stuck).await.expect("an answer"), 1, "it was tried once");
    fs::write(&file, "").expect("whoever waits at the pipe goes on");
    source.end().await;
}
