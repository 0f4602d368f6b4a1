//! One row of a table of bad input, turned into the call it describes.
//!
//! It knows the wire format and nothing of what the answer should be.

use serde::Deserialize;
use tidegate_lab::service::PARTITION;
use tidegate_proto::v1;
use tonic::Status;

use super::facts::Facts;
use super::stage::{Routing, Stage};

/// Seconds and nanoseconds, as the wire has them.
type Span = [i64; 2];

/// One row: a call, and how it must be refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) call: String,
    pub(crate) code: String,
    pub(crate) reason: String,
    pub(crate) advice: String,
    subject: String,
    tokens: Vec<String>,
    carried: Vec<String>,
    /// How often the one token, evidence string or id is repeated.
    times: Option<usize>,
    partition: Option<String>,
    policy: String,
    level: i32,
    bound: Option<Span>,
    wait_budget: Option<Span>,
    above_cap: Vec<i32>,
    above_cap_wait: Option<Span>,
    policy_zone: String,
    raise: i32,
    on_lost: i32,
    zone: String,
    shadow_node: String,
    node: Option<String>,
    budget: Option<Span>,
    evidence: Option<String>,
    incarnation: Option<String>,
    leader_now: bool,
    before: String,
    ids: Vec<String>,
    limit: u32,
    new_leader_node: String,
    source: String,
}

fn span(span: Option<Span>) -> Option<prost_types::Duration> {
    span.map(|[seconds, nanos]| {
        let nanos = i32::try_from(nanos).expect("nanoseconds");
        prost_types::Duration { seconds, nanos }
    })
}

impl Case {
    fn all(&self, words: &[String], facts: &Facts) -> Vec<String> {
        let filled: Vec<String> = words.iter().map(|word| facts.filled(word)).collect();
        vec![filled; self.times.unwrap_or(1)].concat()
    }

    fn session(&self, facts: &Facts) -> Option<v1::Session> {
        Some(v1::Session {
            subject: facts.filled(&self.subject),
            tokens: self.all(&self.tokens, facts),
            evidence: self.all(&self.carried, facts),
            max_token_chars: 0,
        })
    }

    fn partition(&self, facts: &Facts) -> String {
        self.partition.as_ref().map_or_else(|| PARTITION.to_owned(), |name| facts.filled(name))
    }

    fn policy(&self, facts: &Facts) -> v1::Policy {
        let wait_budget = span(self.above_cap_wait);
        let step = |kind: &i32| v1::AboveCapStep { kind: *kind, wait_budget };
        v1::Policy {
            name: facts.filled(&self.policy),
            level: self.level,
            bound: span(self.bound),
            wait_budget: span(self.wait_budget),
            fallback: None,
            above_cap: self.above_cap.iter().map(step).collect(),
            zone: facts.filled(&self.policy_zone),
            raise: if self.call == "select" { self.raise } else { 0 },
            on_lost: self.on_lost,
        }
    }

    fn select(&self, facts: &Facts) -> v1::SelectReplicaRequest {
        v1::SelectReplicaRequest {
            session: self.session(facts),
            partition: self.partition(facts),
            policy: Some(self.policy(facts)),
            zone: facts.filled(&self.zone),
            previous_node: String::new(),
            shadow_node: self.shadow_node.clone(),
        }
    }

    fn wait(&self, facts: &Facts) -> v1::WaitUntilFreshRequest {
        v1::WaitUntilFreshRequest {
            session: self.session(facts),
            partition: self.partition(facts),
            target: self.node.clone().map(v1::wait_until_fresh_request::Target::Node),
            budget: span(self.budget),
        }
    }

    fn record(&self, facts: &Facts) -> v1::RecordRequest {
        use v1::record_request::Observed;
        let evidence = self.evidence.as_ref().map(|word| Observed::Evidence(facts.filled(word)));
        let life = self.incarnation.as_ref().map(|word| Observed::Incarnation(facts.filled(word)));
        let now = self.leader_now.then_some(Observed::LeaderNow(v1::LeaderNow {}));
        v1::RecordRequest {
            session: self.session(facts),
            observed: evidence.or(life).or(now),
            before: facts.filled(&self.before),
            // Evidence says its partition by itself.
            partition: match (&self.partition, &self.evidence, &self.incarnation) {
                (None, None, None) | (Some(_), ..) => self.partition(facts),
                (None, ..) => String::new(),
            },
            raise: self.raise,
        }
    }

    /// The frame of `Route` that asks the same; `None`: the stream has no such call.
    pub(crate) fn frame(&self, facts: &Facts) -> Option<v1::route_request::Frame> {
        use v1::route_request::Frame;
        match self.call.as_str() {
            "select" => Some(Frame::Select(self.select(facts))),
            "wait" => Some(Frame::Wait(self.wait(facts))),
            "record" => Some(Frame::Record(self.record(facts))),
            _ => None,
        }
    }

    /// Makes the call; the error it ends with.
    pub(crate) async fn refused(
        &self,
        stage: &Stage,
        routing: &mut Routing,
        facts: &Facts,
    ) -> Option<Status> {
        let (session, partition) = (self.session(facts), self.partition(facts));
        let node = self.node.clone().unwrap_or_default();
        let mut admin = stage.admin().await;
        match self.call.as_str() {
            "select" => routing.select_replica(self.select(facts)).await.err(),
            "wait" => routing.wait_until_fresh(self.wait(facts)).await.err(),
            "record" => routing.record(self.record(facts)).await.err(),
            "resolve" => routing.resolve_session(v1::ResolveSessionRequest { session }).await.err(),
            "acknowledge" => {
                let ids = self.all(&self.ids, facts);
                let request = v1::AcknowledgeNoticesRequest { session, ids };
                routing.acknowledge_notices(request).await.err()
            }
            "partitions" => {
                admin.list_partitions(v1::ListPartitionsRequest { partition }).await.err()
            }
            "epochs" => {
                let request = v1::ListEpochsRequest { partition, limit_count: self.limit };
                admin.list_epochs(request).await.err()
            }
            "drain" => {
                let request = v1::DrainNodeRequest { partition, node, undrain: false };
                admin.drain_node(request).await.err()
            }
            "resume" => admin.resume_node(v1::ResumeNodeRequest { partition, node }).await.err(),
            "watch" => admin.watch_events(v1::WatchEventsRequest { partition }).await.err(),
            "announce" => {
                let source = facts.filled(&self.source);
                let new_leader_node = self.new_leader_node.clone();
                let request =
                    v1::AnnounceFailoverRequest { partition, node, new_leader_node, source };
                admin.announce_failover(request).await.err()
            }
            "resolve_split" => {
                let incarnation = facts.filled(self.incarnation.as_deref().unwrap_or_default());
                let request = v1::ResolveSplitRequest { partition, incarnation };
                admin.resolve_split(request).await.err()
            }
            other => panic!("{}: there is no call `{other}`", self.name),
        }
    }
}
