//! `AdminService`: what this instance knows of its partitions, and the operator's word on nodes.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::lineage::Fork;
use tidegate_core::partition::Need;
use tidegate_core::snapshot::{Snapshot, WhyNot};
use tidegate_core::views::{NodeId, Quarantine};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_server::AdminService;
use tonic::{Code, Request, Response, Status};

use super::{build, status};
use crate::clock::Clock;
use crate::partitions::{PartitionHandle, Partitions};

/// How long a node is waited for before its quarantine is lifted.
const POLLED_WITHIN: Duration = Duration::from_secs(1);
/// Epochs listed where the request does not say how many.
const EPOCHS_LISTED: usize = 100;
/// Epochs one request may ask for.
const EPOCHS_MAX: usize = 1000;

/// Answers `AdminService`.
#[derive(Clone, Debug)]
pub struct Admin {
    partitions: Arc<Partitions>,
    clock: Clock,
}

impl Admin {
    /// Answers for these partitions.
    pub const fn new(partitions: Arc<Partitions>, clock: Clock) -> Self {
        Self { partitions, clock }
    }

    fn partition(&self, name: &str) -> Result<&Arc<PartitionHandle>, Status> {
        self.partitions.named(name).ok_or_else(|| {
            let text =
                format!("there is no partition `{name}`: ListPartitions shows what there is");
            let facts = [("partition", name)];
            status::error(Code::NotFound, v1::ErrorReason::PartitionUnknown, text, None, &facts)
        })
    }

    fn node(&self, partition: &str, node: &str) -> Result<(&Arc<PartitionHandle>, NodeId), Status> {
        let handle = self.partition(partition)?;
        let found = handle.node(node).ok_or_else(|| {
            let text = format!(
                "partition `{partition}` has no node `{node}`: ListPartitions shows what there is"
            );
            let facts = [("partition", partition), ("node", node)];
            status::error(Code::NotFound, v1::ErrorReason::NodeUnknown, text, None, &facts)
        })?;
        Ok((handle, found))
    }

    fn node_state(&self, handle: &PartitionHandle, node: NodeId) -> v1::NodeState {
        let (snapshot, now) = (handle.snapshot(), self.clock.now());
        let view = snapshot.view(node);
        let leads = snapshot.named_leader(now).is_some_and(|leader| leader.node == node);
        let eligible = snapshot.eligible(node, now);
        let reasons = eligible.err().map(|why| why_text(why, leads));
        let info = handle.node_info(node);
        v1::NodeState {
            name: info.map_or_else(String::new, |info| info.name.clone()),
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

    fn partition_state(&self, handle: &PartitionHandle) -> v1::Partition {
        use v1::partition::State;
        let snapshot = handle.snapshot();
        let leader = snapshot.leadership.leader();
        let state = if snapshot.leadership.is_split() {
            State::Split
        } else if leader.is_some() {
            State::Led
        } else {
            State::Leaderless
        };
        let leader_node = leader.and_then(|leader| handle.node_info(leader.node));
        v1::Partition {
            name: handle.info().name.clone(),
            id: handle.info().id.value(),
            system_id: handle.info().system.to_string(),
            state: state.into(),
            leader_node: leader_node.map_or_else(String::new, |info| info.name.clone()),
            epoch: text(leader.map(|leader| leader.epoch)),
            alarms: alarms(&snapshot),
            nodes: snapshot.nodes().map(|node| self.node_state(handle, node)).collect(),
        }
    }
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn quarantined(why: Quarantine) -> String {
    match why {
        Quarantine::Regressed => {
            "its position went back within one life: look at the server, then \
                                  call ResumeNode"
        }
        Quarantine::SharedIncarnation => {
            "another node answers as the same server: give each node \
                                          the address of its own"
        }
        Quarantine::Alternating => "two servers answer at its address in turn: give each a node",
        Quarantine::TwoBranches => {
            "it shows lineage rows of two branches: clone it anew, then call \
                                    ResumeNode"
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

fn alarms(snapshot: &Snapshot) -> Vec<String> {
    let mut alarms = Vec::new();
    if snapshot.leadership.is_split() {
        alarms.push("SPLIT: several nodes claim to lead".to_owned());
    }
    if snapshot.row_unwritable {
        alarms.push("LINEAGE_UNWRITABLE: the lineage row could not be written".to_owned());
    }
    for head in &snapshot.leadership.heads() {
        if let Some((Some(parent), Fork::Unknown)) = snapshot.history.origin(*head) {
            alarms.push(format!(
                "where epoch {parent} ended is unknown: its marks are resolved upward"
            ));
        }
    }
    alarms
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn list_partitions(
        &self,
        request: Request<v1::ListPartitionsRequest>,
    ) -> Result<Response<v1::ListPartitionsResponse>, Status> {
        let partitions = match request.into_inner().partition.as_str() {
            "" => self.partitions.iter().map(|handle| self.partition_state(handle)).collect(),
            name => vec![self.partition_state(self.partition(name)?)],
        };
        Ok(Response::new(v1::ListPartitionsResponse { partitions }))
    }

    async fn list_epochs(
        &self,
        request: Request<v1::ListEpochsRequest>,
    ) -> Result<Response<v1::ListEpochsResponse>, Status> {
        let request = request.into_inner();
        let handle = self.partition(&request.partition)?;
        let snapshot = handle.snapshot();
        let limit = match request.limit_count {
            0 => EPOCHS_LISTED,
            count => usize::try_from(count).unwrap_or(usize::MAX),
        };
        if limit > EPOCHS_MAX {
            let text = format!("`limit_count` is at most {EPOCHS_MAX}");
            return Err(status::field("limit_count", text));
        }
        let heads = snapshot.leadership.heads();
        let mut rows: Vec<_> = snapshot.history.rows().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.n));
        let epoch = |row: &tidegate_core::lineage::LineageRow| {
            let facts = snapshot.facts.of(row.epoch);
            let node = facts.and_then(|facts| facts.node);
            let node = node.and_then(|node| handle.node_info(node));
            v1::Epoch {
                epoch: row.epoch.to_string(),
                parent: text(row.parent),
                fork: Some(fork(row.fork)),
                node: node.map_or_else(String::new, |info| info.name.clone()),
                row_seen: snapshot.history.has_row(row.epoch),
                flush_seen: text(facts.map(|facts| facts.flush_seen)),
                ended: facts.is_some_and(|facts| facts.ended),
                on_chain: heads.iter().any(|h| snapshot.history.descends(*h, row.epoch)),
                accept_time: None,
            }
        };
        let epochs = rows.iter().take(limit).map(epoch).collect();
        Ok(Response::new(v1::ListEpochsResponse { epochs }))
    }

    async fn resume_node(
        &self,
        request: Request<v1::ResumeNodeRequest>,
    ) -> Result<Response<v1::ResumeNodeResponse>, Status> {
        let request = request.into_inner();
        let (handle, node) = self.node(&request.partition, &request.node)?;
        // Judged by what the node shows now, not by what it showed when it was thrown out.
        let since = self.clock.now();
        if let Some(view) = handle.snapshot().view(node) {
            let need = Need::Incarnation(view.incarnation);
            handle.need(need, since, since + POLLED_WITHIN).await;
        }
        if !handle.resume(node).await {
            return Err(status::draining());
        }
        let node = Some(self.node_state(handle, node));
        Ok(Response::new(v1::ResumeNodeResponse { node }))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        let request = request.into_inner();
        let (handle, node) = self.node(&request.partition, &request.node)?;
        if !handle.drain(node, !request.undrain).await {
            return Err(status::draining());
        }
        let node = Some(self.node_state(handle, node));
        Ok(Response::new(v1::DrainNodeResponse { node }))
    }
}

fn fork(fork: Fork) -> v1::Fork {
    use v1::fork::Kind;
    let (kind, at_least, at_most) = match fork {
        Fork::Between { at_least, at_most } => (Kind::Interval, Some(at_least), Some(at_most)),
        Fork::Unbounded => (Kind::Unbounded, None, None),
        Fork::Unknown => (Kind::Unknown, None, None),
    };
    v1::Fork { kind: kind.into(), at_least: text(at_least), at_most: text(at_most) }
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
