//! Every bound of the service, each with its default and the reason for it.
//!
//! What may be set is in [`Limits`]; what the wire format or its clients rely on is a constant and
//! cannot be set. The bounds of one mark, component or record belong to the core.

use std::time::Duration;

use serde::Deserialize;

use super::values::{bytes, duration};

/// Characters of a token that are accepted: 64 components of four marks fit, and a request of 16
/// tokens stays small.
pub const TOKEN_CHARS: usize = 8 * 1024;
/// Tokens one request may carry: twice what a careful carrier sends.
pub const TOKENS_PER_REQUEST: usize = 16;
/// Characters all tokens of one request may have: they are decoded before anything is decided.
pub const TOKENS_CHARS_PER_REQUEST: usize = 32 * 1024;
/// Characters of a token that are written when the request names no bound: fits every cookie jar.
pub const TOKEN_CHARS_WRITTEN: usize = 1024;
/// Bytes of a subject: any user id, and no document.
pub const SUBJECT_BYTES: usize = 256;
/// Evidence strings one request may carry: what a client kept while it could not reach the service.
pub const EVIDENCE_PER_REQUEST: usize = 16;
/// Addresses one node may advertise: as many as an answer may hold.
pub const ADVERTISED_PER_NODE: usize = 8;
/// Addresses of Patroni one partition may name: one for each node of a large cluster.
pub const PATRONI_ADDRESSES: usize = 32;
/// Token keys one instance may have: rotation needs two.
pub const TOKEN_KEYS: usize = 16;
/// Policies that may have a name: one for each kind of page of a large site.
pub const POLICIES: usize = 64;
/// Steps a policy may name for a read above the cap: as many as a request may.
pub(super) const ABOVE_CAP_STEPS: usize = 4;
/// Server majors that serve sessions without the operator's word: those on which it was measured
/// that every crash changes the reset time, which PostgreSQL promises nowhere.
pub const TESTED_MAJORS: [u32; 4] = [15, 16, 17, 18];
/// Majors an operator may accept untested, inclusive. Older servers do not know the settings our
/// sessions need; a larger number is a version, and no major.
pub const ACCEPTABLE_MAJORS: (u32, u32) = (14, 99);
/// Majors an operator may accept in one partition: a cluster runs one, and two in an upgrade.
pub const ACCEPTED_MAJORS: usize = 8;

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const fn hours(count: u64) -> Duration {
    seconds(count * 3600)
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The bounds an operator may change.
///
/// Invariant of a loaded one: each lies in the range `Limits::out_of_range` names.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How long a token is good for. 24 h: a browser closed overnight still has its session. At
    /// least twice `d_max`, else a session could expire that still needs it.
    #[serde(deserialize_with = "duration")]
    pub token_lifetime: Duration,
    /// The gate: the largest staleness a session without a carried component is served at. 1 h:
    /// longer than any replica should lag, and well inside the token lifetime.
    #[serde(deserialize_with = "duration")]
    pub d_max: Duration,
    /// By how much the rate of a clock may be off, of this machine or of a caller's, in parts per
    /// million. 500: `ntpd` slews a clock by no more, and a quartz left alone is off by far less.
    /// Every bound ends earlier by so much of it.
    pub clock_drift: u32,
    /// Subjects the memory store remembers. 1,000,000 take some 300 MB.
    pub subjects: usize,
    /// Subjects whose changes wait in memory for a store that cannot be reached. 100,000: minutes
    /// of a busy site, some 50 MB.
    pub pending_records: usize,

    /// Age of a view past which its node serves no session. 5 s: twenty idle polls missed.
    #[serde(deserialize_with = "duration")]
    pub view_max_age: Duration,
    /// Time between two polls of a node nobody waits for. 250 ms: four queries a second cost a
    /// server nothing and keep views young.
    #[serde(deserialize_with = "duration")]
    pub idle_poll: Duration,
    /// Time between two polls of a node somebody waits for. 2 ms: less than a hop between zones.
    #[serde(deserialize_with = "duration")]
    pub busy_poll: Duration,
    /// Time one poll may take, connecting included. 1 s: a node that is slower is not worth a read.
    #[serde(deserialize_with = "duration")]
    pub poll_timeout: Duration,

    /// The longest a read may wait, whatever it asks for. 30 s: past that its caller has given up.
    #[serde(deserialize_with = "duration")]
    pub wait_budget_max: Duration,
    /// Reads that may wait at once, over all partitions. 100,000 on streams take some
    /// 500 MB.
    pub parked_waits: usize,
    /// Freshness fallbacks the leader bears per second, in each partition. 100: a small leader
    /// carries it at its write peak; 0 allows none.
    pub fallback_reads: u32,
    /// Instances that together stay below that while they cannot ask each other: each then takes an
    /// even share of so many. 4: more than most run; more than these may exceed it meanwhile.
    pub fallback_instances: u32,

    /// Calls in progress at once, waits included; more are shed at once. 20,000: as many files as a
    /// process often may open.
    pub calls_in_flight: usize,
    /// Connections at once. 4,096: one for each of that many web processes.
    pub connections: usize,
    /// Calls at once on one connection. 1,024: more belong on a `Route` stream, since an answer to
    /// each at once ends a default client's connection.
    pub streams_per_connection: u32,
    /// `Route` streams open at once. 1,024: one for each process of a large web tier.
    pub route_streams: usize,
    /// Frames of one `Route` stream that may wait for their answer. 16,384: ten thousand waits on
    /// one stream, and room for the reads beside them.
    pub route_in_flight: usize,

    /// Bytes of one message to the service. 64 KiB: 32 KiB of tokens and 8 KiB of evidence.
    #[serde(deserialize_with = "bytes")]
    pub message_bytes: usize,
    /// Bytes of the headers of one call. 16 KiB: eight cookies and what proxies add.
    #[serde(deserialize_with = "bytes")]
    pub header_list_bytes: usize,
    /// Silence after which a connection is asked whether it lives. 20 s: below the idle timeouts of
    /// load balancers.
    #[serde(deserialize_with = "duration")]
    pub keepalive_interval: Duration,
    /// Time a connection has to answer that. 10 s: a dead peer holds its waits half a minute.
    #[serde(deserialize_with = "duration")]
    pub keepalive_timeout: Duration,
    /// What is kept of a call's deadline to get the answer back. 10 ms: a hop between zones.
    #[serde(deserialize_with = "duration")]
    pub deadline_margin: Duration,
    /// Time a shutdown gives calls in progress. 10 s: less than supervisors wait before they kill.
    #[serde(deserialize_with = "duration")]
    pub drain_limit: Duration,

    /// Partitions one instance serves. 256: each costs a task, and a connection for each node.
    pub partitions: usize,
    /// Nodes of one partition. 32: every decision looks at each.
    pub nodes_per_partition: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            token_lifetime: hours(24),
            d_max: hours(1),
            clock_drift: 500,
            subjects: 1_000_000,
            pending_records: 100_000,
            view_max_age: seconds(5),
            idle_poll: millis(250),
            busy_poll: millis(2),
            poll_timeout: seconds(1),
            wait_budget_max: seconds(30),
            parked_waits: 100_000,
            fallback_reads: 100,
            fallback_instances: 4,
            calls_in_flight: 20_000,
            connections: 4096,
            streams_per_connection: 1024,
            route_streams: 1024,
            route_in_flight: 16_384,
            message_bytes: 64 * KIB,
            header_list_bytes: 16 * KIB,
            keepalive_interval: seconds(20),
            keepalive_timeout: seconds(10),
            deadline_margin: millis(10),
            drain_limit: seconds(10),
            partitions: 256,
            nodes_per_partition: 32,
        }
    }
}

/// A limit outside its range, and what to do.
pub(super) type OutOfRange = (&'static str, String);

impl Limits {
    /// The limits that lie outside the range they make sense in.
    pub(super) fn out_of_range(&self) -> Vec<OutOfRange> {
        let mut found = Vec::new();
        self.times_out_of_range(&mut found);
        self.counts_out_of_range(&mut found);
        self.pairs_out_of_range(&mut found);
        found
    }

    fn times_out_of_range(&self, found: &mut Vec<OutOfRange>) {
        let mut span = |key, value: Duration, least: Duration, most: Duration| {
            if value < least || value > most {
                let (least, most) =
                    (humantime::format_duration(least), humantime::format_duration(most));
                found.push((key, format!("set it to between {least} and {most}")));
            }
        };
        span("token_lifetime", self.token_lifetime, seconds(2), hours(24 * 400));
        span("d_max", self.d_max, seconds(1), hours(24 * 30));
        span("view_max_age", self.view_max_age, millis(50), hours(1));
        span("idle_poll", self.idle_poll, millis(1), seconds(60));
        span("busy_poll", self.busy_poll, millis(1), seconds(1));
        span("poll_timeout", self.poll_timeout, millis(10), seconds(60));
        span("wait_budget_max", self.wait_budget_max, millis(1), seconds(600));
        span("keepalive_interval", self.keepalive_interval, seconds(1), hours(1));
        span("keepalive_timeout", self.keepalive_timeout, seconds(1), hours(1));
        span("deadline_margin", self.deadline_margin, Duration::ZERO, seconds(10));
        span("drain_limit", self.drain_limit, Duration::ZERO, hours(1));
    }

    fn counts_out_of_range(&self, found: &mut Vec<OutOfRange>) {
        let mut count = |key, value: usize, least: usize, most: usize| {
            if value < least || value > most {
                found.push((key, format!("set it to between {least} and {most}")));
            }
        };
        let wide = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        count("clock_drift", wide(self.clock_drift), 0, 10_000);
        count("subjects", self.subjects, 1, 100_000_000);
        count("pending_records", self.pending_records, 1, 10_000_000);
        count("parked_waits", self.parked_waits, 1, 10_000_000);
        count("fallback_reads", wide(self.fallback_reads), 0, 10_000_000);
        count("fallback_instances", wide(self.fallback_instances), 1, 64);
        count("calls_in_flight", self.calls_in_flight, 1, 10_000_000);
        count("connections", self.connections, 1, 1_000_000);
        count("streams_per_connection", wide(self.streams_per_connection), 1, 1_000_000);
        count("route_streams", self.route_streams, 1, 1_000_000);
        count("route_in_flight", self.route_in_flight, 1, 10_000_000);
        // Less than this and what a request may carry by contract would not fit.
        count("message_bytes", self.message_bytes, 48 * KIB, 4 * MIB);
        count("header_list_bytes", self.header_list_bytes, 4 * KIB, MIB);
        count("partitions", self.partitions, 1, 4096);
        count("nodes_per_partition", self.nodes_per_partition, 1, 256);
    }

    fn pairs_out_of_range(&self, found: &mut Vec<OutOfRange>) {
        let shown = humantime::format_duration;
        if self.token_lifetime < self.d_max.saturating_mul(2) {
            let least = shown(self.d_max.saturating_mul(2));
            found.push((
                "token_lifetime",
                format!(
                    "raise it to {least}, twice `d_max`, or lower `d_max`: sessions expire \
                     while replicas may still be older than their writes"
                ),
            ));
        }
        if self.view_max_age <= self.idle_poll {
            let more = shown(self.idle_poll);
            found.push((
                "view_max_age",
                format!("raise it above `idle_poll`, which is {more}: every view would be too old"),
            ));
        }
        if self.busy_poll > self.idle_poll {
            let most = shown(self.idle_poll);
            found.push(("busy_poll", format!("lower it to at most `idle_poll`, which is {most}")));
        }
    }
}
