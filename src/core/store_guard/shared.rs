//! `SharedGuard`: what may be believed of a store that many instances share.
//!
//! Such a store fails over to a replica that lacks its last writes, evicts, is flushed, restored or
//! restarted, and a deposed primary answers as before. Each answer brings the name of its server,
//! its count of evictions and the generation key; what these do not vouch for is a loss. After one,
//! nothing is believed for the fence, in which others may still record on a deposed primary. Then a
//! leader sample becomes the barrier that all instances obey. It talks to no server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::generation::{Generation, Server};
use super::worth::{Barriers, Unbelieved, Worth};
use crate::guards::Guards;
use crate::instant::Instant;
use crate::token::ComponentKey;
use crate::trail::Sample;

/// How long what counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedRules {
    /// The gate's bound: so long a barrier stands.
    pub d_max: Duration,
    /// Between a loss and the sample that becomes the barrier.
    pub fence: Duration,
    /// An answer is believed so long after its server took a write of ours. `None`: always, where
    /// no server can be deposed, or where nothing is promised in that case.
    pub believed_for: Option<Duration>,
    /// Beyond the fence, partitions whose leader gives no sample are waited for so long.
    pub grace: Duration,
}

/// What one answer of the store says of the store itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Who answered.
    pub server: Server,
    /// It is no replica.
    pub is_primary: bool,
    /// Records it has evicted since it started.
    pub evicted: u64,
    /// What its generation key holds.
    pub generation: Option<Vec<u8>>,
}

/// What shows that a store has lost, or may have lost, something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LossCause {
    /// It holds no generation: it is new, was flushed, or evicted that key too.
    NoGeneration,
    /// The generation is of another server: a replica was promoted, or an older copy restored.
    OtherServer,
    /// Records were evicted.
    Evicted,
    /// The generation cannot be read.
    Malformed,
    /// Its scripts are gone.
    NoScript,
}

/// What is to be announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The store lost something; until [`News::Stands`] no lookup is believed.
    Lost(LossCause),
    /// A barrier stands for all that was lost.
    Stands,
}

/// A generation to be written, if the key still holds what was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// What the key holds, as far as was seen.
    pub expected: Option<Vec<u8>>,
    /// What it is to hold.
    pub generation: Generation,
}

/// What may be believed of one part of a shared token store, the keys of which live and die
/// together.
#[derive(Clone, Debug)]
pub struct SharedGuard {
    rules: SharedRules,
    keys: Vec<ComponentKey>,
    state: State,
    /// The server that last took a write of ours, and when that was sent.
    accepted: Option<(Server, Instant)>,
    /// Leader samples for barriers that are still to be written.
    samples: BTreeMap<ComponentKey, Sample>,
}

#[derive(Clone, Debug)]
enum State {
    /// It has not answered yet.
    Unheard,
    Lost(Lost),
    Stands(Standing),
}

#[derive(Clone, Debug)]
struct Lost {
    at: Instant,
    server: Server,
    evicted: u64,
    /// What the key holds, which is void.
    void: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Standing {
    since: Instant,
    bytes: Vec<u8>,
    generation: Generation,
    barriers: Arc<Barriers>,
}

impl SharedGuard {
    /// The belief in a store that was not heard of yet, for the partitions of `keys`.
    pub const fn new(rules: SharedRules, keys: Vec<ComponentKey>) -> Self {
        Self { rules, keys, state: State::Unheard, accepted: None, samples: BTreeMap::new() }
    }

    /// Notes that a server took a write of ours that was sent at `sent_at`.
    pub fn accepted(&mut self, server: Server, sent_at: Instant) {
        let later = self.accepted.filter(|(known, at)| *known == server && *at >= sent_at);
        self.accepted = later.or(Some((server, sent_at)));
    }

    /// Takes in what an answer, received `now`, says of the store; says what the answer is worth.
    pub fn replied(
        &mut self,
        reply: &Reply,
        now: Instant,
        guards: &Guards,
    ) -> (Worth, Option<News>) {
        if !reply.is_primary {
            return (Worth::Unknown(Unbelieved::Replica), None);
        }
        let news = match self.generation_of(reply, guards) {
            Ok(Some(generation)) => self.stand(reply, generation, now),
            Ok(None) => None,
            Err(cause) => self.lose(reply, cause, now),
        };
        let State::Stands(standing) = &self.state else {
            return (Worth::Unknown(Unbelieved::Lost), news);
        };
        let is_taken = |(server, sent_at): (Server, Instant), window| {
            server == reply.server && now.since(sent_at) <= window
        };
        let deposed = self.rules.believed_for.is_some_and(|window| {
            guards.believed_lookup() && !self.accepted.is_some_and(|took| is_taken(took, window))
        });
        let worth = if deposed {
            Worth::Unknown(Unbelieved::Deposed)
        } else {
            Worth::Believed(Arc::clone(&standing.barriers))
        };
        (worth, news)
    }

    /// The generation an answer shows, if it vouches for that server; `None`: the one that stands.
    fn generation_of(
        &self,
        reply: &Reply,
        guards: &Guards,
    ) -> Result<Option<Generation>, LossCause> {
        let Some(bytes) = &reply.generation else { return Err(LossCause::NoGeneration) };
        let stands = match &self.state {
            State::Stands(standing) if standing.bytes == *bytes => Some(&standing.generation),
            State::Lost(lost) if lost.void.as_ref() == Some(bytes) => {
                return Err(LossCause::NoScript);
            }
            State::Unheard | State::Lost(_) | State::Stands(_) => None,
        };
        let vouches = |generation: &Generation| {
            if !guards.generation() {
                return Ok(());
            }
            if generation.server != reply.server {
                return Err(LossCause::OtherServer);
            }
            if generation.evicted == reply.evicted { Ok(()) } else { Err(LossCause::Evicted) }
        };
        if let Some(generation) = stands {
            return vouches(generation).map(|()| None);
        }
        let generation = Generation::decode(bytes).map_err(|_| LossCause::Malformed)?;
        vouches(&generation).map(|()| Some(generation))
    }

    fn stand(&mut self, reply: &Reply, generation: Generation, now: Instant) -> Option<News> {
        let mut barriers = Barriers::none();
        for (key, epoch, position) in generation.barriers() {
            barriers.set(key, (epoch, position), now, self.rules.d_max);
        }
        let was_lost = matches!(self.state, State::Lost(_));
        if let State::Stands(before) = &self.state {
            barriers.keep_terms(&before.barriers);
        }
        self.samples.clear();
        let bytes = reply.generation.clone().unwrap_or_default();
        let barriers = Arc::new(barriers);
        self.state = State::Stands(Standing { since: now, bytes, generation, barriers });
        was_lost.then_some(News::Stands)
    }

    fn lose(&mut self, reply: &Reply, cause: LossCause, now: Instant) -> Option<News> {
        if let State::Lost(lost) = &mut self.state
            && (lost.server, lost.evicted) == (reply.server, reply.evicted)
        {
            // What came since is covered by the barrier, which is still to be sampled.
            lost.void.clone_from(&reply.generation);
            return None;
        }
        let Reply { server, evicted, .. } = *reply;
        self.samples.clear();
        self.state = State::Lost(Lost { at: now, server, evicted, void: reply.generation.clone() });
        Some(News::Lost(cause))
    }

    /// Notes that the store lost something which the generation does not show; whoever shares it
    /// must be told by removing the returned generation from its key, if it is still there.
    pub fn lost(&mut self, cause: LossCause, now: Instant) -> Option<(News, Vec<u8>)> {
        let State::Stands(standing) = &self.state else { return None };
        let bytes = standing.bytes.clone();
        let Generation { server, evicted, .. } = standing.generation;
        self.samples.clear();
        self.state = State::Lost(Lost { at: now, server, evicted, void: Some(bytes.clone()) });
        Some((News::Lost(cause), bytes))
    }

    /// After when a sample of the leader of `key` must be sent to become a barrier; `None`: none is
    /// wanted.
    pub fn wants_sample(&self, key: ComponentKey, guards: &Guards) -> Option<Instant> {
        if self.samples.contains_key(&key) {
            return None;
        }
        match &self.state {
            State::Unheard => None,
            State::Lost(lost) => Some(self.fence_end(lost, guards)),
            State::Stands(standing) => (!standing.barriers.has(key)).then_some(standing.since),
        }
    }

    fn fence_end(&self, lost: &Lost, guards: &Guards) -> Instant {
        let fence = if guards.fence() { self.rules.fence } else { Duration::ZERO };
        lost.at + fence
    }

    /// Offers a sample of the leader of `key`.
    pub fn sampled(&mut self, key: ComponentKey, sample: Sample, guards: &Guards) {
        if self.wants_sample(key, guards).is_some_and(|after| sample.sent_at > after) {
            self.samples.insert(key, sample);
        }
    }

    /// Says whether a generation stands that vouches for what the store holds.
    pub const fn stands(&self) -> bool {
        matches!(self.state, State::Stands(_))
    }

    /// When a fence ends that has not; `None`: none is up.
    pub fn fenced_until(&self, now: Instant, guards: &Guards) -> Option<Instant> {
        let State::Lost(lost) = &self.state else { return None };
        Some(self.fence_end(lost, guards)).filter(|end| now < *end)
    }

    /// The generation that is to be written `now`, if one is.
    pub fn due(&self, now: Instant, guards: &Guards) -> Option<Write> {
        let with_samples = |generation: Generation| {
            self.samples.iter().fold(generation, |generation, (key, sample)| {
                generation.with(*key, sample.epoch, sample.position)
            })
        };
        match &self.state {
            State::Unheard => None,
            State::Lost(lost) => {
                let end = self.fence_end(lost, guards);
                let all = self.keys.iter().all(|key| self.samples.contains_key(key));
                if now < end || !(all || now >= end + self.rules.grace) {
                    return None;
                }
                let generation = with_samples(Generation::new(lost.server, lost.evicted));
                Some(Write { expected: lost.void.clone(), generation })
            }
            State::Stands(_) if self.samples.is_empty() => None,
            State::Stands(standing) => {
                let generation = with_samples(standing.generation.clone());
                Some(Write { expected: Some(standing.bytes.clone()), generation })
            }
        }
    }
}
