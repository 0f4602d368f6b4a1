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
    /// An answer is believed while its server takes our writes with no longer pauses, from sending
    /// one to hearing of the next, and has for this and `recount`. `None`: until it refuses one,
    /// where no server can be deposed, or where nothing is promised in that case.
    pub believed_for: Option<Duration>,
    /// Beyond that, a server that hears of no replica any more may go on taking writes for so long.
    pub recount: Duration,
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
    /// What it has counted since it started: see [`Reply::counts`].
    pub evicted: u64,
    /// What its generation key holds.
    pub generation: Option<Vec<u8>>,
}

impl Reply {
    /// What a server counts of what no generation outlives: records that it evicted, and replicas
    /// that copied all it holds. One of these may have been the primary meanwhile, and have taken
    /// records that it gave up with that; whoever did not write in that time sees nothing else.
    pub const fn counts(evicted: u64, copied: u64) -> u64 {
        (copied << u32::BITS) | (evicted & EVICTED)
    }
}

/// The half of [`Reply::counts`] that counts records: any change counts, so it may wrap.
const EVICTED: u64 = u32::MAX as u64;

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
    /// It refused our writes for a time, in which another server may have taken those of others.
    Refused,
    /// The generation is older than one seen before, or a replica copied everything anew: a
    /// promotion was, or may have been, undone.
    Undone,
    /// Another instance saw it, whatever it was.
    Told,
}

/// What is to be announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The store lost something; until [`News::Stands`] no lookup is believed.
    Lost(LossCause),
    /// A barrier stands for all that was lost.
    Stands,
    /// Both at once: between two answers another instance had to do with a loss.
    LostAndStands(LossCause),
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
    /// The writes of ours that were taken without a break.
    chain: Option<Chain>,
    /// A server has refused a write of ours since one was taken.
    refused: bool,
    /// The highest number of all generations seen.
    number: u64,
    /// Leader samples for barriers that are still to be written.
    samples: BTreeMap<ComponentKey, Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    server: Server,
    since: Instant,
    /// When the last of them was sent.
    sent_at: Instant,
}

/// What it means that a server took a write of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// It has taken them for long enough that it was not deposed meanwhile.
    pub is_settled: bool,
    /// It had refused some before, which is a loss: as of [`SharedGuard::lost`].
    pub void: Option<(News, Vec<u8>)>,
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
    /// Only generations beyond this one were written after the loss.
    number: u64,
    /// What the key holds, which is void.
    void: Option<Vec<u8>>,
    /// Since when the key is known to hold that. What it held before may have gone together with
    /// records that came after a sample.
    seen_at: Instant,
}

#[derive(Clone, Debug)]
struct Standing {
    since: Instant,
    bytes: Vec<u8>,
    generation: Generation,
    barriers: Arc<Barriers>,
}

impl Lost {
    /// Says whether the key holds nothing: then another loss would leave no trace, and something
    /// must be there before a sample counts.
    const fn must_fill(&self, guards: &Guards) -> bool {
        self.void.is_none() && guards.generation()
    }
}

impl SharedGuard {
    /// The belief in a store that was not heard of yet, for the partitions of `keys`.
    pub const fn new(rules: SharedRules, keys: Vec<ComponentKey>) -> Self {
        Self {
            rules,
            keys,
            state: State::Unheard,
            chain: None,
            refused: false,
            number: 0,
            samples: BTreeMap::new(),
        }
    }

    /// Notes that a server took a write of ours that was sent at `sent_at`, as was heard `now`.
    ///
    /// What was taken while it is not settled may be lost without a loss here: it is promised to
    /// nobody.
    pub fn accepted(
        &mut self,
        server: Server,
        sent_at: Instant,
        now: Instant,
        guards: &Guards,
    ) -> Taken {
        if !guards.believed_lookup() {
            return Taken { is_settled: true, void: None };
        }
        if let Some(window) = self.rules.believed_for {
            let goes_on =
                |chain: &Chain| chain.server == server && now.since(chain.sent_at) <= window;
            let chain = match self.chain.filter(goes_on) {
                Some(chain) => Chain { sent_at: chain.sent_at.max(sent_at), ..chain },
                None => Chain { server, since: now, sent_at },
            };
            self.chain = Some(chain);
        }
        let void = if std::mem::take(&mut self.refused) {
            self.lost(LossCause::Refused, now)
        } else {
            None
        };
        Taken { is_settled: self.is_settled(server, now), void }
    }

    /// Notes that a server refused a write of ours.
    pub const fn refused(&mut self) {
        (self.chain, self.refused) = (None, true);
    }

    fn is_settled(&self, server: Server, now: Instant) -> bool {
        // Whoever refuses writes may be deposed, whatever it was at the start.
        if self.refused {
            return false;
        }
        let Some(window) = self.rules.believed_for else { return true };
        let Some(chain) = self.chain else { return false };
        chain.server == server
            && now.since(chain.sent_at) <= window
            && chain.sent_at.since(chain.since) >= window + self.rules.recount
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
        if guards.believed_lookup() && !self.is_settled(reply.server, now) {
            // Whatever it has lost: what it holds may never be seen by others.
            return (Worth::Unknown(Unbelieved::Deposed), news);
        }
        let worth = match &self.state {
            State::Stands(standing) => Worth::Believed(Arc::clone(&standing.barriers)),
            State::Unheard | State::Lost(_) => Worth::Unknown(Unbelieved::Lost),
        };
        (worth, news)
    }

    /// The generation an answer shows, if it vouches for that server; `None`: the one that stands.
    fn generation_of(
        &mut self,
        reply: &Reply,
        guards: &Guards,
    ) -> Result<Option<Generation>, LossCause> {
        let Some(bytes) = &reply.generation else { return Err(LossCause::NoGeneration) };
        let stands = match &self.state {
            State::Stands(standing) if standing.bytes == *bytes => {
                Some(standing.generation.clone())
            }
            State::Lost(lost) if lost.void.as_ref() == Some(bytes) => {
                return Err(LossCause::Undone);
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
            counted_between(generation.evicted, reply.evicted).map_or(Ok(()), Err)
        };
        if let Some(generation) = stands {
            return vouches(&generation).map(|()| None);
        }
        let generation = Generation::decode(bytes).map_err(|_| LossCause::Malformed)?;
        let vouched = vouches(&generation);
        let is_older = match &self.state {
            State::Unheard => false,
            State::Lost(lost) => generation.number <= lost.number,
            State::Stands(_) => generation.number <= self.number,
        };
        self.number = self.number.max(generation.number);
        if is_older && guards.generation() {
            return Err(LossCause::Undone);
        }
        vouched.map(|()| Some(generation))
    }

    fn stand(&mut self, reply: &Reply, generation: Generation, now: Instant) -> Option<News> {
        let mut barriers = Barriers::none();
        for (key, epoch, position) in generation.barriers() {
            barriers.set(key, (epoch, position), now, self.rules.d_max);
        }
        let news = match &self.state {
            State::Unheard => None,
            State::Lost(_) => Some(News::Stands),
            State::Stands(before) => {
                barriers.keep_terms(&before.barriers);
                lost_between(&before.generation, &generation).map(News::LostAndStands)
            }
        };
        self.samples.clear();
        let bytes = reply.generation.clone().unwrap_or_default();
        let barriers = Arc::new(barriers);
        self.state = State::Stands(Standing { since: now, bytes, generation, barriers });
        news
    }

    fn lose(&mut self, reply: &Reply, cause: LossCause, now: Instant) -> Option<News> {
        if let State::Lost(lost) = &mut self.state
            && (lost.server, lost.evicted) == (reply.server, reply.evicted)
        {
            // What came since is covered by the barrier, which is still to be sampled: after what
            // emptied the key, or filled it.
            if lost.void != reply.generation {
                lost.void.clone_from(&reply.generation);
                lost.seen_at = now;
                self.samples.clear();
            }
            lost.number = self.number;
            return None;
        }
        let (server, evicted, number) = (reply.server, reply.evicted, self.number);
        self.samples.clear();
        let void = reply.generation.clone();
        self.state = State::Lost(Lost { at: now, server, evicted, number, void, seen_at: now });
        Some(News::Lost(cause))
    }

    /// Notes that the store lost something which the generation does not show; whoever shares it
    /// must be told by removing the returned generation from its key, if it is still there.
    pub fn lost(&mut self, cause: LossCause, now: Instant) -> Option<(News, Vec<u8>)> {
        let State::Stands(standing) = &self.state else { return None };
        let bytes = standing.bytes.clone();
        let (server, evicted) = (standing.generation.server, standing.generation.evicted);
        let number = self.number;
        self.samples.clear();
        let void = Some(bytes.clone());
        self.state = State::Lost(Lost { at: now, server, evicted, number, void, seen_at: now });
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
            State::Lost(lost) if lost.must_fill(guards) => None,
            State::Lost(lost) => Some(self.fence_end(lost, guards).max(lost.seen_at)),
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

    /// Says whether a generation stands, and what its server takes is promised to nobody yet.
    pub fn is_young(&self, now: Instant, guards: &Guards) -> bool {
        let State::Stands(standing) = &self.state else { return false };
        guards.believed_lookup() && !self.is_settled(standing.generation.server, now)
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
            State::Lost(lost) if lost.must_fill(guards) => {
                let generation = Generation::of_nobody(now, self.number + 1, lost.evicted);
                Some(Write { expected: None, generation })
            }
            State::Lost(lost) => {
                let end = self.fence_end(lost, guards);
                let all = self.keys.iter().all(|key| self.samples.contains_key(key));
                if now < end || !(all || now >= end + self.rules.grace) {
                    return None;
                }
                let (number, evicted) = (self.number + 1, lost.evicted);
                let generation = with_samples(Generation::new(lost.server, number, evicted));
                Some(Write { expected: lost.void.clone(), generation })
            }
            State::Stands(_) if self.samples.is_empty() => None,
            State::Stands(standing) => {
                let number = self.number + 1;
                let mut generation = standing.generation.clone();
                generation.number = number;
                let generation = with_samples(generation);
                Some(Write { expected: Some(standing.bytes.clone()), generation })
            }
        }
    }
}

/// What a server lost between two of its counts.
fn counted_between(before: u64, next: u64) -> Option<LossCause> {
    let is_evicted = before & EVICTED != next & EVICTED;
    let cause = if is_evicted { LossCause::Evicted } else { LossCause::Undone };
    (before != next).then_some(cause)
}

/// What was lost between two generations; `None`: the later one has barriers of more partitions,
/// and says nothing else.
fn lost_between(before: &Generation, next: &Generation) -> Option<LossCause> {
    if next.server != before.server {
        return Some(LossCause::OtherServer);
    }
    if let Some(cause) = counted_between(before.evicted, next.evicted) {
        return Some(cause);
    }
    let has = |barrier| next.barriers().any(|other| other == barrier);
    let only_more =
        before.barriers().all(has) && next.barriers().count() > before.barriers().count();
    (!only_more).then_some(LossCause::Told)
}
