//! What cluster managers do: hand over, promote, rewind, attach, again and again. No operator.

use crate::options::MILLI;
use crate::random::Random;
use crate::scenes::hide;
use crate::schedule::Fault;
use crate::sim::{Sim, State};
use crate::world::Ends;

/// The leader stops cleanly, a standby that has everything is promoted, the old one follows it.
pub(crate) async fn switchover(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let old = state.leader()?;
        let new = state.foremost()?;
        let server = &state.world.servers[new];
        if server.upstream != old || server.following.is_none() {
            return None;
        }
        state.fault(Fault::Switchover, 700 * MILLI);
        state.world.hand_over(old, state.now);
        Some((old, new))
    });
    let Some((old, new)) = began else { return };
    sim.sleep(random.within(1, 80) as u64 * MILLI).await;
    sim.with(|state| {
        state.promote(new, false);
        state.follow(new);
    });
    sim.sleep(random.within(20, 400) as u64 * MILLI).await;
    sim.with(|state| rejoin(state, old));
}

/// Rewinds a server to follow the leader of now, as scripts of cluster managers do.
fn rejoin(state: &mut State, at: usize) {
    let now = state.now;
    if let Some(leader) = state.leader().filter(|leader| *leader != at) {
        state.world.stop(at, true, now);
        let really = state.world.rewind(at, leader, now);
        state.check.trace.say(now, || format!("server {at} rejoins {leader}, rewound: {really}"));
    }
}

/// The leader dies or is left to run, a standby is promoted, and the old leader comes back: by
/// `pg_rewind`, or with its files as they are.
pub(crate) async fn comes_back(sim: &Sim, rewinds: bool, random: &mut Random) {
    let fault = if rewinds { Fault::Rewind } else { Fault::Naive };
    let began = sim.with(|state| {
        let old = state.leader()?;
        let new = state.foremost()?;
        state.fault(fault, 1_000 * MILLI);
        if random.one_in(2) {
            let cleanly = random.one_in(3);
            state.world.stop(old, cleanly, state.now);
        }
        Some((old, new))
    });
    let Some((old, new)) = began else { return };
    sim.sleep(random.within(1, 100) as u64 * MILLI).await;
    sim.with(|state| {
        state.promote(new, random.one_in(2));
        state.follow(new);
    });
    sim.sleep(random.within(50, 700) as u64 * MILLI).await;
    sim.with(|state| {
        if rewinds {
            rejoin(state, old);
        } else if let Some(leader) = state.leader().filter(|leader| *leader != old) {
            state.world.stop(old, true, state.now);
            state.world.attach_without_rewind(old, leader, state.now);
        }
    });
}

/// The leader crashes, and its last restarts never reach anybody; then it stays dead, or comes
/// back writable beside the one that was promoted.
pub(crate) async fn crash_loop(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let old = state.leader()?;
        let new = state.foremost()?;
        state.fault(Fault::CrashLoop, 1_500 * MILLI);
        for server in &mut state.world.servers {
            server.receives = false;
        }
        Some((old, new))
    });
    let Some((old, new)) = began else { return };
    for _ in 0..random.within(1, 4) {
        sim.sleep(random.within(5, 120) as u64 * MILLI).await;
        sim.with(|state| {
            let ends = [Ends::Crash, Ends::Backend, Ends::Clean][random.below(3)];
            state.world.restart(old, ends, state.now, random.next());
        });
    }
    sim.sleep(random.within(5, 120) as u64 * MILLI).await;
    sim.with(|state| {
        state.world.stop(old, false, state.now);
        for server in &mut state.world.servers {
            server.receives = true;
        }
        state.promote(new, random.one_in(2));
        state.follow(new);
    });
    sim.sleep(random.within(200, 600) as u64 * MILLI).await;
    sim.with(|state| match random.below(3) {
        0 => state.world.start(old, state.now, random.next()),
        1 => rejoin(state, old),
        _ => {}
    });
}

/// Several promotions, each of a server that followed the one before, while nobody looks.
pub(crate) async fn gap(sim: &Sim, random: &mut Random) {
    let lasts = random.within(300, 900) as u64 * MILLI;
    let began = sim.with(|state| {
        state.leader()?;
        state.fault(Fault::Gap, lasts + 600 * MILLI);
        for node in 0..state.world.servers.len() {
            hide(state, node, lasts);
        }
        Some(())
    });
    if began.is_none() {
        return;
    }
    let times = random.within(2, 3) as u64;
    for _ in 0..times {
        let handed = sim.with(|state| {
            let (old, new) = (state.leader()?, state.foremost()?);
            if random.one_in(3) {
                state.world.hand_over(old, state.now);
            } else {
                state.world.stop(old, random.one_in(4), state.now);
            }
            state.promote(new, false);
            state.follow(new);
            Some(old)
        });
        sim.sleep(lasts / times).await;
        sim.with(|state| {
            if let Some(old) = handed.filter(|_| random.one_in(2)) {
                rejoin(state, old);
            }
        });
    }
}

/// A standby follows another server, a leader or a standby.
pub(crate) fn repoint(sim: &Sim, random: &mut Random) {
    sim.with(|state| {
        let Some(at) = state.standby(random) else { return };
        state.fault(Fault::Repoint, 300 * MILLI);
        let upstream = random.below(state.world.servers.len());
        let server = &mut state.world.servers[at];
        if upstream != at {
            server.upstream = upstream;
        }
    });
}

/// The leader shows the flush of a part of a record, and crashes.
pub(crate) async fn torn_record(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let at = state.leader()?;
        state.fault(Fault::TornRecord, 600 * MILLI);
        state.world.flush_pages(at, state.now + 300 * MILLI, state.now);
        Some(at)
    });
    let Some(at) = began else { return };
    sim.sleep(random.within(10, 110) as u64 * MILLI).await;
    sim.with(|state| {
        if state.world.servers[at].leads.is_some() {
            let ends = [Ends::Crash, Ends::Backend][random.below(2)];
            state.world.restart(at, ends, state.now, 0);
        }
    });
}
