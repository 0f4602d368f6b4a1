//! The metrics of one partition and of its nodes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::instant::Instant;
use tidegate_core::routing::Reason;
use tidegate_core::token::NoticeKind;

use super::labels::{Admission, Agreement, Answer, Label, PollOutcome, SessionKind, WaitEnd, Word};
use super::spans;
use super::table::{Table, cell, place};
use super::{Durations, FloatGauge, Telemetry, seconds_histogram};

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SelectLabels {
    partition: Arc<str>,
    answer: Word,
    reason: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SessionLabels {
    partition: Arc<str>,
    session: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct WaitLabels {
    partition: Arc<str>,
    end: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct AgreementLabels {
    partition: Arc<str>,
    agreement: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct AdmissionLabels {
    partition: Arc<str>,
    verdict: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LossLabels {
    partition: Arc<str>,
    kind: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PartitionLabels {
    partition: Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct NodeLabels {
    partition: Arc<str>,
    node: Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PollLabels {
    partition: Arc<str>,
    node: Arc<str>,
    outcome: Word,
}

/// The families whose members belong to a partition or a node.
#[derive(Debug)]
pub(super) struct Families {
    selects: Family<SelectLabels, Counter>,
    sessions: Family<SessionLabels, Counter>,
    waits: Durations<WaitLabels>,
    fallbacks: Family<AdmissionLabels, Counter>,
    cap: Family<PartitionLabels, Gauge>,
    share: Family<PartitionLabels, Gauge>,
    static_share: Family<PartitionLabels, Gauge>,
    parked: Family<PartitionLabels, Gauge>,
    beside_others: Family<PartitionLabels, Gauge>,
    losses: Family<LossLabels, Counter>,
    crossed: Family<PartitionLabels, Counter>,
    ends: Family<AgreementLabels, Counter>,
    deposed: Family<PartitionLabels, Counter>,
    went_back: Family<NodeLabels, Counter>,
    beside_leader: Family<NodeLabels, Gauge>,
    lag_bytes: Family<NodeLabels, FloatGauge>,
    lag_seconds: Family<NodeLabels, FloatGauge>,
    view_age: Family<NodeLabels, FloatGauge>,
    polls: Family<PollLabels, Counter>,
}

impl Families {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            selects: Family::default(),
            sessions: Family::default(),
            waits: Family::new_with_constructor(seconds_histogram as fn() -> Histogram),
            fallbacks: Family::default(),
            cap: Family::default(),
            share: Family::default(),
            static_share: Family::default(),
            parked: Family::default(),
            beside_others: Family::default(),
            losses: Family::default(),
            crossed: Family::default(),
            ends: Family::default(),
            deposed: Family::default(),
            went_back: Family::default(),
            beside_leader: Family::default(),
            lag_bytes: Family::default(),
            lag_seconds: Family::default(),
            view_age: Family::default(),
            polls: Family::default(),
        };
        registry.register(
            "selects",
            "Decisions by what was named and why; answer=\"stale\" is labelled with its lag",
            families.selects.clone(),
        );
        registry.register(
            "read_sessions",
            "Selects and waits by what they brought to say whose session it is",
            families.sessions.clone(),
        );
        registry.register_with_unit(
            "wait_duration",
            "Time reads waited for a node, by what the wait ended in",
            Unit::Seconds,
            families.waits.clone(),
        );
        registry.register(
            "fallbacks",
            "Freshness fallbacks to the leader, by what the cap said",
            families.fallbacks.clone(),
        );
        registry.register(
            "fallback_cap_reads_per_second",
            "Freshness fallbacks the cap in force admits per second, over all instances",
            families.cap.clone(),
        );
        registry.register(
            "fallback_share_reads_per_second",
            "Freshness fallbacks of the cap that this instance admits per second",
            families.share.clone(),
        );
        registry.register(
            "fallback_share_static",
            "1 while the share of the cap is the one of an instance that others know nothing of",
            families.static_share.clone(),
        );
        registry.register("parked_waits", "Reads that wait now", families.parked.clone());
        registry.register(
            "beside_other_instances",
            "1 while another instance is connected, and each keeps its records in its own memory",
            families.beside_others.clone(),
        );
        families.register_failovers(registry);
        families.register_nodes(registry);
        families
    }

    fn register_nodes(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "replica_lag",
            "Log between the leader's position and the node's; NaN when unknown",
            Unit::Bytes,
            self.lag_bytes.clone(),
        );
        registry.register_with_unit(
            "replica_lag",
            "Upper estimate of how old the node's state is; NaN when unknown",
            Unit::Seconds,
            self.lag_seconds.clone(),
        );
        registry.register_with_unit(
            "view_age",
            "Age of what was last seen of the node; NaN when it was never seen",
            Unit::Seconds,
            self.view_age.clone(),
        );
        registry.register("polls", "Polls of the node by what became of them", self.polls.clone());
    }

    fn register_failovers(&self, registry: &mut Registry) {
        registry.register(
            "losses",
            "What sessions depended on and a failover lost, by what they are told",
            self.losses.clone(),
        );
        registry.register(
            "timeline_ends",
            "Ends of timelines that a tool of the operator told, by what they are to our forks",
            self.ends.clone(),
        );
        registry.register(
            "crossed_answers",
            "Unlabelled answers that took one line of leaders for another; any is a broken promise",
            self.crossed.clone(),
        );
        registry.register(
            "deposed_writes",
            "Writes recorded that were made on a deposed leader, past the end of its epoch",
            self.deposed.clone(),
        );
        registry.register(
            "node_regressions",
            "Times the node showed a lower position than before: a crash, a restored copy, a fault",
            self.went_back.clone(),
        );
        registry.register(
            "node_beside_leader",
            "1 while the node was last seen writable although another leads",
            self.beside_leader.clone(),
        );
    }
}

/// The metrics of one partition, resolved. Copies report to the same ones.
#[derive(Clone, Debug)]
pub struct PartitionTelemetry(Arc<Resolved>);

#[derive(Debug)]
struct Resolved {
    telemetry: Telemetry,
    name: Arc<str>,
    selects: Table<Counter>,
    sessions: Table<Counter>,
    waits: Table<Histogram>,
    fallbacks: Table<Counter>,
    cap: Gauge,
    share: Gauge,
    static_share: Gauge,
    parked: Gauge,
    beside_others: Gauge,
    losses: Table<Counter>,
    crossed: Counter,
    deposed: Counter,
}

impl PartitionTelemetry {
    pub(super) fn new(telemetry: Telemetry, name: &str) -> Self {
        let name: Arc<str> = name.into();
        let labels = PartitionLabels { partition: Arc::clone(&name) };
        let cap = telemetry.0.families.cap.get_or_create_owned(&labels);
        let share = telemetry.0.families.share.get_or_create_owned(&labels);
        let static_share = telemetry.0.families.static_share.get_or_create_owned(&labels);
        let parked = telemetry.0.families.parked.get_or_create_owned(&labels);
        let beside_others = telemetry.0.families.beside_others.get_or_create_owned(&labels);
        let crossed = telemetry.0.families.crossed.get_or_create_owned(&labels);
        let deposed = telemetry.0.families.deposed.get_or_create_owned(&labels);
        Self(Arc::new(Resolved {
            telemetry,
            name,
            selects: Table::new(Answer::ALL.len() * Reason::ALL.len()),
            sessions: Table::new(SessionKind::ALL.len()),
            waits: Table::new(WaitEnd::ALL.len()),
            fallbacks: Table::new(Admission::ALL.len()),
            cap,
            share,
            static_share,
            parked,
            beside_others,
            losses: Table::new(NoticeKind::ALL.len()),
            crossed,
            deposed,
        }))
    }

    /// Counts one decision: what was named, why, and what the read brought.
    pub fn select(&self, answer: Answer, reason: Reason, session: SessionKind) {
        let (own, families) = (&*self.0, &self.0.telemetry.0.families);
        let partition = || Arc::clone(&own.name);
        let selects = own.selects.resolve(cell(answer, reason), || {
            let (answer, reason) = (Word(answer.word()), Word(reason.word()));
            families.selects.get_or_create_owned(&SelectLabels {
                partition: partition(),
                answer,
                reason,
            })
        });
        selects.inc();
        self.brought(session);
        if let Some(span) = spans::current() {
            span.record("tidegate.partition", &*own.name);
            span.record("tidegate.session", session.word());
            span.record("tidegate.answer", answer.word());
            span.record("tidegate.reason", reason.word());
        }
    }

    /// Counts what one wait brought.
    pub fn session(&self, session: SessionKind) {
        self.brought(session);
        if let Some(span) = spans::current() {
            span.record("tidegate.partition", &*self.0.name);
            span.record("tidegate.session", session.word());
        }
    }

    fn brought(&self, session: SessionKind) {
        let (own, families) = (&*self.0, &self.0.telemetry.0.families);
        let sessions = own.sessions.resolve(place(session), || {
            let session = Word(session.word());
            let partition = Arc::clone(&own.name);
            families.sessions.get_or_create_owned(&SessionLabels { partition, session })
        });
        sessions.inc();
    }

    /// Counts one wait, which ended in `end` after `waited`.
    pub fn wait(&self, end: WaitEnd, waited: Duration) {
        let own = &*self.0;
        let waits = own.waits.resolve(place(end), || {
            let labels = WaitLabels { partition: Arc::clone(&own.name), end: Word(end.word()) };
            own.telemetry.0.families.waits.get_or_create_owned(&labels)
        });
        waits.observe(waited.as_secs_f64());
        if let Some(span) = spans::current() {
            span.record("tidegate.wait.end", end.word());
        }
    }

    /// Counts what the cap said to one freshness fallback.
    pub fn fallback(&self, admission: Admission) {
        let own = &*self.0;
        let fallbacks = own.fallbacks.resolve(place(admission), || {
            let (partition, verdict) = (Arc::clone(&own.name), Word(admission.word()));
            let labels = AdmissionLabels { partition, verdict };
            own.telemetry.0.families.fallbacks.get_or_create_owned(&labels)
        });
        fallbacks.inc();
    }

    /// Reports the cap in force, in reads per second.
    pub fn cap_in_force(&self, reads_per_second: u32) {
        self.0.cap.set(i64::from(reads_per_second));
    }

    /// Reports this instance's share of it, in reads per second, and whether that is static.
    pub fn share_in_force(&self, reads_per_second: u32, is_static: bool) {
        self.0.share.set(i64::from(reads_per_second));
        self.0.static_share.set(i64::from(is_static));
    }

    /// Counts one loss that a session is told of.
    pub fn lost(&self, kind: NoticeKind) {
        let own = &*self.0;
        let losses = own.losses.resolve(place(kind), || {
            let labels = LossLabels { partition: Arc::clone(&own.name), kind: Word(kind.word()) };
            own.telemetry.0.families.losses.get_or_create_owned(&labels)
        });
        losses.inc();
    }

    /// Counts the end of a timeline that was compared with our fork.
    pub fn compared(&self, agreement: Agreement) {
        let (own, word) = (&*self.0, Word(agreement.word()));
        let labels = AgreementLabels { partition: Arc::clone(&own.name), agreement: word };
        own.telemetry.0.families.ends.get_or_create_owned(&labels).inc();
    }

    /// Counts an answer that took one line of leaders for another.
    pub fn crossed(&self) {
        self.0.crossed.inc();
    }

    /// Counts a write that was recorded and made on a deposed leader.
    pub fn deposed_write(&self) {
        self.0.deposed.inc();
    }

    /// Reports how many reads wait.
    pub fn parked(&self, waits: usize) {
        self.0.parked.set(i64::try_from(waits).unwrap_or(i64::MAX));
    }

    /// Reports whether other instances count as being there, of which each has its own records.
    pub fn beside_others(&self, are_there: bool) {
        self.0.beside_others.set(i64::from(are_there));
    }

    /// The metrics of one of its nodes. Ask once and keep it.
    pub fn node(&self, name: &str) -> NodeTelemetry {
        let (own, families) = (&*self.0, &self.0.telemetry.0.families);
        let node: Arc<str> = name.into();
        let labels = NodeLabels { partition: Arc::clone(&own.name), node: Arc::clone(&node) };
        let seen_nanos = Arc::new(AtomicU64::new(NEVER));
        let age = families.view_age.get_or_create_owned(&labels);
        let seen = SeenAt { nanos: Arc::clone(&seen_nanos), age };
        seen.age.set(f64::NAN);
        let seens = &own.telemetry.0.seen;
        seens.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        let telemetry = NodeTelemetry(Arc::new(ResolvedNode {
            partition: self.clone(),
            name: node,
            lag_bytes: families.lag_bytes.get_or_create_owned(&labels),
            lag_seconds: families.lag_seconds.get_or_create_owned(&labels),
            seen_nanos,
            polls: Table::new(PollOutcome::ALL.len()),
            went_back: families.went_back.get_or_create_owned(&labels),
            beside_leader: families.beside_leader.get_or_create_owned(&labels),
        }));
        telemetry.lag(None, None);
        telemetry
    }
}

/// No observation yet.
const NEVER: u64 = u64::MAX;

/// When a node was last seen, and the gauge that shows how long ago.
#[derive(Debug)]
pub(super) struct SeenAt {
    nanos: Arc<AtomicU64>,
    age: FloatGauge,
}

impl SeenAt {
    /// Sets the gauge to the age at `now`.
    pub(super) fn report(&self, now: Instant) {
        let nanos = self.nanos.load(Ordering::Relaxed);
        if nanos != NEVER {
            self.age.set(now.since(Instant::from_nanos(nanos)).as_secs_f64());
        }
    }
}

/// The metrics of one node, resolved. Copies report to the same ones.
#[derive(Clone, Debug)]
pub struct NodeTelemetry(Arc<ResolvedNode>);

#[derive(Debug)]
struct ResolvedNode {
    partition: PartitionTelemetry,
    name: Arc<str>,
    lag_bytes: FloatGauge,
    lag_seconds: FloatGauge,
    seen_nanos: Arc<AtomicU64>,
    polls: Table<Counter>,
    went_back: Counter,
    beside_leader: Gauge,
}

impl NodeTelemetry {
    /// Counts one poll.
    pub fn polled(&self, outcome: PollOutcome) {
        let own = &*self.0;
        let polls = own.polls.resolve(place(outcome), || {
            let (partition, node) = (Arc::clone(&own.partition.0.name), Arc::clone(&own.name));
            let labels = PollLabels { partition, node, outcome: Word(outcome.word()) };
            own.partition.0.telemetry.0.families.polls.get_or_create_owned(&labels)
        });
        polls.inc();
    }

    /// Reports that the poll sent at `sent_at` was answered: its view is as old as that.
    pub fn seen(&self, sent_at: Instant) {
        self.0.seen_nanos.store(sent_at.as_nanos(), Ordering::Relaxed);
    }

    /// Counts that the node showed a lower position than before.
    pub fn went_back(&self) {
        self.0.went_back.inc();
    }

    /// Reports whether the node was seen writable although another leads.
    pub fn beside_leader(&self, is_beside: bool) {
        self.0.beside_leader.set(i64::from(is_beside));
    }

    /// Reports how far the node is behind the leader; `None` where that is unknown.
    pub fn lag(&self, bytes: Option<u64>, time: Option<Duration>) {
        // Exact up to 2^53 bytes, which no replica is behind.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        self.0.lag_bytes.set(bytes.map_or(f64::NAN, |bytes| bytes as f64));
        self.0.lag_seconds.set(time.map_or(f64::NAN, |time| time.as_secs_f64()));
    }
}
