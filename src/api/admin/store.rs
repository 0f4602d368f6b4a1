//! The token store as operators see it: its state, its alarm, and what befalls it.

use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::store_guard::LossCause;
use tidegate_proto::v1;
use tidegate_proto::v1::store_changed::Kind;
use tidegate_proto::v1::token_store::Condition;
use tidegate_proto::v1::watch_events_response::Event;

use super::show::{ALARMS_MAX, time};
use crate::api::build::duration;
use crate::sessions::{StoreCondition, StoreHappened, StoreHappening, StoreStatus};

/// Characters of a cause: what a server said is cut off there.
const CAUSE_CHARS: usize = 256;
/// Hints shown.
const HINTS_MAX: usize = 8;

/// The store as it is at `now`.
pub(super) fn state(status: StoreStatus, now: Instant) -> v1::TokenStore {
    let fenced_until = status.fenced_until.filter(|until| *until > now);
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let (lost, parts) = status.lost_parts;
    let counts = status.counts;
    v1::TokenStore {
        kind: status.kind.to_owned(),
        condition: condition(status.condition).into(),
        fence_left: fenced_until.map(|until| duration(until.since(now))),
        lost_part_count: count(lost),
        part_count: count(parts),
        pending_count: status.pending.0,
        pending_limit_count: status.pending.1,
        lookup_count: counts.lookups,
        update_count: counts.updates,
        round_trip_count: counts.round_trips,
        retry_count: counts.retries,
        loss_count: counts.losses,
        malformed_count: counts.malformed,
        unreachable: Some(duration(Duration::from_millis(counts.unreachable_millis))),
        servers: status.servers,
        version: status.version,
        redundancy: status.redundancy,
        problem: status.problem,
        hints: status.hints.into_iter().take(HINTS_MAX).collect(),
    }
}

const fn condition(condition: StoreCondition) -> Condition {
    match condition {
        StoreCondition::Well => Condition::Well,
        StoreCondition::Unsettled => Condition::Unsettled,
        StoreCondition::Refuses => Condition::Refuses,
        StoreCondition::Lost => Condition::Lost,
        StoreCondition::Unreachable => Condition::Unreachable,
        StoreCondition::Unfit => Condition::Unfit,
    }
}

/// What an operator should look at of the store; `None`: it is well.
fn alarm(status: &StoreStatus) -> Option<String> {
    let (servers, problem) = (&status.servers, &status.problem);
    Some(match status.condition {
        // It passes by itself, after each start.
        StoreCondition::Well | StoreCondition::Unsettled => return None,
        StoreCondition::Refuses => format!(
            "STORE_REFUSES: the token store {servers} takes no writes: {problem}; what is recorded \
             waits in memory, and subjects are unknown"
        ),
        StoreCondition::Lost => format!(
            "STORE_LOST: the token store {servers} lost records; subjects are unknown until a \
             barrier covers that{}",
            if status.refuses { format!("; it takes no writes: {problem}") } else { String::new() }
        ),
        StoreCondition::Unreachable => format!(
            "STORE_UNREACHABLE: the token store {servers} does not answer: {problem}; tokens that \
             are carried work, subjects are unknown"
        ),
        StoreCondition::Unfit => format!(
            "STORE_UNFIT: the token store {servers} must not be used as it is: {problem}; tokens \
             that are carried work, subjects are unknown"
        ),
    })
}

/// A partition with the alarm of the store, which its sessions depend on, before its own.
pub(super) fn with_alarm(mut partition: v1::Partition, status: &StoreStatus) -> v1::Partition {
    if let Some(alarm) = alarm(status) {
        partition.alarms.insert(0, alarm);
        partition.alarms.truncate(ALARMS_MAX);
    }
    partition
}

/// What befell the store, for whoever watches.
pub(super) fn event(happened: &StoreHappened) -> v1::WatchEventsResponse {
    let kind = match happened.what {
        StoreHappening::Lost(_) => Kind::Lost,
        StoreHappening::Stands => Kind::Stands,
        StoreHappening::Unreachable => Kind::Unreachable,
        StoreHappening::Reachable => Kind::Reachable,
        StoreHappening::Refuses => Kind::Refuses,
        StoreHappening::Takes => Kind::Takes,
        StoreHappening::RecordMalformed => Kind::RecordMalformed,
        StoreHappening::Unfit => Kind::Unfit,
    };
    let cause = match happened.what {
        StoreHappening::Lost(cause) => loss(cause),
        StoreHappening::Stands
        | StoreHappening::Unreachable
        | StoreHappening::Reachable
        | StoreHappening::Refuses
        | StoreHappening::Takes
        | StoreHappening::RecordMalformed
        | StoreHappening::Unfit => happened.why.as_str(),
    };
    let cause = cause.chars().take(CAUSE_CHARS).collect();
    v1::WatchEventsResponse {
        time: Some(time(happened.at_seconds)),
        partition: String::new(),
        event: Some(Event::StoreChanged(v1::StoreChanged { kind: kind.into(), cause })),
    }
}

const fn loss(cause: LossCause) -> &'static str {
    match cause {
        LossCause::NoGeneration => "it is new, or was emptied",
        LossCause::OtherServer => {
            "it restarted, another server was promoted, or an older copy was restored"
        }
        LossCause::Evicted => "it evicted records: set `maxmemory-policy` to noeviction",
        LossCause::Malformed => "what it keeps of its own losses cannot be read",
        LossCause::NoScript => "its scripts were removed",
        LossCause::Refused => {
            "it refused writes for a time, in which another server may have taken those of others"
        }
        LossCause::Undone => {
            "a promotion was undone, or may have been: a replica copied all there is anew"
        }
        LossCause::Told => "another instance saw it lose something",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(condition: StoreCondition) -> StoreStatus {
        let problem = "no answer within 100 ms".to_owned();
        StoreStatus { kind: "redis", condition, problem, ..StoreStatus::memory() }
    }

    #[test]
    fn a_store_that_is_well_is_no_alarm_and_any_other_comes_first() {
        let all = v1::Partition {
            alarms: (0..ALARMS_MAX).map(|n| n.to_string()).collect(),
            ..v1::Partition::default()
        };
        let well = with_alarm(all.clone(), &status(StoreCondition::Well));
        assert_eq!(well.alarms, all.alarms);
        for (condition, word) in [
            (StoreCondition::Refuses, "STORE_REFUSES: "),
            (StoreCondition::Lost, "STORE_LOST: "),
            (StoreCondition::Unreachable, "STORE_UNREACHABLE: "),
            (StoreCondition::Unfit, "STORE_UNFIT: "),
        ] {
            let alarms = with_alarm(all.clone(), &status(condition)).alarms;
            assert_eq!(alarms.len(), ALARMS_MAX);
            assert!(alarms[0].starts_with(word), "{alarms:?}");
        }
        let refuses = StoreStatus { refuses: true, ..status(StoreCondition::Lost) };
        let alarm = with_alarm(all, &refuses).alarms.swap_remove(0);
        assert!(alarm.ends_with("it takes no writes: no answer within 100 ms"), "{alarm}");
    }

    #[test]
    fn a_fence_that_has_ended_is_not_shown() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let fenced = StoreStatus { fenced_until: Some(at(9)), ..status(StoreCondition::Lost) };
        let left = state(fenced.clone(), at(7)).fence_left.map(|left| left.seconds);
        assert_eq!((left, state(fenced, at(9)).fence_left), (Some(2), None));
    }
}
