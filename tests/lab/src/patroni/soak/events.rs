//! What befalls the nodes, and how long it takes until Tidegate's answer names who leads.
//!
//! The clock of an event starts with its first signal or request; who leads afterwards is Patroni's
//! decision.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_client::{Level, Outcome, Policy, SessionOptions};
use tokio::time::{sleep, timeout};

use super::place::Place;
use super::probe::{self, Writable};
use crate::service::PARTITION;

/// How long sessions write and read before an event, and after it.
const LOAD: Duration = Duration::from_secs(2);
/// What naming the new leader may take.
const NAMED_LIMIT: Duration = Duration::from_secs(30);
const NAMED_PAUSE: Duration = Duration::from_millis(1);

/// What befalls a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// An operator has another node lead.
    Switchover,
    /// Patroni and server of the leader are killed.
    NodeKill,
    /// The leader's server alone is killed.
    PostmasterKill,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Switchover, Self::NodeKill, Self::PostmasterKill];

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Switchover => "switchover",
            Self::NodeKill => "node kill",
            Self::PostmasterKill => "postmaster kill",
        }
    }
}

/// How long an event took.
#[derive(Clone, Debug)]
pub(super) struct Took {
    pub(super) kind: Kind,
    from: String,
    to: String,
    timeline: i64,
    writable: Duration,
    named: Duration,
}

impl Took {
    pub(super) fn writable_secs(&self) -> f64 {
        self.writable.as_secs_f64()
    }

    pub(super) fn named_ms(&self) -> f64 {
        self.named.as_secs_f64() * 1000.0
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        let Self { kind, from, to, timeline, .. } = self;
        let (writable, named) = (self.writable_secs(), self.named_ms());
        format!(
            "{}: {from} -> {to} on timeline {timeline}, writable after {writable:.2} s, named \
             {named:.0} ms later",
            kind.words()
        )
    }
}

/// Plays one event under load; returns when the load is over.
pub(super) async fn play(place: &Place, kind: Kind) -> Result<Took> {
    let took = play_under_load(place, kind).await;
    place.end_phase();
    took
}

async fn play_under_load(place: &Place, kind: Kind) -> Result<Took> {
    let nodes = place.patroni.nodes();
    let old = probe::leader(nodes).await?;
    place.writes_go_to(old.node);
    sleep(LOAD).await;
    let (from, event_at) = (&nodes[old.node], Instant::now());
    let happens = async {
        match kind {
            Kind::Switchover => {
                let to = &nodes[(old.node + 1) % nodes.len()];
                place.patroni.switchover(from, to).await
            }
            Kind::NodeKill => from.kill().await,
            Kind::PostmasterKill => from.kill_postmaster().await,
        }
    };
    let follows = async {
        let (new, writable_at) = probe::new_leader(nodes, old).await?;
        place.writes_go_to(new.node);
        let named_at = named(place, new).await?;
        anyhow::Ok((new, writable_at, named_at))
    };
    let ((), (new, writable_at, named_at)) = tokio::try_join!(happens, follows)?;
    if kind == Kind::NodeKill {
        from.start()?;
    }
    sleep(LOAD).await;
    Ok(Took {
        kind,
        from: from.name().to_owned(),
        to: nodes[new.node].name().to_owned(),
        timeline: new.timeline,
        writable: writable_at.duration_since(event_at),
        named: named_at.saturating_duration_since(writable_at),
    })
}

/// Waits until an answer of Tidegate names this leader in this life; returns when it came.
async fn named(place: &Place, new: Writable) -> Result<Instant> {
    let name = place.patroni.nodes()[new.node].name();
    let life = format!(".{}.", new.start);
    let asker = place.client.session(SessionOptions::new(PARTITION));
    let policy = Policy::new(Level::Leader);
    let asked = async {
        loop {
            if let Ok(selection) = asker.select(&policy).await
                && let Outcome::Served(served) = selection.outcome
                && served.node.name == name
                && served.leader_timeline.map(i64::from) == Some(new.timeline)
                && served.acceptable_incarnations.iter().any(|life_of| life_of.contains(&life))
            {
                return Instant::now();
            }
            sleep(NAMED_PAUSE).await;
        }
    };
    let named = timeout(NAMED_LIMIT, asked).await;
    named.with_context(|| format!("Tidegate never named {name} in life {life}"))
}
