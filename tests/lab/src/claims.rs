//! The claims of a run: figures that must hold, shown as a table and written to
//! `target/NAME.json`.
//!
//! Measures nothing itself. A claim about nothing (`n` of 0) does not hold.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

/// How a measured figure must stand to its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// The figure is at least the bar.
    #[serde(rename = ">=")]
    AtLeast,
    /// The figure is at most the bar.
    #[serde(rename = "<=")]
    AtMost,
    /// The figure is the bar.
    #[serde(rename = "==")]
    Is,
    /// The figure is above the bar.
    #[serde(rename = ">")]
    Above,
    /// The figure is below the bar.
    #[serde(rename = "<")]
    Below,
}

impl Op {
    #[expect(clippy::float_cmp, reason = "`==` claims are about counts, which f64 holds exactly")]
    fn holds(self, measured: f64, bar: f64) -> bool {
        match self {
            Self::AtLeast => measured >= bar,
            Self::AtMost => measured <= bar,
            Self::Is => measured == bar,
            Self::Above => measured > bar,
            Self::Below => measured < bar,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Is => "==",
            Self::Above => ">",
            Self::Below => "<",
        })
    }
}

/// One figure with the bar it must meet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What was measured, in words.
    pub name: String,
    /// The figure.
    pub measured: f64,
    /// How it must stand to the bar.
    pub op: Op,
    /// The bar.
    pub bar: f64,
    /// Whether it does, and was measured at least once.
    pub holds: bool,
    /// How often it was measured.
    pub n: u64,
}

/// The claims of one run.
#[derive(Debug)]
pub struct Claims {
    name: String,
    folder: PathBuf,
    claims: Vec<Claim>,
    figures: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct Page<'a> {
    claims: &'a [Claim],
    figures: &'a serde_json::Map<String, serde_json::Value>,
}

impl Claims {
    /// Claims that go to `target/NAME.json` below the current folder.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::in_folder(name, Path::new("target"))
    }

    /// Claims that go to `NAME.json` in another folder.
    #[must_use]
    pub fn in_folder(name: &str, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            claims: Vec::new(),
            figures: serde_json::Map::new(),
        }
    }

    /// Adds a claim and tells whether it holds; `n` counts the measurements behind it.
    pub fn claim(&mut self, name: &str, measured: f64, op: Op, bar: f64, n: u64) -> bool {
        let holds = n > 0 && op.holds(measured, bar);
        self.claims.push(Claim { name: name.to_owned(), measured, op, bar, holds, n });
        holds
    }

    /// Adds a claim that something was counted exactly `bar` times.
    #[expect(clippy::cast_precision_loss, reason = "no lab counts to 2^53")]
    pub fn count(&mut self, name: &str, measured: u64, bar: u64, n: u64) -> bool {
        self.claim(name, measured as f64, Op::Is, bar as f64, n)
    }

    /// Adds a figure without a bar.
    pub fn figure(&mut self, name: &str, value: impl Into<serde_json::Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    /// The claims so far.
    #[must_use]
    pub fn all(&self) -> &[Claim] {
        &self.claims
    }

    /// Tells whether there are claims and all of them hold.
    #[must_use]
    pub fn hold(&self) -> bool {
        !self.claims.is_empty() && self.claims.iter().all(|claim| claim.holds)
    }

    /// Prints the table, writes the file, and turns both into an exit code.
    #[must_use]
    pub fn finish(self) -> ExitCode {
        let mut out = std::io::stdout().lock();
        // A reader that closed the pipe does not change whether the claims hold.
        drop(write!(out, "{}", self.table()));
        match self.write() {
            Ok(path) => drop(writeln!(out, "written to {}", path.display())),
            Err(error) => {
                drop(writeln!(out, "{error:#}"));
                return ExitCode::FAILURE;
            }
        }
        if self.hold() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Writes the file and returns its path.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self) -> Result<PathBuf> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        let path = self.folder.join(format!("{}.json", self.name));
        let page = Page { claims: &self.claims, figures: &self.figures };
        let mut text = serde_json::to_string_pretty(&page)?;
        text.push('\n');
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// The claims and figures as an aligned table.
    #[must_use]
    pub fn table(&self) -> String {
        let names = self.claims.iter().map(|claim| claim.name.len());
        let width = names.chain(self.figures.keys().map(String::len)).max().unwrap_or(0).max(5);
        let mut rows = vec![format!(
            "{:<5}  {:<width$}  {:>12}  {:<2} {:>10}  {:>9}",
            "", "claim", "measured", "", "bar", "n"
        )];
        rows.extend(self.claims.iter().map(|claim| {
            let verdict = if claim.holds { "holds" } else { "FAILS" };
            let Claim { name, op, n, .. } = claim;
            let (measured, bar) = (round(claim.measured), round(claim.bar));
            format!("{verdict}  {name:<width$}  {measured:>12}  {op:<2} {bar:>10}  {n:>9}")
        }));
        rows.extend(self.figures.iter().map(|(name, value)| {
            let figure = value.as_f64().map_or_else(|| value.to_string(), round);
            format!("{:<5}  {name:<width$}  {figure:>12}", "")
        }));
        rows.iter().map(|row| format!("{}\n", row.trim_end())).collect()
    }
}

fn round(figure: f64) -> String {
    if figure.fract() == 0.0 { format!("{figure:.0}") } else { format!("{figure:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_about_nothing_does_not_hold() {
        let mut claims = Claims::new("empty");
        assert!(!claims.hold());
        assert!(!claims.count("stale reads", 0, 0, 0));
        assert!(claims.count("stale reads", 0, 0, 1));
        assert!(!claims.hold());
    }

    #[test]
    fn a_figure_that_is_no_number_holds_nothing() {
        let mut claims = Claims::new("nan");
        for op in [Op::AtLeast, Op::AtMost, Op::Is, Op::Above, Op::Below] {
            assert!(!claims.claim("lag", f64::NAN, op, 0.0, 1));
        }
    }

    #[test]
    fn the_file_has_the_shape_that_is_judged() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut claims = Claims::in_folder("demo", folder.path());
        claims.count("lag: reads that named the lagging standby", 0, 0, 200);
        claims.claim("cap used", 0.5, Op::AtMost, 1.1, 1);
        claims.figure("reads", 200);
        assert!(claims.hold());
        let path = claims.write()?;
        let text = fs::read_to_string(path)?;
        let page: serde_json::Value = serde_json::from_str(&text)?;
        let wanted = serde_json::json!({
            "claims": [
                {"name": "lag: reads that named the lagging standby", "measured": 0.0, "op": "==",
                 "bar": 0.0, "holds": true, "n": 200},
                {"name": "cap used", "measured": 0.5, "op": "<=", "bar": 1.1, "holds": true,
                 "n": 1}],
            "figures": {"reads": 200}});
        assert_eq!(page, wanted);
        Ok(())
    }

    #[test]
    fn the_table_says_which_claim_fails() {
        let mut claims = Claims::new("demo");
        claims.claim("wait", 0.0, Op::AtLeast, 1.0, 3);
        assert!(claims.table().contains("FAILS  wait "), "{}", claims.table());
    }
}
