//! The offline judge: holds what the pollers read against what is true.
//!
//! - `scan`: reads the polls in order: new epochs, and what was known when each was first seen
//! - `rules`: where a parent ends in a new epoch, as the evidence alone tells it
//! - `rows`: what follows from that for the rows that were written, and whether it is so
//!
//! Written against the design and not with the product's core, so that a mistake in one of them is
//! not a mistake in both.

mod rows;
mod rules;
mod scan;

use std::collections::BTreeMap;

use super::evidence::Poll;
use super::kind::Kind;
use super::truth::{EpochId, Played};

pub(super) use rows::Rows;
use rows::Tree;
pub(super) use rules::{Rule, Way};
pub(super) use scan::{Reborn, Sight};

/// Everything the judge found in one run on one version.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// New epochs, each with the kind it belongs to, in order.
    pub(super) sights: Vec<(Kind, Sight)>,
    /// New lives of standbys, likewise.
    pub(super) reborn: Vec<(Kind, Reborn)>,
    /// What became of the rows, by kind.
    pub(super) rows: BTreeMap<Kind, Rows>,
    /// What the other servers looked like in the end, by kind.
    pub(super) ends: BTreeMap<(Kind, &'static str), u64>,
    /// How often each kind was played.
    pub(super) played: BTreeMap<Kind, u64>,
    /// How many polls were answered.
    pub(super) polls: u64,
    /// Bytes by which a recovery ended below the flush that had been seen, where that was torn.
    pub(super) torn: Vec<u64>,
    /// What the evidence says and the truth does not.
    pub(super) contradictions: Vec<String>,
    /// False answers of the one kind that is not promised.
    pub(super) not_promised: Vec<String>,
    /// How often each wrong way is wrong, by kind.
    pub(super) wrong_ways: BTreeMap<(Way, Kind), u64>,
}

/// Judges a run: all polls in their order, and what was played.
pub(super) fn judge(polls: &[Poll], played: &[(Kind, Played)]) -> Judgement {
    let scan = scan::scan(polls);
    let mut found = Judgement {
        polls: polls.iter().filter(|poll| poll.shown.is_some()).count() as u64,
        contradictions: scan.contradictions.clone(),
        ..Judgement::default()
    };
    let ours = Tree::new(&scan, Way::Ours);
    let wrong_ways = Way::WRONG.map(|way| (way, Tree::new(&scan, way)));
    for (kind, played) in played {
        *found.played.entry(*kind).or_default() += 1;
        let within = |at: u64| played.span.0 <= at && at <= played.span.1;
        for sight in scan.sights.iter().filter(|sight| within(sight.sent)) {
            check_sight(*kind, sight, played, &mut found);
            found.sights.push((*kind, sight.clone()));
        }
        let reborn = scan.reborn.iter().filter(|reborn| within(reborn.sent));
        found.reborn.extend(reborn.map(|reborn| (*kind, reborn.clone())));
        rows::sum(*kind, played, &ours, &mut found);
        let promised = *kind != Kind::TwinAttached;
        let lines = if promised { &mut found.contradictions } else { &mut found.not_promised };
        lines.extend(ours.wrongs(played));
        for (way, tree) in &wrong_ways {
            let wrongs = tree.wrongs(played).len() as u64;
            *found.wrong_ways.entry((*way, *kind)).or_default() += wrongs;
        }
    }
    found
}

/// Holds one placement against the history file and the kind that was played.
fn check_sight(kind: Kind, sight: &Sight, played: &Played, found: &mut Judgement) {
    let epoch = sight.epoch;
    let mut wrong = |what: String| {
        let steps: Vec<&str> = played.steps.iter().map(|step| step.what.as_str()).collect();
        let line = format!("{}: epoch {epoch}: {what} ({})", kind.name(), steps.join("; "));
        found.contradictions.push(line);
    };
    let history = played.censuses.iter().find(|census| census.writes == Some(epoch));
    let history = history.map(|census| census.history.as_slice()).unwrap_or_default();
    let parent = sight.parent.map_or(0, |parent| parent.timeline);
    let switch = history.iter().find(|(timeline, _)| *timeline == parent).map(|(_, at)| *at);
    match sight.rule {
        Rule::Promotion => {
            if switch.is_some_and(|switch| sight.fork.at_most != switch) {
                wrong(format!(
                    "replay froze at {:X}, the history file says {:X}",
                    sight.fork.at_most,
                    switch.unwrap_or_default()
                ));
            }
        }
        Rule::PromotionUnseen => {
            if switch.is_some_and(|switch| sight.fork.at_least > switch) {
                wrong(format!("at_least {:X} is past the switch point", sight.fork.at_least));
            }
        }
        Rule::Torn => {
            found.torn.push(sight.flush_seen.unwrap_or(0) - sight.fork.at_most);
        }
        Rule::Restored if kind != Kind::Restored => {
            wrong("a leader that lost nothing it had flushed looks restored".to_owned());
        }
        Rule::Backwards => wrong("a timeline below its parent's".to_owned()),
        Rule::Restored
        | Rule::Continues
        | Rule::CleanRestart
        | Rule::Crash
        | Rule::FactsLost
        | Rule::Root => {}
    }
}

/// An epoch for people: its timeline and the end of its times.
pub(super) fn short(epoch: EpochId) -> String {
    let digits = |time: i64| time.rem_euclid(100_000_000) / 1_000;
    format!("{}.{:05}.{:05}", epoch.timeline, digits(epoch.start), digits(epoch.reset))
}
