//! One partition, its clock, and the rows that stand in the databases.
//!
//! A row the partition wants written is written at once, unless the story says otherwise; a node
//! shows the rows of the line it names. Nothing else is made up here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::evidence::{Evidence, EvidenceKind, Role};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::leader::{EpochFacts, Facts};
use tidegate_core::lineage::{
    Epoch, Fork, Incarnation, Life, LineageRow, SystemId, TimelineHistory,
};
use tidegate_core::partition::{Effect, Event, Need, NeedId, Partition, RowOutcome, WaitFor};
use tidegate_core::position::Lsn;
use tidegate_core::snapshot::{NodeSettings, Settings, Snapshot};
use tidegate_core::token::PartitionId;
use tidegate_core::trail::{ClockDrift, Floor};
use tidegate_core::views::{NodeId, Observation};
use tidegate_core::wait::WaitId;

use super::ask::Session;
use super::names::{NODES, after, at, epoch, fork, life, node, span};
use super::words::Told;

pub(crate) const SYSTEM: SystemId = SystemId::new(7);
/// Waits that fit.
pub(crate) const WAITS_MAX: usize = 6;

const KEYS: [&str; 13] = [
    "at", "flush", "row", "also", "replay", "from", "sent", "took", "major", "floor", "on", "for",
    "switched",
];

/// What becomes of rows the partition wants written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Written,
    Refused,
    Kept,
}

/// One partition with a clock that only the story moves.
pub(crate) struct Stage {
    settings: Settings,
    facts: Facts,
    partition: Option<Partition>,
    millis: u64,
    /// Rows that stand in some database.
    rows: BTreeMap<Epoch, LineageRow>,
    writing: Rows,
    pub(crate) session: Session,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Guards::on())
    }

    pub(crate) fn with(guards: Guards) -> Self {
        let settings = Settings {
            nodes: vec![NodeSettings::default(); NODES.len()],
            view_max_age: Duration::from_secs(5),
            gate: Duration::from_secs(3600),
            clock_drift: ClockDrift::parts_per_million(500),
            idle_interval: Duration::from_millis(250),
            busy_interval: Duration::from_millis(5),
            store_interval: Duration::from_secs(1),
            waits_max: WAITS_MAX,
            async_commits_never: false,
            accepted_majors: vec![15, 16, 17, 18],
            upgraded_from: None,
            guards,
        };
        Self {
            settings,
            facts: Facts::new(),
            partition: None,
            millis: 0,
            rows: BTreeMap::new(),
            writing: Rows::Written,
            session: Session::new(),
        }
    }

    /// A stage on which these lines have happened.
    pub(crate) fn after(guards: Guards, story: &str) -> Self {
        let mut stage = Self::with(guards);
        for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
            drop(stage.tell(line, Told::Nothing));
        }
        stage
    }

    pub(crate) fn now(&self) -> Instant {
        moment(self.millis)
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.partition.as_ref().expect("something has happened").snapshot()
    }

    pub(crate) fn partition(&mut self) -> &mut Partition {
        let settings = Arc::new(self.settings.clone());
        let facts = self.facts.clone();
        self.partition
            .get_or_insert_with(|| Partition::new(PartitionId::new(1), SYSTEM, settings, facts))
    }

    pub(crate) fn handle(&mut self, event: Event) -> Vec<Effect> {
        let now = self.now();
        let mut effects = self.partition().handle(event, now);
        let mut answers = Vec::new();
        for effect in &effects {
            if let Effect::WriteRow { row, .. } = effect {
                let outcome = match self.writing {
                    Rows::Kept => continue,
                    Rows::Refused => RowOutcome::Failed,
                    Rows::Written => {
                        self.rows.insert(row.epoch, *row);
                        RowOutcome::Stands(*row)
                    }
                };
                answers.push(Event::RowWritten { epoch: row.epoch, outcome });
            }
        }
        for answer in answers {
            effects.extend(self.handle(answer));
        }
        effects
    }

    /// Lets one line happen, if it is something that happens to a partition.
    pub(crate) fn play(&mut self, line: &str) -> Vec<Effect> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["zone", name, zone] => {
                let index = node(name).expect("a node").index();
                self.settings.nodes[index].zone = Some((*zone).to_owned());
                Vec::new()
            }
            ["facts", name, "led", led, rest @ ..] => {
                self.know(name, led, rest);
                Vec::new()
            }
            ["written", row, rest @ ..] => {
                self.stand(row, rest);
                Vec::new()
            }
            ["rows", "are", "refused"] => self.write_rows(Rows::Refused),
            ["rows", "are", "kept", "back"] => self.write_rows(Rows::Kept),
            ["rows", "are", "written"] => self.write_rows(Rows::Written),
            ["pass", time] => {
                self.millis += u64::try_from(span(time).as_millis()).expect("a short time");
                Vec::new()
            }
            ["tick"] => self.handle(Event::Tick),
            ["drain", name] => self.drain(name, true),
            ["undrain", name] => self.drain(name, false),
            ["resume", name] => self.handle(Event::Resume(node(name).expect("a node"))),
            ["verdict", lived] => {
                self.handle(Event::Resolve(Incarnation { system: SYSTEM, life: life(lived) }))
            }
            ["commits", "are", "durable"] => {
                self.settings.async_commits_never = true;
                Vec::new()
            }
            ["the", "instance", "restarts"] => {
                if let Some(before) = self.partition.take() {
                    self.facts = Facts::clone(&before.snapshot().facts);
                }
                Vec::new()
            }
            ["hurry"] => self.handle(Event::Hurry(self.now())),
            ["need", id] => self.need(id, Need::Leader),
            ["need", id, seen] => {
                let incarnation = Incarnation { system: SYSTEM, life: life(seen) };
                self.need(id, Need::Incarnation(incarnation))
            }
            ["unneed", id] => self.handle(Event::Unneed(NeedId::new(number(id)))),
            ["park", id, rest @ ..] => self.park(id, rest),
            ["unpark", id] => self.handle(Event::Unpark(WaitId::new(number(id)))),
            [name, "leads", led, rest @ ..] => self.leads(name, led, rest),
            [name, "follows", lived, rest @ ..] => self.follows(name, lived, rest),
            other => panic!("nobody knows what this means: {other:?}"),
        }
    }

    fn know(&mut self, name: &str, led: &str, rest: &[&str]) {
        let replay = after(rest, "replay", &KEYS).map(|words| words.first().map(|word| at(word)));
        let facts = EpochFacts {
            node: node(name),
            flush_seen: at(one(rest, "flush").expect("flush")),
            flush_starts_page: false,
            replay: Some(replay.flatten()),
            origin: None,
            is_restored: false,
            ended: rest.contains(&"ended"),
        };
        self.facts.join(epoch(led), facts);
    }

    fn stand(&mut self, row: &str, rest: &[&str]) {
        let (parent, fork) = match rest {
            [] => (None, Fork::Unknown),
            ["after", parent, "fork", words @ ..] => (Some(epoch(parent)), fork(words)),
            other => panic!("no row: {other:?}"),
        };
        let n = parent.and_then(|parent| self.rows.get(&parent)).map_or(1, |row| row.n + 1);
        self.rows.insert(epoch(row), LineageRow { epoch: epoch(row), parent, fork, n });
    }

    fn write_rows(&mut self, writing: Rows) -> Vec<Effect> {
        self.writing = writing;
        Vec::new()
    }

    fn drain(&mut self, name: &str, drained: bool) -> Vec<Effect> {
        self.handle(Event::Drain { node: node(name).expect("a node"), drained })
    }

    fn need(&mut self, id: &str, need: Need) -> Vec<Effect> {
        let since = self.now();
        self.handle(Event::Need { id: NeedId::new(number(id)), need, since })
    }

    fn park(&mut self, id: &str, rest: &[&str]) -> Vec<Effect> {
        let mut floor = Floor::none();
        for pair in after(rest, "floor", &KEYS).unwrap_or_default().chunks(2) {
            floor.demand(epoch(pair[0]), at(pair[1]));
        }
        let wait_for = if rest.contains(&"all") { WaitFor::All } else { WaitFor::Any };
        let nodes = after(rest, "on", &[&KEYS[..], &["all"]].concat()).expect("on which nodes");
        let nodes: Vec<NodeId> = nodes.iter().map(|name| node(name).expect("a node")).collect();
        let deadline = self.now() + span(one(rest, "for").unwrap_or("1s"));
        let id = WaitId::new(number(id));
        self.handle(Event::Park { id, floor, nodes, wait_for, deadline })
    }

    fn leads(&mut self, name: &str, led: &str, rest: &[&str]) -> Vec<Effect> {
        let led = epoch(led);
        let insert = at(one(rest, "at").expect("at which position"));
        let flush = one(rest, "flush").map_or(insert, at);
        let flush_starts_page = Lsn::new(flush.scalar()).starts_page();
        let role = Role::Writable { timeline: led.timeline, insert, flush, flush_starts_page };
        let row = match one(rest, "row") {
            Some("-") => None,
            Some(row) => Some(epoch(row)),
            None => Some(led).filter(|led| self.rows.contains_key(led)),
        };
        self.observe(name, led.life, role, row, rest)
    }

    fn follows(&mut self, name: &str, lived: &str, rest: &[&str]) -> Vec<Effect> {
        let row = one(rest, "row").map(epoch);
        let received_timeline = match one(rest, "from") {
            Some("-") => None,
            Some(timeline) => Some(timeline.parse().expect("a timeline")),
            None => row.map(|row| row.timeline),
        };
        let role = Role::Standby { received_timeline };
        self.observe(name, life(lived), role, row, rest)
    }

    fn observe(
        &mut self,
        name: &str,
        life: Life,
        role: Role,
        row: Option<Epoch>,
        rest: &[&str],
    ) -> Vec<Effect> {
        self.millis += 10;
        let sent = one(rest, "sent").map_or(self.millis, number);
        self.millis += one(rest, "took")
            .map_or(1, |took| u64::try_from(span(took).as_millis()).expect("a short time"));
        let replay = match role {
            Role::Standby { .. } => one(rest, "at"),
            Role::Writable { .. } => one(rest, "replay"),
        };
        let rows = self.shown(row, after(rest, "also", &KEYS).unwrap_or_default());
        let evidence = Evidence {
            kind: EvidenceKind::Poll,
            server_version_num: one(rest, "major")
                .map_or(150_018, |m| u32::try_from(number(m)).expect("a version") * 10_000),
            incarnation: Incarnation { system: SYSTEM, life },
            role,
            replay: replay.map(at),
            row,
            asynchronous: false,
        };
        let seen = Observation {
            node: node(name).expect("a node"),
            evidence,
            rows: (!rest.contains(&"bare")).then_some(rows),
            switches: after(rest, "switched", &KEYS).map(switches),
            sent_at: moment(sent),
            received_at: self.now(),
        };
        self.handle(Event::Observed(seen))
    }

    /// The rows of the line of `row`, and others.
    fn shown(&self, row: Option<Epoch>, also: &[&str]) -> Vec<LineageRow> {
        let mut shown: Vec<LineageRow> =
            also.iter().map(|other| *self.rows.get(&epoch(other)).expect("a row")).collect();
        let mut next = row;
        while let Some(row) = next.and_then(|row| self.rows.get(&row)) {
            shown.push(*row);
            next = row.parent;
        }
        shown
    }
}

/// Pairs of a timeline and where the log left it.
fn switches(pairs: &[&str]) -> TimelineHistory {
    let lines: Vec<String> = pairs.chunks(2).map(|pair| pair.join("\t")).collect();
    TimelineHistory::parse(&lines.join("\n")).expect("a history")
}

pub(crate) fn moment(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn one<'a>(words: &'a [&'a str], key: &str) -> Option<&'a str> {
    after(words, key, &KEYS).and_then(|words| words.first().copied())
}
