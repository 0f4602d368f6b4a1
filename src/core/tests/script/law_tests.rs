//! Laws: a served read has everything its session wrote, and a wait ends exactly once.
//!
//! Random events happen to real logs; the verdicts of the core are compared with the records that
//! are there. With a rule switched off, the same worlds must show what it prevents.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::guards::Guards;
use tidegate_core::lineage::{Epoch, Relation};
use tidegate_core::partition::{Effect, Event, WaitEnd, WaitFor};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::routing::{AboveCap, Level, Plan, Policy, Step, decide};
use tidegate_core::token::{Mark, NoticeKind};
use tidegate_core::trail::{Floor, Loss, Ready, Requested, Resolution, Sample, resolve};
use tidegate_core::views::{Coverage, NodeId};
use tidegate_core::wait::WaitId;

use super::stage::Stage;
use super::world::{Set, World};

/// One thing that happens: what, to whom, and how.
type Happening = (u8, u8, u8);

/// A session and its waits in a world.
struct Lived {
    world: World,
    /// The records the session depends on, with their ends, by the epoch of their mark. What it was
    /// told may be lost is not among them.
    wrote: BTreeMap<Epoch, BTreeMap<u32, Position>>,
    /// Per wait: what its nodes must have, and how often it ended.
    waits: BTreeMap<WaitId, (Set, usize)>,
    unparked: Vec<WaitId>,
    served: u64,
    wrong: Option<String>,
}

impl Lived {
    fn new(guards: Guards) -> Self {
        Self {
            world: World::new(Stage::with(guards)),
            wrote: BTreeMap::new(),
            waits: BTreeMap::new(),
            unparked: Vec::new(),
            served: 0,
            wrong: None,
        }
    }

    fn live(mut self, happenings: &[Happening]) -> Self {
        for (what, whom, how) in happenings {
            let (whom, how) = (usize::from(*whom) % 3, usize::from(*how));
            self.happen(*what, whom, how);
        }
        self.world.stage.play("pass 6s");
        let effects = self.world.stage.handle(Event::Tick);
        self.note(&effects);
        self
    }

    fn happen(&mut self, what: u8, whom: usize, how: usize) {
        let effects = match what {
            // Mostly a log grows; now and then something breaks.
            0..=27 => {
                self.world.act([what, 0, 1, 1][usize::from(what / 11).min(3)], whom, how);
                Vec::new()
            }
            28..=33 => {
                self.write(whom);
                Vec::new()
            }
            34..=46 => self.world.poll(whom, true),
            47 => self.world.poll(whom, false),
            48 => self.world.land(how),
            49..=51 => self.world.insert_row(),
            52..=57 => self.ask(Level::Session),
            58 => self.ask(Level::Global),
            59 | 60 => self.park(how),
            61 => {
                let ids: Vec<WaitId> = self.waits.keys().copied().collect();
                let Some(id) = ids.get(how % ids.len().max(1)) else { return };
                self.unparked.push(*id);
                self.world.stage.handle(Event::Unpark(*id))
            }
            62 => {
                let node = NodeId::new(u16::try_from(whom).expect("few servers"));
                self.world.stage.handle(Event::Drain { node, drained: how.is_multiple_of(4) })
            }
            _ => self.world.stage.handle(Event::Tick),
        };
        self.note(&effects);
        self.check_newest();
    }

    /// What is found once for each node is what a walk over the whole trail finds.
    fn check_newest(&mut self) {
        let stage = &mut self.world.stage;
        stage.partition();
        let (now, snapshot) = (stage.now(), stage.snapshot());
        for node in snapshot.nodes() {
            let walked = snapshot.eligible(node, now).ok().and_then(|place| {
                let has = |sample: &Sample| {
                    let mut floor = Floor::none();
                    floor.demand(sample.epoch, sample.position);
                    snapshot.coverage(&place, &floor) == Coverage::Covered
                };
                let is_alive = |sample: &Sample| snapshot.is_alive(sample.epoch, sample.position);
                snapshot.trail.newest_first().filter(is_alive).find(has)
            });
            let found = snapshot.newest_covered(node, now);
            if found != walked {
                self.wrong.get_or_insert_with(|| format!("{node:?}: {found:?}, not {walked:?}"));
            }
        }
    }

    fn write(&mut self, whom: usize) {
        let Some((id, epoch, after, upto)) = self.world.commit(whom) else { return };
        self.wrote.entry(epoch).or_default().insert(id, upto);
        // Half of the sessions are told how far the log was flushed.
        let mark = Mark::wrote(Some(after), upto);
        let flushed = self.world.flush_of(whom);
        let mark = if id.is_multiple_of(2) { mark.with_flushed(flushed) } else { mark };
        self.world.stage.session.component.raise(epoch, mark);
        self.forget_the_fifth();
    }

    /// A fifth mark is dropped, and demands a leader sample from then on: what it was about is not
    /// told any more.
    fn forget_the_fifth(&mut self) {
        let component = &self.world.stage.session.component;
        let dropped = |epoch: &Epoch| component.unresolved && component.mark(*epoch).is_none();
        self.wrote.retain(|epoch, _| !dropped(epoch));
    }

    fn depends(&self) -> Set {
        self.wrote.values().flat_map(BTreeMap::keys).fold(0, |all, id| all | 1 << id)
    }

    /// Counts wakes, and looks whether fresh nodes have what their wait demanded.
    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Wake(id, end) = effect else { continue };
            let Some((wanted, ended)) = self.waits.get_mut(id) else { continue };
            *ended += 1;
            let wanted = *wanted;
            if let WaitEnd::Fresh(nodes) = end {
                for node in nodes {
                    self.check_replica(*node, wanted, "a wait ended");
                }
            }
        }
    }

    fn check_replica(&mut self, node: NodeId, wanted: Set, how: &str) {
        let named = self.world.stage.snapshot().view(node).map(|view| view.incarnation.life);
        let server = &self.world.servers[node.index()];
        // The caller takes a connection only of the life it was named.
        if server.is_up && !server.leads && named == Some(server.life) {
            self.served += 1;
            let missing = wanted & !server.content();
            if missing != 0 {
                self.wrong.get_or_insert_with(|| {
                    format!("{how}: records {missing:b} are not on {node:?}")
                });
            }
        }
    }

    /// Resolves with samples as the shell would; `None`: not in time.
    fn resolved(&mut self, level: Level) -> Option<Ready> {
        let since = self.world.stage.now();
        for round in 0..3 {
            let stage = &mut self.world.stage;
            stage.partition();
            let (now, snapshot) = (stage.now(), stage.snapshot());
            let component = &stage.session.component;
            let asked = Requested {
                key: snapshot.key,
                component: Some(component).filter(|component| !component.is_empty()),
                former: Vec::new(),
                known: stage.session.known,
                session: level == Level::Session,
                gate: None,
                barrier: None,
                bound: None,
                global: level == Level::Global,
                since,
                gave_up: round == 2,
            };
            match resolve(&asked, &snapshot.line(now), now) {
                Resolution::Ready(ready) => return Some(ready),
                Resolution::NeedSample { .. } => {
                    let leader = snapshot.leadership.leader()?;
                    let effects = self.world.poll(leader.node.index(), true);
                    self.note(&effects);
                }
            }
        }
        None
    }

    /// Changes the session as its holders would be, and forgets what it was told of.
    fn apply(&mut self, ready: &Ready) {
        let stage = &mut self.world.stage;
        let (leader, history) = (stage.snapshot().leadership.leader(), &stage.snapshot().history);
        let held = leader.map_or(0, |leader| {
            let server = &self.world.servers[leader.node.index()];
            if server.leads && server.epoch() == leader.epoch { server.content() } else { 0 }
        });
        let mut told = Vec::new();
        for (_, epoch, mark) in &ready.raise.drop {
            let moved = self.wrote.remove(epoch).unwrap_or_default();
            let gone = leader.and_then(|leader| {
                let kept = history.kept(leader.epoch, *epoch, mark.flushed);
                let relation = history.relation(leader.epoch, *epoch, mark.floor, &Guards::on());
                (relation != Relation::Alive && !mark.is_within(&kept)).then_some(kept.own)
            });
            let kept = gone.unwrap_or_else(|| Lsn::new(u64::MAX).into());
            let last =
                moved.iter().find(|(_, end)| mark.upto == Some(**end)).map(|(id, _)| 1 << id);
            let grave = |loss: &Loss| loss.lost == *epoch && loss.kind == NoticeKind::WriteLost;
            if ready.losses.iter().any(grave) && held & last.unwrap_or(0) != 0 {
                self.wrong.get_or_insert_with(|| {
                    format!("a write of {epoch} survives, but was told lost")
                });
            }
            if ready.losses.iter().any(|loss| loss.lost == *epoch) {
                let gone = |end: &Position| !kept.covers(*end);
                told.extend(moved.iter().filter(|(_, end)| gone(end)).map(|(id, _)| *id));
            }
            for (later, _) in ready.raise.join.iter().flat_map(|(_, joined)| joined.marks()) {
                self.wrote.entry(later).or_default().extend(moved.clone());
            }
        }
        for records in self.wrote.values_mut() {
            records.retain(|id, _| !told.contains(id));
        }
        let component = &mut stage.session.component;
        for (_, epoch, _) in &ready.raise.drop {
            component.drop_mark(*epoch);
        }
        component.unresolved &= ready.raise.settle.is_empty();
        for (_, joined) in &ready.raise.join {
            component.join(joined);
        }
        self.forget_the_fifth();
    }

    fn plan(&self, ready: &Ready, level: Level) -> Plan {
        let policy = Policy {
            level,
            bound: None,
            wait_budget: Duration::ZERO,
            may_fall_back: true,
            above_cap: vec![AboveCap::Refuse],
            zone: None,
        };
        let (now, pick) = (self.world.stage.now(), self.served);
        decide(ready, self.world.stage.snapshot(), &policy, None, now, pick)
    }

    fn ask(&mut self, level: Level) -> Vec<Effect> {
        // Before the call, by the only server that leads, if we see it.
        let leading: Vec<&_> = self.world.servers.iter().filter(|s| s.leads).collect();
        let acknowledged = match leading[..] {
            [only] if only.is_up => Some((only.epoch(), only.content())),
            _ => None,
        };
        let Some(ready) = self.resolved(level) else { return Vec::new() };
        let wanted = match level {
            Level::Global => {
                let leader = self.world.stage.snapshot().leadership.leader();
                let seen =
                    acknowledged.filter(|(epoch, _)| leader.map(|l| l.epoch) == Some(*epoch));
                seen.map_or(0, |(_, content)| content)
            }
            Level::Eventual | Level::Session | Level::Bounded | Level::Leader => {
                self.apply(&ready);
                self.depends()
            }
        };
        match self.plan(&ready, level).steps.first() {
            Some(Step::Serve { node }) => self.check_replica(*node, wanted, "a read was served"),
            Some(Step::Leader { leader, .. }) => {
                let server = &self.world.servers[leader.node.index()];
                let missing = wanted & !server.content();
                if server.is_up && server.leads && server.epoch() == leader.epoch && missing != 0 {
                    self.wrong.get_or_insert_with(|| {
                        format!("records {missing:b} are not on {leader:?}")
                    });
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn park(&mut self, how: usize) -> Vec<Effect> {
        let Some(ready) = self.resolved(Level::Session) else { return Vec::new() };
        self.apply(&ready);
        if ready.unprovable.is_some() {
            return Vec::new();
        }
        let id = WaitId::new(self.waits.len() as u64);
        self.waits.insert(id, (self.depends(), 0));
        // Sometimes something happens between the judgement and the parking.
        if how.is_multiple_of(3) {
            let effects = self.world.poll(how % 2, true);
            self.note(&effects);
        }
        let deadline = self.world.stage.now() + Duration::from_millis(how as u64 + 1);
        let nodes = vec![NodeId::new(1), NodeId::new(2)];
        let wait_for = if how.is_multiple_of(2) { WaitFor::Any } else { WaitFor::All };
        self.world.stage.handle(Event::Park { id, floor: ready.floor, nodes, wait_for, deadline })
    }
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    vec((0_u8..64, any::<u8>(), any::<u8>()), 1..220)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_served_read_has_everything_its_session_wrote(happenings in happenings()) {
        let lived = Lived::new(Guards::on()).live(&happenings);
        prop_assert_eq!(lived.wrong, None);
    }

    #[test]
    fn every_wait_ends_exactly_once_or_was_taken_back(happenings in happenings()) {
        let lived = Lived::new(Guards::on()).live(&happenings);
        for (id, (_, ended)) in &lived.waits {
            let most = usize::from(!lived.unparked.contains(id) || *ended == 1);
            prop_assert_eq!(*ended, most, "{:?}", id);
        }
    }
}

/// A life from a seed: the same everywhere.
fn life_of(seed: u64) -> Vec<Happening> {
    let mut state = seed.wrapping_mul(0xD134_2543_DE82_EF95) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..200)
        .map(|_| {
            let bytes = next();
            (bytes[2] % 64, bytes[4], bytes[6])
        })
        .collect()
}

/// How many reads of replicas were served in so many lives, up to the first that was wrong.
fn served(lives: u64, guards: Guards) -> (u64, Option<String>) {
    let mut served = 0;
    for seed in 1..=lives {
        let lived = Lived::new(guards).live(&life_of(seed));
        served += lived.served;
        if let Some(why) = lived.wrong {
            return (served, Some(format!("life {seed}: {why}")));
        }
    }
    (served, None)
}

#[test]
fn the_laws_are_not_empty() {
    let (served, wrong) = served(3_000, Guards::on());
    assert_eq!(wrong, None);
    assert!(served > 2_000, "only {served} reads were served");
}

#[cfg(feature = "unsafe-guards")]
#[test]
fn without_a_rule_a_read_misses_what_its_session_wrote() {
    let shown = [
        "incarnation",
        "insert_lsn",
        "place_counts",
        "durability",
        "leader_first",
        "fork_interval",
        "unknown_upward",
        "trail_sent_at",
        "diverged",
    ];
    for guard in shown {
        let guards = Guards::without(guard).expect("a guard of that name");
        let (served, wrong) = served(20_000, guards);
        assert!(wrong.is_some(), "{guard} prevents nothing in {served} reads");
    }
}
