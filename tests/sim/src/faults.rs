//! What each fault does to the world, to the network, to an instance or to the store.

use std::rc::Rc;

use tidegate_core::lineage::{Incarnation, SystemId};
use tidegate_core::partition::Event;

use crate::options::{MILLI, Profile};
use crate::random::Random;
use crate::schedule::Fault;
use crate::sim::{Sim, State};
use crate::world::{Ends, SYSTEM};
use crate::{failovers, operators, scenes, store};

/// How long the effects of a fault may be felt after it ended.
const ECHO: u64 = 400 * MILLI;

impl State {
    pub(crate) fn standby(&self, random: &mut Random) -> Option<usize> {
        let follows = |at: &usize| {
            let server = &self.world.servers[*at];
            server.answers() && server.leads.is_none()
        };
        let all: Vec<usize> = (0..self.world.servers.len()).filter(follows).collect();
        (!all.is_empty()).then(|| all[random.below(all.len())])
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        self.world.true_leader().filter(|at| self.world.servers[*at].answers())
    }

    /// Notes that a fault happens, and how long it lasts.
    pub(crate) fn fault(&mut self, fault: Fault, lasts: u64) {
        *self.check.figures.faults.entry(fault.name()).or_default() += 1;
        self.check.fault_until = self.check.fault_until.max(self.now + lasts + ECHO);
        self.check.trace.say(self.now, || format!("FAULT {}", fault.name()));
    }

    /// Every standby that can follows the leader.
    pub(crate) fn follow(&mut self, leader: usize) {
        for at in 0..self.world.servers.len() {
            if at != leader && self.world.servers[at].leads.is_none() {
                self.world.servers[at].upstream = leader;
            }
        }
    }

    pub(crate) fn promote(&mut self, at: usize, is_next_of_all: bool) {
        self.check.moves += 1;
        self.world.promote(at, is_next_of_all, self.now);
    }

    /// An operator of an instance says that the server at a node leads.
    pub(crate) fn resolve(&mut self, at: usize, node: usize) {
        let life = self.world.servers[self.world.address[node]].life;
        let incarnation = Incarnation { system: SystemId::new(SYSTEM), life };
        self.check.verdicts += 1;
        self.handle(at, Event::Resolve(incarnation));
    }

    /// An operator of an instance vouches for a node, whatever it holds.
    pub(crate) fn vouch(&mut self, at: usize, node: usize) {
        self.check.vouched.insert(node);
        self.handle(at, Event::Resume(Self::node(node)));
    }

    /// The standby that received most.
    pub(crate) fn foremost(&self) -> Option<usize> {
        let servers = (0..self.world.servers.len()).filter(|at| {
            let server = &self.world.servers[*at];
            server.answers() && server.leads.is_none() && !server.naive
        });
        servers.max_by_key(|at| self.world.servers[*at].log.len())
    }
}

/// Lets one fault happen.
pub(crate) async fn strike(sim: Rc<Sim>, fault: Fault, seed: u64) {
    let mut random = Random::new(seed);
    let random = &mut random;
    match fault {
        Fault::Lag
        | Fault::Pause
        | Fault::Disconnect
        | Fault::Freeze
        | Fault::Down
        | Fault::HiddenReceiver
        | Fault::Foreign
        | Fault::Stall => for_a_while(&sim, fault, random).await,
        Fault::StandbyCrash | Fault::StandbyBackend | Fault::StandbyRestart | Fault::Reclone => {
            standby_ends(&sim, fault, random)
        }
        Fault::LeaderCrash | Fault::LeaderBackend | Fault::LeaderRestart | Fault::Statistics => {
            leader_ends(&sim, fault, random);
        }
        Fault::DoubleCrash => {
            leader_ends(&sim, fault, random);
            sim.sleep(random.within(1, 60) as u64 * MILLI).await;
            leader_ends(&sim, Fault::LeaderCrash, random);
        }
        Fault::PollLoss
        | Fault::PollDelay
        | Fault::LateAnswer
        | Fault::Unreachable
        | Fault::RowsFail => network(&sim, fault, random),
        Fault::StoreLoss
        | Fault::StoreFailover
        | Fault::StoreSplit
        | Fault::StoreFailback
        | Fault::StoreFreeze
        | Fault::StoreRestart
        | Fault::StoreRestored
        | Fault::ScriptsFlushed
        | Fault::Evicted
        | Fault::StoreSlow
        | Fault::StoreCut
        | Fault::ReplicaSlow
        | Fault::StoreClock
        | Fault::VersionSkew
        | Fault::SecondInstance => store::faults::strike(&sim, fault, random).await,
        Fault::InstanceRestart | Fault::FactsLost => service(&sim, fault, random),
        Fault::Drain => drained(&sim, random).await,
        Fault::SharedAddress | Fault::TwoNames => addresses(&sim, fault, random).await,
        Fault::Promotion => scenes::promotion(&sim, false, random).await,
        Fault::Undead => scenes::promotion(&sim, true, random).await,
        Fault::Hidden => scenes::hidden(&sim, random).await,
        Fault::ResetPromoted => scenes::reset_promoted(&sim, random).await,
        Fault::Reused => scenes::reused(&sim, random).await,
        Fault::Twins | Fault::Moved | Fault::Attached => scenes::twins(&sim, fault, random).await,
        Fault::Revert => scenes::reverted(&sim, random).await,
        Fault::Copied => scenes::copied(&sim, random).await,
        Fault::Switchover => failovers::switchover(&sim, random).await,
        Fault::Rewind => failovers::comes_back(&sim, true, random).await,
        Fault::Naive => failovers::comes_back(&sim, false, random).await,
        Fault::CrashLoop => failovers::crash_loop(&sim, random).await,
        Fault::Gap => failovers::gap(&sim, random).await,
        Fault::Repoint => failovers::repoint(&sim, random),
        Fault::TornRecord => failovers::torn_record(&sim, random).await,
        Fault::RestoredLeader | Fault::RestoredStandby => operators::restored(&sim, fault, random),
        Fault::DeadTwin => operators::dead_twin(&sim, random).await,
        Fault::TestCopy => operators::test_copy(&sim, random).await,
        Fault::Undone => operators::undone(&sim, random).await,
        Fault::CopiedLeader => operators::copied_leader(&sim, random).await,
        Fault::CarelessVerdict | Fault::CarelessResume => operators::careless(&sim, fault, random),
    }
}

async fn for_a_while(sim: &Sim, fault: Fault, random: &mut Random) {
    let longer = if sim.with(|state| state.options.profile) == Profile::Expiry { 2 } else { 1 };
    let lasts = random.within(100, 1_500) as u64 * MILLI * longer;
    let struck = sim.with(|state| {
        let either = matches!(fault, Fault::Freeze | Fault::Foreign);
        let leads = fault == Fault::Stall || either && random.one_in(3);
        let at = if leads { state.leader()? } else { state.standby(random)? };
        let until = state.now + lasts;
        let old = state.world.servers[at].delay;
        let server = &mut state.world.servers[at];
        if fault == Fault::Stall {
            server.flush_due = until;
        } else if fault == Fault::Freeze {
            server.frozen = true;
        } else if fault == Fault::Lag {
            server.delay = random.within(50, 900) as u64 * MILLI;
        } else if fault == Fault::Pause {
            server.paused_until = until;
        } else if fault == Fault::Disconnect {
            server.receives = false;
        } else if fault == Fault::HiddenReceiver {
            server.hides_receiver = true;
        } else if fault == Fault::Foreign {
            state.world.foreign[at] = true;
        } else {
            state.world.stop(at, random.one_in(2), state.now);
        }
        state.fault(fault, lasts);
        Some((at, old, state.world.servers[at].life))
    });
    let Some((at, old, life)) = struck else { return };
    sim.sleep(lasts).await;
    sim.with(|state| {
        let now = state.now;
        let server = &mut state.world.servers[at];
        let same = server.life == life;
        if fault == Fault::Freeze && same {
            server.frozen = false;
        } else if fault == Fault::Lag {
            server.delay = old;
        } else if fault == Fault::Disconnect {
            server.receives = true;
        } else if fault == Fault::HiddenReceiver {
            server.hides_receiver = false;
        } else if fault == Fault::Foreign {
            state.world.foreign[at] = false;
        } else if fault == Fault::Down && same {
            state.world.start(at, now, random.next());
        }
    });
}

fn standby_ends(sim: &Sim, fault: Fault, random: &mut Random) {
    sim.with(|state| {
        let (Some(at), leader) = (state.standby(random), state.leader()) else { return };
        state.fault(fault, 300 * MILLI);
        let (now, pick) = (state.now, random.next());
        if let (Fault::Reclone, Some(leader)) = (fault, leader) {
            state.world.reclone(at, leader);
        } else {
            let ends = if fault == Fault::StandbyBackend {
                Ends::Backend
            } else if fault == Fault::StandbyCrash {
                Ends::Crash
            } else {
                Ends::Clean
            };
            state.world.restart(at, ends, now, pick);
        }
        if fault != Fault::StandbyRestart {
            // It is open before it has caught up.
            let pause = random.within(0, 300) as u64 * MILLI;
            state.world.servers[at].paused_until = now + pause;
        }
    });
}

fn leader_ends(sim: &Sim, fault: Fault, random: &mut Random) {
    sim.with(|state| {
        let Some(at) = state.leader() else { return };
        state.fault(fault, 300 * MILLI);
        let (now, pick) = (state.now, random.next());
        if fault == Fault::Statistics {
            let any = random.below(state.world.servers.len());
            let at = if random.one_in(2) { at } else { any };
            state.world.reset_statistics(at, now);
            return;
        }
        let ends = if fault == Fault::LeaderBackend {
            Ends::Backend
        } else if fault == Fault::LeaderRestart {
            Ends::Clean
        } else {
            Ends::Crash
        };
        state.world.restart(at, ends, now, pick);
    });
}

fn network(sim: &Sim, fault: Fault, random: &mut Random) {
    sim.with(|state| {
        let at = random.below(state.instances.len());
        let lasts = random.within(100, 900) as u64 * MILLI;
        let until = state.now + lasts;
        let any = random.below(state.options.servers);
        // What happens to the leader's polls matters most.
        let node = state.leader().filter(|_| random.one_in(2)).unwrap_or(any);
        state.fault(fault, lasts);
        let source = &mut state.instances[at].sources[node];
        if fault == Fault::PollLoss {
            source.deaf_until = until;
        } else if fault == Fault::PollDelay {
            source.slow_until = until;
            source.slow_by = random.within(20, 250) as u64 * MILLI;
        } else if fault == Fault::LateAnswer {
            source.hold_next = Some(random.within(1, 900) as u64 * MILLI);
        } else if fault == Fault::RowsFail {
            state.instances[at].rows_fail_until = until;
        } else {
            source.cut_until = until;
        }
    });
}

fn service(sim: &Sim, fault: Fault, random: &mut Random) {
    sim.with(|state| {
        let at = random.below(state.instances.len());
        state.fault(fault, 300 * MILLI);
        state.restart_instance(at, fault == Fault::InstanceRestart);
    });
}

async fn drained(sim: &Sim, random: &mut Random) {
    let lasts = random.within(100, 800) as u64 * MILLI;
    let (at, node) = sim.with(|state| {
        state.fault(Fault::Drain, lasts);
        let at = random.below(state.instances.len());
        let node = State::node(random.below(state.options.servers));
        state.handle(at, Event::Drain { node, drained: true });
        (at, node)
    });
    sim.sleep(lasts).await;
    sim.with(|state| state.handle(at, Event::Drain { node, drained: false }));
}

async fn addresses(sim: &Sim, fault: Fault, random: &mut Random) {
    let lasts = random.within(200, 1_200) as u64 * MILLI;
    let struck = sim.with(|state| {
        let node = state.standby(random)?;
        let other = state.standby(random).filter(|other| *other != node)?;
        state.fault(fault, lasts + 300 * MILLI);
        if fault == Fault::SharedAddress {
            state.world.shared[node] = Some(other);
        } else {
            state.world.address[node] = other;
        }
        // Whoever was confused by it stays out until an operator says otherwise.
        state.check.needs_word.extend([node, other]);
        Some(node)
    });
    let Some(node) = struck else { return };
    sim.sleep(lasts).await;
    sim.with(|state| {
        state.world.shared[node] = None;
        state.world.address[node] = node;
    });
}
