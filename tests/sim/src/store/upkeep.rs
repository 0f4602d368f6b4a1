//! What an instance does by itself about a shared store: writes something now and then, so that it
//! knows its server takes writes; writes the generation; writes what it kept.

use std::rc::Rc;

use super::client::{Written, ask, write};
use super::pending::Pending;
use super::server::Refused;
use super::{Promise, Store};
use crate::sim::{Sim, State};

/// Keeps the link of one instance, for ever.
pub(crate) async fn upkeep(sim: Rc<Sim>, at: usize) {
    loop {
        let interval = sim.with(|state| state.options.store.beat_interval());
        sim.sleep(interval).await;
        sim.with(|state| state.hear(at));
        if beat(&sim, at).await {
            settle(&sim, at).await;
            flush(&sim, at).await;
        }
    }
}

/// Writes something; says whether the store answers.
async fn beat(sim: &Sim, at: usize) -> bool {
    let life = sim.with(|state| state.instances[at].life);
    let beats = |state: &mut State, server: usize| {
        let beat = state.store.servers.beat(server);
        (beat, state.store.servers.all[server].reply())
    };
    let answer = ask(sim, at, beats, |_, _| {}).await;
    sim.with(|state| {
        if state.instances[at].life != life {
            return false;
        }
        let Some(((beat, reply), route)) = answer else {
            state.instances[at].link.down = true;
            state.reconnect(at);
            return false;
        };
        if beat.is_ok() {
            state.accepted(at, &reply, route);
        }
        state.replied(at, &reply);
        state.instances[at].link.down = false;
        if beat.is_err() {
            state.refused(at);
        }
        beat.is_ok()
    })
}

/// Writes the generation, if that is due.
async fn settle(sim: &Sim, at: usize) {
    let due = sim.with(|state| {
        let (now, guards) = (state.instant(), state.options.guards());
        state.instances[at].link.guard.due(now, &guards)
    });
    let Some(due) = due else { return };
    let swaps = |state: &mut State, server: usize| {
        let (now, bytes) = (state.now, due.generation.encode());
        let expected = due.expected.as_ref();
        state.store.servers.swap_generation(server, expected, Some(bytes), now)
    };
    let answer = ask(sim, at, swaps, |_, _| {}).await;
    let done = matches!(answer, Some((Ok::<_, Refused>(true), _)));
    sim.with(|state| {
        state.check.trace.say(state.now, || format!("instance {at} wrote a generation: {done}"));
    });
}

/// Writes what was kept while the store did not take it.
async fn flush(sim: &Sim, at: usize) {
    let (life, pending) =
        sim.with(|state| (state.instances[at].life, state.instances[at].link.pending.clone()));
    for (subject, Pending { change, tips, version }) in pending {
        let written = write(sim, at, subject, &change, &tips).await;
        let Some(Written { worth, .. }) = written else { return };
        sim.with(|state| {
            let promise = state.promised(at, &worth);
            state.instances[at].link.written(subject, version);
            state.store.keep_promise(subject, &tips, (at, life), promise);
        });
    }
}

impl Store {
    /// What was kept in memory is in the store now.
    fn keep_promise(
        &mut self,
        subject: usize,
        tips: &[crate::world::log::Rec],
        by: (usize, u64),
        promise: Promise,
    ) {
        for dep in &mut self.deps[subject].all {
            let own =
                matches!(dep.promise, Promise::Here { by: kept, from: u64::MAX, .. } if kept == by);
            if own && tips.contains(&dep.tip) {
                dep.promise = promise;
            }
        }
    }
}
