//! Notices against what became of the writes they are about.

use tidegate_core::lineage::Epoch;
use tidegate_core::token::{Notice, NoticeKind};

use super::{Breach, Check, Corner, Dep, Deps};
use crate::world::World;
use crate::world::log::Rec;

const fn kind_name(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::PossiblyLost => "possibly lost",
        NoticeKind::ObservedStateLost => "observed state lost",
        NoticeKind::WriteLost => "write lost",
    }
}

impl Check {
    /// Takes in what a session was told: what is gone with that loss is not missed any more.
    pub(crate) fn told(&mut self, notices: &[Notice], deps: &mut Deps, world: &World) {
        for notice in notices {
            self.losses.insert(notice.id().loss(), (notice.lost, notice.child));
            *self.figures.notices.entry(kind_name(notice.kind)).or_default() += 1;
            take_out(notice, deps, true, world);
        }
    }

    /// Takes in what the same answer tells once more: what is gone with it is not missed either.
    pub(crate) fn told_again(notices: &[Notice], deps: &mut Deps, world: &World) {
        for notice in notices {
            take_out(notice, deps, false, world);
        }
    }

    /// A write that was told as lost must not be there.
    ///
    /// `recorded` is what its record held, whoever was promised that; `leader` is the epoch the
    /// instance holds for the leader's.
    pub(crate) fn write_lost(
        &mut self,
        notice: &Notice,
        (deps, recorded): (&Deps, &[(Rec, Epoch)]),
        leader: Option<Epoch>,
        world: &World,
        now: u64,
    ) {
        if deps.gone.contains(&notice.lost) {
            // It was told before under another name, and is not among what is depended on any more.
            return;
        }
        let wrote = deps.all.iter().filter(|dep| dep.wrote);
        let wrote = wrote.filter_map(|dep| Some((dep.tip, dep.epoch?)));
        let of_it = wrote.chain(recorded.iter().copied()).filter(|own| own.1 == notice.lost);
        let own: Vec<Rec> = of_it.map(|own| own.0).collect();
        let last = own.iter().max_by_key(|rec| world.tree.record(**rec).end);
        let Some(last) = last.copied() else { return };
        let truth = world.true_leader().filter(|at| Some(world.servers[*at].epoch()) == leader);
        let Some(truth) = truth else { return };
        if world.servers[truth].has(&world.tree, last) {
            let text = format!(
                "record {last} (end {:X}) of {own:?}: {notice:?}",
                world.tree.record(last).end
            );
            self.broken(now, Breach::LostWriteIsThere, text);
        }
    }
}

/// What a notice is about: whatever ended with one epoch and may not be in the next.
struct Loss {
    notice: Notice,
    line: Option<Rec>,
    kept: Option<Rec>,
}

impl Loss {
    fn of(notice: &Notice, world: &World) -> Self {
        let (line, kept) = (world.line(notice.lost), world.line(notice.child));
        Self { notice: *notice, line, kept }
    }

    /// A read that could not be placed is told under the life it was made in.
    fn is_by_life(&self, dep: &Dep) -> bool {
        let lost = self.notice.lost;
        lost.timeline == 0 && dep.life == Some(lost.life)
    }

    fn concerns(&self, dep: &Dep, world: &World) -> bool {
        let lost = self.notice.lost;
        self.is_by_life(dep) || dep.epoch == Some(lost) || world.tree.is_in(dep.tip, self.line)
    }
}

/// Takes out of what a holder depends on whatever is gone with a loss.
fn take_out(notice: &Notice, deps: &mut Deps, is_new: bool, world: &World) {
    let loss = Loss::of(notice, world);
    let gone = &mut deps.gone;
    deps.all.retain_mut(|dep| {
        if !loss.concerns(dep, world) {
            return true;
        }
        // Of what stayed, too, nothing better is known than that it may be gone.
        let of_it = is_new || dep.epoch == Some(notice.lost) || loss.is_by_life(dep);
        dep.told |= of_it && notice.kind == NoticeKind::PossiblyLost;
        if world.tree.is_in(dep.tip, loss.kept) {
            return true;
        }
        gone.extend(dep.epoch.filter(|_| dep.wrote));
        match world.tree.common(dep.tip, loss.kept) {
            Some(common) => {
                dep.tip = common;
                dep.wrote = false;
                true
            }
            None => false,
        }
    });
}

impl Deps {
    /// Notes a loss that is not told.
    pub(crate) fn untold(&mut self, notice: &Notice, why: Corner, world: &World) {
        let loss = Loss::of(notice, world);
        for dep in &mut self.all {
            // What may be gone is not marked any more, whether it is gone or not.
            let gone =
                notice.kind == NoticeKind::PossiblyLost || !world.tree.is_in(dep.tip, loss.kept);
            if loss.concerns(dep, world) && gone {
                dep.unmarked.get_or_insert(why);
            }
        }
    }
}
