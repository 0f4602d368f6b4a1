//! `Breach`: every way in which a promise can be broken, each with its words.

use std::fmt;

macro_rules! breaches {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// How a promise was broken.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Breach { $($(#[$doc])* $name,)* }

        impl fmt::Display for Breach {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

breaches! {
    /// A node called fresh lacks what the session wrote.
    WriteMissing => "a write of the session is missing",
    /// A node called fresh lacks what the session saw.
    SeenMissing => "what the session saw is missing",
    /// A node called fresh lacks a lost write, and nobody told the session.
    LostWriteUntold => "a lost write was never told",
    /// A node called fresh lacks a lost state, and nobody told the session.
    LostStateUntold => "a lost state was never told",
    /// A `GLOBAL` read misses what was acknowledged before the call.
    Global => "GLOBAL",
    /// A `BOUNDED` read misses what was acknowledged before its bound.
    Bounded => "BOUNDED",
    /// A session was told that a write is lost which the leader has.
    LostWriteIsThere => "WRITE_LOST for a write that is there",
    /// A session was told of a loss up to where its write surely survived.
    SurvivorTold => "a notice for what surely survived",
    /// A session was told of a loss on a line ahead of the leader in view, which nobody gave up.
    GivenUp => "a line that is ahead was given up",
    /// More fallbacks went to the leader in a second than the cap allows.
    CapExceeded => "the cap was exceeded",
    /// A read found no end.
    EndlessRead => "a read was judged for ever",
    /// A wait of a session found no end.
    EndlessWait => "a wait was judged for ever",
    /// A wait is older than its deadline.
    WaitNotEnded => "a wait did not end",
    /// A wait ended after its deadline.
    WaitEndedLate => "wait ended after its deadline",
    /// A wait ended more than once.
    WaitEndedTwice => "wait ended twice",
    /// The end of a wait nobody had begun.
    WaitOfNobody => "wait ended without anybody waiting",
    /// After an ordinary failover somebody has to say who leads.
    PromotedIdle => "the promoted node does not lead",
    /// A node with records of a line that ended is eligible.
    StrayServes => "a node of another line may serve",
    /// The world itself has no leader: the fault of the simulator.
    NoLeader => "no leader after healing",
    /// An instance does not know the only leader.
    LeaderUnknown => "the leader is not known after healing",
    /// A standby with everything is not eligible.
    HealthyOut => "a healthy node stays out",
    /// A lookup in the shared store is not believed after everything was healed.
    StoreUnknown => "the store is not believed after healing",
    /// A session is not served by any replica.
    Stuck => "stuck after everything was healed",
}
