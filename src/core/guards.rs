//! The named switches of every safety rule.
//!
//! In an ordinary build each guard is a constant `true` and `Guards` is empty. Under the cargo
//! feature `unsafe-guards`, which only tests use, single guards can be switched off, so that a test
//! can show what the rule prevents. `tests/guards.toml` lists each guard with that test.

macro_rules! guards {
    ($($(#[$doc:meta])* $name:ident => $clause:literal,)*) => {
        /// The safety rules in force.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Guards {
            $(#[cfg(feature = "unsafe-guards")] $name: bool,)*
        }

        impl Guards {
            /// Every guard, with the clause of the design it enforces.
            pub const ALL: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), $clause),)*];

            /// Every rule in force: the only value an ordinary build can make.
            pub const fn on() -> Self {
                Self { $(#[cfg(feature = "unsafe-guards")] $name: true,)* }
            }

            /// Every rule but the named one; `None` if no guard has that name.
            #[cfg(feature = "unsafe-guards")]
            pub fn without(name: &str) -> Option<Self> {
                Self::on().and_without(name)
            }

            /// These rules but the named one: some rules hide that another is gone.
            #[cfg(feature = "unsafe-guards")]
            pub fn and_without(mut self, name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => self.$name = false,)*
                    _ => return None,
                }
                Some(self)
            }

            $(
                $(#[$doc])*
                #[cfg(feature = "unsafe-guards")]
                pub const fn $name(&self) -> bool {
                    self.$name
                }

                $(#[$doc])*
                #[cfg(not(feature = "unsafe-guards"))]
                pub const fn $name(&self) -> bool {
                    true
                }
            )*
        }

        impl Default for Guards {
            fn default() -> Self {
                Self::on()
            }
        }
    };
}

guards! {
    /// A position counts only with the incarnation it was read from.
    incarnation => "1.2",
    /// An observation sent before the node's incarnation was first received is dropped.
    late_observation => "1.2",
    /// A position that went back under one incarnation quarantines the node.
    regression => "1.2",
    /// One incarnation alive under two nodes quarantines both.
    shared_id => "1.2",
    /// Positions that name the first byte after a page header are moved back before it.
    page_header => "2.2",
    /// Leader samples are insert positions, not flush positions.
    insert_lsn => "2.2, 1.10",
    /// A standby's position counts only while its receiver names the timeline of its last row.
    place_counts => "1.7",
    /// A position the leader was never seen to flush covers nothing on a standby.
    durability => "1.9",
    /// An epoch without a row read from a database is never lost by branch.
    row_for_lost => "1.9",
    /// A mark is judged against the leader's chain before any node is asked whether it covers it.
    leader_first => "1.9",
    /// What lies between the two ends of a fork is unknown.
    fork_interval => "1.5, 5.1, 5.2",
    /// A crash of the leader that ends inside the record it was flushing loses nothing before it.
    torn_record => "5.2",
    /// A leader that comes back below what it was seen to flush continues nothing.
    restored => "5.2",
    /// What is unknown demands a leader sample.
    unknown_upward => "3.4",
    /// What was read is learned from an observation sent after the read.
    sample_after => "2.4",
    /// A capture that names another epoch than its `before` is not believed.
    moved_capture => "2.1",
    /// A session that may have forgotten writes is only sent to nodes proven fresh enough.
    gate => "3.2",
    /// Samples of a line that no longer leads prove nothing.
    void_samples => "1.10",
    /// A leader sample proves what was acknowledged before it was *sent*.
    trail_sent_at => "1.10",
    /// A node whose last row is off the leader's chain serves nobody.
    diverged => "5.4",
    /// A node that led an epoch off the leader's chain is out until an operator resumes it.
    former_twin => "5.4",
    /// A node that shows rows of two branches is quarantined.
    two_branches => "5.4",
    /// Of several writable nodes only the one that all others give way to leads.
    who_leads => "5.3",
    /// In a split a mark must be alive for every head.
    split => "5.3",
    /// A line that is ahead of the leader's yields only to a verdict, or when its leader follows.
    yielded => "3.4",
    /// A lineage row is inserted only by the polled incarnation while it is writable.
    guarded_insert => "1.4",
    /// After the token store forgot, everyone who names a subject demands what the leader had.
    barrier => "6.4",
    /// The barrier is sampled when nobody can record on a deposed server of the store any more.
    fence => "6.4",
    /// A store whose generation speaks of another server or of fewer evictions has lost something.
    generation => "6.4",
    /// A server of the store is believed only while it takes our writes.
    believed_lookup => "6.3",
    /// Beside another instance that keeps records of its own no lookup is believed.
    foreign_instance => "6.2",
    /// A token that had to drop components is unknown for the partitions it does not name.
    overflow => "7",
    /// What was read is sampled after the read's snapshot, never before it.
    snapshot_order => "9.1",
    /// Behind a pooler the incarnation is read inside the reading transaction.
    pooled_check => "9.1",
    /// At checkout a leader is out of recovery, on the timeline it was named with.
    leader_check => "4.5",
    /// Freshness fallbacks to the leader are limited.
    cap => "4.4",
    /// An answer with a bound allows for clocks that drift, and leaves time to use it.
    lease => "3.3",
}
