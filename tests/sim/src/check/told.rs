//! Notices against what became of the writes they are about.

use tidegate_core::lineage::Epoch;
use tidegate_core::token::{Notice, NoticeKind};

use super::{Check, Deps};
use crate::world::World;

const fn kind_name(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::PossiblyLost => "possibly lost",
        NoticeKind::ObservedStateLost => "observed state lost",
        NoticeKind::WriteLost => "write lost",
    }
}

impl Check {
    /// Takes in what a session was told: what is gone with that loss is not missed any more.
    ///
    /// `leader` is the epoch the instance holds for the leader's.
    pub(crate) fn told(
        &mut self,
        notices: &[Notice],
        deps: &mut Deps,
        leader: Option<Epoch>,
        world: &World,
        now: u64,
    ) {
        for notice in notices {
            self.losses.insert(notice.id(), (notice.lost, notice.child));
            *self.figures.notices.entry(kind_name(notice.kind)).or_default() += 1;
            if notice.kind == NoticeKind::WriteLost {
                self.write_lost(notice, deps, leader, world, now);
            }
            take_out(notice.lost, notice.child, deps, world);
        }
    }

    /// A write that was told as lost must not be there.
    fn write_lost(
        &mut self,
        notice: &Notice,
        deps: &Deps,
        leader: Option<Epoch>,
        world: &World,
        now: u64,
    ) {
        let own = deps.all.iter().filter(|dep| dep.wrote && dep.epoch == Some(notice.lost));
        let last = own.max_by_key(|dep| world.tree.record(dep.tip).end);
        let Some(last) = last else { return };
        let truth = world.true_leader().filter(|at| Some(world.servers[*at].epoch()) == leader);
        let Some(truth) = truth else { return };
        if world.servers[truth].has(&world.tree, last.tip) {
            let text = format!("record {} of epoch {}: {notice:?}", last.tip, notice.lost);
            self.broken(now, "WRITE_LOST for a write that is there", text);
        }
    }
}

/// Takes out of what a holder depends on whatever ended with `lost` and is not in `child`.
fn take_out(lost: Epoch, child: Epoch, deps: &mut Deps, world: &World) {
    let line = world.line(lost);
    let kept = world.line(child);
    deps.all.retain_mut(|dep| {
        // A read that could not be placed is told under the life it was made in.
        let by_life = lost.timeline == 0 && dep.life == Some(lost.life);
        let concerned = by_life || dep.epoch == Some(lost) || world.tree.is_in(dep.tip, line);
        if !concerned || world.tree.is_in(dep.tip, kept) {
            return true;
        }
        match world.tree.common(dep.tip, kept) {
            Some(common) => {
                dep.tip = common;
                dep.wrote = false;
                true
            }
            None => false,
        }
    });
}
