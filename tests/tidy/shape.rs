//! What every Rust file looks like: a heading, a bounded length and width, nothing left undone.
//!
//! Function length is clippy's (`too_many_lines`); `build.rs` here only sees that it is on.

use super::source::{Source, tokens};

/// No file is longer.
const LINES_MAX: usize = 500;

/// No line is wider, comments included, which rustfmt leaves alone.
const COLUMNS_MAX: usize = 100;

/// Every breach of the rules on shape.
pub(crate) fn violations(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let path = &file.path;
        if !file.text.starts_with("//! ") {
            found.push(format!("{path}:1: opens with `//!`: what it is and deliberately is not"));
        }
        let length = file.text.lines().count();
        if length > LINES_MAX {
            found.push(format!("{path}: {length} lines; split it at {LINES_MAX} at the latest"));
        }
        for (at, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                found.push(format!("{path}:{}: {columns} columns of {COLUMNS_MAX}", at + 1));
            }
            if [concat!("TO", "DO"), concat!("FIX", "ME")].iter().any(|word| line.contains(word)) {
                found.push(format!("{path}:{}: finish it or file an issue", at + 1));
            }
        }
        let code = tokens(&file.text);
        for (at, token) in code.iter().enumerate() {
            let macro_call = code.get(at + 1).is_some_and(|t| t.text == "!");
            if macro_call && matches!(token.text.as_str(), "todo" | "unimplemented") {
                found.push(format!("{path}:{}: a stub", token.line));
            }
        }
    }
    found
}

/// One line on how long files are.
pub(crate) fn summary(files: &[Source]) -> String {
    let mut lengths: Vec<(usize, &str)> =
        files.iter().map(|file| (file.text.lines().count(), file.path.as_str())).collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).map_or(0, |entry| entry.0);
    let (longest, path) = lengths.last().copied().unwrap_or_default();
    let total: usize = lengths.iter().map(|entry| entry.0).sum();
    format!(
        "{} Rust files, {total} lines, median {median}, longest {longest} ({path})",
        files.len()
    )
}

#[test]
fn each_rule_on_shape_bites() {
    let bad = [
        ("fn f() {}\n".to_owned(), "opens with"),
        (format!("//! A.\n{}", "\n".repeat(500)), "lines; split"),
        (format!("//! {}\n", "é".repeat(100)), "columns"),
        (format!("//! A.\n// {}: later\n", concat!("TO", "DO")), "finish it"),
        ("//! A.\nfn f() { todo!() }\n".to_owned(), "a stub"),
    ];
    for (text, rule) in bad {
        let found = violations(&[Source::sample("src/x.rs", &text)]);
        assert!(matches!(found.as_slice(), [only] if only.contains(rule)), "{rule}: {found:?}");
    }
    let good = format!("//! {}\n{}", "é".repeat(96), "\n".repeat(499));
    assert_eq!(violations(&[Source::sample("src/x.rs", &good)]), Vec::<String>::new());
}
