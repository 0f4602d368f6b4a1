//! Every guard has a clause and a test that switches it off.
//!
//! Whether that test really fails without the guard is the test's own claim, not checked here.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::source::{Source, tokens};

/// What `tests/guards.toml` says of one guard.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    clause: String,
    test: String,
}

/// The guards of the core, with their clauses, from the list in `src/core/guards.rs`.
fn listed(guards: &str) -> BTreeMap<String, String> {
    let pairs = guards.lines().filter_map(|line| {
        let (name, clause) = line.trim().split_once(" => \"")?;
        Some((name.to_owned(), clause.strip_suffix("\",")?.to_owned()))
    });
    pairs.collect()
}

/// Every difference between the guards in the code, those in the table, and the tests there are.
pub(crate) fn violations(guards: &str, table: &str, files: &[Source]) -> Vec<String> {
    let listed = listed(guards);
    let entries: BTreeMap<String, Entry> = match toml::from_str(table) {
        Ok(entries) => entries,
        Err(error) => return vec![format!("tests/guards.toml: {error}")],
    };
    let mut found = Vec::new();
    if listed.is_empty() {
        found.push("src/core/guards.rs: no guard is listed as `name => \"clause\",`".to_owned());
    }
    for (name, clause) in &listed {
        match entries.get(name) {
            None => found.push(format!("tests/guards.toml: `{name}` is missing")),
            Some(entry) if entry.clause != *clause => found.push(format!(
                "tests/guards.toml: `{name}` has clause {}, the code says {clause}",
                entry.clause
            )),
            Some(entry) if !files.iter().any(|file| switches_off(file, name, &entry.test)) => found
                .push(format!(
                    "tests/guards.toml: no file has a `fn {}` and names \"{name}\"",
                    entry.test
                )),
            Some(_) => {}
        }
    }
    let unknown = entries.keys().filter(|name| !listed.contains_key(*name));
    found.extend(unknown.map(|name| format!("tests/guards.toml: there is no guard `{name}`")));
    found
}

/// Whether a file has the test, and the guard's name as a string to switch it off by; nothing in
/// such a file may be ignored.
fn switches_off(file: &Source, guard: &str, test: &str) -> bool {
    let code = tokens(&file.text);
    let has_test = code.windows(2).any(|pair| pair[0].text == "fn" && pair[1].text == test);
    let is_run = !file.text.contains("#[ignore");
    has_test && is_run && file.text.contains(&format!("\"{guard}\""))
}

#[test]
fn a_guard_without_entry_test_or_clause_is_found() {
    let guards = "    /// Why.\n    gate => \"3.2\",\n    cap => \"4.4\",\n";
    let gate = "[gate]\nclause = \"3.2\"\ntest = \"a_session\"\n";
    let cap = "[cap]\nclause = \"4.4\"\ntest = \"a_cap\"\n";
    let tests = "//! T.\nfn a_session() { without(\"gate\") }\nfn a_cap() { without(\"cap\") }\n";
    let judged = |table: &str, tests: &str| {
        violations(guards, table, &[Source::sample("tests/t.rs", tests)])
    };
    assert_eq!(judged(&format!("{gate}{cap}"), tests), Vec::<String>::new());
    let ignored = tests.replace("fn a_cap", "#[ignore] fn a_cap");
    assert_eq!(judged(&format!("{gate}{cap}"), &ignored).len(), 2, "who is ignored shows nothing");
    let bad = [
        (gate.to_owned(), tests, "is missing"),
        (format!("{gate}{cap}").replace("4.4", "4.5"), tests, "has clause"),
        (format!("{gate}{cap}"), "fn a_session() { without(\"gate\") }", "no file has"),
        (format!("{gate}{cap}"), "fn a_cap() {} fn a_session() { (\"gate\") }", "no file has"),
        (format!("{gate}{cap}[x]\nclause = \"1\"\ntest = \"a_cap\"\n"), tests, "no guard `x`"),
        (format!("{gate}{cap}why = \"?\"\n"), tests, "unknown field"),
    ];
    for (table, tests, rule) in bad {
        let found = judged(&table, tests);
        assert!(matches!(found.as_slice(), [only] if only.contains(rule)), "{rule}: {found:?}");
    }
}
