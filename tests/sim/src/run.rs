//! Lives one world: its schedule, then everything is healed, then everybody must be served.

use std::rc::Rc;
use std::time::Duration;

use tidegate_core::lineage::Epoch;
use tidegate_core::partition::Event;
use tidegate_core::routing::{AboveCap, Level, Policy};

use crate::check::{Breach, Figures, Violation};
use crate::faults::strike;
use crate::options::{MILLI, Options};
use crate::schedule::{Action, Kind};
use crate::session::{burst, healed_read};
use crate::sim::{Sim, State};
use crate::world::log::Branch;

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Lived {
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// How much was really tried.
    pub figures: Figures,
    /// Everything that happened, as a number.
    pub hash: u64,
    /// The same as text, if asked for.
    pub trace: Vec<String>,
}

/// Lives a world with this schedule.
pub fn live(options: &Options, schedule: &[Action], keeps_trace: bool) -> Lived {
    let sim = Sim::new(options.clone());
    if keeps_trace {
        sim.with(|state| state.check.trace.keep());
    }
    for action in schedule {
        match action.kind {
            Kind::Burst => sim.spawn(action.at, burst(Rc::clone(&sim), action.seed)),
            Kind::Fault(fault) => {
                sim.spawn(action.at, strike(Rc::clone(&sim), fault, action.seed));
            }
        }
    }
    sim.run(500 * MILLI + options.span);
    sim.with(|state| state.ended = true);
    // What is under way comes to its end.
    let settled = sim.now() + 3_500 * MILLI;
    sim.run(settled);
    heal(&sim);
    sim.with(State::nothing_waits);
    sim.end();
    sim.with(|state| Lived {
        violation: state.check.violation.take(),
        figures: std::mem::take(&mut state.check.figures),
        hash: state.check.trace.hash(),
        trace: state.check.trace.lines(),
    })
}

/// Ends every fault; then instances must know the leader, and every session must be served.
fn heal(sim: &Rc<Sim>) {
    if sim.with(|state| state.check.is_broken()) {
        return;
    }
    sim.with(State::heal_network);
    sim.run(sim.now() + 1_500 * MILLI);
    sim.with(State::ordinary_leader);
    sim.with(State::others_are_out);
    sim.with(State::heal_servers);
    sim.run(sim.now() + 1_500 * MILLI);
    sim.with(State::operator);
    sim.run(sim.now() + 1_000 * MILLI);
    sim.with(State::all_is_well);
    let fresh = Policy {
        level: Level::Session,
        bound: None,
        wait_budget: Duration::from_millis(400),
        may_fall_back: false,
        above_cap: vec![AboveCap::Refuse],
        zone: None,
    };
    let devices = sim.with(|state| state.devices.len());
    for device in 0..devices {
        let (sim, policy) = (Rc::clone(sim), fresh.clone());
        let at = sim.now();
        let own = Rc::clone(&sim);
        sim.spawn(at, async move {
            for instance in own.with(|state| state.serving()) {
                healed_read(&own, instance, device, &policy).await;
            }
        });
    }
    sim.run(sim.now() + 4_500 * MILLI);
}

impl State {
    /// The network, the store and the addresses are what they should be; nobody is frozen.
    fn heal_network(&mut self) {
        self.options.poll_loss = 0;
        self.options.overtaken = 0;
        self.options.row_failures = 0;
        self.options.row_latency_max = 10 * MILLI;
        self.options.flush_interval = 10 * MILLI;
        self.world.flush_interval = 10 * MILLI;
        self.world.shared.fill(None);
        self.world.foreign.fill(false);
        for (node, address) in self.world.address.iter_mut().enumerate() {
            *address = node;
        }
        for instance in &mut self.instances {
            instance.rows_fail_until = 0;
            instance.sources.iter_mut().for_each(crate::instance::Source::heal);
        }
        for server in &mut self.world.servers {
            server.frozen = false;
            server.paused_until = 0;
            server.receives = true;
            server.hides_receiver = false;
            server.delay = server.delay.min(10 * MILLI);
            server.flush_due = server.flush_due.min(self.now);
        }
        self.heal_store();
        for at in 0..self.instances.len() {
            for node in 0..self.options.servers {
                let node = Self::node(node);
                self.handle(at, Event::Drain { node, drained: false });
            }
        }
    }

    /// After an ordinary failover nobody has to say who leads, whether the old leader runs or not.
    fn ordinary_leader(&mut self) {
        if self.check.is_broken() || !self.options.is_ordinary() {
            return;
        }
        let Some(leader) = self.world.true_leader() else { return };
        let epoch = self.world.servers[leader].epoch();
        // After several, a row may have been lost before anybody else showed it; an instance that
        // lost its facts does not know where an epoch without a row came from.
        let plain = self.check.moves < 2 && !self.check.forgot;
        let last = plain && self.world.top_timeline == epoch.timeline;
        for at in 0..self.instances.len() {
            if last && self.leader_epoch(at) != Some(epoch) {
                let known = &self.instances[at].snapshot.leadership;
                let text = format!("instance {at}: {known:?} instead of {epoch} on {leader}");
                self.check.broken(self.now, Breach::PromotedIdle, text);
            }
        }
    }

    /// Once the one promotion is known as it was, nobody serves who holds records of the line that
    /// ended there.
    fn others_are_out(&mut self) {
        if self.check.is_broken() || self.check.moves != 1 || self.check.forgot {
            return;
        }
        let Some(leader) = self.world.true_leader() else { return };
        let (epoch, line) = {
            let own = &self.world.servers[leader];
            (own.epoch(), own.log.last().copied())
        };
        let branch = self.world.tree.branch_of(epoch);
        let parent = branch.and_then(|branch| self.world.tree.branches[branch].parent);
        let just_promoted =
            parent.is_some_and(|rec| self.world.tree.timeline(rec) < epoch.timeline);
        for at in (0..self.instances.len()).filter(|_| just_promoted) {
            let snapshot = self.instances[at].snapshot.clone();
            for node in 0..self.world.servers.len() {
                let own = &self.world.servers[node];
                let other = own.tip().is_some_and(|tip| !self.world.tree.is_in(tip, line));
                let known = self.leader_epoch(at) == Some(epoch);
                let serves = snapshot.eligible(Self::node(node), self.instant()).is_ok();
                if known && other && own.leads.is_none() && serves {
                    let text = format!("instance {at}, node {node}: {:?}", own.last_row());
                    self.check.broken(self.now, Breach::StrayServes, text);
                    return;
                }
            }
        }
    }

    /// One leader with the highest timeline; all others follow it, cloned anew where they must.
    fn heal_servers(&mut self) {
        let now = self.now;
        let top = |at: &usize| {
            let server = &self.world.servers[*at];
            let leads = server.leads.is_some() && !server.test_copy;
            (leads, server.timeline, !server.naive, server.log.len())
        };
        let count = self.world.servers.len();
        let up = |at: &usize| self.world.servers[*at].up;
        let best = (0..count).filter(up).max_by_key(top).unwrap_or(0);
        self.world.servers[best].test_copy = false;
        if self.world.servers[best].leads.is_none() {
            self.world.start(best, now, 0);
            self.world.promote(best, true, now);
        }
        self.follow_anew(best);
    }

    fn follow_anew(&mut self, leader: usize) {
        let now = self.now;
        self.world.flush_all(leader, now);
        for at in 0..self.world.servers.len() {
            let own = &self.world.servers[at];
            let line = self.world.servers[leader].log.last().copied();
            // After a failover nobody knows whether a server taken back ever led.
            let taken_back = self.check.moves > 0 && self.check.reverted.contains_key(&own.life);
            let good = at != leader
                && !taken_back
                && !self.check.copied.contains_key(&own.life)
                && own.leads.is_none()
                && !own.naive
                && own.life != self.world.servers[leader].life
                && own.log.last().is_some_and(|last| self.world.tree.is_in(*last, line));
            if at == leader || own.gone {
                continue;
            }
            if good {
                self.world.start(at, now, 0);
                self.world.servers[at].upstream = leader;
            } else {
                self.world.reclone(at, leader);
            }
        }
    }

    /// An operator does what nobody else can: says who leads where nothing tells, and vouches for
    /// servers that led a line which ended.
    fn operator(&mut self) {
        let mut touched = std::mem::take(&mut self.check.needs_word);
        let Some(leader) = self.world.true_leader() else { return };
        touched.extend(self.led_elsewhere(leader));
        // Where addresses were mixed up, a restarted leader may have been taken for another server.
        if self.check.figures.mixed_up() {
            touched.extend(0..self.world.servers.len());
        }
        let epoch = self.world.servers[leader].epoch();
        for at in 0..self.instances.len() {
            let known = self.leader_epoch(at) == Some(epoch);
            let must = !self.options.is_ordinary() || self.check.moves > 1 || self.check.forgot;
            if must && (!known || self.was_ahead(at, epoch)) {
                self.check.figures.verdicts_needed += 1;
                self.resolve(at, leader);
            }
            for node in &touched {
                self.handle(at, Event::Resume(Self::node(*node)));
            }
        }
    }

    /// Says whether sessions may know a line ahead of the leader's which the instance never saw: no
    /// node can be seen to have yielded.
    fn was_ahead(&self, at: usize, leader: Epoch) -> bool {
        let ahead = |branch: &&Branch| branch.epoch.timeline > leader.timeline;
        let mut ahead = self.world.tree.branches.iter().filter(ahead);
        ahead.any(|branch| {
            self.check.restarts > 0 || !self.check.polled.contains(&(at, branch.epoch))
        })
    }

    /// The servers that led a timeline of which the leader's rows say nothing.
    fn led_elsewhere(&mut self, leader: usize) -> Vec<usize> {
        self.world.servers[leader].read_rows(&self.world.tree);
        let own = &self.world.servers[leader];
        let on_line =
            |epoch: Epoch| epoch == own.epoch() || own.rows.iter().any(|row| row.epoch == epoch);
        let tree = &self.world.tree;
        let branches = tree.branches.iter().enumerate();
        let elsewhere = branches.filter(|(index, branch)| {
            let found = tree.row_before(*index);
            // Who lost its facts cannot tell a restart without a row from another line.
            let known = !self.check.forgot;
            let restarted = known && found.is_some_and(|row| row.timeline == branch.epoch.timeline);
            !restarted && !on_line(branch.epoch)
        });
        elsewhere.map(|(_, branch)| branch.server).collect()
    }

    /// Every instance knows the leader, and every standby may serve.
    fn all_is_well(&mut self) {
        if self.check.is_broken() {
            return;
        }
        let Some(leader) = self.world.true_leader() else {
            self.check.broken(self.now, Breach::NoLeader, String::new());
            return;
        };
        let epoch = self.world.servers[leader].epoch();
        for at in 0..self.instances.len() {
            let snapshot = self.instances[at].snapshot.clone();
            if self.leader_epoch(at) != Some(epoch) {
                let known = &snapshot.leadership;
                let text = format!("instance {at}: {known:?} instead of {epoch} on {leader}");
                self.check.broken(self.now, Breach::LeaderUnknown, text);
                return;
            }
            let others = |node: &usize| *node != leader && !self.world.servers[*node].gone;
            for node in (0..self.world.servers.len()).filter(others) {
                let eligible = snapshot.eligible(Self::node(node), self.instant());
                if let Err(why) = eligible {
                    let own = &self.world.servers[node];
                    let text = format!(
                        "instance {at}, node {node}: {why:?}; last row {:?}, follows {:?}",
                        own.last_row(),
                        own.following
                    );
                    self.check.broken(self.now, Breach::HealthyOut, text);
                    return;
                }
            }
        }
    }

    /// No wait is older than its deadline.
    fn nothing_waits(&mut self) {
        if self.check.is_broken() {
            return;
        }
        let now = self.instant();
        for at in 0..self.instances.len() {
            let late = self.instances[at].waits.iter().find(|(_, waiter)| {
                waiter.end.is_none() && now.since(waiter.deadline) > Duration::from_millis(1)
            });
            if let Some((id, waiter)) = late {
                let text = format!("instance {at}, {id:?}: deadline {:?}", waiter.deadline);
                self.check.broken(self.now, Breach::WaitNotEnded, text);
                return;
            }
        }
    }
}
