//! A million answers with a bound, used to their last moment by clocks that are not right.
//!
//! Real time runs beside the clocks of the instance and of each client, whose rates are off by as
//! much as the instance is told. Leaders fall idle, standbys stop, machines sleep, answers are long
//! under way, and a standby is promoted that nobody polls for a while. What was acknowledged before
//! the bound by the leader in view must be on the node; what a leader out of view has more may be
//! missing for no longer than it took to see it. Sessions and the store are not looked at.

mod instance;
mod servers;

use std::fmt;
use std::ops::RangeInclusive;

use instance::{Clock, Instance};
use servers::{MILLI, NODES, Read, SECOND, Servers};
use tidegate_core::guards::Guards;

use crate::random::Random;

/// Polls in one world: each node's turn comes every quarter of a second.
const STEPS: usize = 900;
/// Reads asked for between two polls.
const ASKS: usize = 2;
/// Reads asked for in one world.
pub const READS: u64 = (STEPS * ASKS) as u64;

/// What many worlds have shown.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// Reads asked for.
    pub asked: u64,
    /// Of those, answered with the bound.
    pub yes: u64,
    /// Of those, void when they arrived.
    pub void: u64,
    /// Reads made by them that broke the bound for the leader in view.
    pub broken: u64,
    /// The seed of the first, and by how many nanoseconds.
    pub first: Option<(u64, u64)>,
    /// Reads that lacked something of a leader that was not in view.
    pub unseen: u64,
    /// Of those, something that was missing for longer than it took to see that leader.
    pub beyond: u64,
    /// The longest such excess over a bound, and the longest time to see a leader, in nanoseconds.
    pub excess: u64,
    /// As above.
    pub detection: u64,
}

impl Found {
    /// Adds what other worlds have shown.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "it folds; nobody writes a plus")]
    pub fn add(mut self, other: Self) -> Self {
        self.asked += other.asked;
        self.yes += other.yes;
        self.void += other.void;
        self.broken += other.broken;
        self.first = self.first.or(other.first);
        self.unseen += other.unseen;
        self.beyond += other.beyond;
        self.excess = self.excess.max(other.excess);
        self.detection = self.detection.max(other.detection);
        self
    }

    /// How many of a hundred reads were answered with the bound.
    pub fn yes_percent(&self) -> u64 {
        self.yes * 100 / self.asked.max(1)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, void, broken, unseen, beyond, .. } = self;
        write!(
            f,
            "{asked} answers, {}% with the bound, {void} void on arrival, ",
            self.yes_percent()
        )?;
        write!(f, "{broken} broken; past an unseen promotion {unseen}, at most ")?;
        let (excess, detection) = (self.excess / MILLI, self.detection / MILLI);
        write!(f, "{excess} ms too old (seen after up to {detection} ms), {beyond} beyond that")?;
        let first = |(seed, by): &(u64, u64)| write!(f, "; first in world {seed}, by {by} ns");
        self.first.as_ref().map_or(Ok(()), first)
    }
}

/// One client asks at `instance`, and will read where it is sent.
fn ask(instance: &mut Instance, servers: &mut Servers, random: &mut Random) -> (bool, bool) {
    let long = |random: &mut Random| {
        let most = if random.one_in(40) { 2_000 } else { 15 };
        random.within(0, most) as u64 * MILLI
    };
    let sent_at = servers.now.saturating_sub(long(random));
    let bound = [100, 300, 1_000, 5_000, 15_000][random.below(5)] * MILLI;
    let Some(answer) = instance.ask(servers, bound, random) else { return (false, false) };
    let clock = Clock::any(random);
    // Long enough: then back to the last moment at which the clock shows less.
    let mut last = answer.valid_for + answer.valid_for / 1_000;
    last -= clock.shows(last).saturating_sub(answer.valid_for);
    while last > 0 && clock.shows(last) >= answer.valid_for {
        last -= 1;
    }
    let last_at = sent_at + last;
    let arrives_at = servers.now + long(random);
    if last_at < arrives_at {
        return (true, true);
    }
    let spare = if random.one_in(2) { 0 } else { random.next() % (last_at - arrives_at + 1) };
    servers.plan(Read { at: last_at - spare, node: answer.node, line: answer.line, bound });
    (true, false)
}

fn live(seed: u64, guards: Guards) -> Found {
    let random = &mut Random::new(seed);
    let mut servers = Servers::new(Random::new(seed ^ 0x5E27_0000));
    let mut instance = Instance::new(guards, random);
    let mut found = Found::default();
    let promoted_in = random.one_in(2).then(|| random.within(STEPS / 4, STEPS * 9 / 10));
    for step in 0..STEPS {
        servers.advance(random.within(1, 160) as u64 * MILLI);
        if random.one_in(500) {
            // The machine sleeps; its clock does not.
            servers.advance(random.within(100, 20_000) as u64 * MILLI);
        }
        if random.one_in(600) {
            let node = random.below(NODES);
            instance.silent_until[node] = servers.now + random.within(1, 6_000) as u64 * MILLI;
        }
        if promoted_in == Some(step) {
            servers.promote();
            instance.silent_until[1] = servers.now + random.within(1, 8_000) as u64 * MILLI;
        }
        instance.poll(&mut servers, step % NODES, random);
        if step < NODES * 2 {
            continue;
        }
        for _ in 0..ASKS {
            let (yes, void) = ask(&mut instance, &mut servers, random);
            found.asked += 1;
            found.yes += u64::from(yes);
            found.void += u64::from(void);
        }
    }
    servers.advance(30 * SECOND);
    judge(seed, &servers, instance.detected_at, &mut found);
    found
}

/// Looks at what every read has met.
fn judge(seed: u64, servers: &Servers, detected_at: Option<u64>, found: &mut Found) {
    let promoted_at = servers.promoted_at();
    let seen_at = detected_at.unwrap_or(servers.now);
    let detection = promoted_at.map_or(0, |at| seen_at - at);
    found.detection = found.detection.max(detection);
    for met in &servers.met {
        if let Some(by) = met.broken {
            found.broken += 1;
            found.first.get_or_insert((seed, by));
        }
        if let Some(excess) = met.excess {
            found.unseen += 1;
            found.beyond += u64::from(excess > detection);
            found.excess = found.excess.max(excess);
        }
    }
}

/// Lives the worlds of these seeds under these rules.
pub fn worlds(seeds: RangeInclusive<u64>, guards: Guards) -> Found {
    seeds.map(|seed| live(seed, guards)).fold(Found::default(), Found::add)
}

/// Every rule but one; none in builds that lack no rule.
#[cfg(feature = "unsafe-guards")]
pub fn rules_without(guard: &str) -> Option<Guards> {
    Guards::without(guard)
}

/// Every rule but one; none in builds that lack no rule.
#[cfg(not(feature = "unsafe-guards"))]
pub const fn rules_without(_: &str) -> Option<Guards> {
    None
}
