//! Stores in the memories of several instances, and how those look for each other on the leader.
//!
//! An instance that starts takes no call until it was connected to the leader for twice the
//! interval of the others' looks; then all that was recorded before is lost to it.

use std::rc::Rc;
use std::time::Duration;

use tidegate_core::leader::Contender;
use tidegate_core::store_guard::{EmbeddedGuard, Look};

use super::{Promise, StoreKind};
use crate::check::Corner;
use crate::instance::Instance;
use crate::options::MILLI;
use crate::random::Random;
use crate::sim::{Sim, State};

/// Looks after which an instance starts though others are there.
const START_LOOKS: u64 = 3;

/// Whether an instance is there, and who sees that.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Presence {
    pub(crate) is_there: bool,
    /// It takes calls.
    takes_calls: bool,
    /// The server it is connected to as the leader, and since when.
    connected: Option<(usize, u64)>,
    /// When its last look that was answered was sent.
    looked_at: Option<u64>,
}

impl Presence {
    pub(crate) fn of_new(is_there: bool) -> Self {
        Self { is_there, ..Self::default() }
    }
}

impl State {
    /// Instances that take calls.
    pub(crate) fn serving(&self) -> Vec<usize> {
        let all = 0..self.instances.len();
        let serves = |at: &usize| {
            let presence = &self.instances[*at].presence;
            self.options.store.kind != StoreKind::Own || presence.is_there && presence.takes_calls
        };
        all.filter(serves).collect()
    }

    /// Who cannot see the leader, or did not for long enough, is not seen there by others either.
    pub(super) fn promised_by_memory(&self, at: usize) -> Promise {
        let Presence { looked_at, connected, .. } = self.instances[at].presence;
        let counts = self.options.store.look_interval * u64::from(EmbeddedGuard::LOOKS);
        let sees = looked_at.is_some_and(|looked| self.now - looked <= counts);
        // Others had the time to look.
        let is_seen = connected.is_some_and(|(_, since)| self.now - since >= counts);
        if sees && is_seen { Promise::All } else { self.here(at, u64::MAX, Corner::NotSeen) }
    }

    /// Another instance comes, or one goes.
    pub(crate) fn come(&mut self, at: usize, is_there: bool) {
        self.restart_instance(at, true);
        self.instances[at].presence = Presence::of_new(is_there);
        self.check.trace.say(self.now, || format!("instance {at} is there: {is_there}"));
    }

    /// Says whether another instance is seen on any server: each is connected to all it reaches.
    fn sees_others(&self, at: usize) -> bool {
        let reaches = |one: &Instance, node: usize| self.now >= one.sources[node].cut_until;
        let meet = |other: &Instance| {
            (0..self.options.servers).any(|node| {
                let answers = self.world.servers[self.world.address[node]].answers();
                answers && reaches(&self.instances[at], node) && reaches(other, node)
            })
        };
        let mut others = self.instances.iter().enumerate();
        others.any(|(other, one)| other != at && one.presence.is_there && meet(one))
    }

    /// A look reaches the leader in view, and all others with it: whether other instances are
    /// there; `None`: it fails.
    fn look_reaches(&mut self, at: usize, leader: Contender) -> Option<bool> {
        let node = leader.node.index();
        let server = self.world.address[node];
        let own = &self.instances[at];
        let cut = self.now < own.sources[node].cut_until;
        let other = &self.world.servers[server];
        // Who answers there may be another server, or no leader any more.
        let leads = other.answers() && other.leads.is_some() && other.epoch() == leader.epoch;
        let reached = own.presence.is_there && !cut && leads;
        let before = own.presence.connected.filter(|(to, _)| *to == server);
        let others = own.presence.is_there && self.sees_others(at);
        if others && self.options.guards().foreign_instance() {
            let now = self.instant();
            self.instances[at].guard.saw_others(now);
        }
        if !reached {
            self.instances[at].presence.connected = None;
            return None;
        }
        self.instances[at].presence.connected = before.or(Some((server, self.now)));
        Some(others)
    }

    fn look_answered(&mut self, at: usize, sent_at: u64, others: bool) {
        let (now, guards) = (self.instant(), self.options.guards());
        let waited = self.options.store.look_interval * START_LOOKS;
        let own = &mut self.instances[at];
        let Some((_, since)) = own.presence.connected else { return };
        own.presence.looked_at = Some(sent_at);
        let (sent_at, visible_since) = (Self::instant_of(sent_at), Self::instant_of(since));
        let look = Look { sent_at, visible_since, others };
        own.guard.looked(Instance::key(), look, now, &guards);
        let waited = self.now - since >= waited;
        own.presence.takes_calls |= own.guard.may_start(Instance::key(), waited, now);
    }
}

/// Looks for others, for ever.
pub(crate) async fn looks(sim: Rc<Sim>, at: usize, mut random: Random) {
    loop {
        let interval = sim.with(|state| state.options.store.look_interval);
        sim.sleep(interval).await;
        let asked = sim.with(|state| {
            let own = &state.instances[at];
            let leader = own.snapshot.leadership.leader().filter(|_| own.presence.is_there)?;
            Some((leader, own.life, state.now))
        });
        let Some((leader, life, sent_at)) = asked else { continue };
        sim.sleep(random.within(1, 5) as u64 * MILLI).await;
        let same = |state: &State| state.instances[at].life == life;
        let others =
            sim.with(|state| if same(state) { state.look_reaches(at, leader) } else { None });
        let Some(others) = others else { continue };
        sim.sleep(random.within(1, 5) as u64 * MILLI).await;
        sim.with(|state| {
            if same(state) {
                state.look_answered(at, sent_at, others);
            }
        });
    }
}

/// The interval of looks, as the guard takes it.
pub(crate) const fn interval(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}
