//! Where a parent ends in a new epoch, from what its leader showed first and what was known then.

use super::scan::Sight;

/// Everything of the parent is in the child.
const ALL: u64 = u64::MAX;

/// Below the flush seen by more than this, a page start inside a record explains nothing: no record
/// that is written at once is longer.
const RECORD_BYTES: u64 = 1 << 20;

/// Up to where a parent is in its child, and past where it is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Fork {
    /// Up to here it is.
    pub(in super::super) at_least: u64,
    /// Past here it is not.
    pub(in super::super) at_most: u64,
}

impl Fork {
    /// Nothing is known of what survived.
    pub(in super::super) const NOTHING: Self = Self { at_least: 0, at_most: ALL };

    const fn all() -> Self {
        Self { at_least: ALL, at_most: ALL }
    }
}

/// What a new epoch is taken for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) enum Rule {
    /// It has no parent.
    Root,
    /// One timeline higher, and this life was seen in recovery.
    Promotion,
    /// A higher timeline otherwise.
    PromotionUnseen,
    /// Start and replay are the parent's.
    Continues,
    /// A stop and a start without recovery.
    CleanRestart,
    /// A crash on the parent's timeline.
    Crash,
    /// A crash that tore the last record.
    Torn,
    /// A copy older than what was seen.
    Restored,
    /// The parent's leader was never polled.
    FactsLost,
    /// A timeline below the parent's, which cannot be.
    Backwards,
}

impl Rule {
    /// For people.
    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Promotion => "promotion",
            Self::PromotionUnseen => "unseen promotion",
            Self::Continues => "continues",
            Self::CleanRestart => "clean restart",
            Self::Crash => "crash",
            Self::Torn => "torn record",
            Self::Restored => "restored copy",
            Self::FactsLost => "parent unknown",
            Self::Backwards => "impossible",
        }
    }
}

/// By which rules the evidence is read: Tidegate's, or one that looks right and is not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) enum Way {
    /// The rules of Tidegate.
    Ours,
    /// The replay position of a new epoch is exactly where its parent ends.
    ReplayIsFork,
    /// The same timeline means the same leader: nothing is lost.
    TimelineContinues,
    /// Another reset time means a crash, which ended at the replay position.
    ResetIsCrash,
    /// A server whose position has reached a row's has the row.
    PositionAlone,
    /// The same, on the row's timeline.
    TimelineAndPosition,
    /// The same, under the same lineage row, whether the leader was seen to flush it or not.
    Unflushed,
}

impl Way {
    /// The ways that are wrong.
    pub(in super::super) const WRONG: [Self; 6] = [
        Self::ReplayIsFork,
        Self::TimelineContinues,
        Self::ResetIsCrash,
        Self::PositionAlone,
        Self::TimelineAndPosition,
        Self::Unflushed,
    ];

    /// For people.
    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "the rules of Tidegate",
            Self::ReplayIsFork => "the replay position is the exact fork",
            Self::TimelineContinues => "the same timeline loses nothing",
            Self::ResetIsCrash => "another reset time is a crash at the replay position",
            Self::PositionAlone => "a position that is reached is enough",
            Self::TimelineAndPosition => "timeline number and position are enough",
            Self::Unflushed => "lineage row and position are enough, flushed or not",
        }
    }
}

/// Places a new epoch in one way.
pub(super) fn place_by(sight: &Sight, way: Way) -> Fork {
    let begins = sight.shown.begins();
    let exact = Fork { at_least: begins, at_most: begins };
    let Some(parent) = sight.parent else { return sight.fork };
    let same_timeline = sight.epoch.timeline == parent.timeline;
    match way {
        Way::ReplayIsFork => exact,
        Way::TimelineContinues if same_timeline => Fork::all(),
        Way::ResetIsCrash if same_timeline && sight.epoch.reset != parent.reset => exact,
        Way::Ours
        | Way::TimelineContinues
        | Way::ResetIsCrash
        | Way::PositionAlone
        | Way::TimelineAndPosition
        | Way::Unflushed => sight.fork,
    }
}

/// Places a new epoch by Tidegate's rules; `proven` is the highest position that this life proved
/// under the parent's row.
pub(super) fn place(sight: &Sight, proven: u64) -> (Rule, Fork) {
    let Some(parent) = sight.parent else { return (Rule::Root, Fork::NOTHING) };
    let begins = sight.shown.begins();
    if sight.epoch.timeline > parent.timeline {
        let (rule, at_least) = if sight.epoch.timeline == parent.timeline + 1 && sight.was_standby {
            (Rule::Promotion, begins)
        } else {
            (Rule::PromotionUnseen, proven)
        };
        let at_least = at_least.min(sight.flush_seen.unwrap_or(0));
        return (rule, Fork { at_least, at_most: begins });
    }
    if sight.epoch.timeline < parent.timeline {
        return (Rule::Backwards, Fork::NOTHING);
    }
    let Some(flush_seen) = sight.flush_seen else { return (Rule::FactsLost, Fork::NOTHING) };
    let start_changed = sight.epoch.start != parent.start;
    if !start_changed && sight.shown.replay == sight.parent_replay {
        return (Rule::Continues, Fork::all());
    }
    let reset_changed = sight.epoch.reset != parent.reset;
    if start_changed && sight.shown.replay.is_none() && !reset_changed && begins >= flush_seen {
        return (Rule::CleanRestart, Fork::all());
    }
    if begins >= flush_seen {
        return (Rule::Crash, Fork { at_least: flush_seen, at_most: begins });
    }
    if sight.flush_starts_page && flush_seen - begins <= RECORD_BYTES {
        return (Rule::Torn, Fork { at_least: begins, at_most: begins });
    }
    (Rule::Restored, Fork::NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::evidence::{Shown, Writes};
    use crate::failover::truth::EpochId;

    const FLUSH: u64 = 0x300_4000;

    /// A leader first seen on `timeline`, in a life that differs from its parent's as said.
    fn seen(timeline: u32, start: i64, reset: i64, replay: Option<u64>, insert: u64) -> Sight {
        let flush_starts_page = false;
        let writes = Some(Writes { timeline, insert, flush: insert, flush_starts_page });
        let parent = Some(EpochId { timeline: 1, start: 10, reset: 11 });
        Sight {
            epoch: EpochId { timeline, start, reset },
            sent: 0,
            unseen_for: 0,
            parent,
            row_is_older: false,
            before: None,
            shown: Shown { life: (start, reset), writes, receives: None, replay, row: parent },
            flush_seen: Some(FLUSH),
            flush_starts_page: true,
            parent_replay: None,
            was_standby: false,
            received_timeline: None,
            beside: None,
            rule: Rule::Root,
            fork: Fork::NOTHING,
        }
    }

    #[test]
    fn a_crash_lies_between_the_flush_and_the_end_of_its_recovery() {
        let end = FLUSH + 0x200;
        let (rule, fork) = place(&seen(1, 12, 13, Some(end), end + 0x100), 0);
        assert_eq!((rule, fork), (Rule::Crash, Fork { at_least: FLUSH, at_most: end }));
    }

    #[test]
    fn a_recovery_below_a_flush_in_a_record_is_torn_and_below_any_other_one_is_a_copy() {
        let mut sight = seen(1, 10, 13, Some(FLUSH - 0x200), FLUSH + 0x100);
        let (rule, fork) = place(&sight, 0);
        let exact = Fork { at_least: FLUSH - 0x200, at_most: FLUSH - 0x200 };
        assert_eq!((rule, fork), (Rule::Torn, exact));
        sight.flush_starts_page = false;
        assert_eq!(place(&sight, 0).0, Rule::Restored);
        sight.flush_starts_page = true;
        sight.shown.replay = Some(FLUSH - 2 * RECORD_BYTES);
        assert_eq!(place(&sight, 0).0, Rule::Restored);
    }

    #[test]
    fn a_clean_restart_and_reset_statistics_lose_nothing() {
        let restarted = seen(1, 12, 11, None, FLUSH + 0x100);
        assert_eq!(place(&restarted, 0), (Rule::CleanRestart, Fork::all()));
        let reset = seen(1, 10, 13, None, FLUSH + 0x100);
        assert_eq!(place(&reset, 0), (Rule::Continues, Fork::all()));
        let both = seen(1, 12, 13, None, FLUSH + 0x100);
        assert_eq!(place(&both, 0).0, Rule::Crash);
    }

    #[test]
    fn a_frozen_replay_counts_only_for_a_standby_that_was_seen_one_timeline_below() {
        let mut sight = seen(2, 20, 21, Some(FLUSH - 0x200), FLUSH);
        assert_eq!(place(&sight, 0).1.at_least, 0);
        assert_eq!(place(&sight, FLUSH - 0x400).1.at_least, FLUSH - 0x400);
        sight.was_standby = true;
        assert_eq!(place(&sight, 0).1.at_least, FLUSH - 0x200);
        sight.epoch.timeline = 3;
        assert_eq!(place(&sight, 0).1, Fork { at_least: 0, at_most: FLUSH - 0x200 });
    }
}
