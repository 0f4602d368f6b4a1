//! `NodeView`: what was last seen of one node, by incarnation, and how much of it is proven.
//!
//! Within one incarnation a position only grows, so an old view is safe; across incarnations it
//! says nothing, so a new one replaces the old, whatever it shows. It knows of no other node and
//! of no leader.

use std::collections::{BTreeMap, BTreeSet};

use super::{ApplyRate, Observation};
use crate::evidence::Role;
use crate::guards::Guards;
use crate::instant::Instant;
use crate::lineage::{Epoch, History, Incarnation, Life};
use crate::position::{Position, Unmet};

/// Rows and former incarnations a view remembers.
const REMEMBERED_MAX: usize = 32;

/// What a node is, as far as it can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewRole {
    /// Out of recovery, in this epoch.
    Writable(Epoch),
    /// In recovery.
    Standby,
}

/// Why a node serves nobody until its incarnation changes or an operator resumes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Quarantine {
    /// Its position went back, or it went back into recovery, under one incarnation.
    Regressed,
    /// Its incarnation is alive under another node too.
    SharedIncarnation,
    /// An incarnation that another had replaced answered again: two servers behind one address.
    Alternating,
    /// It shows, or showed in this incarnation, rows of two branches.
    TwoBranches,
    /// Its leader came back as a copy of an older day: it may hold what that has not.
    FollowedCopy,
    /// It led an epoch off the leader's line: its files may hold that, whatever rows it shows.
    FormerTwin,
}

/// What became of an observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is older than what is known, or of a life that has ended; nothing changed.
    Dropped,
    /// The view was updated under the same incarnation.
    Updated,
    /// A new incarnation, or the first one.
    NewIncarnation,
}

/// What was last seen of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeView {
    /// The life it was seen in.
    pub incarnation: Incarnation,
    /// Its role when last seen.
    pub role: ViewRole,
    /// The last lineage row it showed.
    pub row: Option<Epoch>,
    /// Everything up to here has been applied; `None` if it did not say.
    pub applied: Option<Position>,
    /// The timeline its WAL receiver named.
    pub received_timeline: Option<u32>,
    /// Major version of the server.
    pub server_major: u32,
    /// When the newest observation was sent.
    pub sent_at: Instant,
    /// When an observation of this incarnation was first received.
    pub first_received_at: Instant,
    /// When the newest observation that saw it in recovery was sent.
    pub in_recovery_at: Option<Instant>,
    /// The first position seen of this incarnation while it was writable.
    pub first_writable: Option<Position>,
    /// Why it serves nobody.
    pub quarantine: Option<Quarantine>,
    /// When `applied` was first received.
    applied_received_at: Instant,
    /// How fast it applies; only predictions rest on it.
    apply_rate: ApplyRate,
    /// Per last row, the position proven to be of that row's line.
    proven: BTreeMap<Epoch, Position>,
    shown: BTreeSet<Epoch>,
    former: BTreeSet<Incarnation>,
}

impl NodeView {
    /// The view after the first observation of a node.
    pub fn first(observation: &Observation, history: &History, guards: &Guards) -> Self {
        let evidence = &observation.evidence;
        let mut view = Self {
            incarnation: evidence.incarnation,
            role: ViewRole::Standby,
            row: None,
            applied: None,
            received_timeline: None,
            server_major: evidence.server_major(),
            sent_at: observation.sent_at,
            first_received_at: observation.received_at,
            in_recovery_at: None,
            first_writable: None,
            quarantine: None,
            applied_received_at: observation.received_at,
            apply_rate: ApplyRate::default(),
            proven: BTreeMap::new(),
            shown: BTreeSet::new(),
            former: BTreeSet::new(),
        };
        view.update(observation, history, guards);
        view
    }

    /// Takes in a later observation. Its rows must be in `history` already.
    pub fn observe(&mut self, seen: &Observation, history: &History, guards: &Guards) -> Taken {
        let incarnation = seen.evidence.incarnation;
        if self.is_out_of_date(seen, guards) {
            return Taken::Dropped;
        }
        if incarnation == self.incarnation {
            return self.observe_again(seen, history, guards);
        }
        let mut former = std::mem::take(&mut self.former);
        let returned = former.contains(&incarnation);
        former.insert(self.incarnation);
        while former.len() > REMEMBERED_MAX {
            former.pop_first();
        }
        let kept = (self.proven.clone(), self.applied);
        *self = Self::first(seen, history, guards);
        self.former = former;
        if returned {
            self.quarantine = Some(Quarantine::Alternating);
        }
        if !guards.incarnation() {
            // The unsafe reading: what the last life had applied is still there.
            (self.proven, self.applied) = kept;
            self.update(seen, history, guards);
        }
        Taken::NewIncarnation
    }

    /// Says whether an observation is of a life that has ended, or older than what is known.
    pub fn is_out_of_date(&self, seen: &Observation, guards: &Guards) -> bool {
        if seen.evidence.incarnation == self.incarnation {
            seen.sent_at < self.sent_at
        } else {
            guards.late_observation() && seen.sent_at < self.first_received_at
        }
    }

    fn observe_again(&mut self, seen: &Observation, history: &History, guards: &Guards) -> Taken {
        let went_back = match (seen.evidence.role, self.role) {
            (Role::Standby { .. }, ViewRole::Writable(_)) => true,
            (Role::Standby { .. }, ViewRole::Standby)
            | (Role::Writable { .. }, ViewRole::Writable(_)) => {
                match (self.applied, seen.evidence.position()) {
                    (Some(known), Some(shown)) => !shown.covers(known),
                    (Some(_) | None, None) | (None, Some(_)) => false,
                }
            }
            (Role::Writable { .. }, ViewRole::Standby) => false,
        };
        if went_back && guards.regression() {
            if seen.sent_at >= self.applied_received_at {
                self.quarantine = self.quarantine.or(Some(Quarantine::Regressed));
            }
            return Taken::Dropped;
        }
        self.update(seen, history, guards);
        Taken::Updated
    }

    fn update(&mut self, seen: &Observation, history: &History, guards: &Guards) {
        let evidence = &seen.evidence;
        self.sent_at = seen.sent_at;
        self.row = evidence.row;
        self.received_timeline = None;
        match evidence.role {
            Role::Writable { insert, .. } => {
                if let Some(epoch) = evidence.epoch() {
                    self.role = ViewRole::Writable(epoch);
                }
                self.first_writable.get_or_insert(insert);
            }
            Role::Standby { received_timeline } => {
                self.role = ViewRole::Standby;
                self.received_timeline = received_timeline;
                self.in_recovery_at = Some(seen.sent_at);
            }
        }
        self.check_branches(seen, history, guards);
        let shown = evidence.position();
        let grown = match (self.applied, shown) {
            (Some(known), Some(shown)) => known.join(shown),
            (known, shown) => match shown.or(known) {
                Some(position) => position,
                None => return,
            },
        };
        if self.applied != Some(grown) {
            self.applied = Some(grown);
            self.applied_received_at = seen.received_at;
        }
        self.apply_rate.observe(grown, seen.sent_at);
        self.prove(grown, guards);
    }

    /// A standby's position counts while its receiver names the timeline of its last row.
    fn prove(&mut self, position: Position, guards: &Guards) {
        let Some(row) = self.row else { return };
        let follows = self.role == ViewRole::Standby
            && (self.received_timeline == Some(row.timeline) || !guards.place_counts());
        if follows {
            let known = self.proven.entry(row).or_insert(position);
            *known = known.join(position);
        }
        while self.proven.len() > REMEMBERED_MAX {
            self.proven.pop_first();
        }
    }

    fn check_branches(&mut self, seen: &Observation, history: &History, guards: &Guards) {
        // A table that cannot be read shows nothing, not even that its rows are gone: rows that
        // are seen to be gone come as an empty list.
        let is_unread = self.row.is_none() && seen.rows.is_none();
        if is_unread || !guards.two_branches() {
            return;
        }
        if let Some(rows) = &seen.rows {
            self.shown.extend(rows.iter().map(|row| row.epoch));
        }
        self.shown.extend(self.row);
        let on_one_line = match self.row {
            Some(last) => self.shown.iter().all(|row| history.descends(last, *row)),
            None => self.shown.is_empty(),
        };
        if !on_one_line {
            self.quarantine = self.quarantine.or(Some(Quarantine::TwoBranches));
        }
        while self.shown.len() > REMEMBERED_MAX {
            self.shown.pop_first();
        }
    }

    /// Says whether the node was seen in this life, as far as that is remembered.
    pub fn lived(&self, life: Life) -> bool {
        self.incarnation.life == life || self.former.iter().any(|former| former.life == life)
    }

    /// How fast the node applies its log in this life.
    pub const fn apply_rate(&self) -> &ApplyRate {
        &self.apply_rate
    }

    /// The position proven under `row` by this incarnation.
    pub fn proven_under(&self, row: Epoch) -> Option<Position> {
        self.proven.get(&row).copied()
    }

    /// Lifts the quarantine of this incarnation, by an operator's word.
    pub fn resume(&mut self) {
        if self.quarantine.take().is_some() {
            // What it showed before it went back is no measure of what it shows now.
            self.role = ViewRole::Standby;
            self.applied = None;
            self.apply_rate = ApplyRate::default();
            self.proven.clear();
        }
        self.former.clear();
        self.shown = self.row.into_iter().collect();
    }

    /// Where the node stands in the log tree.
    pub fn place(&self) -> Place {
        match self.role {
            ViewRole::Writable(epoch) => {
                Place { last: Some(epoch), counted: self.applied, leads: true }
            }
            ViewRole::Standby => {
                let proven = self.row.and_then(|row| self.proven_under(row));
                let counted = match (self.applied, proven) {
                    (Some(applied), Some(proven)) if proven.covers(applied) => Some(applied),
                    (Some(_) | None, Some(_) | None) => None,
                };
                Place { last: self.row, counted, leads: false }
            }
        }
    }
}

/// Where a node stands: the chain of rows it shows, and the position that counts for the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its own epoch if it leads, else its last row.
    pub last: Option<Epoch>,
    /// The position that counts for that epoch; `None` if the latest one does not.
    pub counted: Option<Position>,
    /// Says whether it is the leader of that epoch.
    pub leads: bool,
}

/// Whether a place holds everything a mark demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// It does.
    Covered,
    /// The node has not applied that much.
    Applied(Unmet),
    /// The leader was not seen to flush that much.
    Flushed(Unmet),
    /// The mark was judged against another line of leaders than the current one.
    Unjudged,
    /// The node shows no row that grew from the mark's epoch.
    NoRow,
    /// Its latest position does not count.
    Uncounted,
}

impl Place {
    /// Says whether the place covers an *alive* mark of `epoch` with this floor.
    ///
    /// `flush_seen` is the highest flush position the leader of `epoch` was polled at; it counts
    /// only where that is the last epoch here.
    pub fn covers(
        &self,
        history: &History,
        epoch: Epoch,
        floor: Position,
        flush_seen: Option<Position>,
        guards: &Guards,
    ) -> Coverage {
        let Some(last) = self.last else { return Coverage::NoRow };
        if self.leads && last == epoch {
            return Coverage::Covered;
        }
        if !history.descends(last, epoch) {
            return Coverage::NoRow;
        }
        let Some(applied) = self.counted else { return Coverage::Uncounted };
        if last != epoch {
            return Coverage::Covered;
        }
        if let Some(unmet) = applied.first_unmet(floor) {
            return Coverage::Applied(unmet);
        }
        let flushed = flush_seen.unwrap_or(Position::START);
        match flushed.first_unmet(floor) {
            Some(unmet) if guards.durability() => Coverage::Flushed(unmet),
            Some(_) | None => Coverage::Covered,
        }
    }
}
