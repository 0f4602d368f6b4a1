//! The files of the tree, and Rust cut into tokens.
//!
//! Just enough of a lexer to tell code from comments and strings, and test modules from the rest.
//! It resolves no macro and knows no types.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// One text file, by its path from the root of the tree.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    /// A file that is not there: what rules are fed to see them bite.
    pub(crate) fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }
}

/// Where the tree begins.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the workspace, sorted by path.
pub(crate) fn rust_files() -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["src", "proto", "clients/rust", "tests"] {
        walk(&root().join(folder), &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder of the tree can be listed") {
        let path = entry.expect("an entry of the tree can be read").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                walk(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).expect("a source file is readable UTF-8");
            let path = path.strip_prefix(root()).expect("below the root").display().to_string();
            found.push(Source { path, text });
        }
    }
}

/// A piece of Rust: a name, or one punctuation mark; `::` counts as one. Literals are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Cuts Rust into tokens, without comments and literals.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let end = skip(text, at).unwrap_or(at);
        if end > at {
            line += text[at..end].matches('\n').count();
            at = end;
            continue;
        }
        let rest = &text[at..];
        let length = match rest.chars().next() {
            Some(c) if c.is_alphanumeric() || c == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            Some(_) if rest.starts_with("::") => 2,
            Some(c) => c.len_utf8(),
            None => break,
        };
        out.push(Token { line, text: rest[..length].to_owned() });
        at += length;
    }
    out
}

/// The end of the white space, comment or literal that begins at `at`, if one does.
fn skip(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let first = rest.chars().next()?;
    if first.is_whitespace() {
        return Some(at + first.len_utf8());
    }
    if rest.starts_with("//") {
        return Some(at + rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(at + block_comment(rest));
    }
    let begins_word = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let raw = rest.trim_start_matches('b').trim_start_matches('c');
    if begins_word && raw.starts_with('r') && rest.len() - raw.len() <= 1 {
        let hashes = raw[1..].len() - raw[1..].trim_start_matches('#').len();
        if raw[1 + hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = rest.len() - raw.len() + hashes + 2;
            return Some(at + body + rest[body..].find(&close)? + close.len());
        }
    }
    match first {
        '"' => Some(at + quoted(rest, '"')),
        '\'' => character(rest).map(|length| at + length),
        _ => None,
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn quoted(rest: &str, close: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == close {
            return at + c.len_utf8();
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.chars().skip(1);
    let (first, second) = (chars.next()?, chars.next()?);
    (first == '\\' || second == '\'').then(|| quoted(rest, '\''))
}

/// The tokens without items that only tests compile, and the names of test modules in other files.
pub(crate) fn without_tests(tokens: &[Token]) -> (Vec<Token>, BTreeSet<String>) {
    let (mut kept, mut modules) = (Vec::new(), BTreeSet::new());
    let mut at = 0;
    while at < tokens.len() {
        if !is_test_attribute(&tokens[at..]) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let end = item_end(tokens, at);
        let item = &tokens[at..end];
        if let [.., module, name, semicolon] = item
            && module.text == "mod"
            && semicolon.text == ";"
        {
            modules.insert(name.text.clone());
        }
        at = end;
    }
    (kept, modules)
}

fn is_test_attribute(tokens: &[Token]) -> bool {
    let texts: Vec<&str> = tokens.iter().take(16).map(|t| t.text.as_str()).collect();
    let Some(close) = texts.iter().position(|t| *t == "]") else { return false };
    texts.starts_with(&["#", "[", "cfg", "("])
        && texts[..close].contains(&"test")
        && !texts[..close].contains(&"not")
}

/// One past the end of the item whose first attribute begins at `at`.
fn item_end(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (token.text == "}" || token.text == ";") {
            return index + 1;
        }
    }
    tokens.len()
}

#[test]
fn comments_and_literals_are_no_code() {
    let text = "a /* b /* c */ */ \"d\\\"e\" // f\n 'g' &'h r#\"i\"# br\"j\" b'k' '\\'' l::m";
    let names: Vec<String> = tokens(text).into_iter().map(|t| t.text).collect();
    assert_eq!(names, ["a", "&", "'", "h", "b", "l", "::", "m"]);
}

#[test]
fn what_only_tests_compile_is_left_out() {
    let text = "use a; #[cfg(test)] mod tests { use b; } #[cfg(test)] mod far; \
                #[cfg(all(test, unix))] use c; #[cfg(not(test))] use d;";
    let (kept, modules) = without_tests(&tokens(text));
    let kept: Vec<&str> = kept.iter().filter(|t| t.text.len() == 1).map(|t| &*t.text).collect();
    assert!(kept.contains(&"a") && kept.contains(&"d"), "{kept:?}");
    assert!(!kept.contains(&"b") && !kept.contains(&"c"), "{kept:?}");
    assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["far"]);
}
