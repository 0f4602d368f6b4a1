//! `Corner`: everything that may be missing and is no breach. The README says each of them.

use std::fmt;

macro_rules! corners {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Why a record that is missing was not promised.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Corner { $($(#[$doc])* $name,)* }

        impl fmt::Display for Corner {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

corners! {
    /// The instance had not seen the promotion: `BOUNDED`, `GLOBAL`, the gate and the barrier hold
    /// relative to the leader in view.
    LeaderInView => "relative to the leader in view",
    /// The record of the subject was gone when the write was lost: nobody is left to tell.
    LostWhenForgotten => "lost after the store forgot it",
    /// The session was told `POSSIBLY_LOST` while it was still there, and it was lost later.
    ToldBefore => "told before that it may be gone",
    /// Writes under five lives of leaders, and no read in between.
    FifthLife => "the fifth epoch's mark goes",
    /// A token had no room for the mark.
    NoRoom => "dropped for size",
    /// What was read could not be placed in any epoch: the session demands a fresh read instead.
    NoMark => "no mark could be made of it",
    /// Recorded after a loss of the same failover was acknowledged that reached as far, or of which
    /// nobody knew how far.
    AfterAcknowledgement => "recorded after its loss was acknowledged",
    /// Recorded while a loss of the store was open: promised to others from the end of the fence.
    RecordedInFence => "recorded while a loss of the store was open",
    /// The store answered so late that its server may have been deposed.
    RecordedLate => "kept by a server that may have been deposed",
    /// The store could not be reached, and one instance kept it in its memory.
    KeptInMemory => "kept in the memory of one instance",
    /// The instance could not see the leader, and so was not seen there by others either.
    NotSeen => "kept by an instance that could not see the leader",
    /// Lost while the record of the subject could not be read: it is told when it can.
    Unread => "lost while its record could not be read",
    /// The version before cannot read what the next one wrote.
    Unreadable => "not readable by the version before",
    /// A ninth notice while eight wait to be acknowledged: the eight of the latest failovers stay.
    NinthNotice => "a ninth notice not acknowledged",
    /// A machine taken back to a snapshot of its memory, before the next poll of it.
    TakenBack => "a server taken back, not polled since",
    /// A machine copied while it ran, before a poll of both.
    CopiedAlive => "a server copied alive, not polled under both names",
    /// A former twin attached without a rewind, of which no poll saw anything before.
    AttachedUnseen => "attached without a rewind, and nobody polled before",
    /// A leader restored from an older copy that had grown again before a poll of it.
    RestoredUnseen => "a leader restored, and grown again before a poll",
    /// An operator vouched for a node that holds another line.
    Vouched => "vouched for by an operator who did not look",
}
