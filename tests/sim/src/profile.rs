//! `Profile`: what a world is made to show most of all. Its sizes are in `options`, its faults in
//! `schedule`.

/// What a world is made to show most of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Profile {
    /// A bit of everything that needs no operator.
    General,
    /// Asynchronous commits, demands of everything acknowledged, a WAL writer that stalls.
    Async,
    /// A leader that crashes while polls of it are slow.
    SlowLeader,
    /// Promotions that lose something.
    Failover,
    /// Promotions beside a leader that runs on.
    Undead,
    /// Promotions nobody polled, and standbys that follow them already.
    Hidden,
    /// Lineage rows that come late.
    LateRows,
    /// A server promoted, cloned anew and promoted again while a row is under way.
    Reused,
    /// Two standbys promoted, with standbys of their own.
    Twins,
    /// A standby moved from one twin to the other without a rewind.
    Moved,
    /// A former twin attached to the other without a rewind.
    Attached,
    /// Answers that come after others, from lives that have ended.
    LateAnswers,
    /// Records of sessions that expire, and standbys further behind than that.
    Expiry,
    /// A token store that forgets.
    Forgets,
    /// Tokens without room for everything.
    Narrow,
    /// Records that end where a page does, and an idle leader.
    Pages,
    /// Many fallbacks to the leader at once.
    Storm,
    /// Clients behind a pooler.
    Pooled,
    /// Standbys that restart behind what they showed.
    Restarts,
    /// A running server taken back to an older state.
    Reverted,
    /// A running server copied, memory and all.
    Copied,
    /// All that a cluster manager does: no operator is needed.
    Cluster,
    /// Failovers and switchovers in order: commits flushed and told with what was before, polls
    /// without gaps.
    Sober,
    /// Planned switchovers and nothing else.
    Switchovers,
    /// Crashes of the leader that lose something of its own timeline.
    Crashes,
    /// A leader that restarts again and again, unreplicated, and stays dead.
    CrashLoops,
    /// Several failovers between two polls.
    Gaps,
    /// Servers restored from older copies of themselves.
    Restored,
    /// Twins, one of which is gone for ever.
    DeadTwins,
    /// Operators, careful and careless.
    Operators,
    /// A leader that was copied before it led.
    Swapped,
    /// A bit of everything, with a token store that instances share.
    Shared,
    /// A shared store that fails over, restarts and is restored.
    StoreFailover,
    /// A shared store whose former primary lives on, with an instance that is left there.
    StoreSplit,
    /// A shared store that is flushed, slow, out of reach.
    StoreLoss,
    /// A shared store that evicts.
    Evicting,
    /// A shared store whose records expire, and standbys further behind than that.
    Expiring,
    /// Instances of two versions, one restarted after the other.
    Skewed,
    /// A store in the memory of each instance, and a second instance now and then.
    Foreign,
    /// Clocks that run as slowly as they may, standbys that stop, answers used to their end.
    Drift,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 40] = [
        Self::General,
        Self::Async,
        Self::SlowLeader,
        Self::Failover,
        Self::Undead,
        Self::Hidden,
        Self::LateRows,
        Self::Reused,
        Self::Twins,
        Self::Moved,
        Self::Attached,
        Self::LateAnswers,
        Self::Expiry,
        Self::Forgets,
        Self::Narrow,
        Self::Pages,
        Self::Storm,
        Self::Pooled,
        Self::Restarts,
        Self::Reverted,
        Self::Copied,
        Self::Cluster,
        Self::Sober,
        Self::Switchovers,
        Self::Crashes,
        Self::CrashLoops,
        Self::Gaps,
        Self::Restored,
        Self::DeadTwins,
        Self::Operators,
        Self::Swapped,
        Self::Shared,
        Self::StoreFailover,
        Self::StoreSplit,
        Self::StoreLoss,
        Self::Evicting,
        Self::Expiring,
        Self::Skewed,
        Self::Foreign,
        Self::Drift,
    ];

    /// The profile a seed lives in where none is asked for: every second one is general, half of
    /// those with a shared store.
    pub fn of_seed(seed: u64) -> Self {
        let among = Self::ALL.len() as u64;
        match seed % 4 {
            0 => Self::General,
            2 => Self::Shared,
            _ => Self::ALL[usize::try_from(seed / 2 % among).unwrap_or(0)],
        }
    }

    /// Its name in files and commands.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}
