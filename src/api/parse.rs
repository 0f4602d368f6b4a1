//! Messages into the rooms' types. Every field is checked here and nowhere else.

use std::time::Duration;

use tidegate_core::routing::{AboveCap, Level, Policy};
use tidegate_proto::v1;
use tonic::Status;

use super::status;
use crate::reads::policies::{Policies, ReadPolicy};
use crate::reads::{Caller, Observed, Target};
use crate::sessions::RaiseWhom;

/// How long a read or a wait waits where it does not say.
const WAIT_BUDGET: Duration = Duration::from_millis(50);
/// How long it waits again above the cap.
const WAIT_ABOVE_CAP: Duration = Duration::from_millis(200);
/// Steps an above-cap list may have.
const STEPS_MAX: usize = 4;
/// Characters of a zone, and of a node's name.
const NAME_CHARS_MAX: usize = 32;
/// Characters of an incarnation.
const INCARNATION_CHARS_MAX: usize = 64;
/// The least room for a token that a caller can name: two marks in one partition fit.
const TOKEN_CHARS_LEAST: u32 = 136;
/// The longest duration any field may name: a day.
const DURATION_MAX_SECONDS: i64 = 24 * 3600;

/// The session of a call.
pub fn caller(session: Option<v1::Session>, evidence_max: usize) -> Result<Caller, Status> {
    let session = session.unwrap_or_default();
    if session.evidence.len() > evidence_max {
        let text = format!(
            "a request carries at most {evidence_max} evidence strings, this one {}: send the rest \
             with the next call",
            session.evidence.len()
        );
        return Err(status::field("session.evidence", text));
    }
    // 0 means the default.
    let max_token_chars = match session.max_token_chars {
        0 => 0,
        chars => chars.max(TOKEN_CHARS_LEAST),
    };
    Ok(Caller {
        subject: session.subject,
        tokens: session.tokens,
        evidence: session.evidence,
        max_token_chars: usize::try_from(max_token_chars).unwrap_or(usize::MAX),
    })
}

/// A duration of the wire: not negative, at most a day.
pub fn duration(
    field: &str,
    value: Option<prost_types::Duration>,
) -> Result<Option<Duration>, Status> {
    let Some(value) = value else { return Ok(None) };
    // The conversion overflows far outside the range.
    let near = (-1..=DURATION_MAX_SECONDS).contains(&value.seconds);
    let parsed = if near { Duration::try_from(value).ok() } else { None };
    match parsed.filter(|span| *span <= Duration::from_secs(DURATION_MAX_SECONDS.unsigned_abs())) {
        Some(span) => Ok(Some(span)),
        None => Err(status::field(field, format!("`{field}` must be between 0 and 24 h"))),
    }
}

/// A text within its bound.
fn short(field: &str, text: &str, chars_max: usize) -> Result<(), Status> {
    if text.chars().count() <= chars_max {
        return Ok(());
    }
    Err(status::field(field, format!("`{field}` has at most {chars_max} characters")))
}

/// The policy of a select; an absent one asks for the session's guarantees.
///
/// One that is named is found among `named`; of its own zone a request says what it prefers where
/// the policy names none.
pub fn policy(
    policy: Option<v1::Policy>,
    zone: String,
    named: &Policies,
) -> Result<ReadPolicy, Status> {
    let policy = policy.unwrap_or_default();
    short("zone", &zone, NAME_CHARS_MAX)?;
    if !policy.name.is_empty() {
        let mut found = found(policy, named)?;
        found.policy.zone = found.policy.zone.or(Some(zone)).filter(|zone| !zone.is_empty());
        return Ok(found);
    }
    let level = level(policy.level)?;
    let bound = duration("policy.bound", policy.bound)?;
    match (level, bound) {
        (Level::Bounded, None) => {
            return Err(status::field("policy.bound", "level BOUNDED needs `policy.bound`"));
        }
        (Level::Eventual | Level::Global | Level::Leader, Some(_)) => {
            let text = "`policy.bound` goes with the levels BOUNDED and SESSION";
            return Err(status::field("policy.bound", text));
        }
        (Level::Bounded | Level::Session, Some(Duration::ZERO)) => {
            let text = "`policy.bound` must be more than 0: ask for level GLOBAL instead";
            return Err(status::field("policy.bound", text));
        }
        (Level::Bounded | Level::Session, Some(_))
        | (Level::Eventual | Level::Session | Level::Global | Level::Leader, None) => {}
    }
    short("policy.zone", &policy.zone, NAME_CHARS_MAX)?;
    let own_zone = if policy.zone.is_empty() { zone } else { policy.zone };
    Ok(ReadPolicy {
        policy: Policy {
            level,
            bound,
            wait_budget: duration("policy.wait_budget", policy.wait_budget)?.unwrap_or(WAIT_BUDGET),
            may_fall_back: policy.fallback.unwrap_or(true),
            above_cap: above_cap(&policy.above_cap)?,
            zone: (!own_zone.is_empty()).then_some(own_zone),
        },
        raise: raise(policy.raise)?,
        loss_is_error: loss_is_error(policy.on_lost)?,
    })
}

/// The policy a request names, and sets nothing beside.
fn found(asked: v1::Policy, named: &Policies) -> Result<ReadPolicy, Status> {
    short("policy.name", &asked.name, NAME_CHARS_MAX)?;
    if asked != (v1::Policy { name: asked.name.clone(), ..v1::Policy::default() }) {
        let text = format!(
            "a request that names policy `{}` sets none of its other fields: change them in the \
             configuration, or leave the name out",
            asked.name
        );
        return Err(status::field("policy", text));
    }
    named.named(&asked.name).ok_or_else(|| status::policy_unknown(&asked.name, &named.known()))
}

fn level(level: i32) -> Result<Level, Status> {
    match v1::Level::try_from(level) {
        Ok(v1::Level::Unspecified | v1::Level::Session) => Ok(Level::Session),
        Ok(v1::Level::Eventual) => Ok(Level::Eventual),
        Ok(v1::Level::Bounded) => Ok(Level::Bounded),
        Ok(v1::Level::Global) => Ok(Level::Global),
        Ok(v1::Level::Leader) => Ok(Level::Leader),
        Err(_) => {
            Err(status::field("policy.level", format!("`policy.level` {level} is not known here")))
        }
    }
}

/// Whom a read raises.
pub fn raise(raise: i32) -> Result<RaiseWhom, Status> {
    match v1::Raise::try_from(raise) {
        Ok(v1::Raise::Unspecified | v1::Raise::TokenOrRecord) => Ok(RaiseWhom::TokenOrRecord),
        Ok(v1::Raise::All) => Ok(RaiseWhom::All),
        Ok(v1::Raise::None) => Ok(RaiseWhom::None),
        Err(_) => Err(status::field("raise", format!("`raise` {raise} is not known here"))),
    }
}

fn loss_is_error(on_lost: i32) -> Result<bool, Status> {
    match v1::OnLost::try_from(on_lost) {
        Ok(v1::OnLost::Unspecified | v1::OnLost::Notice) => Ok(false),
        Ok(v1::OnLost::Error) => Ok(true),
        Err(_) => Err(status::field(
            "policy.on_lost",
            format!("`policy.on_lost` {on_lost} is not known here"),
        )),
    }
}

/// Without a list: refuse at once. Stale data only where a policy asks for it.
fn above_cap(steps: &[v1::AboveCapStep]) -> Result<Vec<AboveCap>, Status> {
    use v1::above_cap_step::Kind;
    if steps.len() > STEPS_MAX {
        return Err(status::field(
            "policy.above_cap",
            format!("`policy.above_cap` has at most {STEPS_MAX} steps"),
        ));
    }
    let step = |step: &v1::AboveCapStep| match Kind::try_from(step.kind) {
        Ok(Kind::Wait) => {
            let budget = duration("policy.above_cap.wait_budget", step.wait_budget)?;
            Ok(AboveCap::Wait(budget.unwrap_or(WAIT_ABOVE_CAP)))
        }
        Ok(Kind::Stale) => Ok(AboveCap::Stale),
        Ok(Kind::Refuse) => Ok(AboveCap::Refuse),
        Ok(Kind::Unspecified) | Err(_) => Err(status::field(
            "policy.above_cap",
            "each step of `policy.above_cap` is WAIT, STALE or REFUSE",
        )),
    };
    steps.iter().map(step).collect()
}

/// What a wait is for, and how long it may take.
pub fn wait(
    target: Option<v1::wait_until_fresh_request::Target>,
    budget: Option<prost_types::Duration>,
) -> Result<(Target, Duration), Status> {
    use v1::wait_until_fresh_request::Target as Wire;
    let target = match target {
        None | Some(Wire::Any(_)) => Target::Any,
        Some(Wire::All(_)) => Target::All,
        Some(Wire::Node(name)) if name.is_empty() => {
            return Err(status::field("node", "`node` must name a node"));
        }
        Some(Wire::Node(name)) => Target::Node(name),
    };
    Ok((target, duration("budget", budget)?.unwrap_or(WAIT_BUDGET)))
}

/// What a record brings; without an observation of its own, the last one its session carries.
pub fn observed(
    observed: Option<v1::record_request::Observed>,
    before: String,
    caller: &mut Caller,
) -> Result<Observed, Status> {
    use v1::record_request::Observed as Wire;
    let kind = match observed {
        None => match caller.evidence.pop() {
            Some(text) => Observed::Evidence { text, before: String::new() },
            None => {
                let text = "set one of `evidence`, `incarnation` and `leader_now`, or \
                            `session.evidence`";
                return Err(status::field("observed", text));
            }
        },
        Some(Wire::Evidence(text)) => return Ok(Observed::Evidence { text, before }),
        Some(Wire::Incarnation(text)) => {
            short("incarnation", &text, INCARNATION_CHARS_MAX)?;
            Observed::Incarnation(text)
        }
        Some(Wire::LeaderNow(_)) => Observed::LeaderNow,
    };
    if before.is_empty() {
        Ok(kind)
    } else {
        Err(status::field("before", "`before` goes with `evidence` alone"))
    }
}
