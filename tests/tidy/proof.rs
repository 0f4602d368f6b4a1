//! What `docs/proof.md` names exists, and it passes over none of the survey's complaints.
//!
//! Whether a test really shows what its line says is for people to read.

use std::collections::BTreeMap;

/// Complaints in the survey, numbered from 1.
const COMPLAINTS: u32 = 80;

/// Every numbered complaint that is not on the page exactly once, and every line without a test.
fn violations(page: &str) -> Vec<String> {
    let (tried, later) = page.split_once("## Not within reach yet").unwrap_or((page, ""));
    let mut found = Vec::new();
    let mut lines: BTreeMap<u32, u32> = BTreeMap::new();
    for (part, has_test) in [(tried, true), (later, false)] {
        for line in part.lines() {
            let Some(number) = line.split('|').nth(1).and_then(|cell| cell.trim().parse().ok())
            else {
                continue;
            };
            *lines.entry(number).or_default() += 1;
            if has_test && !line.contains("| `") {
                found.push(format!("docs/proof.md: {number} has no test"));
            }
        }
    }
    for number in 1..=COMPLAINTS {
        let times = lines.remove(&number).unwrap_or_default();
        if times != 1 {
            found.push(format!("docs/proof.md: {number} is there {times} times"));
        }
    }
    found.extend(lines.keys().map(|number| format!("docs/proof.md: there is no {number}")));
    found
}

#[test]
fn the_proof_names_tests_that_exist_and_passes_over_nothing() {
    let page = super::read("docs/proof.md");
    let files = super::source::rust_files();
    let tests: String = files.iter().map(|file| file.text.as_str()).collect();
    super::assert_none(&super::unknown_tests(&page, &tests));
    super::assert_none(&violations(&page));
    let missing = super::unknown_tests("| 1 | `a_test_nobody_has_written` |", "");
    assert_eq!(missing, ["a_test_nobody_has_written"]);
}

#[test]
fn a_complaint_that_is_missing_twice_there_or_without_a_test_is_found() {
    let all: String = (1..=COMPLAINTS).map(|number| format!("| {number} | x | `t` |\n")).collect();
    assert!(violations(&all).is_empty(), "{:?}", violations(&all));
    let without = all.replace("| 7 | x | `t` |\n", "");
    assert_eq!(violations(&without), ["docs/proof.md: 7 is there 0 times"]);
    let untried = all.replace("| 7 | x | `t` |", "| 7 | x | none |");
    assert_eq!(violations(&untried), ["docs/proof.md: 7 has no test"]);
    let later = format!("{without}## Not within reach yet\n| 7 | failover | x |\n");
    assert!(violations(&later).is_empty());
    let more = format!("{all}| 81 | x | `t` |\n| 3 | x | `t` |\n");
    let found = violations(&more);
    assert_eq!(found, ["docs/proof.md: 3 is there 2 times", "docs/proof.md: there is no 81"]);
}
