//! What reaches a device with an answer: notices, and counts of how good the answer was.

use tidegate_core::routing::{Guarantee, Level, Policy};
use tidegate_core::snapshot::Snapshot;
use tidegate_core::token::{Change, Notice, NoticeKind};

use super::Pending;
use super::committed::Committed;
use super::select::Selected;
use crate::check::{Breach, Check, Corner, Dep, Deps, Telling};
use crate::instance::Instance;
use crate::sim::State;

/// Notices a holder keeps until they are acknowledged.
const NOTICES_MAX: usize = 8;

impl State {
    /// A device learns what was lost; `deps` is what its call was about.
    pub(crate) fn tell(
        &mut self,
        at: usize,
        device: usize,
        committed: &Committed,
        fresh: &[Notice],
        deps: &mut Deps,
    ) {
        let leader = self.leader_epoch(at);
        let now = self.now;
        // What was acknowledged before is not told again.
        let told =
            |notice: &&Notice| committed.notices.iter().any(|one| one.id().covers(notice.id()));
        let why = |notice: &Notice| {
            let mut heard = committed.merged.acknowledged();
            let acknowledged = heard.any(|id| id.covers(notice.id()));
            let full = committed.merged.notices().count() == NOTICES_MAX;
            let ninth = full.then_some(Corner::NinthNotice);
            if acknowledged { Some(Corner::AfterAcknowledgement) } else { ninth }
        };
        let (fresh, untold): (Vec<Notice>, Vec<Notice>) = fresh.iter().partition(told);
        let writes = self.devices[device].subject.map(|subject| &self.store.writes[subject]);
        let writes = writes.into_iter().flatten().map(|(rec, epoch)| (*rec, *epoch));
        let recorded: Vec<_> = writes.filter(|(rec, _)| committed.held.contains(rec)).collect();
        for notice in fresh.iter().filter(|notice| notice.kind == NoticeKind::WriteLost) {
            self.check.write_lost(notice, (deps, &recorded), leader, &self.world, now);
        }
        self.learn(device, &fresh, deps);
        let Self { devices, store, world, .. } = self;
        let own = &mut devices[device];
        // Whatever is not acknowledged comes with each answer, whoever was told of it first.
        Check::told_again(&committed.notices, deps, world);
        if own.carries {
            Check::told_again(&committed.notices, &mut own.deps, world);
        }
        let record = own.subject.map(|subject| &mut store.deps[subject]);
        for holder in [Some(deps), Some(&mut own.deps), record].into_iter().flatten() {
            for (notice, why) in untold.iter().filter_map(|one| why(one).map(|why| (one, why))) {
                holder.untold(notice, why, world);
            }
        }
        let told = committed.notices.iter().map(Notice::id);
        let new: Vec<_> = told.filter(|id| !own.notices.contains(id)).collect();
        own.notices.extend(new);
    }

    /// Looks at each loss that a call judged, by what was known then.
    pub(crate) fn justify(&mut self, by: &Snapshot, change: &Change, deps: &Deps) {
        let leader = by.leadership.leader().map(|leader| leader.epoch);
        let history = &by.history;
        let facts = self.instances.iter().map(|own| own.snapshot.facts.as_ref()).collect();
        let telling = Telling { change, deps, leader, history, facts };
        self.check.justified(&telling, &self.world, self.now);
    }

    /// What is gone with a loss that was told is not missed any more.
    pub(crate) fn learn(&mut self, device: usize, fresh: &[Notice], deps: &mut Deps) {
        if fresh.is_empty() {
            return;
        }
        let Self { check, devices, store, world, now, .. } = self;
        let own = &mut devices[device];
        check.trace.say(*now, || format!("device {device} is told {fresh:?}"));
        check.told(fresh, deps, world);
        if own.carries {
            check.told(fresh, &mut own.deps, world);
        }
        if let Some(subject) = own.subject {
            check.told(fresh, &mut store.deps[subject], world);
        }
    }

    /// Evidence that was kept back was recorded; the token that stands for it comes with the
    /// answer.
    pub(crate) fn adopted(
        &mut self,
        device: usize,
        fifth: &[Vec<tidegate_core::lineage::Epoch>; 2],
        (pending, dep): (Pending, Option<Dep>),
        raises_token: bool,
    ) {
        let Self { devices, store, world, .. } = self;
        let own = &mut devices[device];
        let why = Corner::FifthLife;
        // The new mark may be the one that goes.
        let goes = |dep: &Dep| dep.epoch.is_some_and(|epoch| fifth[0].contains(&epoch));
        let carried =
            dep.map(|dep| if goes(&dep) { Dep { unmarked: Some(why), ..dep } } else { dep });
        fifth[0].iter().for_each(|epoch| own.deps.unmark(Some(*epoch), why, world));
        own.delivered.push((pending, carried, raises_token));
        let Some(subject) = own.subject else { return };
        dep.iter().for_each(|dep| store.deps[subject].add(*dep, world));
        fifth[1].iter().for_each(|epoch| store.deps[subject].unmark(Some(*epoch), why, world));
    }

    pub(crate) fn leader_epoch(&self, at: usize) -> Option<tidegate_core::lineage::Epoch> {
        let instance: &Instance = &self.instances[at];
        instance.snapshot.leadership.leader().map(|leader| leader.epoch)
    }

    /// Asks the cap for a fallback to the leader.
    pub(crate) fn admit(&mut self, at: usize) -> bool {
        let (now, guards) = (self.instant(), self.options.guards());
        let admitted = self.instances[at].cap.try_admit(now, &guards).is_ok();
        if admitted {
            let window = &mut self.check.fallbacks[at];
            window.push(self.now);
            let since = self.now.saturating_sub(999_999_999);
            let busy = window.iter().rev().take_while(|then| **then >= since).count();
            let rate = self.options.cap as usize;
            // A tenth more, and one read.
            if busy > rate + (rate / 10).max(1) {
                let text = format!("{busy} fallbacks in a second at instance {at}, cap {rate}");
                self.check.broken(self.now, Breach::CapExceeded, text);
            }
        }
        admitted
    }

    /// Counts a read in which some standby truly lacks what the session depends on.
    pub(crate) fn count_lacking(&mut self, deps: &Deps) {
        if deps.all.is_empty() {
            return;
        }
        self.check.figures.rounds += 1;
        let lacks = self.world.servers.iter().any(|server| {
            let has = |dep: &Dep| server.has(&self.world.tree, dep.tip);
            server.up && server.leads.is_none() && !deps.all.iter().all(has)
        });
        self.check.figures.lacking += u64::from(lacks);
    }

    pub(crate) fn count_read(&mut self, policy: &Policy, answer: &Selected) {
        let calm = self.now > self.check.fault_until;
        let figures = &mut self.check.figures;
        let Some(served) = &answer.served else {
            figures.refused += 1;
            return;
        };
        figures.stale += u64::from(served.stale);
        figures.leader_reads += u64::from(served.timeline.is_some());
        if policy.level != Level::Session {
            return;
        }
        let promised = answer.met.contains(&Guarantee::ReadYourWrites);
        figures.session_reads += 1;
        figures.promised += u64::from(promised);
        if calm {
            figures.calm_reads += 1;
            figures.calm_replica += u64::from(promised && served.timeline.is_none());
        }
    }
}
