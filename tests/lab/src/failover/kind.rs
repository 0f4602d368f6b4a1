//! The kinds of failover that can be played, with their names. Plays nothing.

/// One kind of failover, crash, restart or mistake.
///
/// "In one gap" means: while nobody could look at any of the servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The leader is killed, a standby promoted, the old leader rewound.
    KilledRewound,
    /// The leader is killed, a standby promoted, the old leader cloned again.
    KilledCloned,
    /// The leader is stopped cleanly, a standby promoted, the old leader follows it.
    Switchover,
    /// The leader is killed, a standby promoted, the other one repointed by reload; the old leader
    /// is left for the repair.
    Repointed,
    /// A standby receives without replaying; then the leader is killed and it is promoted.
    PausedPromoted,
    /// A standby is promoted while the old leader lives and is written to; that is stopped later.
    BesideLiving,
    /// The old leader comes back, writable, after a standby was promoted.
    OldReturns,
    /// The old leader comes back as a standby of the promoted one, without a rewind.
    NaiveRejoin,
    /// The leader crashes again and again, its standbys cut off; then it stays dead and one of
    /// them is promoted.
    CrashLoop,
    /// After a switchover an operator resets statistics on the promoted leader.
    ResetPromoted,
    /// The leader is killed while its WAL writer is held, and started again: an acknowledged
    /// commit is gone, the timeline stays.
    AsyncLost,
    /// One backend of the leader is killed.
    BackendKilled,
    /// One backend of the leader is killed while a bulk transaction is open.
    TornRecord,
    /// The leader is stopped cleanly and started.
    CleanRestart,
    /// An operator resets statistics on the leader.
    ResetLeader,
    /// The leader's data folder is replaced by an older copy.
    Restored,
    /// The leader crashes twice in one gap; the first crash loses a commit.
    TwoCrashes,
    /// The leader crashes and is restarted cleanly, in one gap.
    CrashThenClean,
    /// The leader crashes in a gap and loses a row; a standby gets log of its next life, but not
    /// its lineage row, and is promoted.
    BeforeTheRow,
    /// A standby is promoted, the other one follows it and is promoted too, in one gap.
    TwoPromotions,
    /// A standby is promoted and restarted, in one gap.
    PromotedRestarted,
    /// A promoted standby dies, is cloned from the old leader and promoted to the same timeline
    /// number, in one gap.
    SameNumber,
    /// Both standbys are promoted.
    Twins,
    /// Both standbys are promoted, in one gap; one is then attached to the other without a rewind.
    TwinAttached,
    /// A standby crashes and comes back behind what it had shown.
    StandbyCrash,
    /// A standby is restarted cleanly.
    StandbyRestart,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 26] = [
        Self::KilledRewound,
        Self::KilledCloned,
        Self::Switchover,
        Self::Repointed,
        Self::PausedPromoted,
        Self::BesideLiving,
        Self::OldReturns,
        Self::NaiveRejoin,
        Self::CrashLoop,
        Self::ResetPromoted,
        Self::AsyncLost,
        Self::BackendKilled,
        Self::TornRecord,
        Self::CleanRestart,
        Self::ResetLeader,
        Self::Restored,
        Self::TwoCrashes,
        Self::CrashThenClean,
        Self::BeforeTheRow,
        Self::TwoPromotions,
        Self::PromotedRestarted,
        Self::SameNumber,
        Self::Twins,
        Self::TwinAttached,
        Self::StandbyCrash,
        Self::StandbyRestart,
    ];

    /// Its name in tables and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KilledRewound => "killed, promoted, rewound",
            Self::KilledCloned => "killed, promoted, cloned",
            Self::Switchover => "planned switchover",
            Self::Repointed => "killed, promoted, repointed",
            Self::PausedPromoted => "paused standby promoted",
            Self::BesideLiving => "promoted beside the leader",
            Self::OldReturns => "old leader returns writable",
            Self::NaiveRejoin => "rejoined without rewind",
            Self::CrashLoop => "crash loop, then promoted",
            Self::ResetPromoted => "promoted, statistics reset",
            Self::AsyncLost => "killed, restarted, row lost",
            Self::BackendKilled => "backend killed",
            Self::TornRecord => "crash in a bulk transaction",
            Self::CleanRestart => "clean restart",
            Self::ResetLeader => "statistics reset",
            Self::Restored => "restored from an older copy",
            Self::TwoCrashes => "two crashes in one gap",
            Self::CrashThenClean => "crash, clean restart in gap",
            Self::BeforeTheRow => "crash unseen, then promoted",
            Self::TwoPromotions => "two promotions in one gap",
            Self::PromotedRestarted => "promoted, restarted in gap",
            Self::SameNumber => "re-cloned to the same number",
            Self::Twins => "both standbys promoted",
            Self::TwinAttached => "twin attached without rewind",
            Self::StandbyCrash => "standby crash",
            Self::StandbyRestart => "standby restart",
        }
    }

    /// One crash or stop, one promotion, rejoin by rewind or clone: needs no operator.
    #[must_use]
    pub const fn is_ordinary(self) -> bool {
        match self {
            Self::KilledRewound
            | Self::KilledCloned
            | Self::Switchover
            | Self::Repointed
            | Self::PausedPromoted => true,
            Self::BesideLiving
            | Self::OldReturns
            | Self::NaiveRejoin
            | Self::CrashLoop
            | Self::ResetPromoted
            | Self::AsyncLost
            | Self::BackendKilled
            | Self::TornRecord
            | Self::CleanRestart
            | Self::ResetLeader
            | Self::Restored
            | Self::TwoCrashes
            | Self::CrashThenClean
            | Self::BeforeTheRow
            | Self::TwoPromotions
            | Self::PromotedRestarted
            | Self::SameNumber
            | Self::Twins
            | Self::TwinAttached
            | Self::StandbyCrash
            | Self::StandbyRestart => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_is_listed_once_under_a_name_of_its_own() {
        let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        let kinds: BTreeSet<Kind> = Kind::ALL.into_iter().collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
    }
}
