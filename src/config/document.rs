//! `Document`: a configuration as text with environment overrides, and where each setting stands.
//!
//! It knows TOML and nothing of the settings themselves: what they mean is in `sections.rs`,
//! whether they fit together in `check.rs`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, Problem};

/// What every override starts with.
const PREFIX: &str = "TIDEGATE_";
/// What separates section and key in the name of an override.
const SEPARATOR: &str = "__";
/// Positions past the end of the text that stand for one override.
const SPAN_LEN: usize = 2;

/// A configuration file with the environment applied to it.
pub(super) struct Document<'a> {
    file: &'a str,
    text: &'a str,
    /// Names and values; [`section_span`] says which spans stand for them.
    overrides: Vec<(&'a str, &'a str)>,
    tree: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    /// Reads `text`, applies the overrides among `environment` and deserializes a `T`.
    ///
    /// A variable is an override if its name starts with `TIDEGATE_` and has a `__`.
    pub(super) fn read<T: DeserializeOwned>(
        file: &'a str,
        text: &'a str,
        environment: &'a [(String, String)],
    ) -> Result<(Self, T), Problem> {
        let named = |(name, value): &'a (String, String)| {
            let path = name.strip_prefix(PREFIX)?;
            path.contains(SEPARATOR).then_some((name.as_str(), value.as_str()))
        };
        let overrides: Vec<_> = environment.iter().filter_map(named).collect();
        // `0` may be meant as a number or as a name: what the setting takes decides.
        let mut as_text = BTreeSet::new();
        loop {
            let document = Self::parse(file, text, overrides.clone(), &as_text)?;
            let deserializer = toml::de::Deserializer::from(document.tree.clone());
            let error = match T::deserialize(deserializer) {
                Ok(value) => return Ok((document, value)),
                Err(error) => error,
            };
            let span = error.span().unwrap_or(0..0);
            let again = document.variable(&span).is_some_and(|index| as_text.insert(index));
            if !again {
                return Err(document.problem_at(&span, error.message()));
            }
        }
    }

    /// A problem with the setting at `path`, or where it would have to be set.
    pub(super) fn problem(&self, path: &[&str], text: impl Into<String>) -> Problem {
        let span = self.span_of(path);
        Problem { place: self.place(&span), key: path.join("."), text: text.into() }
    }

    /// True if the setting at `path` comes from the environment.
    pub(super) fn is_overridden(&self, path: &[&str]) -> bool {
        self.variable(&self.span_of(path)).is_some()
    }

    /// True if anything sets what is at `path`, a key of a section.
    pub(super) fn sets(&self, path: &[&str]) -> bool {
        let [section, key] = path else { return false };
        let section = self.tree.get_ref().get(*section);
        let table = section.and_then(|section| section.get_ref().as_table());
        table.is_some_and(|table| table.contains_key(*key))
    }

    fn parse(
        file: &'a str,
        text: &'a str,
        overrides: Vec<(&'a str, &'a str)>,
        as_text: &BTreeSet<usize>,
    ) -> Result<Self, Problem> {
        let tree = DeTable::parse(text);
        let mut document = match tree {
            Ok(tree) => Self { file, text, overrides, tree },
            Err(error) => {
                let place = line_of(file, text, error.span().map_or(0, |span| span.start));
                let text = format!("this is not TOML: {}", error.message());
                return Err(Problem { place, key: String::new(), text });
            }
        };
        for index in 0..document.overrides.len() {
            document.apply(index, as_text.contains(&index))?;
        }
        Ok(document)
    }

    /// Sets what the override at `index` names.
    fn apply(&mut self, index: usize, as_text: bool) -> Result<(), Problem> {
        let Some(&(name, value)) = self.overrides.get(index) else { return Ok(()) };
        let path = path_of(name);
        let wrong = |text: String| {
            let place = Place::Variable(name.to_owned());
            Problem { place, key: path.join("."), text }
        };
        let [section, parents @ .., key] = path.as_slice() else { return Ok(()) };
        let around = section_span(self.text, index);
        let span = around.start..around.start + 1;
        let entry = Spanned::new(around.clone(), Cow::Owned(section.clone()));
        let root = self.tree.get_mut().entry(entry);
        let missing = || Spanned::new(around, DeValue::Table(DeTable::new()));
        let mut parent = root.or_insert_with(missing).get_mut();
        for segment in parents {
            parent = child(parent, segment).ok_or_else(|| {
                wrong(format!("the file sets no `{segment}` there; add it to the file first"))
            })?;
        }
        let DeValue::Table(table) = parent else {
            return Err(wrong("this names no setting; write TIDEGATE_SECTION__KEY".to_owned()));
        };
        let value = Spanned::new(span.clone(), value_of(value, as_text, &span));
        table.remove(key.as_str());
        table.insert(Spanned::new(span, Cow::Owned(key.clone())), value);
        Ok(())
    }

    fn problem_at(&self, span: &Range<usize>, message: &str) -> Problem {
        let mut best = (usize::MAX, Vec::new());
        find(self.tree.get_ref(), span, &mut Vec::new(), &mut best);
        let (_, path) = best;
        Problem { place: self.place(span), key: path.join("."), text: message.to_owned() }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        match self.variable(span).and_then(|index| self.overrides.get(index)) {
            Some((name, _)) => Place::Variable((*name).to_owned()),
            None => line_of(self.file, self.text, span.start),
        }
    }

    fn variable(&self, span: &Range<usize>) -> Option<usize> {
        let past = span.start.checked_sub(section_span(self.text, 0).start)?;
        Some(past / SPAN_LEN).filter(|&index| index < self.overrides.len())
    }

    /// The span of the last part of `path` that exists.
    fn span_of(&self, path: &[&str]) -> Range<usize> {
        let mut table = Some(self.tree.get_ref());
        let mut rows: Option<&[Spanned<DeValue<'_>>]> = None;
        let mut span = 0..0;
        for segment in path {
            let found = match (table, rows) {
                (Some(table), _) => table.get_key_value(*segment).map(|(k, v)| (k.span(), v)),
                (None, Some(rows)) => {
                    let row = rows.iter().find(|row| name_of(row.get_ref()) == Some(segment));
                    row.map(|row| (row.span(), row))
                }
                (None, None) => None,
            };
            let Some((at, value)) = found else { break };
            span = at;
            table = value.get_ref().as_table();
            rows = value.get_ref().as_array().map(|array| &**array);
        }
        span
    }
}

/// The span of a section that the override at `index` adds, past the end of `text`. The setting
/// itself has its first byte.
fn section_span(text: &str, index: usize) -> Range<usize> {
    let start = text.len() + 1 + index * SPAN_LEN;
    start..start + SPAN_LEN
}

/// The path a variable names: `TIDEGATE_PARTITION__MAIN__ID` is `partition.main.id`.
///
/// Names of partitions and nodes have `-` and no `_`, variables have it the other way round.
fn path_of(variable: &str) -> Vec<String> {
    let lower = variable.strip_prefix(PREFIX).unwrap_or(variable).to_ascii_lowercase();
    let mut path: Vec<String> = lower.split(SEPARATOR).map(str::to_owned).collect();
    let named = ["partition", "policy"];
    if path.first().is_some_and(|section| named.contains(&section.as_str())) {
        for name in path.iter_mut().skip(1).step_by(2) {
            *name = name.replace('_', "-");
        }
        // The last part is a key, wherever it stands.
        if let Some(key) = path.last_mut() {
            *key = key.replace('-', "_");
        }
    }
    path
}

/// What `segment` names in a table, or in a list of tables with names.
fn child<'t, 'a>(parent: &'t mut DeValue<'a>, segment: &str) -> Option<&'t mut DeValue<'a>> {
    if let DeValue::Table(table) = parent {
        return table.get_mut(segment).map(Spanned::get_mut);
    }
    let DeValue::Array(rows) = parent else { return None };
    let row = rows.iter_mut().find(|row| name_of(row.get_ref()) == Some(segment));
    row.map(Spanned::get_mut)
}

fn name_of<'t>(row: &'t DeValue<'_>) -> Option<&'t str> {
    row.as_table()?.get("name")?.get_ref().as_str()
}

/// The value of an override: a number, `true`, `false` or a list as TOML has them, else text.
fn value_of<'a>(value: &'a str, as_text: bool, span: &Range<usize>) -> DeValue<'a> {
    let parsed = DeValue::parse(value).map(Spanned::into_inner);
    match parsed {
        Ok(value @ (DeValue::Integer(_) | DeValue::Boolean(_) | DeValue::Array(_))) if !as_text => {
            respan(value, span)
        }
        _ => DeValue::String(Cow::Borrowed(value)),
    }
}

/// Gives all that `value` holds the one `span`.
fn respan<'a>(value: DeValue<'a>, span: &Range<usize>) -> DeValue<'a> {
    let spanned =
        |value: Spanned<DeValue<'a>>| Spanned::new(span.clone(), respan(value.into_inner(), span));
    match value {
        DeValue::Array(rows) => DeValue::Array(rows.into_iter().map(spanned).collect()),
        DeValue::Table(table) => {
            let entries = table
                .into_iter()
                .map(|(key, value)| (Spanned::new(span.clone(), key.into_inner()), spanned(value)));
            DeValue::Table(entries.collect())
        }
        scalar @ (DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)) => scalar,
    }
}

/// Finds the path of the shortest span in `table` that holds all of `span`.
fn find(
    table: &DeTable<'_>,
    span: &Range<usize>,
    path: &mut Vec<String>,
    best: &mut (usize, Vec<String>),
) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        offer(key.span(), span, path, best);
        let rows = value.get_ref().as_array().into_iter().flatten();
        let mut rows = rows.filter_map(|row| Some((row, row.get_ref().as_table()?))).peekable();
        // A list of one table has the span of that table: the error is in the table.
        if rows.peek().is_none() {
            offer(value.span(), span, path, best);
        }
        if let Some(table) = value.get_ref().as_table() {
            find(table, span, path, best);
        }
        for (row, table) in rows {
            path.push(name_of(row.get_ref()).unwrap_or("?").to_owned());
            offer(row.span(), span, path, best);
            find(table, span, path, best);
            path.pop();
        }
        path.pop();
    }
}

/// Takes `candidate` for the best if it holds `span` and is shorter than all before it.
fn offer(
    candidate: Range<usize>,
    span: &Range<usize>,
    path: &[String],
    best: &mut (usize, Vec<String>),
) {
    let holds = candidate.start <= span.start && span.end <= candidate.end;
    if holds && candidate.len() < best.0 {
        *best = (candidate.len(), path.to_vec());
    }
}

fn line_of(file: &str, text: &str, at: usize) -> Place {
    let before = text.as_bytes().iter().take(at);
    let line = before.filter(|&&byte| byte == b'\n').count() + 1;
    Place::Line { file: file.to_owned(), line }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
