//! What a session depends on, and how its read is decided.

use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_core::routing::{AboveCap, Level, Plan, Policy, decide};
use tidegate_core::token::{Component, Mark};
use tidegate_core::trail::{Known, Requested, Resolution, resolve};

use super::names::{after, at, epoch, node, span};
use super::stage::Stage;
use super::words::{self, Told};

const KEYS: [&str; 12] = [
    "after", "upto", "saw", "applied", "flushed", "bound", "wait", "above", "zone", "previous",
    "pick", "fallback",
];

/// What one session depends on, as its holders say.
pub(crate) struct Session {
    pub(crate) component: Component,
    pub(crate) known: Known,
    pub(crate) gate: Option<Duration>,
    /// When the token store forgot.
    pub(crate) store_lost_at: Option<Instant>,
    pub(crate) bound: Option<Duration>,
    pub(crate) global: bool,
    pub(crate) gave_up: bool,
    /// When the call arrived; `None`: now.
    pub(crate) since: Option<Instant>,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self {
            component: Component::default(),
            known: Known::Yes,
            gate: None,
            store_lost_at: None,
            bound: None,
            global: false,
            gave_up: false,
            since: None,
        }
    }
}

impl Stage {
    /// Lets one line happen, whatever it is about, and says what came of it.
    pub(crate) fn tell(&mut self, line: &str, told: Told) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if self.depend(&words) {
            return Vec::new();
        }
        match words.as_slice() {
            ["resolve"] => words::resolution(&self.resolve()),
            ["ask", level, rest @ ..] => match self.ask(level, rest) {
                Ok(plan) => words::plan(&plan),
                Err(words) => words,
            },
            _ => {
                let effects = self.play(line);
                let told = words::effects(&effects, told);
                let subject = words[..words.len().min(2)].join(" ");
                if told.is_empty() {
                    Vec::new()
                } else {
                    vec![format!("{subject}: {}", told.join("; "))]
                }
            }
        }
    }

    /// Takes in a line about the session; says whether it was one.
    fn depend(&mut self, words: &[&str]) -> bool {
        let now = self.now();
        let session = &mut self.session;
        match words {
            ["mark", of, floor, rest @ ..] => {
                let position = |key| after(rest, key, &KEYS).map(|words| at(words[0]));
                let mark = Mark {
                    floor: at(floor),
                    after: position("after"),
                    upto: position("upto"),
                    saw: position("saw").or_else(|| position("applied")),
                    led: position("saw"),
                    flushed: position("flushed"),
                };
                session.component.raise(epoch(of), mark);
            }
            ["unresolved"] => session.component.unresolved = true,
            ["unknown", "session"] => session.known = Known::No,
            ["gate", window] => session.gate = Some(span(window)),
            ["store", "lost"] => session.store_lost_at = Some(now),
            ["call", "arrives"] => session.since = Some(now),
            ["sample", "did", "not", "come"] => session.gave_up = true,
            ["another", "session"] => *session = Session::new(),
            _ => return false,
        }
        true
    }

    /// What the session demands of a session read now.
    pub(crate) fn resolve(&mut self) -> Resolution {
        self.resolve_for(true)
    }

    fn resolve_for(&mut self, session: bool) -> Resolution {
        self.partition();
        let (now, snapshot, asks) = (self.now(), self.snapshot(), &self.session);
        let barrier = asks.store_lost_at.map(|at| snapshot.trail.since(at).next());
        let forgot = barrier == Some(None);
        let asked = Requested {
            key: snapshot.key,
            component: Some(&asks.component).filter(|component| !component.is_empty()),
            former: Vec::new(),
            known: if forgot { Known::No } else { asks.known },
            session,
            gate: asks.gate,
            barrier: barrier.flatten().map(|sample| (sample.epoch, sample.position)),
            bound: asks.bound,
            global: asks.global,
            since: asks.since.unwrap_or(now),
            gave_up: asks.gave_up,
        };
        resolve(&asked, &snapshot.line(now), now)
    }

    /// The plan for one read, or what is needed first.
    pub(crate) fn ask(&mut self, level: &str, rest: &[&str]) -> Result<Plan, Vec<String>> {
        let policy = policy(level, rest);
        self.session.bound = policy.bound;
        self.session.global = policy.level == Level::Global;
        let resolution = self.resolve_for(policy.asks_session());
        let Resolution::Ready(ready) = resolution else {
            return Err(words::resolution(&resolution));
        };
        let previous = after(rest, "previous", &KEYS).and_then(|words| node(words[0]));
        let pick =
            after(rest, "pick", &KEYS).map_or(0, |words| words[0].parse().expect("a number"));
        Ok(decide(&ready, self.snapshot(), &policy, previous, self.now(), pick))
    }
}

fn policy(level: &str, rest: &[&str]) -> Policy {
    let level = match level {
        "eventual" => Level::Eventual,
        "session" => Level::Session,
        "bounded" => Level::Bounded,
        "global" => Level::Global,
        "leader" => Level::Leader,
        other => panic!("no level: {other}"),
    };
    let time = |key| after(rest, key, &KEYS).map(|words| span(words[0]));
    let above = after(rest, "above", &KEYS).unwrap_or_default();
    let above_cap = above.iter().map(|word| match *word {
        "stale" => AboveCap::Stale,
        "refuse" => AboveCap::Refuse,
        again => AboveCap::Wait(span(again)),
    });
    Policy {
        level,
        bound: time("bound"),
        wait_budget: time("wait").unwrap_or_default(),
        may_fall_back: rest.contains(&"fallback"),
        above_cap: above_cap.collect(),
        zone: after(rest, "zone", &KEYS).map(|words| words[0].to_owned()),
    }
}
