//! What happens when: an explicit list, so that a failing one can be made shorter.
//!
//! Each action brings the seed of its own choices: without one action the others stay as they are.

use crate::options::{MILLI, Options, Profile};
use crate::random::Random;

/// One thing that is made to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    /// When, in nanoseconds.
    pub at: u64,
    /// What its choices follow from.
    pub seed: u64,
    /// What.
    pub kind: Kind,
}

/// What is made to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A device writes, reads and waits for a while.
    Burst,
    /// Something breaks.
    Fault(Fault),
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// What breaks.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it is called in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

faults! {
    /// A standby applies later than it did.
    Lag => "standby lags",
    /// A standby stops applying for a while.
    Pause => "replay paused",
    /// A standby crashes and reopens behind what it showed.
    StandbyCrash => "standby crash",
    /// A backend of a standby crashes.
    StandbyBackend => "standby backend crash",
    /// A standby restarts cleanly.
    StandbyRestart => "standby restart",
    /// An operator resets the statistics of any server.
    Statistics => "statistics reset",
    /// The leader crashes and restarts.
    LeaderCrash => "leader crash",
    /// A backend of the leader crashes.
    LeaderBackend => "leader backend crash",
    /// The leader restarts cleanly.
    LeaderRestart => "leader restart",
    /// The WAL writer stalls.
    Stall => "WAL writer stalls",
    /// A receiver loses its connection for a while.
    Disconnect => "receiver cut",
    /// Polls of a node are lost for a while.
    PollLoss => "polls lost",
    /// Polls of a node are slow for a while.
    PollDelay => "polls slow",
    /// One answer comes long after later ones.
    LateAnswer => "late answer",
    /// An instance cannot reach a node for a while.
    Unreachable => "node unreachable",
    /// A server is stopped by a signal and goes on later.
    Freeze => "server frozen",
    /// A standby is down for a while.
    Down => "standby down",
    /// A standby is cloned anew.
    Reclone => "standby recloned",
    /// The leader dies and a standby is promoted.
    Promotion => "promotion",
    /// A standby is promoted while the leader runs on.
    Undead => "promotion beside the old leader",
    /// The leader crashes twice, the second time before anybody could look.
    DoubleCrash => "leader crashes twice",
    /// The token store forgets everything.
    StoreLoss => "store forgets",
    /// An instance restarts with the facts it kept.
    InstanceRestart => "instance restart",
    /// An instance restarts without facts.
    FactsLost => "facts lost",
    /// An operator takes a node out for a while.
    Drain => "node drained",
    /// An address answers as two servers for a while.
    SharedAddress => "one address, two servers",
    /// Two addresses name one server for a while.
    TwoNames => "two names, one server",
    /// Lineage rows fail for a while.
    RowsFail => "rows fail",
    /// A hidden promotion with standbys that follow it.
    Hidden => "unseen promotion",
    /// A promoted leader whose statistics are reset before its row stands.
    ResetPromoted => "reset before the row",
    /// A server is promoted, cloned anew and promoted again.
    Reused => "promoted twice over",
    /// Two standbys are promoted.
    Twins => "twins",
    /// A standby moves from one twin to the other.
    Moved => "standby of the other twin",
    /// A former twin is attached to the other.
    Attached => "former twin attached",
    /// A running server goes back in time.
    Revert => "server reverted",
    /// A running server is copied.
    Copied => "server copied alive",
    /// The leader hands over to a standby and follows it.
    Switchover => "planned switchover",
    /// The old leader comes back by a rewind, if one is required.
    Rewind => "old leader rewound",
    /// The old leader comes back as it is, to follow the new one.
    Naive => "old leader attached as it is",
    /// The leader restarts again and again while nobody follows it, and stays dead.
    CrashLoop => "leader crash-loops alone",
    /// Several promotions while nobody polls.
    Gap => "several failovers unseen",
    /// A standby follows another server than before.
    Repoint => "standby repointed",
    /// Nobody may see what a receiver does.
    HiddenReceiver => "receiver hidden",
    /// An address leads to another database.
    Foreign => "another database answers",
    /// The leader crashes after the flush of a part of a record was seen.
    TornRecord => "torn record",
    /// The leader starts from an older copy of itself.
    RestoredLeader => "leader restored",
    /// A standby starts from an older copy of itself.
    RestoredStandby => "standby restored",
    /// One of two twins is gone for ever.
    DeadTwin => "a twin is gone",
    /// A standby is promoted to try something, beside the leader.
    TestCopy => "promoted as a test copy",
    /// A promotion is undone: the promoted server is cloned from the old leader.
    Undone => "promotion undone",
    /// An operator says who leads, who was not asked.
    CarelessVerdict => "careless verdict",
    /// An operator vouches for a node, who was not asked.
    CarelessResume => "careless resume",
    /// A standby that was copied leads, and the copy answers at its address.
    CopiedLeader => "copy of a leader at its address",
    /// The store's primary dies, and a replica that lacks its last writes is promoted.
    StoreFailover => "store fails over",
    /// A replica of the store is promoted beside its primary, which still answers.
    StoreSplit => "store split in two",
    /// The same, and then the old primary is followed again.
    StoreFailback => "store fails back",
    /// The store's primary stands still and goes on later, deposed or not.
    StoreFreeze => "store frozen",
    /// The store restarts without its last writes.
    StoreRestart => "store restarts behind",
    /// An older copy of the store is restored.
    StoreRestored => "older store restored",
    /// The store forgets its scripts.
    ScriptsFlushed => "scripts flushed",
    /// The store evicts a record.
    Evicted => "record evicted",
    /// The store answers late.
    StoreSlow => "store slow",
    /// The store cannot be reached.
    StoreCut => "store out of reach",
    /// A replica of the store gets what is written late.
    ReplicaSlow => "replica of the store slow",
    /// The clock of the store steps ahead: records expire early.
    StoreClock => "store's clock ahead",
    /// Instances are started again as another version, one after the other.
    VersionSkew => "instances of two versions",
    /// Another instance starts beside one that keeps its records in memory.
    SecondInstance => "second instance",
}

/// What needs no operator and may happen in any world.
const COMMON: [Fault; 28] = [
    Fault::Lag,
    Fault::Pause,
    Fault::StandbyCrash,
    Fault::StandbyBackend,
    Fault::StandbyRestart,
    Fault::Statistics,
    Fault::LeaderCrash,
    Fault::LeaderBackend,
    Fault::LeaderRestart,
    Fault::Stall,
    Fault::Disconnect,
    Fault::PollLoss,
    Fault::PollDelay,
    Fault::LateAnswer,
    Fault::Unreachable,
    Fault::Freeze,
    Fault::Down,
    Fault::Reclone,
    Fault::Promotion,
    Fault::Undead,
    Fault::DoubleCrash,
    Fault::StoreLoss,
    Fault::InstanceRestart,
    Fault::FactsLost,
    Fault::Drain,
    Fault::SharedAddress,
    Fault::TwoNames,
    Fault::RowsFail,
];

/// What happens to a store that instances share.
const OF_STORES: [Fault; 14] = [
    Fault::StoreFailover,
    Fault::StoreSplit,
    Fault::StoreFailback,
    Fault::StoreFreeze,
    Fault::StoreRestart,
    Fault::StoreRestored,
    Fault::ScriptsFlushed,
    Fault::Evicted,
    Fault::StoreSlow,
    Fault::StoreCut,
    Fault::ReplicaSlow,
    Fault::StoreClock,
    Fault::VersionSkew,
    Fault::StoreLoss,
];

/// A shared store gets another primary, or is another than before.
const FAILOVERS: [Fault; 6] = [
    Fault::StoreFailover,
    Fault::StoreFreeze,
    Fault::StoreRestart,
    Fault::StoreRestored,
    Fault::ReplicaSlow,
    Fault::Lag,
];

/// A shared store stays where it is, and is of little use.
const LOSSES: [Fault; 6] = [
    Fault::StoreLoss,
    Fault::ScriptsFlushed,
    Fault::StoreSlow,
    Fault::StoreCut,
    Fault::Lag,
    Fault::InstanceRestart,
];

/// What a profile is about.
const fn of_profile(profile: Profile) -> &'static [Fault] {
    match profile {
        Profile::General => &COMMON,
        Profile::Async => &[Fault::Stall, Fault::Lag, Fault::PollDelay],
        Profile::SlowLeader => &[Fault::LeaderCrash, Fault::PollDelay, Fault::LeaderBackend],
        Profile::Failover => &[Fault::Promotion, Fault::Lag],
        Profile::Undead => &[Fault::Undead, Fault::Lag],
        Profile::Hidden => &[Fault::Hidden, Fault::Lag],
        Profile::LateRows => &[Fault::ResetPromoted, Fault::RowsFail, Fault::Promotion],
        Profile::Reused => &[Fault::Reused, Fault::Lag],
        Profile::Twins => &[Fault::Twins],
        Profile::Moved => &[Fault::Moved],
        Profile::Attached => &[Fault::Attached],
        Profile::LateAnswers => &[Fault::LateAnswer, Fault::StandbyCrash, Fault::StandbyRestart],
        Profile::Expiry => &[Fault::Pause, Fault::Lag],
        Profile::Forgets => &[Fault::StoreLoss, Fault::Lag, Fault::Pause],
        Profile::Narrow => &[Fault::Lag, Fault::Pause],
        Profile::Pages => &[Fault::Lag, Fault::StandbyRestart],
        Profile::Storm => &[Fault::Pause, Fault::Lag],
        Profile::Drift => &[Fault::Pause],
        Profile::Pooled => {
            &[Fault::StandbyCrash, Fault::LeaderCrash, Fault::Promotion, Fault::StandbyBackend]
        }
        Profile::Restarts => &[Fault::StandbyCrash, Fault::StandbyBackend, Fault::Down],
        Profile::Reverted => &[Fault::Revert],
        Profile::Copied => &[Fault::Copied],
        Profile::Cluster => &[
            Fault::Switchover,
            Fault::Rewind,
            Fault::Naive,
            Fault::Repoint,
            Fault::HiddenReceiver,
            Fault::Foreign,
            Fault::TornRecord,
            Fault::RestoredStandby,
            Fault::LeaderCrash,
        ],
        Profile::Sober => {
            &[Fault::Switchover, Fault::Rewind, Fault::LeaderCrash, Fault::LeaderRestart]
        }
        Profile::Switchovers => &[Fault::Switchover],
        Profile::Crashes => {
            &[Fault::TornRecord, Fault::LeaderCrash, Fault::DoubleCrash, Fault::LeaderBackend]
        }
        Profile::CrashLoops => &[Fault::CrashLoop, Fault::Lag],
        Profile::Gaps => &[Fault::Gap, Fault::Rewind, Fault::Lag],
        Profile::Restored => &[Fault::RestoredLeader, Fault::RestoredStandby],
        Profile::DeadTwins => &[Fault::DeadTwin],
        Profile::Operators => &[
            Fault::TestCopy,
            Fault::Undone,
            Fault::CarelessVerdict,
            Fault::CarelessResume,
            Fault::Undead,
        ],
        Profile::Swapped => &[Fault::CopiedLeader],
        Profile::Shared => &OF_STORES,
        Profile::StoreFailover => &FAILOVERS,
        Profile::StoreSplit => {
            &[Fault::StoreSplit, Fault::StoreSplit, Fault::StoreFailback, Fault::Lag]
        }
        Profile::StoreLoss => &LOSSES,
        Profile::Evicting => &[Fault::Evicted, Fault::Lag, Fault::Pause],
        Profile::Expiring => &[Fault::StoreClock, Fault::Pause, Fault::Lag],
        Profile::Skewed => &[Fault::VersionSkew, Fault::Lag, Fault::Promotion],
        Profile::Foreign => &[Fault::SecondInstance, Fault::Lag, Fault::Pause, Fault::Unreachable],
    }
}

/// How often a promotion of any kind may happen in one world.
const fn at_most(profile: Profile) -> usize {
    match profile {
        Profile::Twins
        | Profile::Moved
        | Profile::Attached
        | Profile::Undead
        | Profile::DeadTwins
        | Profile::CrashLoops => 1,
        Profile::Reused
        | Profile::Hidden
        | Profile::LateRows
        | Profile::Gaps
        | Profile::Operators
        | Profile::Swapped => 2,
        Profile::Switchovers => 8,
        Profile::General
        | Profile::Async
        | Profile::SlowLeader
        | Profile::Failover
        | Profile::LateAnswers
        | Profile::Expiry
        | Profile::Forgets
        | Profile::Narrow
        | Profile::Pages
        | Profile::Storm
        | Profile::Drift
        | Profile::Pooled
        | Profile::Restarts
        | Profile::Reverted
        | Profile::Copied
        | Profile::Cluster
        | Profile::Sober
        | Profile::Crashes
        | Profile::Restored
        | Profile::Shared
        | Profile::StoreFailover
        | Profile::StoreSplit
        | Profile::StoreLoss
        | Profile::Evicting
        | Profile::Expiring
        | Profile::Skewed
        | Profile::Foreign => 3,
    }
}

/// Says whether the kind of fault changes who leads for good.
const fn moves_leader(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::Promotion
            | Fault::Undead
            | Fault::Hidden
            | Fault::ResetPromoted
            | Fault::Reused
            | Fault::Twins
            | Fault::Moved
            | Fault::Attached
            | Fault::Switchover
            | Fault::Rewind
            | Fault::Naive
            | Fault::CrashLoop
            | Fault::Gap
            | Fault::DeadTwin
            | Fault::TestCopy
            | Fault::Undone
            | Fault::CopiedLeader
    )
}

/// Says whether only its own kinds of faults, and harmless ones, happen in this profile.
const fn is_narrow(profile: Profile) -> bool {
    matches!(
        profile,
        Profile::Twins
            | Profile::Moved
            | Profile::Attached
            | Profile::Reused
            | Profile::Sober
            | Profile::Switchovers
            | Profile::CrashLoops
            | Profile::DeadTwins
            | Profile::Swapped
    )
}

/// The schedule of a world.
pub fn schedule(options: &Options) -> Vec<Action> {
    let mut random = Random::new(options.seed ^ 0x5C_4ED0_7E00);
    let kinds = of_profile(options.profile);
    let mut moves = 0;
    let mut actions = Vec::with_capacity(options.actions);
    let gap = options.span / options.actions as u64;
    let mut fault = |random: &mut Random, index: usize| {
        // The first tenth and the last are calm.
        let calm = index < options.actions / 10 || index > options.actions * 9 / 10;
        if calm || !random.one_in(4) {
            return None;
        }
        let general = options.profile == Profile::General;
        let either = if options.profile == Profile::Shared { 2 } else { 5 };
        let rare = general || random.one_in(either);
        let among = if rare { &COMMON[..] } else { kinds };
        let fault = among[random.below(among.len())];
        let tolerated = !is_narrow(options.profile)
            || kinds.contains(&fault)
            || matches!(fault, Fault::Lag | Fault::Statistics | Fault::StandbyRestart);
        if moves_leader(fault) {
            moves += 1;
        }
        let allowed = !moves_leader(fault) || moves <= at_most(options.profile);
        (tolerated && allowed).then_some(fault)
    };
    for index in 0..options.actions {
        let at = 500 * MILLI + index as u64 * gap + random.next() % gap;
        let kind = fault(&mut random, index).map_or(Kind::Burst, Kind::Fault);
        actions.push(Action { at, seed: random.next(), kind });
    }
    actions
}
