//! What survives a restart, and what is refused instead of being taken for "no facts".

use std::os::unix::fs::PermissionsExt;

use tidegate_core::leader::{EpochFacts, Origin, Verdict};
use tidegate_core::lineage::{Epoch, Fork, Life};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::views::NodeId;

use super::*;

const PARTITION: PartitionId = PartitionId::new(3);

fn nodes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn epoch(timeline: u32) -> Epoch {
    let start = 1_764_000_000_123_456 + i64::from(timeline);
    Epoch::new(timeline, Life { start, reset: start - 81_237 })
}

fn facts() -> Facts {
    let of = |node, replay, ended| EpochFacts {
        node: Some(NodeId::new(node)),
        flush_seen: Lsn::new(0x0303_4AB8).into(),
        flush_starts_page: false,
        replay,
        origin: None,
        is_restored: false,
        ended,
    };
    let mut facts = Facts::new();
    let grown = |from: u32, fork| {
        Some(Origin { parent: Some(epoch(from)), fork, shared: Lsn::new(9).into() })
    };
    let root = Some(Origin { parent: None, fork: Fork::Unknown, shared: Position::START });
    let between = Fork::between(Lsn::new(7).into(), Lsn::new(1 << 33).into());
    facts.join(epoch(1), EpochFacts { origin: root, ..of(0, None, true) });
    facts.join(epoch(2), EpochFacts { origin: grown(1, between), ..of(1, Some(None), true) });
    let promoted = Some(Some(Lsn::new(1 << 40).into()));
    let origin = grown(2, Fork::Unbounded);
    facts.words_mut().resume_follower(epoch(3), NodeId::new(0));
    facts.join(epoch(3), EpochFacts { origin, is_restored: true, ..of(1, promoted, false) });
    let aside = [epoch(1), epoch(2)].into();
    facts.words_mut().judge(Verdict { number: 3, winner: epoch(3), aside });
    facts.words_mut().resume(epoch(1).life);
    facts
}

fn opened() -> (tempfile::TempDir, FactFiles) {
    let folder = tempfile::tempdir().expect("a folder");
    let files = FactFiles::open(&folder.path().join("made/by/it")).expect("it can be made");
    (folder, files)
}

#[tokio::test]
async fn facts_survive_a_restart_by_the_names_of_their_nodes() {
    let (folder, files) = opened();
    let both = nodes(&["db1", "db2"]);
    assert_eq!(files.load(PARTITION, &both).await, Ok(Facts::new()), "no file, no facts");
    files.save(PARTITION, &both, &facts()).await.expect("the folder is writable");
    let again = FactFiles::open(&folder.path().join("made/by/it")).expect("it is there");
    assert_eq!(again.load(PARTITION, &both).await, Ok(facts()));
    let other = PartitionId::new(4);
    assert_eq!(again.load(other, &both).await, Ok(Facts::new()), "another partition's");

    let moved = again.load(PARTITION, &nodes(&["new", "db2"])).await.expect("readable");
    let led_by = |facts: &Facts, timeline| facts.of(epoch(timeline)).and_then(|f| f.node);
    assert_eq!(led_by(&moved, 1), None, "db1 is not configured any more");
    assert_eq!(led_by(&moved, 2), Some(NodeId::new(1)));
    let swapped = again.load(PARTITION, &nodes(&["db2", "db1"])).await.expect("readable");
    assert_eq!(led_by(&swapped, 2), Some(NodeId::new(0)));
}

#[tokio::test]
async fn the_file_reads_as_people_write_positions() {
    let (_folder, files) = opened();
    files.save(PARTITION, &nodes(&["db1", "db2"]), &facts()).await.expect("writable");
    let text = fs::read_to_string(files.file(PARTITION)).expect("it is there");
    for part in ["\"version\": 2", "\"0/3034AB8\"", "\"100/0\"", "\"db2\"", "\"replay\": null"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains(&format!("\"{}\"", epoch(2))), "{text}");
}

#[tokio::test]
async fn folder_and_file_are_for_their_owner_alone_and_nothing_else_is_left() {
    let (_folder, files) = opened();
    files.save(PARTITION, &nodes(&["db1"]), &facts()).await.expect("writable");
    files.save(PARTITION, &nodes(&["db1"]), &facts()).await.expect("writable twice");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&files.folder), mode(&files.file(PARTITION))), (0o700, 0o600));
    assert_eq!(fs::read_dir(&files.folder).expect("a folder").count(), 1);
}

#[tokio::test]
async fn a_file_that_cannot_be_understood_is_never_taken_for_no_facts() {
    let (_folder, files) = opened();
    let names = nodes(&["db1", "db2"]);
    files.save(PARTITION, &names, &facts()).await.expect("writable");
    let good = fs::read_to_string(files.file(PARTITION)).expect("it is there");
    let table: [(String, &str); 8] = [
        (String::new(), "EOF"),
        (good[..good.len() / 2].to_owned(), "EOF"),
        (good.replace("\"version\": 2", "\"version\": 9"), "version 9"),
        (good.replace("\"partition\": 3", "\"partition\": 4"), "partition 4"),
        (good.replace("0/3034AB8", "0/G"), "`0/G` is not a log position"),
        (good.replace(&epoch(2).to_string(), "2.1"), "`2.1` is not an epoch"),
        (good.replace(&epoch(2).to_string(), &epoch(1).to_string()), "twice"),
        (good.replace("\"ended\"", "\"finished\""), "finished"),
    ];
    for (text, problem) in table {
        fs::write(files.file(PARTITION), &text).expect("writable");
        let error = files.load(PARTITION, &names).await.expect_err("it is broken");
        assert!(error.place.ends_with("partition-3.json"), "{error}");
        assert!(error.text.contains(problem) && error.text.contains("move it away"), "{error}");
    }
    let large = " ".repeat(1 + 1024 * 1024);
    fs::write(files.file(PARTITION), large).expect("writable");
    let error = files.load(PARTITION, &names).await.expect_err("it is too large");
    assert!(error.text.contains("larger than"), "{error}");
    fs::write(files.file(PARTITION), [0xFF, 0xFE]).expect("writable");
    assert!(files.load(PARTITION, &names).await.is_err(), "no text");
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_or_written_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = folder.path().join("taken");
    fs::write(&taken, "a file").expect("writable");
    let error = FactFiles::open(&taken.join("below")).expect_err("it is a file");
    assert!(error.place.ends_with("taken/below"), "{error}");
    assert!(error.text.contains("`store.state_dir`"), "{error}");

    let files = FactFiles::open(&folder.path().join("gone")).expect("it can be made");
    fs::remove_dir(&files.folder).expect("it is empty");
    let error = files.save(PARTITION, &nodes(&["db1"]), &facts()).await.expect_err("it is gone");
    assert!(error.place.ends_with("partition-3.json") && error.text.contains(';'), "{error}");
}

#[tokio::test]
async fn a_save_that_was_overtaken_does_not_come_back() {
    let (_folder, files) = opened();
    let names = nodes(&["db1", "db2"]);
    files.save(PARTITION, &names, &facts()).await.expect("writable");
    // As if the call numbered next had been written already.
    let overtaken = files.calls.load(Ordering::Relaxed) + 2;
    files.written.lock().expect("nobody panicked").insert(PARTITION, overtaken);
    files.save(PARTITION, &names, &Facts::new()).await.expect("nothing to do");
    assert_eq!(files.load(PARTITION, &names).await, Ok(facts()));
}

#[tokio::test]
async fn facts_of_the_version_before_are_read() {
    let (_folder, files) = opened();
    let text = r#"{
  "version": 1,
  "partition": 3,
  "epochs": [
    {
      "epoch": "2.1764000000123458.1764000000042221",
      "node": "db2",
      "flush_seen": "0/3034AB8",
      "flush_starts_page": false,
      "replay": null,
      "ended": true
    }
  ]
}
"#;
    fs::create_dir_all(&files.folder).expect("a folder");
    fs::write(files.file(PARTITION), text).expect("writable");
    let facts = files.load(PARTITION, &nodes(&["db1", "db2"])).await.expect("it is understood");
    let known = facts.of(epoch(2)).expect("it is there");
    assert_eq!((known.node, known.replay, known.origin), (Some(NodeId::new(1)), Some(None), None));
}
