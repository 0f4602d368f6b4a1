//! The house rules that a machine can keep: rooms, shape, guards, manifests, the ledger.
//!
//! Reads files and asks cargo for the features it resolves; builds and starts nothing else. Every
//! rule is also fed something bad, beside its code in `tests/tidy/`, to see it bite.

#![expect(clippy::expect_used, reason = "a tree that cannot be read is a failed test")]

#[path = "tidy/build.rs"]
mod build;
#[path = "tidy/guards.rs"]
mod guards;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/proof.rs"]
mod proof;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/source.rs"]
mod source;

use std::fs;
use std::io::{Write, stdout};
use std::process::{Command, Stdio};

use source::{root, rust_files};

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn rooms_import_only_what_the_plan_allows() {
    let dependencies = build::dependencies(&build::manifests());
    assert!(dependencies.contains("tidegate_core") && dependencies.contains("tokio_postgres"));
    assert_none(&imports::violations(&rust_files(), &dependencies));
}

#[test]
fn errors_are_built_in_one_file() {
    assert_none(&imports::status_born_elsewhere(&rust_files()));
}

#[test]
fn files_have_a_heading_and_a_bounded_shape() {
    let files = rust_files();
    // Written past the capture of the test runner, so that every run shows it.
    writeln!(stdout(), "{}", shape::summary(&files)).expect("standard output is open");
    assert_none(&shape::violations(&files));
}

#[test]
fn functions_are_bounded_by_clippy() {
    assert!(read("clippy.toml").contains("too-many-lines-threshold = 70"));
    assert!(read("Cargo.toml").contains("too_many_lines = \"warn\""));
    assert!(read("Makefile").contains("-D warnings"));
}

#[test]
fn every_guard_has_a_test_that_switches_it_off() {
    let (list, table) = (read("src/core/guards.rs"), read("tests/guards.toml"));
    assert_none(&guards::violations(&list, &table, &rust_files()));
}

/// The names in backquotes of one text that no test has.
fn unknown_tests(text: &str, tests: &str) -> Vec<String> {
    let named = text.split('`').skip(1).step_by(2).filter(|name| name.contains('_'));
    let is_test = |name: &&str| {
        name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
    };
    let exists = |name: &&str| {
        tests.contains(&format!("fn {name}("))
            || tests.contains(&format!("{name},"))
            || tests.contains(&format!("{name};"))
    };
    named.filter(is_test).filter(|name| !exists(name)).map(str::to_owned).collect()
}

#[test]
fn requirements_name_tests_that_exist() {
    let files = rust_files();
    let tests: String = files.iter().map(|file| file.text.as_str()).collect();
    assert_none(&unknown_tests(&read("docs/requirements.md"), &tests));
    let missing = unknown_tests("`a_test_nobody_wrote`", &tests.replace("a_test_nobody_wrote", ""));
    assert_eq!(missing, ["a_test_nobody_wrote"]);
}

#[test]
fn manifests_keep_the_lints_and_leave_guards_alone() {
    let manifests = build::manifests();
    assert!(manifests.len() >= 5, "{} manifests", manifests.len());
    assert_none(&build::manifest_violations(&manifests));
}

#[test]
fn no_release_can_switch_guards_off() {
    for path in ["Makefile", ".ci/run", ".ci/stages"] {
        assert_none(&build::release_violations(path, &read(path)));
    }
    assert!(!build::resolved_features(&[]).contains("unsafe-guards"));
    let asked = build::resolved_features(&["--features", "unsafe-guards"]);
    assert!(asked.contains("[unsafe-guards]"), "{asked}");
}

/// Runs the ledger over `stages`; returns whether it passed, and what it printed.
fn ledger(stages: &str, ci: Option<&str>) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("stages");
    fs::write(&path, stages).expect("the folder is writable");
    let mut command = Command::new(root().join(".ci/ledger"));
    command.arg(&path).stdin(Stdio::null()).env_remove("CI");
    if let Some(ci) = ci {
        command.env("CI", ci);
    }
    let output = command.output().expect("the ledger runs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_ledger_fails_a_slow_stage_under_ci_alone() {
    // Less than no time allowed: late without waiting for anything.
    let late = "-1|slow|true\n9|quick|true\n";
    assert!(ledger(late, None).0);
    let (passed, printed) = ledger(late, Some("1"));
    assert!(!passed && printed.contains("over") && printed.contains("quick"), "{printed}");
    assert!(ledger("9|quick|true\n", Some("1")).0);
}

#[test]
fn the_ledger_stops_at_a_failure_and_still_prints() {
    let (passed, printed) = ledger("9|one|false\n9|two|true\n", None);
    assert!(!passed && printed.contains("together") && !printed.contains("==> two"), "{printed}");
}
