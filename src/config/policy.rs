//! `[policy.NAME]`: how fresh the reads of one kind must be, and what may be done to get there.
//!
//! The fields of a policy in a request, kept under a name: a request that names it sends nothing
//! else. It says what a policy is; who finds it by its name is `reads`.

use std::time::Duration;

use serde::Deserialize;
use tidegate_core::routing::{self, AboveCap, Level};

use super::limits::{ABOVE_CAP_STEPS, OutOfRange};
use super::values::Name;

/// How long a read waits where its policy does not say. 50 ms: nobody notices, and most replicas
/// have caught up by then.
const WAIT_BUDGET: Duration = Duration::from_millis(50);
/// How long it waits again above the cap. 200 ms: longer than ordinary lag, short of annoying.
const WAIT_ABOVE_CAP: Duration = Duration::from_millis(200);
/// The least a bound or a second wait can be: less is no promise a poll could keep.
const LEAST: Duration = Duration::from_millis(1);
/// The largest bound: as long as one may be in a request.
const BOUND_MOST: Duration = Duration::from_secs(24 * 3600);

/// One named policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// What requests call it.
    pub name: Name,
    /// How fresh, and what may be done for it.
    pub rule: routing::Policy,
    /// Whom its reads raise.
    pub raise: Raise,
    /// How a loss is told.
    pub on_lost: OnLost,
}

/// Whom a read raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raise {
    /// The token, or the record where no token was carried.
    TokenOrRecord,
    /// Both: another device of the subject never reads behind this one.
    All,
    /// Nobody: later reads of the session may go back behind this one.
    None,
}

/// How a loss is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnLost {
    /// With the answer.
    Notice,
    /// As an error instead of an answer.
    Error,
}

/// `[policy.NAME]`, as it is written. Words and durations are read later, so that all that is wrong
/// with all policies is told at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicySection {
    /// How fresh: `eventual`, `session`, `bounded`, `global` or `leader`.
    level: Option<String>,
    /// The oldest state a read accepts.
    bound: Option<String>,
    /// How long it may wait for a replica.
    wait_budget: Option<String>,
    /// Whether the leader may take it.
    fallback: Option<bool>,
    /// What follows, in order: `wait`, `wait 200ms`, `stale`, `refuse`.
    #[serde(default)]
    above_cap: Vec<String>,
    /// The zone to prefer to the request's.
    zone: Option<String>,
    /// Whom it raises: `token-or-record`, `all` or `none`.
    raise: Option<String>,
    /// How a loss is told: `notice` or `error`.
    on_lost: Option<String>,
}

/// The words a setting takes and what each means.
type Words<T> = &'static [(&'static str, T)];

const LEVELS: Words<Level> = &[
    ("eventual", Level::Eventual),
    ("session", Level::Session),
    ("bounded", Level::Bounded),
    ("global", Level::Global),
    ("leader", Level::Leader),
];
const RAISES: Words<Raise> =
    &[("token-or-record", Raise::TokenOrRecord), ("all", Raise::All), ("none", Raise::None)];
const LOSSES: Words<OnLost> = &[("notice", OnLost::Notice), ("error", OnLost::Error)];

impl PolicySection {
    /// The policy, if its settings fit together; no wait of it may be longer than `wait_most`.
    ///
    /// # Errors
    /// Every setting that does not fit, and what to do.
    pub(super) fn checked(
        self,
        name: Name,
        wait_most: Duration,
    ) -> Result<Policy, Vec<OutOfRange>> {
        let mut wrong = Vec::new();
        let level = word("level", self.level.as_deref(), LEVELS, Level::Session, &mut wrong);
        let bound = self.bound(level, &mut wrong);
        let waits = (Duration::ZERO, wait_most);
        let wait_budget = self.wait_budget.as_deref().map(|text| span(text, waits));
        let rule = routing::Policy {
            level: level.unwrap_or(Level::Session),
            bound,
            wait_budget: or_wrong("wait_budget", wait_budget, &mut wrong)
                .unwrap_or_else(|| WAIT_BUDGET.min(wait_most)),
            may_fall_back: self.fallback.unwrap_or(true),
            above_cap: self.above_cap(wait_most, &mut wrong),
            zone: self.zone(&mut wrong),
        };
        let raise = word("raise", self.raise.as_deref(), RAISES, Raise::TokenOrRecord, &mut wrong);
        let on_lost = word("on_lost", self.on_lost.as_deref(), LOSSES, OnLost::Notice, &mut wrong);
        match (raise, on_lost) {
            (Some(raise), Some(on_lost)) if wrong.is_empty() => {
                Ok(Policy { name, rule, raise, on_lost })
            }
            (Some(_) | None, Some(_) | None) => Err(wrong),
        }
    }

    /// The bound; of a level that cannot be read nothing is said.
    fn bound(&self, level: Option<Level>, wrong: &mut Vec<OutOfRange>) -> Option<Duration> {
        let bound = self.bound.as_deref().map(|text| span(text, (LEAST, BOUND_MOST)));
        let bound = or_wrong("bound", bound, wrong);
        match level? {
            Level::Bounded if self.bound.is_none() => wrong.push((
                "bound",
                "set it: level `bounded` needs the oldest state it accepts, between 1ms and 1day"
                    .to_owned(),
            )),
            Level::Eventual | Level::Global | Level::Leader if self.bound.is_some() => {
                wrong.push((
                    "bound",
                    "remove it: a bound goes with the levels `bounded` and `session`".to_owned(),
                ))
            }
            Level::Eventual | Level::Session | Level::Bounded | Level::Global | Level::Leader => {}
        }
        bound
    }

    fn above_cap(&self, wait_most: Duration, wrong: &mut Vec<OutOfRange>) -> Vec<AboveCap> {
        if self.above_cap.len() > ABOVE_CAP_STEPS {
            wrong.push(("above_cap", format!("name at most {ABOVE_CAP_STEPS} steps")));
        }
        let mut steps = Vec::new();
        for text in &self.above_cap {
            match step(text, wait_most) {
                Ok(step) => steps.push(step),
                Err(problem) => wrong.push(("above_cap", problem)),
            }
        }
        let refused = steps.iter().position(|step| *step == AboveCap::Refuse);
        if refused.is_some_and(|at| at + 1 < steps.len()) {
            let text = "put `refuse` last: no step after it is ever taken";
            wrong.push(("above_cap", text.to_owned()));
        }
        steps
    }

    fn zone(&self, wrong: &mut Vec<OutOfRange>) -> Option<String> {
        let zone = self.zone.clone().map(Name::try_from);
        or_wrong("zone", zone, wrong).map(|zone| zone.as_str().to_owned())
    }
}

/// A value, if it is set and can be read; else what is wrong with it is noted.
fn or_wrong<T>(
    key: &'static str,
    value: Option<Result<T, String>>,
    wrong: &mut Vec<OutOfRange>,
) -> Option<T> {
    value?.map_err(|problem| wrong.push((key, problem))).ok()
}

/// What a word means, `default` where none is set; `None` if it means nothing, which is noted.
fn word<T: Copy>(
    key: &'static str,
    text: Option<&str>,
    words: Words<T>,
    default: T,
    wrong: &mut Vec<OutOfRange>,
) -> Option<T> {
    let Some(text) = text else { return Some(default) };
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
    if found.is_none() {
        let all: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        wrong.push((key, format!("`{text}` is none of {}", all.join(", "))));
    }
    found
}

/// A duration in its range, both ends included.
fn span(text: &str, (least, most): (Duration, Duration)) -> Result<Duration, String> {
    let shown = humantime::format_duration;
    let range = || format!("between {} and {}", shown(least), shown(most));
    let span = humantime::parse_duration(text)
        .map_err(|_| format!("`{text}` is no duration; write one {}, as in `250ms`", range()))?;
    if span < least || span > most {
        return Err(format!("`{text}` is out of range; set it to {}", range()));
    }
    Ok(span)
}

/// One step above the cap.
fn step(text: &str, wait_most: Duration) -> Result<AboveCap, String> {
    match text.split_once(' ') {
        None if text == "wait" => Ok(AboveCap::Wait(WAIT_ABOVE_CAP.min(wait_most))),
        None if text == "stale" => Ok(AboveCap::Stale),
        None if text == "refuse" => Ok(AboveCap::Refuse),
        Some(("wait", budget)) => Ok(AboveCap::Wait(span(budget, (LEAST, wait_most))?)),
        None | Some(_) => Err(format!(
            "`{text}` is no step; use \"wait\", \"wait 200ms\", \"stale\" or \"refuse\""
        )),
    }
}
