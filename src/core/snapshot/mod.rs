//! `Snapshot`: what a request may read of one partition. Immutable; published by `partition`.
//!
//! It answers whether a node may serve, where it stands and what it covers. It chooses nothing.

mod eligibility;
mod eta;
mod lines;
mod newest;
mod seen;
mod settings;
mod standing;

use std::sync::Arc;
use std::time::Duration;

pub use eligibility::{NotResolved, WhyNot};
pub use eta::Outlook;
pub use settings::{NodeSettings, Settings};
use standing::{Reaches, Standing};

use crate::instant::Instant;
use crate::leader::{Contender, Facts, Leadership};
use crate::lineage::{Epoch, History};
use crate::position::Position;
use crate::token::ComponentKey;
use crate::trail::{Floor, LeaderTrail, Line, Sample};
use crate::views::{Coverage, NodeId, NodeSet, NodeView, Place, ViewRole};

/// What was last known of one partition.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The component that sessions hold of it.
    pub key: ComponentKey,
    /// Limits, nodes and rules.
    pub settings: Arc<Settings>,
    /// The last view of each node, by [`NodeId`].
    pub views: Vec<Option<Arc<NodeView>>>,
    /// Nodes an operator took out, by [`NodeId`].
    pub drained: Vec<bool>,
    /// Who leads.
    pub leadership: Leadership,
    /// Which epochs followed which.
    pub history: Arc<History>,
    /// What the leader had, and when.
    pub trail: Arc<LeaderTrail>,
    /// What polls have shown of each epoch.
    pub facts: Arc<Facts>,
    /// The row of the leader's epoch could not be written.
    pub row_unwritable: bool,
    /// What follows from the rest for each node, as of the last [`Snapshot::settle`].
    standings: Arc<[Standing]>,
    /// The same for what most reads ask, as of then.
    reaches: Arc<Reaches>,
    /// The newest leader sample each node surely has, with its place in the trail, as of then.
    newest: Arc<[Option<(usize, Sample)>]>,
    /// Where the runs of the trail begin that are searched by halves, as of then.
    run_starts: Arc<[usize]>,
    /// The leader is quarantined, as of then.
    leader_is_quarantined: bool,
    /// Until when a node counts as seen off the leader's line lately, as of then.
    stray_until: Option<Instant>,
}

/// How far a node is behind what the leader was seen to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lag {
    /// Bytes of log.
    pub bytes: u64,
    /// The age of the newest leader sample it covers: an upper bound of its staleness.
    pub time: Duration,
}

impl Snapshot {
    /// The snapshot before anything was seen.
    pub fn unseen(key: ComponentKey, settings: Arc<Settings>) -> Self {
        let nodes = settings.nodes.len();
        let mut unseen = Self {
            key,
            settings,
            views: vec![None; nodes],
            drained: vec![false; nodes],
            leadership: Leadership::Nobody,
            history: Arc::new(History::new()),
            trail: Arc::new(LeaderTrail::new()),
            facts: Arc::new(Facts::new()),
            row_unwritable: false,
            standings: Arc::default(),
            reaches: Arc::default(),
            newest: Arc::default(),
            run_starts: Arc::default(),
            leader_is_quarantined: false,
            stray_until: None,
        };
        unseen.settle();
        unseen
    }

    /// Works out what follows for each node. Whoever changes a part must do so before it is read.
    pub(crate) fn settle(&mut self) {
        self.standings = self.nodes().map(|node| self.stand(node)).collect();
        let leader = self.leadership.leader();
        self.leader_is_quarantined =
            leader.is_some_and(|leader| self.quarantine(leader.node).is_some());
        self.reaches = Arc::new(Reaches::of(&self.standings));
        self.settle_newest();
        self.stray_until = self.standings.iter().filter_map(Standing::stray_until).max();
    }

    fn standing(&self, node: NodeId) -> Option<&Standing> {
        let standing = self.standings.get(node.index());
        debug_assert!(
            standing.is_none_or(|standing| *standing == self.stand(node)),
            "a snapshot was read before it was settled"
        );
        standing
    }

    /// Every configured node.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.settings.nodes.len())
            .filter_map(|index| u16::try_from(index).ok())
            .map(NodeId::new)
    }

    /// The last view of a node.
    pub fn view(&self, node: NodeId) -> Option<&NodeView> {
        self.views.get(node.index()).and_then(Option::as_deref)
    }

    /// The line marks are judged against at `now`.
    pub fn line(&self, now: Instant) -> Line<'_> {
        Line {
            leadership: &self.leadership,
            history: &self.history,
            trail: &self.trail,
            facts: &self.facts,
            views: &self.views,
            stray_seen: self.stray_until.is_some_and(|until| now <= until),
            clock_drift: self.settings.clock_drift,
            guards: &self.settings.guards,
        }
    }

    /// The leader, if it was seen lately enough to be named.
    pub fn named_leader(&self, now: Instant) -> Option<Contender> {
        let leader = self.leadership.leader()?;
        let view = self.view(leader.node)?;
        let fit = view.role == ViewRole::Writable(leader.epoch)
            && !self.leader_is_quarantined
            && now.since(view.sent_at) <= self.settings.view_max_age;
        fit.then_some(leader)
    }

    /// The leader, if it may be named and may serve a session: on a major that was not tested it
    /// could have crashed unseen, and lost what sessions depend on.
    pub fn session_leader(&self, now: Instant) -> Option<Contender> {
        let leader = self.named_leader(now)?;
        let view = self.view(leader.node)?;
        self.settings.accepted_majors.contains(&view.server_major).then_some(leader)
    }

    /// Says whether the leader leads by the operator's word.
    pub fn verdict_stands(&self) -> bool {
        let leader = self.leadership.leader();
        leader.is_some_and(|leader| self.facts.words().stands_for(leader.epoch, &self.history))
    }

    /// Says whether the operator has set aside what `epoch` holds.
    pub fn is_set_aside(&self, epoch: Epoch) -> bool {
        self.facts.words().sets_aside(epoch, &self.history)
    }

    /// Says whether `place` covers all of a floor; else the first thing it lacks.
    pub fn coverage(&self, place: &Place, floor: &Floor) -> Coverage {
        if !floor.holds_under(&self.leadership, &self.history) {
            return Coverage::Unjudged;
        }
        let flushed = place.last.and_then(|epoch| self.facts.flush_seen(epoch));
        self.covered(place, flushed, floor)
    }

    /// Says whether `place` covers a floor that holds; `flushed` is of the epoch it stands in.
    fn covered(&self, place: &Place, flushed: Option<Position>, floor: &Floor) -> Coverage {
        let guards = &self.settings.guards;
        for demand in floor.demands() {
            let (epoch, position) = (demand.epoch, demand.position);
            match place.covers(&self.history, epoch, position, flushed, guards) {
                Coverage::Covered => {}
                lacking @ (Coverage::Applied(_)
                | Coverage::Flushed(_)
                | Coverage::Unjudged
                | Coverage::NoRow
                | Coverage::Uncounted) => return lacking,
            }
        }
        Coverage::Covered
    }

    /// The closer look at what is not sure at once; few reads need it.
    #[inline(never)]
    fn covers_all(&self, place: &Place, flushed: Option<Position>, floor: &Floor) -> bool {
        self.covered(place, flushed, floor) == Coverage::Covered
    }

    /// The nodes that may serve a session's read now, and have all of `floor`.
    pub fn satisfying(&self, floor: &Floor, now: Instant) -> NodeSet {
        if !floor.holds_under(&self.leadership, &self.history) {
            return NodeSet::new();
        }
        debug_assert!(self.nodes().all(|node| self.standing(node).is_some()));
        if let [demand] = floor.demands()
            && let Some(nodes) = self.reaches.satisfying(demand, now)
        {
            debug_assert_eq!(nodes, self.satisfying_all(floor, now));
            return nodes;
        }
        self.satisfying_all(floor, now)
    }

    /// [`Self::satisfying`] for any floor that holds.
    fn satisfying_all(&self, floor: &Floor, now: Instant) -> NodeSet {
        let demands = floor.demands();
        NodeSet::of(&self.standings, |standing| {
            let surely = || demands.iter().all(|demand| standing.surely_covers(demand));
            standing.fit(now).is_some_and(|place| {
                debug_assert!(standing.eligible(now).is_ok());
                debug_assert!(
                    !surely() || self.covers_all(place, standing.flushed, floor),
                    "{standing:?} does not cover {floor:?}"
                );
                surely() || self.covers_all(place, standing.flushed, floor)
            })
        })
    }

    /// Says whether a node may serve a session's read now, and has all of `floor`.
    pub fn satisfies(&self, node: NodeId, floor: &Floor, now: Instant) -> bool {
        self.eligible(node, now)
            .is_ok_and(|place| self.coverage(&place, floor) == Coverage::Covered)
    }

    /// The newest leader sample that `node` surely has, of its line today.
    pub fn newest_covered(&self, node: NodeId, now: Instant) -> Option<Sample> {
        self.eligible(node, now).ok()?;
        let newest = self.newest.get(node.index()).copied().flatten();
        debug_assert!(
            self.standing(node).is_some_and(|standing| {
                self.trail.newest_first().find(|one| self.has(standing, one))
                    == newest.map(|(_, sample)| sample)
            }),
            "{newest:?} is not what a walk over the trail finds"
        );
        newest.map(|(_, sample)| sample)
    }

    /// How far `node` is behind the leader; `None` if that cannot be shown.
    pub fn lag(&self, node: NodeId, now: Instant) -> Option<Lag> {
        let applied = self.view(node)?.applied?;
        let newest = self.trail.last()?;
        let covered = self.newest_covered(node, now)?;
        let last = self.view(node)?.place().last;
        let bytes = if covered == newest {
            0
        } else if last == Some(newest.epoch) {
            applied.bytes_behind(newest.position)
        } else {
            // Positions of two epochs have no distance.
            return None;
        };
        Some(Lag { bytes, time: now.since(covered.sent_at) })
    }
}
