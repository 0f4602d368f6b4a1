//! Three servers and every record they ever wrote, with one session that writes: the truth behind
//! the laws.
//!
//! Leaders write, flush, crash, restart and stop; standbys stream, crash and are promoted, also
//! while others still lead; anybody is cloned anew. A standby only continues a log of which it has
//! a prefix: what PostgreSQL cannot tell apart, nobody promises. No rule of Tidegate is in here.

use tidegate_core::evidence::{Evidence, EvidenceKind, Role};
use tidegate_core::lineage::{Epoch, Incarnation, Life, LineageRow};
use tidegate_core::partition::{Effect, Event, RowOutcome};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::views::{NodeId, Observation};

use super::names::NODES;
use super::stage::{SYSTEM, Stage};

/// A set of records, by id.
pub(crate) type Set = u128;
const RECORDS_MAX: u32 = 120;
/// Observations under way.
const FLIGHTS_MAX: usize = 3;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Record {
    id: u32,
    timeline: u32,
    row: Option<LineageRow>,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) life: Life,
    pub(crate) is_up: bool,
    pub(crate) leads: bool,
    timeline: u32,
    log: Vec<Record>,
    applied: usize,
    flushed: usize,
    /// Where recovery ended in this life.
    replay: Option<usize>,
    upstream: usize,
}

pub(crate) struct World {
    pub(crate) servers: Vec<Server>,
    pub(crate) stage: Stage,
    flights: Vec<Observation>,
    inserting: Option<(NodeId, Incarnation, LineageRow)>,
    records: u32,
    lives: i64,
}

fn position(length: usize) -> Position {
    Lsn::new(length as u64 * 8).into()
}

fn set(records: &[Record]) -> Set {
    records.iter().fold(0, |set, record| set | 1 << record.id)
}

impl Server {
    pub(crate) fn content(&self) -> Set {
        set(if self.leads { &self.log } else { &self.log[..self.applied] })
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch::new(self.timeline, self.life)
    }

    fn rows(&self) -> Vec<LineageRow> {
        let seen = if self.leads { self.log.len() } else { self.applied };
        self.log[..seen].iter().filter_map(|record| record.row).collect()
    }
}

impl World {
    pub(crate) fn new(mut stage: Stage) -> Self {
        stage.play("rows are kept back");
        let first = Record { id: 0, timeline: 1, row: None };
        let server = |index: usize| Server {
            life: Life { start: index as i64 + 1, reset: index as i64 + 1 },
            is_up: true,
            leads: index == 0,
            timeline: 1,
            log: vec![first],
            applied: 1,
            flushed: 1,
            replay: None,
            upstream: 0,
        };
        let servers = (0..NODES.len()).map(server).collect();
        let (flights, inserting) = (Vec::new(), None);
        Self { servers, stage, flights, inserting, records: 1, lives: 10 }
    }

    fn life(&mut self) -> i64 {
        self.lives += 1;
        self.lives
    }

    fn append(&mut self, at: usize, row: Option<LineageRow>) -> Option<u32> {
        if self.records == RECORDS_MAX {
            return None;
        }
        let id = self.records;
        self.records += 1;
        let server = &mut self.servers[at];
        server.log.push(Record { id, timeline: server.timeline, row });
        Some(id)
    }

    /// Commits on a leader: the record, its epoch, and where it began and ended.
    pub(crate) fn commit(&mut self, at: usize) -> Option<(u32, Epoch, Position, Position)> {
        let server = &self.servers[at];
        let (epoch, began) = (server.epoch(), position(server.log.len()));
        if !server.is_up || !server.leads {
            return None;
        }
        let id = self.append(at, None)?;
        Some((id, epoch, began, position(self.servers[at].log.len())))
    }

    /// Up to where the log of a server is flushed.
    pub(crate) fn flush_of(&self, at: usize) -> Position {
        position(self.servers[at].flushed)
    }

    /// Whether the standby's log is a prefix of what its leader has flushed.
    fn follows(&self, at: usize) -> Option<&Server> {
        let own = &self.servers[at];
        let leader = self.servers.get(own.upstream).filter(|s| s.is_up && s.leads)?;
        leader.log[..leader.flushed].starts_with(&own.log).then_some(leader)
    }

    /// Lets one thing happen to a server; `how` chooses among its ways.
    pub(crate) fn act(&mut self, what: u8, at: usize, how: usize) {
        let (up, leads) = (self.servers[at].is_up, self.servers[at].leads);
        match what {
            0 if up && leads => self.servers[at].flushed = self.servers[at].log.len(),
            1 | 2 if up && !leads => self.stream(at, how),
            3 if up && leads => self.crash(at, how),
            4 if up && leads => self.restart(at),
            5 if up && leads => {
                // An operator resets the statistics.
                let reset = self.life();
                self.servers[at].life.reset = reset;
            }
            6 if up && !leads => {
                let life = self.life();
                let server = &mut self.servers[at];
                server.life = Life { start: life, reset: life };
                server.applied = 1 + how % server.applied;
            }
            7 if up && !leads => self.promote(at),
            8 => self.clone_from(at, (at + 1 + how % 2) % self.servers.len()),
            9 if leads => {
                if up {
                    self.servers[at].is_up = false;
                } else {
                    self.servers[at].is_up = true;
                    self.restart(at);
                }
            }
            10 if up && !leads => self.servers[at].upstream = (at + 1 + how % 2) % 3,
            _ => {}
        }
    }

    fn stream(&mut self, at: usize, how: usize) {
        if let Some(leader) = self.follows(at) {
            let length = self.servers[at].log.len();
            let end = leader.flushed.min(length + 1 + how % 4);
            let more = leader.log[length..end].to_vec();
            self.servers[at].log.extend(more);
        }
        let server = &mut self.servers[at];
        server.applied = (server.applied + how % 5).min(server.log.len());
        server.flushed = server.log.len();
    }

    fn crash(&mut self, at: usize, how: usize) {
        let (start, reset) = (self.life(), self.life());
        let server = &mut self.servers[at];
        let lost = server.log.len() - server.flushed;
        server.log.truncate(server.flushed + how % (lost + 1));
        // Only a backend may have crashed; then the postmaster lives on.
        let start = if how.is_multiple_of(2) { start } else { server.life.start };
        server.life = Life { start, reset };
        server.replay = Some(server.log.len());
        self.append(at, None);
        self.servers[at].flushed = self.servers[at].log.len();
    }

    fn restart(&mut self, at: usize) {
        let start = self.life();
        let server = &mut self.servers[at];
        server.life.start = start;
        server.replay = None;
        server.flushed = server.log.len();
    }

    fn promote(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let last = server.log.last().map_or(1, |record| record.timeline);
        server.timeline = last + 1;
        server.leads = true;
        server.applied = server.log.len();
        server.replay = Some(server.log.len());
        self.append(at, None);
        self.servers[at].flushed = self.servers[at].log.len();
    }

    fn clone_from(&mut self, at: usize, from: usize) {
        let life = self.life();
        let source = &self.servers[from];
        if !source.is_up || !source.leads {
            return;
        }
        let log = source.log[..source.flushed].to_vec();
        self.servers[at] = Server {
            life: Life { start: life, reset: life },
            is_up: true,
            leads: false,
            timeline: source.timeline,
            applied: log.len(),
            flushed: log.len(),
            log,
            replay: None,
            upstream: from,
        };
    }

    fn look(&self, at: usize) -> Option<Observation> {
        let server = self.servers.get(at).filter(|server| server.is_up)?;
        let role = if server.leads {
            Role::Writable {
                timeline: server.timeline,
                insert: position(server.log.len()),
                flush: position(server.flushed),
                flush_starts_page: false,
            }
        } else {
            let named = |leader: &Server| {
                leader.log.get(server.log.len()).map_or(leader.timeline, |next| next.timeline)
            };
            Role::Standby { received_timeline: self.follows(at).map(named) }
        };
        let replay = if server.leads { server.replay } else { Some(server.applied) };
        let rows = server.rows();
        let now = self.stage.now();
        Some(Observation {
            node: NodeId::new(u16::try_from(at).expect("few servers")),
            evidence: Evidence {
                kind: EvidenceKind::Poll,
                server_version_num: 150_018,
                incarnation: Incarnation { system: SYSTEM, life: server.life },
                role,
                replay: replay.map(position),
                row: rows.iter().max_by_key(|row| row.n).map(|row| row.epoch),
                asynchronous: false,
            },
            rows: Some(rows),
            switches: None,
            sent_at: now,
            received_at: now,
        })
    }

    /// Polls a server; the answer comes now, or is under way.
    pub(crate) fn poll(&mut self, at: usize, comes_now: bool) -> Vec<Effect> {
        self.stage.play("pass 1ms");
        let Some(seen) = self.look(at) else { return Vec::new() };
        self.stage.play("pass 1ms");
        if comes_now {
            return self.receive(seen);
        }
        self.flights.push(seen);
        self.flights.truncate(FLIGHTS_MAX);
        Vec::new()
    }

    /// One of the answers under way comes.
    pub(crate) fn land(&mut self, which: usize) -> Vec<Effect> {
        if self.flights.is_empty() {
            return Vec::new();
        }
        let seen = self.flights.remove(which % self.flights.len());
        self.receive(seen)
    }

    fn receive(&mut self, mut seen: Observation) -> Vec<Effect> {
        seen.received_at = self.stage.now();
        let effects = self.stage.handle(Event::Observed(seen));
        for effect in &effects {
            if let Effect::WriteRow { node, incarnation, row } = effect {
                self.inserting = Some((*node, *incarnation, *row));
            }
        }
        effects
    }

    /// Writes the row that was asked for, if the polled life still leads.
    pub(crate) fn insert_row(&mut self) -> Vec<Effect> {
        let Some((node, incarnation, row)) = self.inserting.take() else { return Vec::new() };
        let server = &self.servers[node.index()];
        let epoch = row.epoch;
        let polled = server.is_up && server.leads && server.life == incarnation.life;
        let standing = server.rows().into_iter().find(|other| other.epoch == epoch);
        let stands = match standing {
            Some(other) => Some(other),
            None if polled && self.append(node.index(), Some(row)).is_some() => Some(row),
            None => None,
        };
        let Some(stands) = stands else {
            return self.stage.handle(Event::RowWritten { epoch, outcome: RowOutcome::NotThere });
        };
        let server = &mut self.servers[node.index()];
        server.flushed = server.log.len();
        self.stage.handle(Event::RowWritten { epoch, outcome: RowOutcome::Stands(stands) })
    }
}
