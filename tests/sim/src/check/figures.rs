//! How much was really tried: counts that keep a run without violations from meaning nothing.

use std::collections::BTreeMap;

use super::Corner;
use crate::schedule::Fault;

/// Counts of one world, or of many.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Writes, reads, waits and records that sessions asked for.
    pub operations: u64,
    /// Commits acknowledged.
    pub writes: u64,
    /// Commits acknowledged and recorded.
    pub recorded: u64,
    /// Reads of a session's level that were answered with a node.
    pub session_reads: u64,
    /// Of those, with read-your-writes promised.
    pub promised: u64,
    /// Session reads while nothing was broken.
    pub calm_reads: u64,
    /// Of those, by a replica with read-your-writes promised.
    pub calm_replica: u64,
    /// Reads by a session with something to miss.
    pub rounds: u64,
    /// Of those, with a standby that truly lacked some of it.
    pub lacking: u64,
    /// Reads that were refused.
    pub refused: u64,
    /// Reads labelled stale.
    pub stale: u64,
    /// Reads of the leader.
    pub leader_reads: u64,
    /// Connections that led to another life than the one named.
    pub turned_away: u64,
    /// Answers with a bound that were checked.
    pub bounded: u64,
    /// Answers with everything acknowledged before the call that were checked.
    pub global: u64,
    /// Waits of sessions.
    pub waits: u64,
    /// Of those, ended by a fresh node.
    pub fresh: u64,
    /// Reads and waits parked in the core.
    pub waits_parked: u64,
    /// Of those, ended.
    pub waits_ended: u64,
    /// Of those, gone with the instance that was restarted.
    pub waits_left: u64,
    /// Polls answered.
    pub polls: u64,
    /// Answers that came after their source had given them up.
    pub late_answers: u64,
    /// Verdicts an operator had to give after everything was healed.
    pub verdicts_needed: u64,
    /// Records that were looked up in a shared store.
    pub lookups: u64,
    /// Of those, believed.
    pub believed: u64,
    /// Losses of a shared store that an instance noticed.
    pub store_losses: u64,
    /// Notices to a session that lost nothing of what it was told about.
    pub notices_needless: u64,
    /// Notices told, by kind.
    pub notices: BTreeMap<&'static str, u64>,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What was missing, and is documented as not promised, by reason.
    pub excused: BTreeMap<Corner, u64>,
}

impl Figures {
    /// Says whether a server was met at another's address: then nobody knows whose life it lives.
    pub(crate) fn mixed_up(&self) -> bool {
        let mixed = [Fault::SharedAddress, Fault::TwoNames, Fault::Copied, Fault::CopiedLeader];
        mixed.iter().any(|fault| self.faults.contains_key(fault.name()))
    }

    /// Adds what another world showed.
    pub fn add(&mut self, other: &Self) {
        macro_rules! sum {
            ($($field:ident)*) => { $(self.$field += other.$field;)* };
        }
        sum!(operations writes recorded session_reads promised calm_reads calm_replica rounds);
        sum!(lacking refused stale leader_reads turned_away bounded global waits fresh);
        sum!(waits_parked waits_ended waits_left polls late_answers);
        sum!(verdicts_needed notices_needless lookups believed store_losses);
        add(&mut self.notices, &other.notices);
        add(&mut self.faults, &other.faults);
        add(&mut self.excused, &other.excused);
    }

    pub(crate) fn excuse(&mut self, why: Corner) {
        *self.excused.entry(why).or_default() += 1;
    }
}

/// Adds the counts of another world by what they are of.
fn add<K: Copy + Ord>(own: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (of, count) in other {
        *own.entry(*of).or_default() += count;
    }
}
