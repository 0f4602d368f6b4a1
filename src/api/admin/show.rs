//! Partitions and nodes as operators see them: states, and each reason in words.

use tidegate_core::instant::Instant;
use tidegate_core::leader::{Contender, Leadership};
use tidegate_core::lineage::Fork;
use tidegate_core::snapshot::{Snapshot, WhyNot};
use tidegate_core::views::{NodeId, Quarantine, ViewRole};
use tidegate_proto::v1;
use tidegate_proto::v1::partition::State;

use crate::api::build;
use crate::partitions::PartitionHandle;

/// Alarms shown of one partition.
pub(super) const ALARMS_MAX: usize = 16;

/// A node as it is known at `now`.
pub(super) fn node(handle: &PartitionHandle, node: NodeId, now: Instant) -> v1::NodeState {
    let snapshot = handle.snapshot();
    let view = snapshot.view(node);
    let leads = snapshot.named_leader(now).is_some_and(|leader| leader.node == node);
    let eligible = snapshot.eligible(node, now);
    let reasons = eligible.err().map(|why| why_text(why, leads));
    let info = handle.node_info(node);
    v1::NodeState {
        name: name(handle, node),
        role: if leads { v1::Role::Leader } else { v1::Role::Replica }.into(),
        session_eligible: eligible.is_ok() || leads,
        ineligible_reasons: reasons.into_iter().filter(|_| !leads).collect(),
        incarnation: view.map_or_else(String::new, |view| view.incarnation.to_string()),
        row_epoch: text(view.and_then(|view| view.row)),
        applied: text(view.and_then(|view| view.applied)),
        lag: snapshot.lag(node, now).map(build::lag),
        view_age: view.map(|view| build::duration(now.since(view.sent_at))),
        quarantine_reason: snapshot.quarantine(node).map_or_else(String::new, quarantined),
        drained: snapshot.drained.get(node.index()).copied().unwrap_or(false),
        poll_error: handle.poll_error(node),
        zone: info.map_or_else(String::new, |info| info.zone.clone()),
    }
}

/// A partition as it is known at `now`.
pub(super) fn partition(handle: &PartitionHandle, now: Instant) -> v1::Partition {
    let snapshot = handle.snapshot();
    let leader = snapshot.leadership.leader();
    v1::Partition {
        name: handle.info().name.clone(),
        id: handle.info().id.value(),
        system_id: handle.info().system.to_string(),
        state: state(&snapshot.leadership).into(),
        leader_node: leader.map_or_else(String::new, |leader| name(handle, leader.node)),
        epoch: text(leader.map(|leader| leader.epoch)),
        alarms: alarms(handle, &snapshot),
        nodes: snapshot.nodes().map(|id| node(handle, id, now)).collect(),
    }
}

/// Who leads, in one word.
pub(super) const fn state(leadership: &Leadership) -> State {
    match leadership {
        Leadership::Leader(_) => State::Led,
        Leadership::Split(_) => State::Split,
        Leadership::Nobody | Leadership::Last(_) => State::Leaderless,
    }
}

/// The name of a node.
pub(super) fn name(handle: &PartitionHandle, node: NodeId) -> String {
    handle.node_info(node).map_or_else(String::new, |info| info.name.clone())
}

/// Names of nodes.
pub(super) fn names(handle: &PartitionHandle, nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(|node| name(handle, *node)).collect()
}

/// What is there: each node with what it lives and when that was seen.
pub(super) fn what_is_there(handle: &PartitionHandle, now: Instant) -> String {
    let snapshot = handle.snapshot();
    let shown = |node: NodeId| {
        let name = name(handle, node);
        let Some(view) = snapshot.view(node) else { return format!("{name} was never seen") };
        let role = match view.role {
            ViewRole::Writable(_) => "writable",
            ViewRole::Standby => "in recovery",
        };
        let age = now.since(view.sent_at).as_secs_f64();
        format!("{name} lives {}, {role}, seen {age:.1} s ago", view.incarnation)
    };
    snapshot.nodes().map(shown).collect::<Vec<_>>().join("; ")
}

/// A value as text; empty without one.
pub(super) fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A time in seconds since 1970, as the wire has it.
pub(super) fn time(seconds: u64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}

/// Why a node serves no session, and what to do.
pub(super) fn quarantined(why: Quarantine) -> String {
    match why {
        Quarantine::Regressed => {
            "its position went back within one life: look at the server, then call ResumeNode"
        }
        Quarantine::SharedIncarnation => {
            "another node answers as the same server: give each node the address of its own"
        }
        Quarantine::Alternating => "two servers answer at its address in turn: give each a node",
        Quarantine::TwoBranches => {
            "it shows lineage rows of two branches: clone it anew, then call ResumeNode"
        }
        Quarantine::FollowedCopy => {
            "its leader came back as an older copy, and it may be ahead of that: clone it anew, \
             then call ResumeNode"
        }
        Quarantine::FormerTwin => "it led a line of its own: clone it anew, then call ResumeNode",
    }
    .to_owned()
}

fn why_text(why: WhyNot, leads: bool) -> String {
    match why {
        WhyNot::Unseen => "never answered a poll".to_owned(),
        WhyNot::ViewTooOld => "has not answered a poll lately".to_owned(),
        WhyNot::Quarantined(why) => quarantined(why),
        WhyNot::Drained => "drained by an operator".to_owned(),
        WhyNot::Writable if leads => "leads".to_owned(),
        WhyNot::Writable => "writable, but not the leader".to_owned(),
        WhyNot::Diverged => "diverged from the leader's line".to_owned(),
        WhyNot::NoRow => "shows no lineage row yet".to_owned(),
        WhyNot::Uncounted => {
            "its receiver does not name the timeline of its last lineage row".to_owned()
        }
        WhyNot::UntestedMajor => {
            "its PostgreSQL major was not tested: name it in `accepted_majors` of the partition \
             to let it serve sessions"
                .to_owned()
        }
    }
}

fn alarms(handle: &PartitionHandle, snapshot: &Snapshot) -> Vec<String> {
    let mut alarms = Vec::new();
    if let Leadership::Split(contenders) = &snapshot.leadership {
        alarms.push(split(handle, snapshot, contenders));
    }
    if snapshot.row_unwritable {
        alarms.push("LINEAGE_UNWRITABLE: the lineage row could not be written".to_owned());
    }
    if let Some(epoch) = handle.deposed_lately() {
        alarms.push(format!(
            "DEPOSED_WRITE: writes of epoch {epoch}, whose leader is deposed, are still recorded: \
             end what writes to its server"
        ));
    }
    let others = handle.other_instances();
    if !others.is_empty() {
        alarms.push(format!(
            "FOREIGN_INSTANCE: {} is connected too, and each instance keeps its records in its own \
             memory, so every subject is unknown: set `store.kind` to \"redis\" for all of them, \
             or stop all but one",
            others.join(" and ")
        ));
    }
    let leader = snapshot.leadership.leader().map(|leader| leader.node);
    for node in snapshot.nodes() {
        let Some(why) = snapshot.quarantine(node) else { continue };
        let leads = if leader == Some(node) { ", leads and serves nobody" } else { "" };
        let name = name(handle, node);
        alarms.push(format!("QUARANTINED: {name} is out{leads}: {}", quarantined(why)));
    }
    for head in &snapshot.leadership.heads() {
        if let Some((Some(parent), Fork::Unknown)) = snapshot.history.origin(*head) {
            alarms.push(format!(
                "where epoch {parent} ended is unknown: its marks are resolved upward"
            ));
        }
    }
    if alarms.len() > ALARMS_MAX {
        let left_out = alarms.len() - (ALARMS_MAX - 1);
        alarms.truncate(ALARMS_MAX - 1);
        alarms.push(format!("{left_out} more alarms: ListPartitions shows each node"));
    }
    alarms
}

/// Who claims to lead, each with what an operator names it by.
fn split(handle: &PartitionHandle, snapshot: &Snapshot, contenders: &[Contender]) -> String {
    let claims: Vec<String> = contenders
        .iter()
        .map(|one| {
            let name = name(handle, one.node);
            let life = one.epoch.incarnation(handle.info().system);
            let seen = snapshot.view(one.node).is_some_and(|view| view.incarnation == life);
            if seen { format!("{name} ({life})") } else { format!("{name} (not seen any more)") }
        })
        .collect();
    format!(
        "SPLIT: {} claim to lead: stop all but one, or call \
         `tidegate resolve-split {} INCARNATION`",
        claims.join(" and "),
        handle.info().name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untested_major_names_the_setting_that_accepts_it() {
        let text = why_text(WhyNot::UntestedMajor, false);
        assert!(text.contains("`accepted_majors`"), "{text}");
    }
}
