//! Longer stories: promotions of every kind, twins, servers that go back or are copied.

use tidegate_core::partition::Event;

use crate::options::MILLI;
use crate::random::Random;
use crate::schedule::Fault;
use crate::sim::{Sim, State};

/// The leader dies, or runs on, and a standby is promoted.
pub(crate) async fn promotion(sim: &Sim, undead: bool, random: &mut Random) {
    let began = sim.with(|state| {
        let leader = state.leader()?;
        let foremost = state.foremost()?;
        let any = state.standby(random)?;
        let next = if random.one_in(2) { foremost } else { any };
        let fault = if undead { Fault::Undead } else { Fault::Promotion };
        state.fault(fault, 900 * MILLI);
        if !undead {
            state.world.stop(leader, random.one_in(3), state.now);
        }
        Some((leader, next))
    });
    let Some((old, new)) = began else { return };
    sim.sleep(random.within(1, 200) as u64 * MILLI).await;
    let next_of_all = random.one_in(2);
    let unseen = random.within(100, 500) as u64 * MILLI;
    let is_hidden = undead && random.one_in(2);
    sim.with(|state| {
        if is_hidden {
            // Nobody looks at it for a while; the old leader still says that all is well.
            hide(state, new, unseen);
        }
        state.promote(new, next_of_all);
        state.check.trace.say(state.now, || format!("server {new} promoted"));
    });
    sim.sleep(random.within(1, 150) as u64 * MILLI).await;
    sim.with(|state| {
        if state.world.servers[new].leads.is_some() {
            state.follow(new);
        }
    });
    // The old leader comes back as a standby, is left alone, or runs on for a while.
    sim.sleep(random.within(300, 1_500) as u64 * MILLI).await;
    sim.with(|state| {
        if random.one_in(3) && state.leader().is_some_and(|leader| leader != old) {
            let leader = state.leader().unwrap_or(new);
            state.world.reclone(old, leader);
        }
    });
}

/// Keeps every instance's polls from a node for a while.
pub(crate) fn hide(state: &mut State, node: usize, lasts: u64) {
    let until = state.now + lasts;
    for instance in &mut state.instances {
        instance.sources[node].cut_until = until;
    }
}

/// A promotion nobody polls, of a standby that is behind, and others that follow it at once.
pub(crate) async fn hidden(sim: &Sim, random: &mut Random) {
    let lasts = random.within(300, 1_200) as u64 * MILLI;
    let began = sim.with(|state| {
        let leader = state.leader()?;
        let new = state.standby(random)?;
        state.fault(Fault::Hidden, lasts + 600 * MILLI);
        // Behind: it received nothing for a while. Followers are further behind.
        for at in 0..state.world.servers.len() {
            if at != leader {
                state.world.servers[at].receives = false;
            }
        }
        Some((leader, new))
    });
    let Some((old, new)) = began else { return };
    sim.sleep(random.within(60, 250) as u64 * MILLI).await;
    sim.with(|state| {
        hide(state, new, lasts);
        state.promote(new, false);
        let own = state.world.servers[new].log.len();
        for at in 0..state.world.servers.len() {
            let server = &mut state.world.servers[at];
            server.receives = true;
            let behind = server.leads.is_none() && server.log.len() <= own;
            if behind && at != old {
                server.upstream = new;
            }
        }
        // The old leader is asked seldom, but it is there: its flush is known.
        if random.one_in(2) {
            hide(state, old, lasts / 2);
        }
    });
    for _ in 0..6 {
        sim.sleep(lasts / 6).await;
        // The new leader's log grows, as leaders' logs do.
        sim.with(|state| {
            for _ in 0..random.within(1, 12) {
                state.world.append(new, None, false);
            }
        });
    }
    sim.sleep(200 * MILLI).await;
    sim.with(|state| {
        state.world.stop(old, false, state.now);
        if state.world.servers[new].leads.is_some() {
            state.follow(new);
        }
    });
}

/// A promoted leader whose row comes late or never, written to, and its statistics reset.
pub(crate) async fn reset_promoted(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let leader = state.leader()?;
        let new = state.foremost()?;
        state.fault(Fault::ResetPromoted, 1_200 * MILLI);
        let until = state.now + 900 * MILLI;
        for instance in &mut state.instances {
            instance.rows_fail_until = until;
        }
        state.world.stop(leader, true, state.now);
        state.promote(new, true);
        state.follow(new);
        Some(new)
    });
    let Some(new) = began else { return };
    for _ in 0..2 {
        sim.sleep(random.within(150, 350) as u64 * MILLI).await;
        sim.with(|state| state.world.reset_statistics(new, state.now));
    }
}

/// Promoted, cloned anew from the old leader, and promoted again to the same timeline, while a row
/// is under way to it.
pub(crate) async fn reused(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let old = state.leader()?;
        let new = state.standby(random)?;
        let follower = state.standby(random).filter(|at| *at != new)?;
        state.fault(Fault::Reused, 1_500 * MILLI);
        state.options.row_latency_max = 500 * MILLI;
        state.promote(new, false);
        Some((old, new, follower))
    });
    let Some((old, new, follower)) = began else { return };
    // Long enough to be polled and written to.
    for _ in 0..5 {
        sim.sleep(random.within(10, 40) as u64 * MILLI).await;
    }
    let lasts = random.within(300, 700) as u64 * MILLI;
    sim.with(|state| {
        hide(state, new, lasts);
        state.world.reclone(new, old);
        state.world.reclone(follower, old);
        state.promote(new, false);
        state.world.servers[follower].upstream = new;
        state.check.needs_word.insert(new);
    });
    for _ in 0..10 {
        sim.sleep(lasts / 8).await;
        sim.with(|state| {
            for _ in 0..random.within(1, 8) {
                state.world.append(new, None, false);
            }
        });
    }
    sim.with(|state| {
        state.options.row_latency_max = 20 * MILLI;
        state.world.stop(old, false, state.now);
        state.follow(new);
    });
}

/// Two standbys are promoted; what follows depends on the fault.
pub(crate) async fn twins(sim: &Sim, fault: Fault, random: &mut Random) {
    let began = sim.with(|state| {
        let leader = state.leader()?;
        let standbys: Vec<usize> =
            (0..state.world.servers.len()).filter(|at| *at != leader).collect();
        let all_follow = standbys.iter().all(|at| {
            let server = &state.world.servers[*at];
            server.answers() && server.leads.is_none() && server.following.is_some()
        });
        (standbys.len() == 4 && all_follow).then(|| {
            state.fault(fault, 3_000 * MILLI);
            state.check.needs_word.extend(0..state.world.servers.len());
            (leader, standbys)
        })
    });
    let Some((leader, standbys)) = began else { return };
    let [one, other, of_one, of_other] = standbys[..] else { return };
    // The first twin stays behind, with its standby.
    sim.with(|state| {
        for at in [one, of_one] {
            state.world.servers[at].receives = false;
        }
    });
    sim.sleep(random.within(40, 200) as u64 * MILLI).await;
    sim.with(|state| {
        state.promote(one, false);
        state.world.servers[of_one].upstream = one;
        state.world.servers[of_one].receives = true;
    });
    sim.sleep(random.within(200, 500) as u64 * MILLI).await;
    sim.with(|state| {
        if random.one_in(2) {
            state.world.stop(leader, false, state.now);
        }
        state.promote(other, false);
        state.world.servers[of_other].upstream = other;
    });
    sim.sleep(random.within(200, 500) as u64 * MILLI).await;
    if fault == Fault::Moved {
        moved(sim, (leader, one, other), of_one, random).await;
    } else if fault == Fault::Attached {
        attached(sim, (leader, one, other), random).await;
    }
}

/// A standby that shows the row of one twin is moved to the other.
async fn moved(
    sim: &Sim,
    (leader, one, other): (usize, usize, usize),
    follower: usize,
    random: &mut Random,
) {
    sim.with(|state| {
        state.world.stop(leader, false, state.now);
        state.world.stop(one, false, state.now);
        let server = &mut state.world.servers[follower];
        server.attaches_naively = true;
        server.upstream = other;
        // One twin has given up: an operator takes it for a standby of the other.
        state.world.reclone(one, other);
        for at in 0..state.instances.len() {
            state.handle(at, Event::Tick);
        }
    });
    for _ in 0..10 {
        sim.sleep(random.within(20, 80) as u64 * MILLI).await;
        sim.with(|state| {
            state.world.append(other, None, false);
        });
    }
}

/// A former twin is attached to the other without a rewind.
async fn attached(sim: &Sim, (leader, one, other): (usize, usize, usize), random: &mut Random) {
    sim.with(|state| {
        state.world.stop(leader, false, state.now);
        state.world.stop(one, true, state.now);
    });
    for _ in 0..8 {
        sim.sleep(random.within(10, 40) as u64 * MILLI).await;
        sim.with(|state| {
            for _ in 0..random.within(1, 6) {
                state.world.append(other, None, false);
            }
        });
    }
    sim.with(|state| state.world.attach_without_rewind(one, other, state.now));
    sim.sleep(random.within(50, 200) as u64 * MILLI).await;
    // The winner restarts: its next row brings the whole page.
    sim.with(|state| {
        state.world.restart(other, crate::world::Ends::Clean, state.now, random.next());
    });
}

/// A running standby is taken back to what it was.
pub(crate) async fn reverted(sim: &Sim, random: &mut Random) {
    sim.with(|state| {
        let Some(at) = state.standby(random) else { return };
        state.fault(Fault::Revert, 600 * MILLI);
        state.world.revert(at, random.within(1, 40));
        state.world.servers[at].paused_until = state.now + 700 * MILLI;
        let life = state.world.servers[at].life;
        // Whoever was asked before the last answer had come may have looked at the old state.
        let asked_after = state.now + 320 * MILLI;
        state.check.reverted.insert(life, (asked_after, std::collections::BTreeSet::new()));
        state.check.needs_word.insert(at);
    });
}

/// A running standby is copied; later the two change addresses.
pub(crate) async fn copied(sim: &Sim, random: &mut Random) {
    let began = sim.with(|state| {
        let one = state.standby(random)?;
        let other = state.standby(random).filter(|other| *other != one)?;
        state.fault(Fault::Copied, 1_500 * MILLI);
        state.world.copy_alive(other, one);
        state.world.servers[other].paused_until = state.now + 1_200 * MILLI;
        let life = state.world.servers[one].life;
        state.check.copied.insert(life, (state.now, std::collections::BTreeMap::new()));
        state.check.needs_word.extend([one, other]);
        Some((one, other))
    });
    let Some((one, other)) = began else { return };
    sim.sleep(random.within(200, 500) as u64 * MILLI).await;
    sim.with(|state| state.world.address.swap(one, other));
    sim.sleep(random.within(300, 600) as u64 * MILLI).await;
    sim.with(|state| state.world.address.swap(one, other));
}
