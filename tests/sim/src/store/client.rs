//! Calls of one instance to a shared store, as the Redis store makes them: lookups, and records
//! changed by compare-and-set with the core's own join. Whatever takes time can be overtaken.

use tidegate_core::store_guard::{LossCause, News, Reply, Unbelieved, Worth};
use tidegate_core::token::{Change, SessionToken};

use super::pending::Pending;
use super::server::{Record, Refused, Swap, Swapped};
use super::version;
use super::{Held, Kept, Looked};
use crate::check::Corner;
use crate::options::MILLI;
use crate::session::pushed_out;
use crate::sim::{Sim, State};
use crate::world::log::Rec;

/// Times a swap is tried against others.
const TRIES: usize = 8;
/// How often a caller looks whether a frozen server runs again.
const THAW_NANOS: u64 = 3 * MILLI;

/// Where a call goes, and what that takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) server: usize,
    pub(super) sent_at: u64,
    out: u64,
    back: u64,
    deadline: u64,
}

/// What a server says before it answers.
enum Reached {
    Runs,
    Frozen,
    /// Nobody is there.
    Refuses,
    /// Nothing comes back.
    Silent,
}

impl State {
    fn route(&mut self, at: usize) -> Route {
        let most = usize::try_from(self.options.store.latency_max).expect("small");
        let (out, mut back) =
            (self.random.within(100_000, most) as u64, self.random.within(100_000, most) as u64);
        let link = &self.instances[at].link;
        let (until, by) = link.slow;
        if self.now < until {
            back += by;
        }
        let deadline = self.now + self.options.store.timeout();
        Route { server: link.server, sent_at: self.now, out, back, deadline }
    }

    fn reached(&self, at: usize, server: usize) -> Reached {
        let own = &self.store.servers.all[server];
        if self.now < self.instances[at].link.cut_until {
            Reached::Silent
        } else if !own.up {
            Reached::Refuses
        } else if own.frozen {
            Reached::Frozen
        } else {
            Reached::Runs
        }
    }

    fn store_down(&mut self, at: usize) {
        self.instances[at].link.down = true;
        self.check.trace.say(self.now, || format!("instance {at}: the store is out of reach"));
    }

    /// A server took a write; says whether that counts.
    pub(super) fn accepted(&mut self, at: usize, reply: &Reply, route: Route) -> bool {
        let (now, guards) = (self.instant(), self.options.guards());
        let sent_at = Self::instant_of(route.sent_at);
        let guard = &mut self.instances[at].link.guard;
        let taken = guard.accepted(reply.server, sent_at, now, &guards);
        self.void(at, route.server, taken.void);
        taken.is_settled
    }

    /// A server took no write.
    pub(super) fn refused(&mut self, at: usize) {
        self.instances[at].link.guard.refused();
        self.reconnect(at);
    }

    /// A loss that the generation does not show: it goes, if it is still there.
    fn void(&mut self, at: usize, server: usize, lost: Option<(News, Vec<u8>)>) {
        let Some((news, void)) = lost else { return };
        self.announce(at, Some(news));
        let now = self.now;
        // Refused: then the next answer is not believed either, or shows it again.
        let _ = self.store.servers.swap_generation(server, Some(&void), None, now);
    }

    fn missing_scripts(&mut self, at: usize, server: usize) {
        let now = self.instant();
        let link = &mut self.instances[at].link;
        // On a connection that had them.
        let had = !link.loaded.insert(server);
        self.store.servers.all[server].scripts = true;
        let lost = if had { link.guard.lost(LossCause::NoScript, now) } else { None };
        self.void(at, server, lost);
    }
}

/// Sends something to the server the instance is connected to; `None`: no answer in time.
pub(super) async fn ask<T>(
    sim: &Sim,
    at: usize,
    run: impl FnOnce(&mut State, usize) -> T,
    gives_up: impl FnOnce(&mut State, usize),
) -> Option<(T, Route)> {
    let route = sim.with(|state| state.route(at));
    sim.sleep(route.out).await;
    loop {
        match sim.with(|state| state.reached(at, route.server)) {
            Reached::Runs => break,
            Reached::Refuses => return None,
            Reached::Silent => {
                sim.sleep(route.deadline.saturating_sub(sim.now())).await;
                return None;
            }
            Reached::Frozen if sim.now() >= route.deadline => {
                sim.with(|state| gives_up(state, route.server));
                return None;
            }
            Reached::Frozen => sim.sleep(THAW_NANOS).await,
        }
    }
    let answer = sim.with(|state| run(state, route.server));
    let back = route.back.min(route.deadline.saturating_sub(sim.now()));
    sim.sleep(back).await;
    (back == route.back).then_some((answer, route))
}

/// What is kept of a subject.
pub(super) async fn lookup(sim: &Sim, at: usize, subject: usize) -> Looked {
    let (life, waited) = sim.with(|state| {
        let own = &state.instances[at];
        (own.life, own.link.pending.get(&subject).cloned())
    });
    for _ in 0..2 {
        if sim.with(|state| state.instances[at].link.down) {
            break;
        }
        let read = |state: &mut State, server: usize| {
            let now = state.now;
            let own = &state.store.servers.all[server];
            let found = own.record(subject, now).cloned();
            if own.scripts { Ok((found, own.reply())) } else { Err(Refused::NoScript) }
        };
        let answer = ask(sim, at, read, |_, _| {}).await;
        if sim.with(|state| state.instances[at].life) != life {
            break;
        }
        match answer {
            None => {
                sim.with(|state| state.store_down(at));
                break;
            }
            Some((Err(_), route)) => sim.with(|state| state.missing_scripts(at, route.server)),
            Some((Ok((found, reply)), _)) => {
                return sim.with(|state| {
                    let worth = state.replied(at, &reply);
                    state.looked(at, subject, found, worth, waited)
                });
            }
        }
    }
    let promise = sim.with(|state| state.here(at, u64::MAX, Corner::KeptInMemory));
    let worth = Worth::Unknown(Unbelieved::Lost);
    Looked { record: None, worth, held: None, promise, failed: true }
}

impl State {
    /// What an answer says, with what waited before it was asked for and waits now.
    fn looked(
        &mut self,
        at: usize,
        subject: usize,
        found: Option<Record>,
        mut worth: Worth,
        waited: Option<Pending>,
    ) -> Looked {
        let mut promise = self.promised(at, &worth);
        let in_memory = self.here(at, u64::MAX, Corner::KeptInMemory);
        let own = &mut self.instances[at];
        let mut record = found.as_ref().map(|record| version::read(&record.body, own.previous));
        own.link.cache.insert(subject, found.as_ref().map(|record| record.body.clone()));
        // What cannot be read counts as lost.
        let readable = |record: &Record| !own.previous || version::is_readable(&record.body);
        let mut held = found.filter(readable).map(|record| record.held).unwrap_or_default();
        let waits = own.link.pending.get(&subject).cloned();
        for pending in [waited, waits].into_iter().flatten() {
            let record = record.get_or_insert_default();
            let before = record.clone();
            pending.change.apply(record);
            let fifth = pushed_out(&before, &pending.change, record);
            held = held.with(&pending.tips, &fifth);
            (worth, promise) = (Worth::Unknown(Unbelieved::Lost), in_memory);
        }
        let figures = &mut self.check.figures;
        figures.lookups += 1;
        figures.believed += u64::from(matches!(worth, Worth::Believed(_)));
        Looked { record, worth, held: Some(held), promise, failed: false }
    }

    /// The swap that applies a change to what a record is taken for.
    fn swap_of(
        &self,
        at: usize,
        subject: usize,
        change: &Change,
        tips: &[Rec],
    ) -> (SessionToken, SessionToken, Swap) {
        let own = &self.instances[at];
        let expected = own.link.cache.get(&subject).cloned().flatten();
        let before = expected
            .as_ref()
            .map_or_else(SessionToken::new, |body| version::read(body, own.previous));
        let mut token = before.clone();
        change.apply(&mut token);
        let written = version::written(&token, own.previous);
        let body = (!written.is_empty()).then(|| written.encode(0));
        let replaces = own.previous && !expected.as_deref().is_none_or(version::is_readable);
        let fifth = pushed_out(&before, change, &written);
        let tips = tips.to_vec();
        let swap = Swap { subject, expected, body, tips, replaces, fifth };
        (before, written, swap)
    }
}

/// A record after a change was applied to it.
pub(super) struct Written {
    before: SessionToken,
    record: SessionToken,
    pub(super) worth: Worth,
    held: Held,
}

/// What became of one swap.
enum Took {
    Counts(Worth, Held),
    /// Whoever took it may be deposed: it is as if nobody had.
    Doubtful,
    /// Another one came first.
    Differs,
}

/// Applies a change to a record, as often as others come first; `None`: it does not count, or
/// nobody knows whether it was done.
pub(super) async fn write(
    sim: &Sim,
    at: usize,
    subject: usize,
    change: &Change,
    tips: &[Rec],
) -> Option<Written> {
    let life = sim.with(|state| state.instances[at].life);
    for _ in 0..TRIES {
        let (before, record, swap) = sim.with(|state| state.swap_of(at, subject, change, tips));
        let (run, late) = (swap.clone(), swap);
        let swaps = |state: &mut State, server: usize| {
            let now = state.now;
            let swapped = state.store.servers.swap(server, &run, now)?;
            Ok::<_, Refused>((swapped, state.store.servers.all[server].reply()))
        };
        let gives_up = |state: &mut State, server: usize| {
            state.store.servers.all[server].queued.push(late);
        };
        let answer = ask(sim, at, swaps, gives_up).await;
        if sim.with(|state| state.instances[at].life) != life {
            return None;
        }
        match answer {
            None => {
                sim.with(|state| state.store_down(at));
                return None;
            }
            Some((Err(Refused::NoScript), route)) => {
                sim.with(|state| state.missing_scripts(at, route.server));
            }
            Some((Err(Refused::FewReplicas | Refused::ReadOnly), _)) => {
                sim.with(|state| state.refused(at));
                return None;
            }
            Some((Ok((swapped, reply)), route)) => {
                let took =
                    sim.with(|state| state.swapped(at, subject, (swapped, &reply), &record, route));
                match took {
                    Took::Counts(worth, held) => {
                        sim.with(|state| state.say_kept(at, subject, &held, &worth));
                        return Some(Written { before, record, worth, held });
                    }
                    Took::Doubtful => return None,
                    Took::Differs => {}
                }
            }
        }
    }
    None
}

impl State {
    fn say_kept(&mut self, at: usize, subject: usize, held: &Held, worth: &Worth) {
        let believed = matches!(worth, Worth::Believed(_));
        self.check.trace.say(self.now, || {
            format!(
                "instance {at} keeps {:?} of subject {subject}, believed: {believed}",
                held.tips
            )
        });
    }

    fn swapped(
        &mut self,
        at: usize,
        subject: usize,
        (swapped, reply): (Swapped, &Reply),
        record: &SessionToken,
        route: Route,
    ) -> Took {
        let link = &mut self.instances[at].link;
        match swapped {
            Swapped::Differs(current) => {
                link.cache.insert(subject, current);
                self.replied(at, reply);
                Took::Differs
            }
            Swapped::Done { wrote, held } => {
                link.cache.insert(subject, (!record.is_empty()).then(|| record.encode(0)));
                // What was taken while that is not settled is promised to nobody.
                let young = wrote && !self.accepted(at, reply, route);
                let worth = self.replied(at, reply);
                // It holds it already, and may be no primary any more.
                let doubted =
                    matches!(worth, Worth::Unknown(Unbelieved::Deposed | Unbelieved::Replica));
                if young || !wrote && doubted { Took::Doubtful } else { Took::Counts(worth, held) }
            }
        }
    }
}

/// Applies a change to a record; where the store does not take that, later.
pub(super) async fn update(
    sim: &Sim,
    at: usize,
    subject: usize,
    change: &Change,
    tips: &[Rec],
) -> Kept {
    let (life, down) = sim.with(|state| (state.instances[at].life, state.instances[at].link.down));
    let written = if down { None } else { write(sim, at, subject, change, tips).await };
    sim.with(|state| match written {
        Some(Written { before, record, worth, held }) => {
            let promise = state.promised(at, &worth);
            Kept { before, record, worth, held: Some(held), promise, failed: false }
        }
        None => {
            let (mut before, mut record) = (SessionToken::new(), SessionToken::new());
            // Else nobody is left who could.
            if state.instances[at].life == life {
                state.check.trace.say(state.now, || {
                    format!("instance {at} puts off {tips:?} of subject {subject}")
                });
                (before, record) = state.instances[at].link.put_off(subject, change, tips);
            }
            let promise = state.here(at, u64::MAX, Corner::KeptInMemory);
            let worth = Worth::Unknown(Unbelieved::Lost);
            Kept { before, record, worth, held: None, promise, failed: true }
        }
    })
}
