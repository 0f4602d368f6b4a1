//! Answers of reads: whoever is named must have what is promised of it.

use tidegate_core::lineage::Epoch;
use tidegate_core::position::{Lsn, Position};
use tidegate_core::routing::Guarantee;
use tidegate_core::token::SessionToken;

use super::{Breach, Check, Corner, Dep, Deps};
use crate::store::Promise;
use crate::world::World;
use crate::world::log::Rec;

/// One read, as it was answered and as it is made now.
#[derive(Debug)]
pub(crate) struct ReadCheck<'a> {
    pub(crate) instance: usize,
    /// The server that is read.
    pub(crate) server: usize,
    pub(crate) met: &'a [Guarantee],
    /// What the session depends on that the answer did not tell of as lost.
    pub(crate) deps: &'a Deps,
    /// What its holders hold together.
    pub(crate) holder: &'a SessionToken,
    /// The epoch the instance held for the leader's.
    pub(crate) leader: Option<Epoch>,
    /// When the call arrived.
    pub(crate) since: u64,
    /// Everything acknowledged before must be there, for a bound.
    pub(crate) bound: Option<u64>,
}

impl Check {
    /// Looks whether the server has what was promised.
    pub(crate) fn read(&mut self, read: &ReadCheck<'_>, world: &World, now: u64) {
        let session = read.met.contains(&Guarantee::ReadYourWrites);
        if session {
            for dep in &read.deps.all {
                if !world.servers[read.server].has(&world.tree, dep.tip) {
                    self.missing(dep, read, world, now);
                }
            }
        }
        if read.met.contains(&Guarantee::Global) {
            self.figures.global += 1;
            self.acknowledged(read, read.since, Breach::Global, world, now);
        }
        if let Some(bound) = read.bound.filter(|_| read.met.contains(&Guarantee::Bounded)) {
            self.figures.bounded += 1;
            self.acknowledged(read, bound, Breach::Bounded, world, now);
        }
    }

    /// Everything the visible leader acknowledged before `before` must be there.
    fn acknowledged(
        &mut self,
        read: &ReadCheck<'_>,
        before: u64,
        promise: Breach,
        world: &World,
        now: u64,
    ) {
        let Some(leader) = read.leader.filter(|leader| self.is_true(*leader, world)) else {
            self.figures.excuse(Corner::LeaderInView);
            return;
        };
        let line = world.line(leader);
        let count = self.acknowledged.partition_point(|(at, _)| *at < before);
        let older = self.acknowledged[..count].iter().rev().take(40);
        let server = &world.servers[read.server];
        let lacks = |rec: Rec| world.tree.is_in(rec, line) && !server.has(&world.tree, rec);
        let lacking = older.map(|(_, rec)| *rec).find(|rec| lacks(*rec));
        if let Some(rec) = lacking {
            if self.is_corner(read, world) {
                return;
            }
            let text = format!(
                "record {rec}, acknowledged before {before}, is not on server {} (instance {}, \
                 leader {leader})",
                read.server, read.instance
            );
            self.broken(now, promise, text);
        }
    }

    /// Says whether the epoch is that of the leader that counts.
    pub(crate) fn is_true(&self, epoch: Epoch, world: &World) -> bool {
        world.true_leader().is_some_and(|at| world.servers[at].epoch() == epoch)
    }

    /// A record a session depends on is not where it was sent.
    fn missing(&mut self, dep: &Dep, read: &ReadCheck<'_>, world: &World, now: u64) {
        if self.is_corner(read, world) {
            return;
        }
        let line = read.leader.and_then(|leader| world.line(leader));
        let lost = !world.tree.is_in(dep.tip, line);
        if let Some(why) = self.excuse(dep, lost, read, world) {
            self.figures.excuse(why);
            return;
        }
        let kind = match (dep.wrote, lost) {
            (true, false) => Breach::WriteMissing,
            (true, true) => Breach::LostWriteUntold,
            (false, false) => Breach::SeenMissing,
            (false, true) => Breach::LostStateUntold,
        };
        let server = &world.servers[read.server];
        let text = format!(
            "record {} (end {:X}, {:?}) is not on server {} which has {} records, last row {:?}; \
             instance {}, leader {:?}, holder {:?}, notices {:?}, acknowledged {:?}",
            dep.tip,
            world.tree.record(dep.tip).end,
            dep,
            read.server,
            server.content().len(),
            server.last_row(),
            read.instance,
            read.leader,
            read.holder.components().collect::<Vec<_>>(),
            read.holder.notices().map(|n| (n.id(), n.lost, n.child)).collect::<Vec<_>>(),
            read.holder.acknowledged().collect::<Vec<_>>(),
        );
        self.broken(now, kind, text);
    }

    /// Why a missing record is documented as not promised.
    fn excuse(&self, dep: &Dep, lost: bool, read: &ReadCheck<'_>, world: &World) -> Option<Corner> {
        if let Promise::Here { why, .. } = dep.promise {
            return Some(why);
        }
        if dep.forgotten {
            if lost {
                return Some(dep.unmarked.unwrap_or(Corner::LostWhenForgotten));
            }
            if read.leader.is_none_or(|leader| !self.is_true(leader, world)) {
                return Some(Corner::LeaderInView);
            }
        }
        if lost && dep.told {
            return Some(Corner::ToldBefore);
        }
        if lost && let Some(why) = dep.unmarked {
            return Some(why);
        }
        let told_before = read.holder.acknowledged().any(|id| {
            self.losses.get(&id.loss()).is_some_and(|(gone, child)| {
                let of_it = dep.epoch == Some(*gone)
                    || world.tree.is_in(dep.tip, world.line(*gone))
                    || (gone.timeline == 0 && dep.life == Some(gone.life));
                // It was told of as much, or nobody knew how much.
                let end = Position::from(Lsn::new(world.tree.record(dep.tip).end));
                let heard = id.upto() == Position::START || id.upto().covers(end);
                of_it && heard && !world.tree.is_in(dep.tip, world.line(*child))
            })
        });
        (lost && told_before).then_some(Corner::AfterAcknowledgement)
    }

    /// Corners of servers that left no trace: documented, and counted.
    fn is_corner(&mut self, read: &ReadCheck<'_>, world: &World) -> bool {
        let server = &world.servers[read.server];
        if let Some((_, by)) = self.reverted.get(&server.life)
            && !by.contains(&read.instance)
        {
            self.figures.excuse(Corner::TakenBack);
            return true;
        }
        if let Some((_, by)) = self.copied.get(&server.life)
            && by.get(&read.instance).is_none_or(|nodes| nodes.len() < 2)
        {
            self.figures.excuse(Corner::CopiedAlive);
            return true;
        }
        if self.restored.is_unseen() {
            self.figures.excuse(Corner::RestoredUnseen);
            return true;
        }
        if server.naive && self.vouched.contains(&read.server) {
            self.figures.excuse(Corner::Vouched);
            return true;
        }
        if server.naive && self.left_no_trace(read.instance, read.server, world) {
            self.figures.excuse(Corner::AttachedUnseen);
            return true;
        }
        false
    }

    /// Nothing an instance polled shows that the server holds records of another line.
    fn left_no_trace(&self, instance: usize, at: usize, world: &World) -> bool {
        let server = &world.servers[at];
        let line = server.log.last().copied();
        let foreign: Vec<Rec> =
            server.content().iter().copied().filter(|rec| !world.tree.is_in(*rec, line)).collect();
        let system = tidegate_core::lineage::SystemId::new(crate::world::SYSTEM);
        let incarnation = tidegate_core::lineage::Incarnation { system, life: server.life };
        let shown = self.shown.get(&(instance, incarnation));
        let led = foreign.iter().any(|rec| {
            let branch = &world.tree.branches[world.tree.record(*rec).branch];
            branch.server == at && self.polled.contains(&(instance, branch.epoch))
        });
        let rows = foreign.iter().any(|rec| {
            let row = world.tree.record(*rec).row.as_ref().map(|write| write.row.epoch);
            row.is_some_and(|row| shown.is_some_and(|shown| shown.contains(&row)))
        });
        !led && !rows
    }
}
