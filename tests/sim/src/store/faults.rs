//! What breaks in a token store, and who is left where.

use std::rc::Rc;

use super::StoreKind;
use super::server::Op;
use crate::options::MILLI;
use crate::random::Random;
use crate::schedule::Fault;
use crate::sim::{Sim, State};

/// How often a rolling restart is looked after.
const ROLL_NANOS: u64 = 60 * MILLI;

impl State {
    /// The primary that a scene may begin with, which lasts so long: one scene at a time.
    fn store_scene(&mut self, lasts: u64) -> Option<usize> {
        let main = self.store_main().filter(|_| self.now >= self.store.scene_until)?;
        self.store.scene_until = self.now + lasts + 2 * self.options.store.fence();
        Some(main)
    }

    /// The primary that counts, if it runs.
    fn store_main(&self) -> Option<usize> {
        let main = self.store.servers.main;
        let own = &self.store.servers.all[main];
        (own.runs() && own.upstream.is_none()).then_some(main)
    }

    /// A replica of the primary that counts.
    fn store_replica(&self, random: &mut Random) -> Option<usize> {
        let servers = &self.store.servers;
        let follows =
            |at: &usize| servers.all[*at].runs() && servers.all[*at].upstream == Some(servers.main);
        let all: Vec<usize> = (0..servers.all.len()).filter(follows).collect();
        (!all.is_empty()).then(|| all[random.below(all.len())])
    }

    /// Standbys of the database fall behind; their delays of before.
    fn standbys_lag(&mut self, random: &mut Random) -> Vec<u64> {
        let servers = &mut self.world.servers;
        let before = servers.iter().map(|server| server.delay).collect();
        let most = usize::try_from(self.options.delay_max / MILLI).expect("small");
        for server in servers.iter_mut().filter(|server| server.leads.is_none()) {
            server.delay = server.delay.max(random.within(0, most) as u64 * MILLI);
        }
        before
    }

    /// Everybody hears of the next primary in time, soon or late.
    fn hear_in_time(&mut self, random: &mut Random) {
        let most = usize::try_from(self.options.store.max_lag / MILLI).expect("small");
        for instance in &mut self.instances {
            let most = if random.one_in(2) { most / 4 } else { 3 * most };
            instance.link.hears_after = random.within(0, most) as u64 * MILLI;
        }
    }

    /// One instance is left where it is, whoever is named.
    fn leave_one(&mut self, at: usize, until: u64, random: &mut Random) {
        let one = random.below(self.instances.len());
        self.instances[one].link.left = Some((at, until));
        self.instances[one].link.server = at;
    }
}

/// Lets one fault of a token store happen; `false`: it is none of this world's store.
pub(crate) async fn strike(sim: &Rc<Sim>, fault: Fault, random: &mut Random) {
    let kind = sim.with(|state| state.options.store.kind);
    match (kind, fault) {
        (StoreKind::Told, _) => {
            sim.with(|state| {
                state.fault(Fault::StoreLoss, 300 * MILLI);
                state.forget();
            });
        }
        (StoreKind::Own, _) => comes(sim, random).await,
        (StoreKind::Shared, Fault::StoreFailover) => fails_over(sim, random).await,
        (StoreKind::Shared, Fault::StoreSplit) => splits(sim, false, random).await,
        (StoreKind::Shared, Fault::StoreFailback) => splits(sim, true, random).await,
        (StoreKind::Shared, Fault::StoreFreeze) => freezes(sim, random).await,
        (StoreKind::Shared, Fault::VersionSkew) => rolls(sim, random).await,
        (StoreKind::Shared, Fault::StoreSlow | Fault::StoreCut | Fault::ReplicaSlow) => {
            for_a_while(sim, fault, random).await;
        }
        (StoreKind::Shared, _) => at_once(sim, fault, random),
    }
}

/// The primary dies; a replica that lacks its last writes is promoted.
async fn fails_over(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let old = state.store_scene(1_500 * MILLI)?;
        let new = state.store_replica(random)?;
        state.fault(Fault::StoreFailover, 4 * state.options.store.fence());
        // What was written last is still under way to it.
        state.store.servers.all[new].delay = random.within(20, 400) as u64 * MILLI;
        state.hear_in_time(random);
        Some((old, new))
    });
    let Some((old, new)) = began else { return };
    sim.sleep(random.within(20, 500) as u64 * MILLI).await;
    let dies = random.one_in(2);
    sim.with(|state| state.store.servers.all[old].up = !dies);
    sim.sleep(random.within(1, 200) as u64 * MILLI).await;
    sim.with(|state| {
        let now = state.now;
        if state.store.servers.all[new].upstream != Some(old) {
            return;
        }
        state.store.servers.promote(new, now);
        state.store.servers.all[new].delay = 2 * MILLI;
        state.store.servers.all_follow(new, None);
        state.check.trace.say(now, || format!("store server {new} is promoted for {old}"));
    });
    sim.sleep(random.within(50, 900) as u64 * MILLI).await;
    sim.with(|state| demote(state, old));
}

/// A former primary comes back and follows whoever is primary.
fn demote(state: &mut State, old: usize) {
    let (main, now) = (state.store.servers.main, state.now);
    state.store.servers.demote(old, main, now);
}

/// A replica is promoted behind a cut; the old primary lives on and still answers, with an instance
/// that is left there and, now and then, the other replica. Later one of the two follows the other.
async fn splits(sim: &Sim, goes_back: bool, random: &mut Random) {
    let lasts = random.within(500, 2_500) as u64 * MILLI;
    let began = sim.with(|state| {
        let old = state.store_scene(lasts + 300 * MILLI)?;
        let new = state.store_replica(random)?;
        let fault = if goes_back { Fault::StoreFailback } else { Fault::StoreSplit };
        state.fault(fault, lasts + 3 * state.options.store.fence());
        let until = state.now + lasts;
        state.leave_one(old, until, random);
        state.hear_in_time(random);
        state.store.servers.all[new].cut = true;
        Some((old, new))
    });
    let Some((old, new)) = began else { return };
    // Soon, the old one goes on for all the time it counts those it does not hear of any more.
    let most = if random.one_in(2) { 20 } else { 300 };
    sim.sleep(random.within(1, most) as u64 * MILLI).await;
    let others_stay = random.one_in(2);
    sim.with(|state| {
        let now = state.now;
        let servers = &mut state.store.servers;
        servers.all[new].cut = false;
        if servers.main != old || servers.all[new].upstream != Some(old) {
            return;
        }
        // Behind a cut the old primary does not see that it is gone.
        let heard = servers.all[old].heard.get(&new).copied();
        servers.promote(new, now);
        if let Some(heard) = heard.filter(|_| !random.one_in(4)) {
            servers.all[old].heard.insert(new, heard);
        }
        let other = (0..servers.all.len())
            .find(|at| *at != new && servers.all[*at].upstream == Some(old))
            .filter(|_| others_stay);
        servers.all_follow(new, other);
        state.check.trace.say(now, || format!("store server {new} leads beside {old}"));
    });
    // What is recorded on the old primary is still missing when the new one is believed.
    let delays = sim.with(|state| state.standbys_lag(random));
    sim.sleep(lasts).await;
    sim.with(|state| {
        let servers = state.world.servers.iter_mut();
        servers.zip(&delays).for_each(|(server, delay)| server.delay = *delay);
        if state.store.servers.main != new {
            return;
        }
        if goes_back && state.store.servers.all[old].runs() {
            let now = state.now;
            (state.store.servers.main, state.store.servers.switched_at) = (old, now);
            state.store.servers.demote(new, old, now);
        } else {
            demote(state, old);
        }
    });
}

/// The primary stands still, with what callers have sent; a replica is promoted meanwhile, or not.
async fn freezes(sim: &Sim, random: &mut Random) {
    let lasts = random.within(50, 1_500) as u64 * MILLI;
    let began = sim.with(|state| {
        let old = state.store_scene(lasts + 500 * MILLI)?;
        state.fault(Fault::StoreFreeze, lasts + 3 * state.options.store.fence());
        state.store.servers.all[old].frozen = true;
        state.hear_in_time(random);
        if random.one_in(2) {
            let until = state.now + lasts + 300 * MILLI;
            state.leave_one(old, until, random);
        }
        Some(old)
    });
    let Some(old) = began else { return };
    let before = random.within(10, 100) as u64 * lasts / 200;
    sim.sleep(before).await;
    sim.with(|state| {
        let servers = &state.store.servers;
        let follows = |at: &usize| servers.all[*at].upstream == Some(old) && servers.all[*at].up;
        let new = (0..servers.all.len()).find(follows).filter(|_| !random.one_in(3));
        if let Some(new) = new.filter(|_| servers.main == old) {
            // It still counts those it has heard of, once it runs again.
            let heard = state.store.servers.all[old].heard.clone();
            let now = state.now;
            state.store.servers.promote(new, now);
            state.store.servers.all_follow(new, None);
            state.store.servers.all[old].heard = heard;
            state.check.trace.say(now, || format!("store server {new} leads, {old} is frozen"));
        }
    });
    sim.sleep(lasts - before).await;
    sim.with(|state| state.store.servers.all[old].frozen = false);
    sim.sleep(random.within(20, 500) as u64 * MILLI).await;
    sim.with(|state| demote(state, old));
}

/// What takes no time.
fn at_once(sim: &Sim, fault: Fault, random: &mut Random) {
    sim.with(|state| {
        let Some(main) = state.store_main() else { return };
        let (fence, now) = (state.options.store.fence(), state.now);
        let servers = &mut state.store.servers;
        let lasts = if fault == Fault::ScriptsFlushed { 2 * fence } else { 3 * fence };
        if fault == Fault::StoreRestart {
            // What was not saved in the last second is gone.
            let saved = servers.copy(random.below(3));
            let data = saved.unwrap_or_else(|| servers.all[main].data.clone());
            servers.restart(main, data, now);
        } else if fault == Fault::StoreRestored {
            let data = servers.copy(random.within(2, 20)).unwrap_or_default();
            servers.restart(main, data, now);
        } else if fault == Fault::ScriptsFlushed {
            servers.all.iter_mut().for_each(|server| server.scripts = false);
        } else if fault == Fault::Evicted {
            if !servers.evict(main, random.below(64), now) {
                return;
            }
        } else if fault == Fault::StoreClock {
            let most = usize::try_from(state.options.gate.as_millis() / 2).expect("short");
            servers.all[main].ahead += random.within(1, most) as u64 * MILLI;
        } else {
            servers.change(main, &Op::Flush, now);
            if random.one_in(4) {
                (0..state.instances.len()).for_each(|at| state.restart_instance(at, true));
            }
        }
        state.fault(fault, lasts);
    });
}

/// An instance gets its answers late or none at all, or a replica what is written.
async fn for_a_while(sim: &Sim, fault: Fault, random: &mut Random) {
    let lasts = random.within(100, 1_500) as u64 * MILLI;
    let replica = sim.with(|state| {
        state.fault(fault, lasts + state.options.store.fence());
        let until = state.now + lasts;
        if fault == Fault::ReplicaSlow {
            let replica = state.store_replica(random)?;
            state.store.servers.all[replica].delay = random.within(50, 900) as u64 * MILLI;
            return Some(replica);
        }
        let all = random.one_in(2);
        let one = random.below(state.instances.len());
        let timeout = usize::try_from(state.options.store.timeout() / MILLI).expect("small");
        let by = random.within(1, timeout * 5 / 4) as u64 * MILLI;
        for (at, instance) in state.instances.iter_mut().enumerate() {
            if !all && at != one {
                continue;
            }
            if fault == Fault::StoreCut {
                instance.link.cut_until = until;
            } else {
                instance.link.slow = (until, by);
            }
        }
        None
    });
    sim.sleep(lasts).await;
    if let Some(replica) = replica {
        sim.with(|state| state.store.servers.all[replica].delay = 5 * MILLI);
    }
}

/// One instance after the other is started again as the other version.
async fn rolls(sim: &Sim, random: &mut Random) {
    let count = sim.with(|state| {
        state.fault(Fault::VersionSkew, 800 * MILLI);
        state.instances.len()
    });
    // Forwards, or back again.
    let previous = random.one_in(3);
    for at in 0..count {
        sim.with(|state| {
            state.instances[at].previous = previous;
            state.restart_instance(at, true);
        });
        sim.sleep(random.within(1, 10) as u64 * ROLL_NANOS).await;
    }
}

/// A second instance starts beside the first, and goes again.
async fn comes(sim: &Sim, random: &mut Random) {
    let lasts = random.within(100, 1_500) as u64 * MILLI;
    let came = sim.with(|state| {
        let absent = |at: &usize| !state.instances[*at].presence.is_there;
        let at = (0..state.instances.len()).find(absent)?;
        state.fault(Fault::SecondInstance, lasts + 400 * MILLI);
        state.come(at, true);
        Some(at)
    });
    let Some(at) = came else { return };
    sim.sleep(lasts).await;
    // Whoever was there first may go, too.
    sim.with(|state| {
        let there = (0..state.instances.len()).filter(|at| state.instances[*at].presence.is_there);
        let there: Vec<usize> = there.collect();
        if there.len() > 1 {
            let goes = if random.one_in(3) { there[random.below(there.len())] } else { at };
            state.come(goes, false);
        }
    });
}

impl State {
    /// The store is what it should be.
    pub(crate) fn heal_store(&mut self) {
        let now = self.now;
        self.store.servers.heal(now);
        for at in 0..self.instances.len() {
            let link = &mut self.instances[at].link;
            (link.left, link.cut_until, link.slow) = (None, 0, (0, 0));
            link.hears_after = 0;
            if self.options.store.kind == StoreKind::Own
                && self.instances[at].presence.is_there
                && self.serving().first().is_some_and(|first| *first != at)
            {
                self.come(at, false);
            }
        }
    }
}
