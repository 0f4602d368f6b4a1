//! `Origin`: what a new epoch grew from, as the node that leads it shows.
//!
//! The parent is the last lineage row the node shows. A fork is claimed only as far as it is
//! proven; which kinds of change there are, and what each proves, is `docs/failovers.md`. It does
//! not decide who leads.

use super::{EpochFacts, Facts};
use crate::evidence::Role;
use crate::guards::Guards;
use crate::lineage::{Epoch, Fork, TimelineHistory};
use crate::position::Position;
use crate::views::{NodeId, NodeView, Observation, Quarantine};

/// What an epoch grew from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The epoch before it; `None` for a root.
    pub parent: Option<Epoch>,
    /// Where that one ended.
    pub fork: Fork,
    /// What of that one was flushed, whoever knows of it, is in this one up to here.
    pub shared: Position,
}

/// Where a new epoch stands, and whether an operator should look at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// What it grew from.
    pub origin: Origin,
    /// Its leader came back below what it was seen to flush, or is another server on its timeline:
    /// a copy.
    pub is_restored: bool,
}

/// What a writable node shows of the epoch it leads, besides its last row.
#[derive(Clone, Copy, Debug)]
struct Shown<'a> {
    /// Which it is; `None`: nobody can tell.
    node: Option<NodeId>,
    epoch: Epoch,
    /// The replay position it froze at; `None` after a clean restart.
    frozen: Option<Position>,
    /// The first position of this life that was seen while it was writable.
    first: Position,
    /// What was seen of this life before.
    view: Option<&'a NodeView>,
    switches: Option<&'a TimelineHistory>,
}

impl Origin {
    /// Nothing that is known goes on in it.
    const ROOT: Self = Self { parent: None, fork: Fork::Unknown, shared: Position::START };

    /// Places the epoch `evidence` was read in, by what is known of its parent.
    ///
    /// `parent` is the last row before the epoch's own; `view` is what was seen of that incarnation
    /// before, `None` if nothing. With the evidence may come the server's own history file.
    /// `is_durable`: no commit is acknowledged before it is flushed. The answer is `None` in
    /// recovery, and the same however often it is asked.
    pub fn of(
        seen: &Observation,
        parent: Option<Epoch>,
        view: Option<&NodeView>,
        facts: &Facts,
        is_durable: bool,
        guards: &Guards,
    ) -> Option<Placed> {
        let (evidence, switches) = (&seen.evidence, seen.switches.as_ref());
        let Role::Writable { insert, .. } = evidence.role else { return None };
        let epoch = evidence.epoch()?;
        let Some(parent) = parent else { return Some(Self::ROOT.into()) };
        // Where two servers answer at one address, nobody knows whose life that is.
        let is_ambiguous = view.is_some_and(|view| {
            matches!(view.quarantine, Some(Quarantine::SharedIncarnation | Quarantine::Alternating))
        });
        let node = (!is_ambiguous).then_some(seen.node);
        let view = view.filter(|view| view.incarnation == evidence.incarnation);
        let first = view.and_then(|view| view.first_writable).unwrap_or(insert);
        let shown = Shown { node, epoch, frozen: evidence.replay, first, view, switches };
        let known = facts.of(parent);
        // No server goes back to a lower timeline by itself: what does continues nothing we know.
        Some(match epoch.timeline.cmp(&parent.timeline) {
            std::cmp::Ordering::Less => Self::ROOT.into(),
            std::cmp::Ordering::Equal => same_timeline(&shown, parent, known, is_durable, guards),
            std::cmp::Ordering::Greater => {
                let (fork, shared) = promotion(&shown, parent, known, guards);
                Self { parent: Some(parent), fork, shared }.into()
            }
        })
    }

    /// The same parent, and nothing claimed of it.
    #[must_use]
    pub const fn doubted(self) -> Self {
        Self { parent: self.parent, ..Self::ROOT }
    }

    /// What two observers of one epoch know together; a contradiction is unknown.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        if self.parent != other.parent {
            // A root may be a node whose rows could not be read.
            return match (self.parent, other.parent) {
                (None, _) => other,
                (_, None) => self,
                (Some(_), Some(_)) => Self::ROOT,
            };
        }
        let fork = self.fork.intersect(other.fork).unwrap_or(Fork::Unknown);
        Self { parent: self.parent, fork, shared: self.shared.join(other.shared) }
    }
}

impl From<Origin> for Placed {
    fn from(origin: Origin) -> Self {
        Self { origin, is_restored: false }
    }
}

/// The fork of a promotion, and what is shared: nothing past the frozen replay position survives;
/// what the parent flushed before it surely does, if this very incarnation was seen following it.
/// Of that we know what was seen; a session may know more.
fn promotion(
    shown: &Shown<'_>,
    parent: Epoch,
    known: Option<&EpochFacts>,
    guards: &Guards,
) -> (Fork, Position) {
    let at_most = shown.frozen.unwrap_or(shown.first);
    if !guards.fork_interval() {
        return (Fork::between(at_most, at_most), at_most);
    }
    let flush_seen = known.map_or(Position::START, |facts| facts.flush_seen);
    let one_step = shown.epoch.timeline == parent.timeline.saturating_add(1);
    let followed = shown.view.is_some_and(|view| view.in_recovery_at.is_some());
    let proven = shown.view.and_then(|view| view.proven_under(parent)).unwrap_or(Position::START);
    let switch = shown.switches.and_then(|switches| switches.switch_of(parent.timeline));
    // Where it does not show where it stopped following, its own writes must not vouch for the
    // parent's.
    let shared = match shown.frozen {
        Some(frozen) if one_step && followed => frozen,
        Some(_) | None => proven.join(switch.unwrap_or(Position::START)).meet(at_most),
    };
    (Fork::between(shared.meet(flush_seen), at_most), shared)
}

/// The same timeline under another name: a restart of its leader, unless it is a copy.
fn same_timeline(
    shown: &Shown<'_>,
    parent: Epoch,
    known: Option<&EpochFacts>,
    is_durable: bool,
    guards: &Guards,
) -> Placed {
    // Recovery keeps whatever was flushed: it shares all that is left.
    let grown = |fork: Fork| {
        let shared = fork.at_most().unwrap_or(Position::START);
        Placed::from(Origin { parent: Some(parent), fork, shared })
    };
    let Some((known, replay)) = known.and_then(|known| known.replay.map(|replay| (known, replay)))
    else {
        return grown(Fork::Unknown);
    };
    let restored = || Placed { is_restored: true, ..grown(Fork::Unknown) };
    let is_another = matches!((known.node, shown.node), (Some(led), Some(node)) if led != node);
    if is_another && guards.restored() {
        // Another server: no restart of the one that led.
        return restored();
    }
    let (life, flush_seen) = (shown.epoch.life, known.flush_seen);
    let same_start = life.start == parent.life.start;
    if same_start && replay == shown.frozen {
        // The same life; somebody has reset its statistics.
        return grown(Fork::Unbounded);
    }
    let recovered = shown.frozen.unwrap_or(shown.first);
    let has_all = recovered.covers(flush_seen);
    let is_clean = !same_start && life.reset == parent.life.reset && shown.frozen.is_none();
    let fork = if has_all && (is_clean || is_durable) {
        Fork::Unbounded
    } else if has_all {
        // Another crash may have come before this one: only what was flushed surely survived both.
        let at_least = if guards.fork_interval() { flush_seen } else { recovered };
        Fork::between(at_least, recovered)
    } else if known.flush_starts_page && shown.frozen.is_some() && guards.torn_record() {
        // The flush ended inside a record, which recovery dropped: none ends between the two.
        Fork::between(recovered, recovered)
    } else if guards.restored() {
        // It has the parent's row, so it grew from that; up to where, and by what, nobody knows.
        return restored();
    } else {
        Fork::between(recovered, recovered)
    };
    grown(fork)
}
