//! What a read demands, as it is sent. Nothing here decides: the service does.

use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::above_cap_step::Kind;

use crate::{OnLost, Raise};

/// How long a read waits for a replica where its policy does not say.
const WAIT_BUDGET: Duration = Duration::from_millis(50);
/// How long it waits again above the cap where the step does not say.
const WAIT_ABOVE_CAP: Duration = Duration::from_millis(200);

/// What a read demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// Nothing.
    Eventual,
    /// What the session wrote and read.
    #[default]
    Session,
    /// A state no older than this.
    Bounded(Duration),
    /// Everything acknowledged before the call.
    Global,
    /// The leader, verified.
    Leader,
}

/// What is done when no replica is fresh and the leader may not be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AboveCap {
    /// Waits once more for a replica, so long.
    Wait(Duration),
    /// Takes the freshest replica, labelled with its lag.
    Stale,
    /// Is refused.
    Refuse,
}

/// What one read demands, and what may be done when no replica can give it.
#[derive(Clone, PartialEq, Debug, Default)]
#[must_use]
pub struct Policy {
    wire: v1::Policy,
}

impl Policy {
    /// Demands `level`, with every other default: waits 50 ms, may fall back to the leader, raises
    /// the token or else the record, is told a loss by a notice.
    pub fn new(level: Level) -> Self {
        let mut wire = v1::Policy::default();
        let (level, bound) = match level {
            Level::Eventual => (v1::Level::Eventual, None),
            Level::Session => (v1::Level::Session, None),
            Level::Bounded(bound) => (v1::Level::Bounded, Some(bound)),
            Level::Global => (v1::Level::Global, None),
            Level::Leader => (v1::Level::Leader, None),
        };
        wire.set_level(level);
        wire.bound = bound.map(span);
        Self { wire }
    }

    /// The policy of this name in the service's configuration.
    pub fn named(name: impl Into<String>) -> Self {
        Self { wire: v1::Policy { name: name.into(), ..v1::Policy::default() } }
    }

    /// Demands also a state no older than `bound`; for [`Level::Session`].
    pub fn bound(mut self, bound: Duration) -> Self {
        self.wire.bound = Some(span(bound));
        self
    }

    /// How long the read may wait for a replica. Default: 50 ms.
    pub fn wait_budget(mut self, budget: Duration) -> Self {
        self.wire.wait_budget = Some(span(budget));
        self
    }

    /// Whether the leader may serve the read when no replica can. Default: yes, within the cap.
    pub const fn fallback(mut self, allowed: bool) -> Self {
        self.wire.fallback = Some(allowed);
        self
    }

    /// What is done, in order, when neither a replica nor the leader may serve. At most 4 steps.
    pub fn above_cap(mut self, steps: impl IntoIterator<Item = AboveCap>) -> Self {
        let step = |step| match step {
            AboveCap::Wait(budget) => (Kind::Wait, Some(span(budget))),
            AboveCap::Stale => (Kind::Stale, None),
            AboveCap::Refuse => (Kind::Refuse, None),
        };
        let steps = steps.into_iter().map(step);
        let wire =
            |(kind, wait_budget): (Kind, _)| v1::AboveCapStep { kind: kind.into(), wait_budget };
        self.wire.above_cap = steps.map(wire).collect();
        self
    }

    /// Prefers this zone to the session's.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.wire.zone = zone.into();
        self
    }

    /// Which holders the read raises. Default: the token, or the record where no token was carried.
    pub fn raise(mut self, raise: Raise) -> Self {
        self.wire.set_raise(raise);
        self
    }

    /// How a loss is told. Default: by a notice.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.wire.set_on_lost(on_lost);
        self
    }

    pub(crate) fn wire(&self) -> v1::Policy {
        self.wire.clone()
    }

    pub(crate) fn raised(&self) -> Raise {
        self.wire.raise()
    }

    /// What is sent when part of the budget is used up already.
    pub(crate) fn after(&self, used: Duration) -> v1::Policy {
        let mut wire = self.wire();
        use_up(&mut wire, used);
        wire
    }
}

/// The longest the service was asked to wait. Of a named policy nothing is known.
pub(crate) fn longest_wait(policy: &v1::Policy) -> Duration {
    let again = |step: &v1::AboveCapStep| match step.kind() {
        Kind::Wait => read_span(step.wait_budget).unwrap_or(WAIT_ABOVE_CAP),
        Kind::Unspecified | Kind::Stale | Kind::Refuse => Duration::ZERO,
    };
    let first = read_span(policy.wait_budget).unwrap_or(WAIT_BUDGET);
    let again: Duration = if policy.above_cap.is_empty() {
        WAIT_ABOVE_CAP
    } else {
        policy.above_cap.iter().map(again).sum()
    };
    first.saturating_add(again)
}

/// Takes the time already used from the wait budget. A named policy is sent as it is.
pub(crate) fn use_up(policy: &mut v1::Policy, used: Duration) {
    if policy.name.is_empty() {
        let budget = read_span(policy.wait_budget).unwrap_or(WAIT_BUDGET);
        policy.wait_budget = Some(span(budget.saturating_sub(used)));
    }
}

/// A duration of the wire. What it cannot hold is longer than anything the service accepts.
pub(crate) fn span(span: Duration) -> prost_types::Duration {
    let longest = prost_types::Duration { seconds: i64::MAX, nanos: 0 };
    prost_types::Duration::try_from(span).unwrap_or(longest)
}

/// A duration of the wire; `None` if absent or negative.
pub(crate) fn read_span(span: Option<prost_types::Duration>) -> Option<Duration> {
    span.and_then(|span| Duration::try_from(span).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_of_a_budget_is_not_sent_again() {
        let policy = Policy::new(Level::Session).wait_budget(Duration::from_millis(80));
        let left = |used| read_span(policy.after(Duration::from_millis(used)).wait_budget);
        assert_eq!(left(30), Some(Duration::from_millis(50)));
        assert_eq!(left(90), Some(Duration::ZERO));
        let silent = Policy::default().after(Duration::from_millis(20));
        assert_eq!(read_span(silent.wait_budget), Some(Duration::from_millis(30)));
    }

    #[test]
    fn a_named_policy_is_sent_as_a_name_alone() {
        let wire = Policy::named("fast").after(Duration::from_secs(1));
        assert_eq!(wire, v1::Policy { name: "fast".to_owned(), ..v1::Policy::default() });
    }

    #[test]
    fn every_wait_a_policy_names_counts_into_its_deadline() {
        let steps = [AboveCap::Wait(Duration::from_millis(300)), AboveCap::Refuse];
        let policy = Policy::default().wait_budget(Duration::from_millis(100)).above_cap(steps);
        assert_eq!(longest_wait(&policy.wire()), Duration::from_millis(400));
        assert_eq!(longest_wait(&v1::Policy::default()), Duration::from_millis(250));
    }
}
