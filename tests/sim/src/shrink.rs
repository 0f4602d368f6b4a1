//! Makes a failing schedule shorter, and words the failure so that anybody can repeat it.

use std::fmt::Write as _;

use crate::options::Options;
use crate::run::live;
use crate::schedule::{Action, schedule};

/// Worlds lived while shrinking one.
const LIVES_MAX: usize = 300;

/// The shortest schedule found that still breaks the same promise.
///
/// Pieces are taken out, first large ones, then single actions.
pub fn shrink(options: &Options, actions: &[Action]) -> Vec<Action> {
    let kind_of = |actions: &[Action]| live(options, actions, false).violation.map(|v| v.kind);
    let wanted = kind_of(actions);
    let mut kept = actions.to_vec();
    let mut lives = 0;
    let mut piece = kept.len() / 2;
    while piece > 0 && wanted.is_some() {
        let mut at = 0;
        while at < kept.len() && lives < LIVES_MAX {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + piece).min(kept.len()));
            lives += 1;
            if kind_of(&fewer) == wanted {
                kept = fewer;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    kept
}

/// The command that repeats a world.
pub fn command(options: &Options) -> String {
    let without = options.without.map_or_else(String::new, |guard| format!(" --without {guard}"));
    let small = if options.scale == crate::options::Scale::Test { " --small" } else { "" };
    format!(
        "cargo run -p tidegate-sim --features unsafe-guards -- \
         seed {} --profile {}{without}{small}",
        options.seed,
        options.profile.name()
    )
}

/// A failure in words: the seed, what it expands to, the shrunken schedule, how to repeat it.
pub fn failure(options: &Options) -> String {
    let whole = schedule(options);
    let kept = shrink(options, &whole);
    let lived = live(options, &kept, false);
    let mut text = format!("seed {} breaks a promise\n", options.seed);
    if let Some(violation) = lived.violation {
        let at = violation.at / 1_000_000;
        _ = writeln!(text, "at {at} ms: {}\n  {}", violation.kind, violation.text);
    }
    _ = writeln!(text, "{options:#?}");
    _ = writeln!(text, "{} of {} actions are enough:", kept.len(), whole.len());
    for action in &kept {
        let at = action.at / 1_000_000;
        _ = writeln!(text, "  {at:>6} ms {:?} (seed {:#x})", action.kind, action.seed);
    }
    _ = writeln!(text, "again: {}", command(options));
    text
}
