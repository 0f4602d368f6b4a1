//! What reaches a device with an answer: notices, and counts of how good the answer was.

use tidegate_core::routing::{Guarantee, Level, Policy};

use super::holder::Committed;
use super::select::Selected;
use crate::check::{Dep, Deps};
use crate::instance::Instance;
use crate::sim::State;

impl State {
    /// A device learns what was lost; `deps` is what its call was about.
    pub(crate) fn tell(
        &mut self,
        at: usize,
        device: usize,
        committed: &Committed,
        deps: &mut Deps,
    ) {
        if committed.notices.is_empty() {
            return;
        }
        let leader = self.leader_epoch(at);
        let now = self.now;
        let Self { check, devices, store, world, .. } = self;
        let own = &mut devices[device];
        check.trace.say(now, || format!("device {device} is told {:?}", committed.notices));
        check.told(&committed.notices, deps, leader, world, now);
        if own.carries {
            check.told(&committed.notices, &mut own.deps, leader, world, now);
        }
        if let Some(subject) = own.subject {
            check.told(&committed.notices, &mut store.deps[subject], leader, world, now);
        }
        own.notices.extend(committed.notices.iter().map(tidegate_core::token::Notice::id));
        own.notices.sort_unstable();
        own.notices.dedup();
    }

    /// Evidence that was kept back was recorded.
    pub(crate) fn adopted(
        &mut self,
        device: usize,
        fifth: &[Vec<tidegate_core::lineage::Epoch>; 2],
        dep: Dep,
    ) {
        let Self { devices, store, world, .. } = self;
        let own = &mut devices[device];
        let why = "the fifth epoch's mark goes";
        fifth[0].iter().for_each(|epoch| own.deps.unmark(Some(*epoch), why, world));
        own.deps.add(dep, world);
        let Some(subject) = own.subject else { return };
        fifth[1].iter().for_each(|epoch| store.deps[subject].unmark(Some(*epoch), why, world));
        store.deps[subject].add(dep, world);
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
                self.check.broken(self.now, "the cap was exceeded", text);
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
        let flagged = answer.met.contains(&Guarantee::ReadYourWrites);
        figures.session_reads += 1;
        figures.flagged += u64::from(flagged);
        if calm {
            figures.calm_reads += 1;
            figures.calm_replica += u64::from(flagged && served.timeline.is_none());
        }
    }
}
