//! The paths one file names, resolved as far as rooms are concerned.
//!
//! Follows `use` trees, `self` and `super`; knows nothing of re-exports or of names that a glob
//! brings in.

use super::source::Token;

/// One path as code names it, with the line it stands on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
}

/// Every path in `tokens`, which are those of the file at `path`, below the folder `src` of its
/// crate. Paths into the own crate begin with `crate`.
pub(crate) fn named(path: &str, tokens: &[Token]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let (mut depth, mut at) = (0_usize, 0);
    while at < tokens.len() {
        let text = tokens[at].text.as_str();
        match text {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.retain(|(_, opened)| *opened <= depth);
            }
            "mod" if tokens.get(at + 2).is_some_and(|t| t.text == "{") => {
                inline.push((tokens[at + 1].text.clone(), depth + 1));
            }
            _ => {}
        }
        let mut module = module_of(path);
        module.extend(inline.iter().map(|(name, _)| name.clone()));
        // `use<'a>` is a bound, not an import.
        if text == "use" && tokens.get(at + 1).is_some_and(|t| t.text != "<") {
            let mut raw = Vec::new();
            at = tree(tokens, at + 1, &Vec::new(), &mut raw);
            found.extend(raw.into_iter().map(|name| resolve(name, &module)));
        } else if tokens[at].is_name() && tokens.get(at + 1).is_some_and(|t| t.text == "::") {
            let (end, name) = plain(tokens, at);
            found.push(resolve(name, &module));
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

/// The modules that lead to a file: `api/routing.rs` is `api::routing`.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    if matches!(path, "lib" | "main") {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

/// Reads the use tree at `at` below `stem`; returns where it ends.
fn tree(tokens: &[Token], mut at: usize, stem: &[String], found: &mut Vec<Named>) -> usize {
    let mut segments = stem.to_vec();
    let line = tokens.get(at).map_or(0, |t| t.line);
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "::" => {}
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|t| !matches!(t.text.as_str(), "}" | ";")) {
                    at = tree(tokens, at, &segments, found);
                    at += usize::from(tokens.get(at).is_some_and(|t| t.text == ","));
                }
                return at + 1;
            }
            "as" => at += 1,
            ";" | "," | "}" => break,
            name => segments.push(name.to_owned()),
        }
        at += 1;
    }
    found.push(Named { line, segments });
    at
}

/// Reads a path outside `use`, such as `a::b::c(..)`.
fn plain(tokens: &[Token], at: usize) -> (usize, Named) {
    let mut segments = vec![tokens[at].text.clone()];
    let mut end = at + 1;
    while tokens.get(end).is_some_and(|t| t.text == "::")
        && tokens.get(end + 1).is_some_and(Token::is_name)
    {
        segments.push(tokens[end + 1].text.clone());
        end += 2;
    }
    (end, Named { line: tokens[at].line, segments })
}

/// Turns `self` and `super` into a path that begins with `crate`.
fn resolve(name: Named, module: &[String]) -> Named {
    let mut base = module.to_vec();
    let mut rest = name.segments.as_slice();
    match rest.first().map(String::as_str) {
        Some("self") => rest = &rest[1..],
        Some("super") => {
            while rest.first().is_some_and(|first| first == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        _ => return name,
    }
    let mut segments = vec!["crate".to_owned()];
    segments.extend(base);
    segments.extend_from_slice(rest);
    Named { line: name.line, segments }
}

#[test]
fn use_trees_and_plain_paths_are_found() {
    let text =
        "use a::{b, c::{self, d as e}}; use super::super::f; fn x() { crate::g::h(self::i::J) }
                mod k { use super::l; } fn y() -> impl Z + use<'_> { o; {} } use p::{q;";
    let tokens = super::source::tokens(text);
    let found: Vec<String> =
        named("m/n.rs", &tokens).into_iter().map(|name| name.segments.join("::")).collect();
    let expected = [
        "a::b",
        "a::c::self",
        "a::c::d",
        "crate::f",
        "crate::g::h",
        "crate::m::n::i::J",
        "crate::m::n::l",
        "p::q",
    ];
    assert_eq!(found, expected);
}
