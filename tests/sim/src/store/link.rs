//! `Link`: one instance's side of a shared store: where it is connected, what it believes, the
//! bytes it knows, and what it keeps until the store can be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::store_guard::{News, Reply, SharedGuard, SharedRules, Unbelieved, Worth};

use super::pending::Pending;
use super::{Promise, StoreKind};
use crate::check::Corner;
use crate::instance::Instance;
use crate::options::Options;
use crate::sim::State;

#[derive(Debug)]
pub(crate) struct Link {
    /// The server it is connected to.
    pub(crate) server: usize,
    pub(crate) guard: SharedGuard,
    /// The bytes a record had when it was last seen.
    pub(crate) cache: BTreeMap<usize, Option<Vec<u8>>>,
    pub(crate) pending: BTreeMap<usize, Pending>,
    /// The last call was not answered.
    pub(crate) down: bool,
    /// Servers whose scripts it loaded.
    pub(crate) loaded: BTreeSet<usize>,
    /// When it last noticed a loss.
    pub(crate) lost_at: u64,
    /// It is left at this server until then, whoever is named as the primary.
    pub(crate) left: Option<(usize, u64)>,
    /// It can reach no server before.
    pub(crate) cut_until: u64,
    /// Answers take this much longer before.
    pub(crate) slow: (u64, u64),
    /// How long it takes to hear who is primary.
    pub(crate) hears_after: u64,
}

impl Link {
    pub(crate) fn new(server: usize, options: &Options) -> Self {
        let store = &options.store;
        let nanos = Duration::from_nanos;
        let rules = SharedRules {
            d_max: options.gate,
            fence: nanos(store.fence()),
            believed_for: Some(nanos(store.max_lag)),
            recount: nanos(store.slack()),
            grace: nanos(store.grace()),
        };
        Self {
            server,
            guard: SharedGuard::new(rules, vec![Instance::key()]),
            cache: BTreeMap::new(),
            pending: BTreeMap::new(),
            down: false,
            loaded: BTreeSet::new(),
            lost_at: 0,
            left: None,
            cut_until: 0,
            slow: (0, 0),
            hears_after: 0,
        }
    }

    /// The same link of an instance that starts again; the network is what it was.
    pub(crate) fn restarted(&self, options: &Options) -> Self {
        let Self { left, cut_until, slow, hears_after, .. } = *self;
        Self { left, cut_until, slow, hears_after, ..Self::new(self.server, options) }
    }
}

impl State {
    /// Takes in what an answer says of the store; says what it is worth.
    pub(crate) fn replied(&mut self, at: usize, reply: &Reply) -> Worth {
        let (now, guards) = (self.instant(), self.options.guards());
        let (worth, news) = self.instances[at].link.guard.replied(reply, now, &guards);
        if !reply.is_primary {
            self.reconnect(at);
        }
        self.announce(at, news);
        worth
    }

    pub(crate) fn announce(&mut self, at: usize, news: Option<News>) {
        let Some(news) = news else { return };
        match news {
            News::Stands => {}
            News::Lost(_) | News::LostAndStands(_) => {
                self.instances[at].link.lost_at = self.now;
                self.check.figures.store_losses += 1;
            }
        }
        self.check.trace.say(self.now, || format!("instance {at}: {news:?}"));
    }

    /// To whom a record is promised that was kept just now, by what its answer is worth.
    pub(crate) fn promised(&self, at: usize, worth: &Worth) -> Promise {
        if self.options.store.kind == StoreKind::Own {
            return self.promised_by_memory(at);
        }
        let link = &self.instances[at].link;
        let (from, why) = match worth {
            Worth::Believed(_) | Worth::Embedded(_) => return Promise::All,
            Worth::Unknown(Unbelieved::Lost) => {
                (link.lost_at + self.options.store.fence(), Corner::RecordedInFence)
            }
            Worth::Unknown(Unbelieved::Deposed | Unbelieved::Replica) => {
                (u64::MAX, Corner::RecordedLate)
            }
        };
        self.here(at, from, why)
    }

    /// A promise to those who ask this instance; to others from then on.
    pub(crate) fn here(&self, at: usize, from: u64, why: Corner) -> Promise {
        Promise::Here { by: (at, self.instances[at].life), from, why }
    }

    /// Connects to whoever is named as the primary.
    pub(crate) fn reconnect(&mut self, at: usize) {
        let (main, now) = (self.store.servers.main, self.now);
        let link = &mut self.instances[at].link;
        let left = link.left.filter(|(_, until)| now < *until);
        let server = left.map_or(main, |(server, _)| server);
        if server != link.server {
            self.check.trace.say(now, || format!("instance {at} goes to store server {server}"));
        }
        self.instances[at].link.server = server;
    }

    /// Follows a change of the primary, once it is heard of.
    pub(crate) fn hear(&mut self, at: usize) {
        let switched_at = self.store.servers.switched_at;
        if self.now >= switched_at + self.instances[at].link.hears_after {
            self.reconnect(at);
        }
    }

    pub(crate) fn store_sampled(&mut self, at: usize) {
        let guards = self.options.guards();
        let Some(sample) = self.instances[at].snapshot.trail.last() else { return };
        self.instances[at].link.guard.sampled(Instance::key(), sample, &guards);
    }

    pub(crate) fn instant_of(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }
}
