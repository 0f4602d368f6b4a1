//! A few servers and every record they ever wrote: the truth that verdicts are compared with.
//!
//! Leaders write, flush, crash, restart and are replaced while they still run; standbys receive
//! what is flushed, apply it, lose their connection, grow from an archive, crash, are promoted
//! (several at once) or cloned. A standby only ever continues a log it has a true prefix of: what
//! PostgreSQL cannot tell apart, nobody promises. No rule of Tidegate is in here.

use tidegate_core::lineage::{Epoch, Fork, Life, LineageRow};
use tidegate_core::position::{Lsn, Position};

use crate::random::Random;

pub(crate) const SERVERS: usize = 4;
/// Records of one world: as many as a set of them has bits.
const RECORDS_MAX: u32 = 128;
const EPOCHS_MAX: usize = 12;

/// A set of records, by id.
pub(crate) type Set = u128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) id: u32,
    /// Where it ends in the log.
    pub(crate) end: u64,
    pub(crate) timeline: u32,
    /// The epoch whose lineage row it inserts.
    row: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    Leading(usize),
    Following,
    Stopped,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) life: Life,
    pub(crate) doing: Doing,
    pub(crate) log: Vec<Record>,
    /// Records applied; a leader has applied all.
    pub(crate) applied: usize,
    /// Records that survive a crash.
    pub(crate) flushed: usize,
    upstream: Option<usize>,
    pub(crate) receives: bool,
}

/// One life of one leader, with all that was ever in its line, flushed or not.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) epoch: Epoch,
    pub(crate) log: Vec<Record>,
    /// The epoch of the last row its leader saw when it began, and the records both have.
    pub(crate) parent: Option<(usize, usize)>,
    /// Records written before it began; its own come after.
    pub(crate) inherited: usize,
    continues: bool,
    pub(crate) row: Option<LineageRow>,
}

pub(crate) struct World {
    pub(crate) servers: Vec<Server>,
    pub(crate) epochs: Vec<Line>,
    records: u32,
    clock: i64,
}

pub(crate) fn position(end: u64) -> Position {
    Lsn::new(end).into()
}

pub(crate) fn set_of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Set {
    records.into_iter().fold(0, |set, record| set | 1 << record.id)
}

fn end_of(log: &[Record]) -> u64 {
    log.last().map_or(0, |record| record.end)
}

impl Line {
    /// Its records up to `least`, whoever wrote them.
    pub(crate) fn up_to(&self, least: Position) -> Set {
        set_of(self.log.iter().filter(|r| least.covers(position(r.end))))
    }

    /// The records its leader wrote past `most`.
    pub(crate) fn past(&self, most: Position) -> Set {
        set_of(self.log[self.inherited..].iter().filter(|r| !most.covers(position(r.end))))
    }
}

impl Server {
    pub(crate) fn content(&self) -> &[Record] {
        &self.log[..self.applied]
    }

    pub(crate) fn applied_end(&self) -> u64 {
        end_of(self.content())
    }

    pub(crate) fn flushed_end(&self) -> u64 {
        end_of(&self.log[..self.flushed])
    }

    /// The timeline its receiver names; `None` while it has none.
    pub(crate) fn received_timeline(&self) -> Option<u32> {
        let last = self.log.last().filter(|_| self.receives && self.doing == Doing::Following);
        last.map(|record| record.timeline)
    }

    /// The epochs of the rows that `log` holds, last first.
    fn rows_of(log: &[Record]) -> impl Iterator<Item = usize> + '_ {
        log.iter().rev().filter_map(|record| record.row)
    }

    /// The epochs whose rows it shows, last first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        Self::rows_of(self.content())
    }
}

impl World {
    /// One leader that wrote its row, and standbys cloned from it.
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut world = Self { servers: Vec::new(), epochs: Vec::new(), records: 0, clock: 0 };
        for _ in 0..SERVERS {
            let life = world.new_life();
            world.servers.push(Server {
                life,
                doing: Doing::Stopped,
                log: Vec::new(),
                applied: 0,
                flushed: 0,
                upstream: None,
                receives: false,
            });
        }
        world.begin(0, 1, false, random);
        world.insert_row(0, random);
        for follower in 1..SERVERS {
            world.clone_from(follower, 0);
        }
        world
    }

    fn new_life(&mut self) -> Life {
        self.clock += 10;
        Life { start: self.clock, reset: self.clock + 1 }
    }

    /// Where a parent truly ends in a child, told exactly or with some ignorance.
    pub(crate) fn claim(&self, child: usize, random: &mut Random) -> Fork {
        let line = &self.epochs[child];
        let Some((parent, common)) = line.parent else { return Fork::Unknown };
        if line.continues {
            return Fork::Unbounded;
        }
        let log = &self.epochs[parent].log;
        let end = end_of(&log[..common]);
        // A child may hold records of an epoch whose row it does not show, past the parent's end:
        // nothing is past the end of the child's beginning, which is what a server shows of it.
        let (mut at_least, mut at_most) = (end, end_of(&line.log[..line.inherited]));
        if random.one_in(2) {
            at_least = end_of(&log[..random.within(0, common)]);
        }
        if random.one_in(2) {
            at_most += random.next() % 100;
        }
        if random.one_in(10) {
            return Fork::Unknown;
        }
        Fork::between(position(at_least), position(at_most))
    }

    fn begin(&mut self, leader: usize, timeline: u32, continues: bool, random: &mut Random) {
        let server = &mut self.servers[leader];
        server.doing = Doing::Leading(self.epochs.len());
        server.applied = server.log.len();
        server.receives = false;
        let parent = server.rows().next().map(|parent| {
            let known = &self.epochs[parent].log;
            (parent, known.iter().zip(&server.log).take_while(|(a, b)| a.id == b.id).count())
        });
        self.epochs.push(Line {
            epoch: Epoch::new(timeline, server.life),
            log: server.log.clone(),
            parent,
            inherited: server.log.len(),
            // Only a restart on the timeline of the parent, with all of it, goes on.
            continues: continues
                && parent.is_some_and(|(p, common)| {
                    let parent = &self.epochs[p];
                    parent.epoch.timeline == timeline && parent.log.len() == common
                }),
            row: None,
        });
        // A server that leaves recovery writes and flushes a record of its own before it answers.
        self.write(leader, None, random);
        self.servers[leader].flushed = self.servers[leader].log.len();
    }

    fn write(&mut self, leader: usize, row: Option<usize>, random: &mut Random) {
        let Doing::Leading(epoch) = self.servers[leader].doing else { return };
        if self.records == RECORDS_MAX {
            return;
        }
        let server = &mut self.servers[leader];
        let end = end_of(&server.log) + 1 + random.next() % 40;
        let timeline = self.epochs[epoch].epoch.timeline;
        let record = Record { id: self.records, end, timeline, row };
        self.records += 1;
        server.log.push(record);
        server.applied = server.log.len();
        self.epochs[epoch].log.push(record);
    }

    /// Writes the lineage row of a leader that has none yet, durably.
    fn insert_row(&mut self, leader: usize, random: &mut Random) {
        let Doing::Leading(epoch) = self.servers[leader].doing else { return };
        if self.epochs[epoch].row.is_some() || self.records == RECORDS_MAX {
            return;
        }
        let parent = self.epochs[epoch].parent.map(|(parent, _)| parent);
        let n = parent.and_then(|parent| self.epochs[parent].row).map_or(0, |row| row.n + 1);
        self.epochs[epoch].row = Some(LineageRow {
            epoch: self.epochs[epoch].epoch,
            parent: parent.map(|parent| self.epochs[parent].epoch),
            fork: self.claim(epoch, random),
            n,
        });
        self.write(leader, Some(epoch), random);
        self.servers[leader].flushed = self.servers[leader].log.len();
    }

    fn restart(&mut self, leader: usize, random: &mut Random) {
        let Doing::Leading(epoch) = self.servers[leader].doing else { return };
        if self.epochs.len() == EPOCHS_MAX || self.records == RECORDS_MAX {
            return;
        }
        let mut life = self.new_life();
        let server = &mut self.servers[leader];
        let clean = random.one_in(3);
        if clean {
            life.reset = server.life.reset;
        } else {
            if random.one_in(3) {
                life.start = server.life.start;
            }
            server.log.truncate(random.within(server.flushed, server.log.len()));
        }
        server.flushed = server.log.len();
        server.life = life;
        self.begin(leader, self.epochs[epoch].epoch.timeline, clean, random);
    }

    fn promote(&mut self, standby: usize, random: &mut Random) {
        let server = &mut self.servers[standby];
        if server.doing != Doing::Following
            || self.epochs.len() == EPOCHS_MAX
            || self.records == RECORDS_MAX
        {
            return;
        }
        server.flushed = server.log.len();
        let timeline = server.log.last().map_or(1, |record| record.timeline);
        self.begin(standby, timeline + 1, false, random);
    }

    fn clone_from(&mut self, server: usize, leader: usize) {
        let Doing::Leading(_) = self.servers[leader].doing else { return };
        let life = self.new_life();
        let log = self.servers[leader].log[..self.servers[leader].flushed].to_vec();
        let (applied, flushed) = (log.len(), log.len());
        let doing = Doing::Following;
        self.servers[server] =
            Server { life, doing, log, applied, flushed, upstream: Some(leader), receives: true };
    }

    /// Extends a standby's log by what a leader with the same prefix has flushed.
    fn grow(&mut self, standby: usize, leader: usize, random: &mut Random) -> bool {
        let (own, other) = (&self.servers[standby], &self.servers[leader]);
        if own.doing != Doing::Following || !matches!(other.doing, Doing::Leading(_)) {
            return false;
        }
        if !other.log[..other.flushed].starts_with(&own.log) {
            return false;
        }
        let length = random.within(own.log.len(), other.flushed);
        let more = other.log[own.log.len()..length].to_vec();
        self.servers[standby].log.extend(more);
        true
    }

    pub(crate) fn stream(&mut self, standby: usize, random: &mut Random) {
        let Some(upstream) = self.servers[standby].upstream else { return };
        if self.servers[standby].receives {
            // A receiver whose leader has another log, or none, ends.
            self.servers[standby].receives = self.grow(standby, upstream, random);
        }
    }

    pub(crate) fn apply(&mut self, standby: usize, random: &mut Random) {
        let server = &mut self.servers[standby];
        if server.doing == Doing::Following {
            server.applied = random.within(server.applied, server.log.len());
        }
    }

    fn crash_standby(&mut self, standby: usize, random: &mut Random) {
        let life = self.new_life();
        let server = &mut self.servers[standby];
        if server.doing == Doing::Following {
            server.life = life;
            server.receives = false;
            server.applied = random.within(server.applied / 2, server.applied);
        }
    }

    /// Lets one thing happen somewhere.
    pub(crate) fn step(&mut self, random: &mut Random) {
        let (one, other) = (random.below(SERVERS), random.below(SERVERS));
        if let Doing::Leading(_) = self.servers[one].doing {
            match random.below(24) {
                0..=13 => self.write(one, None, random),
                14..=17 => {
                    let server = &mut self.servers[one];
                    server.flushed = random.within(server.flushed, server.log.len());
                }
                18 | 19 => self.insert_row(one, random),
                20 | 21 => self.restart(one, random),
                22 if random.one_in(2) => self.servers[one].doing = Doing::Stopped,
                _ if one != other && random.one_in(2) => self.clone_from(one, other),
                _ => {}
            }
            return;
        }
        match random.below(24) {
            0..=8 => self.stream(one, random),
            9..=15 => self.apply(one, random),
            16 | 17 => {
                self.servers[one].upstream = Some(other);
                self.servers[one].receives = self.grow(one, other, random);
            }
            18 => self.servers[one].receives = false,
            19 => {
                // From the archive: nobody is named.
                self.servers[one].receives = false;
                self.grow(one, other, random);
            }
            20 => self.crash_standby(one, random),
            21 => self.promote(one, random),
            22 if one != other => self.clone_from(one, other),
            _ => {}
        }
    }
}
