//! A million verdicts of the core against explicit sets of records.
//!
//! `Alive` must mean that every record of a mark is in the head's line, `Lost` that what lies past
//! the fork is not, and `Covered` that the node has them all. With a rule switched off, the same
//! worlds must show what the rule prevents. How often the core knows what is true is printed and
//! only loosely judged. Who leads and which node is chosen is not looked at: any epoch may be the
//! head, and any node on its line is asked.

mod router;
mod world;

use std::ops::RangeInclusive;

use router::Router;
use tidegate_core::guards::Guards;
use tidegate_core::lineage::{Epoch, Relation};
use tidegate_core::position::Position;
use tidegate_core::views::Coverage;
use world::{Doing, Line, SERVERS, Set, World, position, set_of};

use crate::random::Random;

/// Things that happen in one world, and verdicts asked for there.
pub const STEPS: usize = 120;

/// What many worlds have shown.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// Verdicts asked for.
    pub cases: u64,
    /// Verdicts that were false.
    pub disagreements: u64,
    /// The seed and verdict of the first.
    pub first: Option<(u64, String)>,
    /// How often a mark was said to be alive, and was.
    pub alive: [u64; 2],
    /// How often a mark was said to be lost, and was.
    pub lost: [u64; 2],
    /// How often a node was said to cover a mark, and did.
    pub covered: [u64; 2],
}

/// One mark, the head it is judged for, and what is in both.
struct Case<'a> {
    line: &'a Line,
    head: Epoch,
    floor: Position,
    wanted: Set,
    held: Set,
}

impl Case<'_> {
    fn is_alive(&self) -> bool {
        self.wanted & !self.held == 0
    }

    /// Says whether the verdict is false.
    fn contradicts(&self, relation: Relation) -> bool {
        let untrue = |at_least| self.line.up_to(at_least) & !self.held != 0;
        match relation {
            Relation::Alive => !self.is_alive(),
            Relation::Lost { at_least, at_most } => {
                let kept = self.line.past(at_most) & self.held != 0;
                self.is_alive() || untrue(at_least) || kept
            }
            Relation::Unknown { at_least } => untrue(at_least),
        }
    }
}

impl Found {
    fn disagree(&mut self, seed: u64, verdict: String) {
        self.disagreements += 1;
        self.first.get_or_insert((seed, verdict));
    }

    /// Adds what other worlds have shown.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "it folds; nobody writes a plus")]
    pub fn add(mut self, other: Self) -> Self {
        self.cases += other.cases;
        self.disagreements += other.disagreements;
        self.first = self.first.or(other.first);
        for (own, other) in [
            (&mut self.alive, other.alive),
            (&mut self.lost, other.lost),
            (&mut self.covered, other.covered),
        ] {
            own[0] += other[0];
            own[1] += other[1];
        }
        self
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cases, {} disagreements", self.cases, self.disagreements)?;
        for (name, [said, so]) in
            [("alive", self.alive), ("lost", self.lost), ("covered", self.covered)]
        {
            write!(f, ", {name} said of {said} of {so} ({}%)", said * 100 / so.max(1))?;
        }
        self.first
            .as_ref()
            .map_or(Ok(()), |(seed, why)| write!(f, "; first in world {seed}: {why}"))
    }
}

/// Asks about one random mark, one random head and one random node.
fn ask(seed: u64, world: &World, router: &Router, guards: Guards, random: &mut Random) -> Found {
    let mut found = Found { cases: 1, ..Found::default() };
    let line = &world.epochs[random.below(world.epochs.len())];
    let latest = world.epochs.len() - 1;
    let head = &world.epochs[random.within(latest.saturating_sub(3), latest)];
    // Marks are made at the end of a log, in its own part; then the log goes on.
    let length = random.within(line.inherited + 1, line.log.len());
    let mark = &line.log[..random.within(length, line.log.len())];
    let case = Case {
        line,
        head: head.epoch,
        floor: position(mark.last().map_or(0, |record| record.end)),
        wanted: set_of(mark),
        held: set_of(&head.log),
    };
    let relation = router.history.relation(case.head, line.epoch, case.floor, &guards);
    let alive = relation == Relation::Alive;
    found.alive = [u64::from(alive), u64::from(case.is_alive())];
    found.lost =
        [u64::from(matches!(relation, Relation::Lost { .. })), u64::from(!case.is_alive())];
    if case.contradicts(relation) {
        found.disagree(seed, format!("{} for {}: {relation:?}", line.epoch, case.head));
    }
    let (node, has) = (random.below(SERVERS), case.is_alive());
    let Some(holds) = holds(&case, world, router, node) else { return found };
    let covered = (alive || !guards.leader_first())
        && covers(&case, router, guards, node) == Some(Coverage::Covered);
    found.covered = [u64::from(covered), u64::from(has && holds)];
    // A mark that is not alive fails by what it demands of the line, also on a node that has it.
    if covered && !(has && holds) && found.disagreements == 0 {
        found.disagree(seed, format!("{} on server {node} for {}", line.epoch, case.head));
    }
    found
}

/// Says whether the node has every record of the mark; `None` unless it lives as it was seen.
fn holds(case: &Case<'_>, world: &World, router: &Router, node: usize) -> Option<bool> {
    let server = &world.servers[node];
    let view = router.views[node].as_ref()?;
    let lives = server.doing != Doing::Stopped && view.incarnation.life == server.life;
    lives.then(|| case.wanted & !set_of(server.content()) == 0)
}

/// What the core says of the node; `None` if it is not on the head's line.
fn covers(case: &Case<'_>, router: &Router, guards: Guards, node: usize) -> Option<Coverage> {
    let view = router.views[node].as_ref().filter(|view| view.quarantine.is_none())?;
    let place = view.place();
    let on_line = place.last.is_some_and(|last| router.history.descends(case.head, last));
    if !on_line && guards.diverged() {
        return None;
    }
    let (epoch, history) = (case.line.epoch, &router.history);
    let flush_seen = router.flush_seen.get(&epoch).copied();
    Some(place.covers(history, epoch, case.floor, flush_seen, &guards))
}

fn live(seed: u64, guards: Guards) -> Found {
    let mut random = Random::new(seed);
    let mut world = World::new(&mut random);
    let mut router = Router::new(guards);
    let mut found = Found::default();
    for _ in 0..STEPS {
        world.step(&mut random);
        if random.one_in(2) {
            let polled = random.below(SERVERS);
            router.poll(&mut world, polled, &mut random);
        }
        found = found.add(ask(seed, &world, &router, guards, &mut random));
    }
    found
}

/// Lives the worlds of these seeds under these rules.
pub fn worlds(seeds: RangeInclusive<u64>, guards: Guards) -> Found {
    seeds.map(|seed| live(seed, guards)).fold(Found::default(), Found::add)
}
