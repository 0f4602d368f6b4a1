//! What operators do, asked and unasked: verdicts, test copies, promotions undone, servers
//! restored from copies.

use crate::options::MILLI;
use crate::random::Random;
use crate::scenes::hide;
use crate::schedule::Fault;
use crate::sim::{Sim, State};
use crate::world::Ends;

/// A server starts from an older copy of its own files.
pub(crate) fn restored(sim: &Sim, fault: Fault, random: &mut Random) {
    sim.with(|state| {
        let leads = fault == Fault::RestoredLeader;
        let at = if leads { state.leader() } else { state.standby(random) };
        let Some(at) = at else { return };
        let ends = [Ends::Crash, Ends::Clean][random.below(2)];
        let cut = random.within(1, 60);
        if !state.world.restore(at, cut, ends, state.now) {
            return;
        }
        // It may have grown again before anybody polls it.
        for _ in 0..random.within(0, cut * 3 / 4) {
            state.world.append(at, None, false);
        }
        state.fault(fault, 600 * MILLI);
        state.check.trace.say(state.now, || format!("server {at} restored"));
        if leads {
            state.check.restored.add(state.world.servers[at].life);
            state.check.needs_word.extend(0..state.world.servers.len());
        }
    });
}

/// Two standbys are promoted; one of them is gone for ever.
pub(crate) async fn dead_twin(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let leader = state.leader()?;
        let one = state.standby(random)?;
        let other = state.standby(random).filter(|other| *other != one)?;
        state.fault(Fault::DeadTwin, 3_000 * MILLI);
        state.check.needs_word.extend(0..state.world.servers.len());
        state.promote(one, false);
        Some((leader, one, other))
    });
    let Some((leader, one, other)) = began else { return };
    sim.sleep(random.within(100, 600) as u64 * MILLI).await;
    sim.with(|state| {
        let cleanly = random.one_in(2);
        state.world.stop(leader, cleanly, state.now);
        state.promote(other, false);
    });
    sim.sleep(random.within(100, 600) as u64 * MILLI).await;
    let dead = if random.one_in(2) { one } else { other };
    sim.with(|state| {
        state.world.stop(dead, false, state.now);
        state.world.servers[dead].gone = true;
        if let Some(leader) = state.leader() {
            state.follow(leader);
        }
    });
    if random.one_in(2) {
        sim.sleep(random.within(100, 600) as u64 * MILLI).await;
        sim.with(verdict_for_leader);
    }
}

/// A standby is promoted to try something while the leader runs on; the operator says so, soon or
/// at the end.
pub(crate) async fn test_copy(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        state.leader()?;
        let copy = state.standby(random)?;
        state.fault(Fault::TestCopy, 1_500 * MILLI);
        state.check.needs_word.insert(copy);
        state.promote(copy, random.one_in(2));
        state.world.servers[copy].test_copy = true;
        Some(copy)
    });
    let Some(copy) = began else { return };
    for _ in 0..random.within(1, 6) {
        sim.sleep(random.within(10, 150) as u64 * MILLI).await;
        sim.with(|state| {
            state.world.append(copy, None, false);
        });
    }
    if random.one_in(3) {
        sim.with(|state| undo(state, copy));
        return;
    }
    sim.with(verdict_for_leader);
    sim.sleep(random.within(100, 500) as u64 * MILLI).await;
    if random.one_in(2) {
        sim.with(|state| undo(state, copy));
    }
}

/// A standby is promoted by mistake, written to, and cloned anew from the leader that ran on.
pub(crate) async fn undone(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let old = state.leader()?;
        let new = state.standby(random)?;
        state.fault(Fault::Undone, 1_500 * MILLI);
        state.check.needs_word.insert(new);
        state.promote(new, random.one_in(2));
        Some((old, new))
    });
    let Some((_, new)) = began else { return };
    sim.sleep(random.within(5, 700) as u64 * MILLI).await;
    sim.with(|state| {
        state.world.servers[new].test_copy = true;
        undo(state, new);
    });
}

/// A standby is copied alive, machine and all, and leads; the copy, which nobody polled, answers at
/// its address for a while.
pub(crate) async fn copied_leader(sim: &Sim, random: &mut Random) {
    let lasts = random.within(150, 400) as u64 * MILLI;
    let began = sim.with(|state| {
        let (old, one) = (state.leader()?, state.foremost()?);
        let other = state.standby(random).filter(|other| *other != one)?;
        state.fault(Fault::CopiedLeader, 2 * lasts + 600 * MILLI);
        hide(state, other, 2 * lasts + 100 * MILLI);
        state.world.copy_alive(other, one);
        state.world.servers[other].receives = false;
        state.check.needs_word.extend([one, other]);
        state.world.stop(old, false, state.now);
        state.promote(one, false);
        state.follow(one);
        Some((one, other))
    });
    let Some((one, other)) = began else { return };
    sim.sleep(lasts).await;
    sim.with(|state| {
        hide(state, one, lasts);
        state.world.address.swap(one, other);
    });
    sim.sleep(lasts).await;
    sim.with(|state| {
        state.world.address.swap(one, other);
        // Whoever made the copy turns it off before anybody polls it.
        if let Some(leader) = state.leader().filter(|leader| *leader != other) {
            state.world.reclone(other, leader);
        }
    });
}

/// A server that should not lead is cloned anew from the one that does.
fn undo(state: &mut State, at: usize) {
    if let Some(leader) = state.leader().filter(|leader| *leader != at) {
        state.world.reclone(at, leader);
    }
}

/// Every instance is told that the leader that counts is the one that leads.
fn verdict_for_leader(state: &mut State) {
    let Some(leader) = state.leader() else { return };
    for at in 0..state.instances.len() {
        state.resolve(at, leader);
    }
}

/// An operator says who leads, or vouches for a node, without looking.
pub(crate) fn careless(sim: &Sim, fault: Fault, random: &mut Random) {
    sim.with(|state| {
        state.fault(fault, 300 * MILLI);
        let at = random.below(state.instances.len());
        let any = random.below(state.world.servers.len());
        if fault == Fault::CarelessVerdict {
            state.check.needs_word.extend(0..state.world.servers.len());
            state.resolve(at, any);
        } else {
            state.vouch(at, any);
        }
    });
}
