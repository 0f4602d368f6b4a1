//! What polls the nodes for one instance, as `src/source` does: answers that come, come late or
//! never, and lineage rows that are written. It decides nothing.

use std::time::Duration;

use tidegate_core::evidence::Evidence;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, Incarnation, LineageRow, TimelineHistory};
use tidegate_core::partition::{Event, Pace, RowOutcome};
use tidegate_core::views::Observation;

use super::nanos;
use crate::options::MILLI;
use crate::sim::{Happening, PollId, State};
use crate::world::SYSTEM;
use crate::world::log::RowWrite;

/// How long a source waits for an answer.
pub(crate) const POLL_TIMEOUT: u64 = 300 * MILLI;
/// How long it waits after a failure.
const BACKOFF: u64 = 40 * MILLI;

/// What became of a row.
pub(crate) type RowDone = (Epoch, RowOutcome);

/// What polls one node.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(super) pace: Pace,
    sent_at: Option<u64>,
    flight: Option<u64>,
    not_before: u64,
    seen_row: Option<(Incarnation, Epoch)>,
    /// It cannot reach its node before.
    pub(crate) cut_until: u64,
    /// Its answers are lost before.
    pub(crate) deaf_until: u64,
    /// Its answers are slow before.
    pub(crate) slow_until: u64,
    pub(crate) slow_by: u64,
    /// Its next answer comes this much later, and another may be asked for meanwhile.
    pub(crate) hold_next: Option<u64>,
}

impl Source {
    pub(super) const fn new() -> Self {
        Self {
            pace: Pace { interval: Duration::from_millis(80), sample_after: None },
            sent_at: None,
            flight: None,
            not_before: 0,
            seen_row: None,
            cut_until: 0,
            deaf_until: 0,
            slow_until: 0,
            slow_by: 0,
            hold_next: None,
        }
    }

    fn due_at(&self) -> u64 {
        let at = match (self.sent_at, self.pace.sample_after) {
            (None, _) => 0,
            (Some(sent), Some(after)) if sent < after.as_nanos() => 0,
            (Some(sent), _) => sent + nanos(self.pace.interval),
        };
        at.max(self.not_before)
    }

    /// The same source of an instance that starts again.
    pub(super) const fn restarted(&self) -> Self {
        Self { cut_until: self.cut_until, ..Self::new() }
    }

    /// The network is what it should be.
    pub(crate) const fn heal(&mut self) {
        (self.cut_until, self.deaf_until, self.slow_until) = (0, 0, 0);
        self.hold_next = None;
    }
}

impl State {
    /// Looks at a source as soon as it has something to do.
    pub(super) fn look(&mut self, instance: usize, node: usize) {
        let at = self.instances[instance].sources[node].due_at().max(self.now);
        self.heap.push(at, Happening::Due { instance, node });
    }

    /// Polls a node if it is time.
    pub(crate) fn due(&mut self, instance: usize, node: usize) {
        let most = usize::try_from(self.options.poll_latency_max).expect("small");
        let (loss, overtaken) = (self.options.poll_loss, self.options.overtaken);
        let now = self.now;
        let own = &mut self.instances[instance];
        let source = &mut own.sources[node];
        if source.flight.is_some() || now < source.due_at() {
            return;
        }
        own.polls += 1;
        let number = own.polls;
        source.flight = Some(number);
        let out = self.random.within(300_000, most) as u64;
        let mut back = self.random.within(300_000, most) as u64;
        if now < source.slow_until {
            back += source.slow_by;
        }
        if self.random.below(1000) < overtaken {
            back += POLL_TIMEOUT + self.random.within(1, 500) as u64 * MILLI;
        }
        if let Some(by) = source.hold_next.take() {
            back += POLL_TIMEOUT + by;
        }
        let lost = now < source.cut_until || self.random.below(1000) < loss;
        let life = own.life;
        let poll = PollId { number, life, sent_at: now, back };
        if !lost {
            self.heap.push(now + out, Happening::Asked { instance, node, poll });
        }
        self.heap.push(now + POLL_TIMEOUT, Happening::GivenUp { instance, node, poll });
    }

    /// What a server says to a poll that reaches it.
    pub(crate) fn asked(&mut self, instance: usize, node: usize, poll: PollId) {
        let at = self.world.at_address(node, poll.number);
        if !self.world.servers[at].answers() {
            return;
        }
        self.world.servers[at].read_rows(&self.world.tree);
        let server = &self.world.servers[at];
        let mut text = server.evidence(&self.world.tree, "poll", true);
        if self.world.foreign[node] {
            // Another database, whatever else it says.
            text = text.replacen(&format!("|{SYSTEM}|"), &format!("|{}|", SYSTEM + 1), 1);
        }
        let guards = self.options.guards();
        let evidence = Evidence::parse(&text, &guards).expect("servers speak well");
        let own = &mut self.instances[instance];
        let last = evidence.row.map(|row| (evidence.incarnation, row));
        let source = &mut own.sources[node];
        // All rows are read whenever the last one was not seen before on this connection.
        let known = last.is_some() && source.seen_row == last;
        let rows = (!known).then(|| server.rows.clone());
        let reads = self.options.reads_history
            && evidence
                .epoch()
                .is_some_and(|epoch| evidence.row.is_none_or(|row| row.timeline < epoch.timeline));
        let switches = reads.then(|| {
            let text = self.world.history_file(at);
            TimelineHistory::parse(&text).expect("servers write good history files")
        });
        if self.now >= source.deaf_until {
            source.seen_row = last;
            let (sent_at, now) = (Instant::from_nanos(poll.sent_at), self.instant());
            let node_id = Self::node(node);
            let received_at = now;
            let seen =
                Observation { node: node_id, evidence, rows, switches, sent_at, received_at };
            let seen = Some(Box::new(seen));
            let happening = Happening::Answered { instance, node, poll, seen };
            self.heap.push(self.now + poll.back, happening);
        }
    }

    pub(crate) fn answered(
        &mut self,
        instance: usize,
        node: usize,
        poll: PollId,
        seen: Option<Box<Observation>>,
    ) {
        let own = &mut self.instances[instance];
        if own.life != poll.life {
            return;
        }
        let source = &mut own.sources[node];
        if source.flight == Some(poll.number) {
            source.flight = None;
            source.sent_at = Some(poll.sent_at);
        } else {
            self.check.figures.late_answers += 1;
        }
        if let Some(mut seen) = seen {
            seen.received_at = Instant::from_nanos(self.now);
            self.check.figures.polls += 1;
            self.check.trace.mark(1, [self.now, node as u64, seen.sent_at.as_nanos()]);
            self.check.seen(instance, &seen);
            self.handle(instance, Event::Observed(*seen));
        }
        self.look(instance, node);
    }

    pub(crate) fn given_up(&mut self, instance: usize, node: usize, poll: PollId) {
        let own = &mut self.instances[instance];
        let source = &mut own.sources[node];
        if own.life == poll.life && source.flight == Some(poll.number) {
            source.flight = None;
            source.seen_row = None;
            source.sent_at = None;
            source.not_before = self.now + BACKOFF;
            self.look(instance, node);
        }
    }

    /// Inserts a row, if the polled life is still there and can write.
    pub(crate) fn row_arrives(
        &mut self,
        instance: usize,
        life: u64,
        node: usize,
        polled: Incarnation,
        row: LineageRow,
    ) {
        let fails = self.now < self.instances[instance].rows_fail_until
            || self.random.below(100) < self.options.row_failures;
        let guarded = self.options.guards().guarded_insert();
        let at = self.world.address[node];
        let server = &mut self.world.servers[at];
        let answers = server.answers() && !fails && !self.world.foreign[node];
        server.read_rows(&self.world.tree);
        let own = server.leads.is_some() && (!guarded || server.life == polled.life);
        let taken = |other: &LineageRow| other.epoch == row.epoch || other.n == row.n;
        if answers && own && !server.rows.iter().any(taken) {
            let mut table = server.rows.clone();
            table.push(row);
            // The first change of a page after a checkpoint carries the whole page.
            let image = self.options.images() || self.random.one_in(3);
            self.world.append(at, Some(RowWrite { row, table, image }), false);
            self.world.flush_all(at, self.now);
            self.world.servers[at].read_rows(&self.world.tree);
            self.check.trace.say(self.now, || format!("row {row:?} written on server {at}"));
        }
        let stands = self.world.servers[at].rows.iter().find(|other| other.epoch == row.epoch);
        let outcome = match stands {
            Some(stands) if answers => RowOutcome::Stands(*stands),
            None if answers => RowOutcome::NotThere,
            Some(_) | None => RowOutcome::Failed,
        };
        let back = self.random.within(1_000_000, 5_000_000) as u64;
        let done = (row.epoch, outcome);
        self.heap.push(self.now + back, Happening::RowAnswered { instance, life, done });
    }

    pub(crate) fn row_answered(&mut self, instance: usize, life: u64, (epoch, outcome): RowDone) {
        if self.instances[instance].life == life {
            self.handle(instance, Event::RowWritten { epoch, outcome });
        }
    }
}
