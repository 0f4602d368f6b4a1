//! `Outlook`: when a node is expected to have a floor. A prediction, never a promise.
//!
//! Nothing is called fresh by it: [`Snapshot::satisfies`] alone says what a node has. It is the
//! earlier of two estimates, since a wait must not be skipped that may be of use: what is left at
//! the pace of the last movements, and the lag the node has in time. A node that applies late moves
//! in jumps, with few bytes and a lag that stays; one that catches up loses its lag.

use std::time::Duration;

use super::Snapshot;
use crate::instant::Instant;
use crate::trail::{Demand, Floor, Sample};
use crate::views::{Coverage, NodeId};

/// Of all standstills that have lasted for a time, four in five last a quarter of it longer, if
/// nothing else is known of them.
const STILL_SHARE: u32 = 4;

/// What can be foretold of a node and a floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// Nothing.
    Unknown,
    /// It is expected to have it after this time; zero: it has it, or at any moment.
    Within(Duration),
    /// It is behind and has not moved for so long.
    Still(Duration),
}

impl Outlook {
    const fn expected_in(self) -> Option<Duration> {
        match self {
            Self::Within(expected_in) => Some(expected_in),
            Self::Unknown | Self::Still(_) => None,
        }
    }
}

impl Snapshot {
    /// When `node` is expected to have all of `floor`.
    pub fn outlook(&self, node: NodeId, floor: &Floor, now: Instant) -> Outlook {
        let (Ok(place), Some(view)) = (self.eligible(node, now), self.view(node)) else {
            return Outlook::Unknown;
        };
        match self.coverage(&place, floor) {
            Coverage::Covered => return Outlook::Within(Duration::ZERO),
            Coverage::Applied(_) => {}
            // What it lacks is no stretch of its log.
            Coverage::Flushed(_) | Coverage::Unjudged | Coverage::NoRow | Coverage::Uncounted => {
                return Outlook::Unknown;
            }
        }
        let demand = floor.demands().iter().find(|demand| Some(demand.epoch) == place.last);
        let Some(demand) = demand else { return Outlook::Unknown };
        let lacking = self.first_lacking(node);
        if let Some(still) = lacking.and_then(|one| view.apply_rate().standstill(one.sent_at)) {
            return Outlook::Still(still);
        }
        let left = view.applied.map(|applied| applied.bytes_behind(demand.position));
        let Some(by_pace) = left.and_then(|left| view.apply_rate().time_for(left)) else {
            return Outlook::Unknown;
        };
        // Both are told from when the node was seen last.
        let by_lag = self.by_lag(demand, lacking).unwrap_or(Duration::MAX);
        let expected_in = by_pace.min(by_lag);
        Outlook::Within(expected_in.saturating_sub(now.since(view.sent_at)))
    }

    /// Says whether `node` may come to have `floor` within a budget: what cannot be foretold may.
    pub fn may_come_within(
        &self,
        node: NodeId,
        floor: &Floor,
        budget: Duration,
        now: Instant,
    ) -> bool {
        match self.outlook(node, floor, now) {
            Outlook::Unknown => true,
            Outlook::Within(expected_in) => expected_in <= budget,
            Outlook::Still(still) => still / STILL_SHARE <= budget,
        }
    }

    /// When one of `nodes` is expected to have `floor`; `None`: that cannot be foretold.
    pub fn eta(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        floor: &Floor,
        now: Instant,
    ) -> Option<Duration> {
        nodes.filter_map(|node| self.outlook(node, floor, now).expected_in()).min()
    }

    /// When all of `nodes` that serve are expected to have `floor`; `None`: nobody can tell.
    pub fn eta_of_all(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        floor: &Floor,
        now: Instant,
    ) -> Option<Duration> {
        let serving = nodes.filter(|node| self.eligible(*node, now).is_ok());
        let mut expected_in = serving.map(|node| self.outlook(node, floor, now).expected_in());
        expected_in.try_fold(None, |latest: Option<Duration>, one| Some(latest.max(Some(one?))))?
    }

    /// The first leader sample that a node lacks.
    fn first_lacking(&self, node: NodeId) -> Option<Sample> {
        let newest = self.newest.get(node.index()).copied().flatten();
        self.trail.get(newest.map_or(0, |(index, _)| index + 1))
    }

    /// How long after its last view a node reaches a demand if its lag stays what it was then.
    fn by_lag(&self, demand: &Demand, lacking: Option<Sample>) -> Option<Duration> {
        // Written after this, since the leader did not have it yet.
        let written_after = self.newest_before(demand)?.sent_at;
        let Some(lacking) = lacking else { return Some(Duration::ZERO) };
        Some(written_after.since(lacking.sent_at))
    }
}
