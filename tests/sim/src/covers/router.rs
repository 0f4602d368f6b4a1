//! What a router knows of a world: from polls alone, some of them late, through the core's views.
//!
//! It judges nothing and chooses nobody.

use std::collections::BTreeMap;

use tidegate_core::evidence::{Evidence, EvidenceKind, Role};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, History, Incarnation, LineageRow, SystemId};
use tidegate_core::position::Position;
use tidegate_core::views::{NodeId, NodeView, Observation};

use super::world::{Doing, SERVERS, World, position};
use crate::random::Random;

pub(crate) struct Router {
    pub(crate) history: History,
    pub(crate) flush_seen: BTreeMap<Epoch, Position>,
    pub(crate) views: Vec<Option<NodeView>>,
    /// An answer that is still under way.
    late: Option<Observation>,
    guards: Guards,
    clock: u64,
}

impl Router {
    pub(crate) fn new(guards: Guards) -> Self {
        let views = (0..SERVERS).map(|_| None).collect();
        let (history, flush_seen) = (History::new(), BTreeMap::new());
        Self { history, flush_seen, views, late: None, guards, clock: 0 }
    }

    fn now(&mut self) -> Instant {
        self.clock += 1;
        Instant::from_nanos(self.clock)
    }

    /// Polls one server; a standby goes on while the fields are read.
    pub(crate) fn poll(&mut self, world: &mut World, index: usize, random: &mut Random) {
        let sent_at = self.now();
        let replay = position(world.servers[index].applied_end());
        if random.one_in(2) {
            world.stream(index, random);
            world.apply(index, random);
        }
        let server = &world.servers[index];
        let role = match server.doing {
            Doing::Stopped => return,
            Doing::Following => Role::Standby { received_timeline: server.received_timeline() },
            Doing::Leading(epoch) => Role::Writable {
                timeline: world.epochs[epoch].epoch.timeline,
                insert: replay,
                flush: position(server.flushed_end()),
                flush_starts_page: false,
            },
        };
        if let (Doing::Leading(epoch), Role::Writable { flush, .. }) = (server.doing, role) {
            let seen = self.flush_seen.entry(world.epochs[epoch].epoch).or_insert(flush);
            *seen = seen.join(flush);
        }
        let rows: Vec<LineageRow> =
            server.rows().filter_map(|epoch| world.epochs[epoch].row).collect();
        for row in &rows {
            self.history.read_row(*row).expect("true rows agree");
        }
        if let Doing::Leading(epoch) = server.doing {
            self.place(world, epoch, random);
        }
        let evidence = Evidence {
            kind: EvidenceKind::Poll,
            server_version_num: 150_018,
            incarnation: Incarnation { system: SystemId::new(7), life: server.life },
            role,
            replay: Some(replay).filter(|_| server.doing == Doing::Following),
            row: rows.first().map(|row| row.epoch),
            asynchronous: false,
        };
        let node = NodeId::new(u16::try_from(index).expect("few servers"));
        let received_at = self.now();
        let seen =
            Observation { node, evidence, rows: Some(rows), switches: None, sent_at, received_at };
        // One answer in eight is overtaken by later ones.
        let arrived = if random.one_in(8) { self.late.replace(seen) } else { Some(seen) };
        if let Some(seen) = arrived {
            self.take(&seen);
        }
        if random.one_in(4)
            && let Some(mut late) = self.late.take()
        {
            late.received_at = self.now();
            self.take(&late);
        }
    }

    fn take(&mut self, seen: &Observation) {
        match &mut self.views[seen.node.index()] {
            Some(view) => {
                view.observe(seen, &self.history, &self.guards);
            }
            empty @ None => *empty = Some(NodeView::first(seen, &self.history, &self.guards)),
        }
    }

    /// Gives an epoch its place before its row is read.
    fn place(&mut self, world: &World, index: usize, random: &mut Random) {
        let line = &world.epochs[index];
        let parent = line.parent.map(|(parent, _)| world.epochs[parent].epoch);
        let n = parent.and_then(|parent| self.history.depth(parent)).map_or(0, |n| n + 1);
        let fork = world.claim(index, random);
        let row = LineageRow { epoch: line.epoch, parent, fork, n };
        self.history.place(row).expect("what is true agrees");
    }
}
