//! What an application does: write, read, wait, and tell the service of it in time, late or never.

use std::rc::Rc;
use std::time::Duration;

use tidegate_core::lineage::{Incarnation, SystemId};
use tidegate_core::routing::{AboveCap, Guarantee, Level, Policy};
use tidegate_core::token::Change;

use super::Pending;
use super::holder::{Whom, crowd};
use super::record::{Observed, delivered, record};
use super::select::{Selected, Served, select};
use super::wait::wait;
use crate::check::{Corner, Dep, ReadCheck};
use crate::instance::nanos;
use crate::options::{MILLI, Profile};
use crate::random::Random;
use crate::sim::Sim;
use crate::world::SYSTEM;

/// Times a read is selected again after its connection led elsewhere.
const TRIES: usize = 3;

/// A device does several things, one after the other.
pub(crate) async fn burst(sim: Rc<Sim>, seed: u64) {
    let mut random = Random::new(seed);
    let device = sim.with(|state| random.below(state.devices.len()));
    let mut patience = 0;
    while sim.with(|state| state.devices[device].busy) {
        patience += 1;
        if patience > 400 {
            return;
        }
        sim.sleep(5 * MILLI).await;
    }
    sim.with(|state| state.devices[device].busy = true);
    let (count, profile) = sim.with(|state| {
        let more = state.options.scale == crate::options::Scale::Prove;
        (random.within(3, if more { 8 } else { 5 }), state.options.profile)
    });
    for _ in 0..count {
        if sim.with(|state| state.ended || state.check.is_broken()) {
            break;
        }
        sim.with(|state| state.check.figures.operations += 1);
        let Some(at) = sim.with(|state| {
            let serving = state.serving();
            (!serving.is_empty()).then(|| serving[random.below(serving.len())])
        }) else {
            sim.sleep(20 * MILLI).await;
            continue;
        };
        match random.below(20) {
            0..=6 => write(&sim, at, device, &mut random).await,
            7..=16 => read(&sim, at, device, profile, &mut random).await,
            17 | 18 => wait_for(&sim, at, device, &mut random).await,
            _ if random.one_in(2) => acknowledge(&sim, at, device).await,
            _ => {
                record(&sim, at, device, &Observed::LeaderNow, None, Whom::All).await;
            }
        }
        sim.sleep(random.within(1, 12) as u64 * MILLI).await;
    }
    sim.with(|state| state.devices[device].busy = false);
}

async fn travel(sim: &Sim, random: &mut Random) {
    let most = sim.with(|state| usize::try_from(state.options.call_latency_max).expect("small"));
    sim.sleep(random.within(100_000, most) as u64).await;
}

/// Where the application writes: the leader it knows, which may be a former one.
fn writable(sim: &Sim, random: &mut Random) -> Option<usize> {
    sim.with(|state| {
        let world = &state.world;
        let leads = |at: &usize| world.servers[*at].answers() && world.servers[*at].leads.is_some();
        let all: Vec<usize> = (0..world.servers.len()).filter(leads).collect();
        // One that was deposed is mostly idle where that is what matters.
        let seldom = if state.options.profile == Profile::Undead { 40 } else { 5 };
        let best = world.true_leader().filter(|_| !random.one_in(seldom));
        best.filter(|at| all.contains(at))
            .or_else(|| (!all.is_empty()).then(|| all[random.below(all.len())]))
    })
}

/// One commit, and what is told of it.
async fn write(sim: &Sim, at: usize, device: usize, random: &mut Random) {
    let Some(server) = writable(sim, random) else { return };
    let (pooled, asynchronous, fills) = sim.with(|state| {
        let asynchronous = random.below(100) < state.options.asynchronous;
        let pages = state.options.profile == Profile::Pages;
        let fills = random.one_in(if pages { 2 } else { 9 });
        (state.devices[device].pooled, asynchronous, fills)
    });
    let sends_before = pooled || random.one_in(2) || sim.with(|state| state.options.tells_all());
    let begun = sim.with(|state| {
        let world = &mut state.world;
        world.servers[server].read_rows(&world.tree);
        let own = &world.servers[server];
        let before = own.evidence(&world.tree, "before", !asynchronous);
        let (life, epoch) = (own.life, own.epoch());
        world.append(server, None, fills).map(|rec| (rec, before, life, epoch))
    });
    let Some((rec, before, life, epoch)) = begun else { return };
    sim.sleep(random.within(200_000, 2_000_000) as u64).await;
    let acknowledged = sim.with(|state| {
        let world = &mut state.world;
        let own = &world.servers[server];
        if !own.answers() || own.life != life || own.leads.is_none() {
            return false;
        }
        if !asynchronous {
            world.flush_all(server, state.now);
        }
        world.tree.records[rec as usize].acknowledged_at = Some(state.now);
        state.check.acknowledged.push((state.now, rec));
        state.check.figures.writes += 1;
        state.check.trace.say(state.now, || format!("device {device} wrote {rec} in {epoch}"));
        true
    });
    if !acknowledged {
        return;
    }
    travel(sim, random).await;
    let capture = sim.with(|state| {
        let world = &mut state.world;
        // A pooler may run the next statement on whatever leads by now.
        let target = if pooled { world.true_leader().unwrap_or(server) } else { server };
        world.servers[target].read_rows(&world.tree);
        let own = &world.servers[target];
        let lives = own.answers() && own.leads.is_some() && (pooled || own.life == life);
        let moved = own.life != life;
        lives.then(|| (own.evidence(&world.tree, "capture", !asynchronous), own.epoch(), moved))
    });
    let Some((text, captured_in, moved)) = capture else { return };
    let mark_epoch = if moved { epoch } else { captured_in };
    let dep = Dep::new(rec, true, Some(mark_epoch), life);
    let before = if sends_before { before } else { String::new() };
    tell_of_write(sim, at, device, (text, before), dep, random).await;
}

async fn tell_of_write(
    sim: &Sim,
    at: usize,
    device: usize,
    (text, before): (String, String),
    dep: Dep,
    random: &mut Random,
) {
    travel(sim, random).await;
    match random.below(12) {
        // Never: nobody promises anything.
        0 => {}
        // With the next call.
        1 | 2 if before.is_empty() => {
            sim.with(|state| {
                if state.devices[device].pending.len() < 4 {
                    state.devices[device].pending.push(Pending { text, dep });
                }
            });
        }
        _ => {
            let observed = Observed::Evidence { text, before };
            if record(sim, at, device, &observed, Some(dep), Whom::Write).await.is_some() {
                sim.with(|state| state.check.figures.recorded += 1);
            }
            crowd_out(sim, device);
        }
    }
}

/// A device that uses many partitions gets their components, too.
fn crowd_out(sim: &Sim, device: usize) {
    sim.with(|state| {
        let own = &mut state.devices[device];
        if own.crowded && own.carries {
            let mut others = crowd();
            for body in &own.tokens {
                let limits = tidegate_core::token::BodyLimits::default();
                let read = tidegate_core::token::SessionToken::decode(body, limits);
                others.join(&read.expect("own bytes are read back").0);
            }
            let body = others.encode_within(0, own.room);
            let limits = tidegate_core::token::BodyLimits::default();
            let (kept, _) = tidegate_core::token::SessionToken::decode(&body, limits)
                .expect("own bytes are read back");
            if kept.component(crate::instance::Instance::key()).is_none() {
                own.deps.unmark(None, Corner::NoRoom, &state.world);
            }
            own.tokens = vec![body];
        }
    });
}

fn policy(profile: Profile, random: &mut Random) -> Policy {
    let level = match (profile, random.below(20)) {
        (Profile::Async, 0..=9) | (_, 10 | 11) => Level::Global,
        (Profile::Undead | Profile::Hidden | Profile::Drift, 0..=9) | (_, 12 | 13) => {
            Level::Bounded
        }
        (Profile::Storm, _) | (_, 0..=9 | 14..=16) => Level::Session,
        (_, 17 | 18) => Level::Eventual,
        _ => Level::Leader,
    };
    let bounds = if profile == Profile::Drift { (200, 900) } else { (20, 400) };
    let bounded = level == Level::Bounded || level == Level::Session && random.one_in(8);
    let storm = profile == Profile::Storm;
    let above = match random.below(4) {
        0 => vec![AboveCap::Wait(Duration::from_millis(60)), AboveCap::Refuse],
        1 => vec![AboveCap::Stale],
        2 => vec![AboveCap::Wait(Duration::from_millis(30)), AboveCap::Stale],
        _ => vec![AboveCap::Refuse],
    };
    let wait = if storm { 0 } else { [0, 20, 50, 120][random.below(4)] };
    Policy {
        level,
        bound: bounded.then(|| Duration::from_millis(random.within(bounds.0, bounds.1) as u64)),
        wait_budget: Duration::from_millis(wait),
        may_fall_back: storm || random.one_in(3),
        above_cap: above,
        zone: None,
    }
}

/// One read: a node for it, a connection of that life, the rows, and what was seen.
async fn read(sim: &Sim, at: usize, device: usize, profile: Profile, random: &mut Random) {
    let policy = policy(profile, random);
    let whom = [Whom::TokenOrRecord, Whom::TokenOrRecord, Whom::All][random.below(3)];
    let sent_at = sim.now();
    for _ in 0..TRIES {
        travel(sim, random).await;
        let answer = select(sim, at, device, &policy, whom, random.next()).await;
        let Some(answer) = answer else { return };
        sim.with(|state| state.count_read(&policy, &answer));
        let Some(served) = answer.served.clone() else { return };
        travel(sim, random).await;
        // The answer may be used until then.
        let ends_at = answer.valid_for.map(|valid| {
            let shown = sim.with(|state| state.options.client_shows_at(nanos(valid)));
            sent_at.saturating_add(shown)
        });
        if let Some(ends_at) = ends_at.filter(|_| profile == Profile::Drift && random.one_in(2)) {
            let spare = random.within(1_000, 100_000) as u64;
            sim.sleep(ends_at.saturating_sub(sim.now() + spare)).await;
        }
        let Some(server) = check_out(sim, &served, random) else {
            sim.with(|state| state.check.figures.turned_away += 1);
            continue;
        };
        let bound = policy.bound.filter(|_| ends_at.is_some_and(|ends_at| sim.now() < ends_at));
        let bound = bound.map(|bound| {
            let shown = sim.with(|state| state.options.instances_show(nanos(bound)));
            sim.now().saturating_sub(shown)
        });
        look_and_tell(sim, at, device, server, (&answer, bound), whom, random).await;
        return;
    }
}

/// A connection to the node, if it lives a life that was named; the server, and that life.
fn check_out(sim: &Sim, served: &Served, random: &mut Random) -> Option<(usize, Incarnation)> {
    sim.with(|state| {
        let at = state.world.at_address(served.node.index(), random.next());
        let server = &state.world.servers[at];
        let incarnation = Incarnation { system: SystemId::new(SYSTEM), life: server.life };
        let named = served.acceptable.contains(&incarnation);
        let leads = |timeline| server.leads.is_some() && server.timeline == timeline;
        let unchecked = !state.options.holds("leader_check");
        let role = unchecked || served.timeline.is_none_or(leads);
        let own = !state.world.foreign[served.node.index()];
        (server.answers() && own && named && role).then_some((at, incarnation))
    })
}

/// Reads on a connection that was checked, and tells what was seen.
async fn look_and_tell(
    sim: &Sim,
    at: usize,
    device: usize,
    (server, incarnation): (usize, Incarnation),
    (answer, bound): (&Selected, Option<u64>),
    whom: Whom,
    random: &mut Random,
) {
    let (pooled, in_order) =
        sim.with(|state| (state.devices[device].pooled, state.options.guards().snapshot_order()));
    let early = (!in_order).then(|| sample(sim, server));
    // Between the check and the read the server may have ended this life.
    let pause = if pooled { 30 * MILLI } else { 3 * MILLI };
    sim.sleep(random.within(100_000, usize::try_from(pause).expect("small")) as u64).await;
    let reads = sim.with(|state| {
        let own = &state.world.servers[server];
        let same = own.life == incarnation.life;
        // A pooled connection moves without an error; the check inside the transaction sees it.
        let unchecked = pooled && !state.options.holds("pooled_check");
        own.answers() && (same || unchecked)
    });
    if !reads {
        sim.with(|state| state.check.figures.turned_away += 1);
        return;
    }
    check_read_on(sim, at, answer, server, bound);
    let tip = sim.with(|state| state.world.servers[server].tip());
    let life = sim.with(|state| state.world.servers[server].life);
    sim.sleep(random.within(50_000, 400_000) as u64).await;
    let Some(tip) = tip else { return };
    let dep = Dep::new(tip, false, None, life);
    let unsampled = sim.with(|state| random.below(100) < state.options.unsampled);
    let text = early.or_else(|| {
        let lives = sim.with(|state| {
            let own = &state.world.servers[server];
            own.answers() && own.life == life
        });
        (lives && !unsampled).then(|| sample(sim, server))
    });
    travel(sim, random).await;
    let observed = match text {
        Some(text) if random.one_in(8) => {
            sim.with(|state| {
                if state.devices[device].pending.len() < 4 {
                    state.devices[device].pending.push(Pending { text, dep });
                }
            });
            return;
        }
        Some(text) => Observed::Evidence { text, before: String::new() },
        None => Observed::Incarnation(Incarnation { system: SystemId::new(SYSTEM), life }),
    };
    if !random.one_in(10) {
        record(sim, at, device, &observed, Some(dep), whom).await;
    }
}

fn sample(sim: &Sim, server: usize) -> String {
    sim.with(|state| {
        let world = &mut state.world;
        world.servers[server].read_rows(&world.tree);
        world.servers[server].evidence(&world.tree, "sample", true)
    })
}

/// Compares what was promised with what the server has.
fn check_read_on(sim: &Sim, at: usize, answer: &Selected, server: usize, bound: Option<u64>) {
    sim.with(|state| {
        let check = ReadCheck {
            instance: at,
            server,
            met: &answer.met,
            deps: &answer.deps,
            holder: &answer.holder,
            leader: answer.leader,
            since: answer.since,
            bound,
        };
        state.check.read(&check, &state.world, state.now);
    });
}

/// Compares an answer with the server it names, if it could be read now.
pub(super) fn check_read(sim: &Sim, at: usize, answer: &Selected, bound: Option<u64>) {
    let Some(served) = &answer.served else { return };
    let mut random = Random::new(1);
    if let Some((server, _)) = check_out(sim, served, &mut random) {
        check_read_on(sim, at, answer, server, bound);
    }
}

async fn wait_for(sim: &Sim, at: usize, device: usize, random: &mut Random) {
    travel(sim, random).await;
    let budget = Duration::from_millis(random.within(5, 300) as u64);
    let all = random.one_in(3);
    sim.with(|state| state.check.figures.waits += 1);
    let ended = wait(sim, at, device, all, budget).await;
    let Some(fresh) = ended else { return };
    travel(sim, random).await;
    if !fresh.is_empty() {
        sim.with(|state| state.check.figures.fresh += 1);
    }
    for answer in &fresh {
        if answer.met.contains(&Guarantee::ReadYourWrites) {
            check_read(sim, at, answer, None);
        }
    }
}

/// Acknowledges everything a device was told.
async fn acknowledge(sim: &Sim, at: usize, device: usize) {
    let (holder, mut deps) = delivered(sim, at, device).await;
    let life = sim.with(|state| state.instances[at].life);
    let ids = sim.with(|state| std::mem::take(&mut state.devices[device].notices));
    let change = Change { acknowledge: ids, ..Change::default() };
    let committed = holder.acknowledge(sim, &change).await;
    sim.with(|state| {
        if state.instances[at].life != life {
            // The call failed; what was taken in is told no more.
            state.devices[device].notices.extend(change.acknowledge.clone());
            return;
        }
        committed.spread(state, device, &[]);
        state.tell(at, device, &committed, &[], &mut deps);
    });
}
