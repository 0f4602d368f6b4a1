//! `Settings`: the limits and rules a partition runs under, as the config gives them. No defaults:
//! those stand in the shell's config, each with its reason.

use std::time::Duration;

use crate::guards::Guards;
use crate::trail::ClockDrift;

/// The limits and rules one partition runs under.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its nodes, by [`crate::views::NodeId`].
    pub nodes: Vec<NodeSettings>,
    /// A view older than this makes its node ineligible.
    pub view_max_age: Duration,
    /// `D_max`: the largest proven staleness a session without a component is served at.
    pub gate: Duration,
    /// By how much the rate of a clock may be off, ours or a caller's.
    pub clock_drift: ClockDrift,
    /// How often a node is polled while nobody waits.
    pub idle_interval: Duration,
    /// How often a node is polled while somebody waits.
    pub busy_interval: Duration,
    /// Facts are stored at most this often.
    pub store_interval: Duration,
    /// Waits parked at most.
    pub waits_max: usize,
    /// Server majors a session may be served from.
    pub accepted_majors: Vec<u32>,
    /// No commit is acknowledged before it is flushed: the operator's word.
    pub async_commits_never: bool,
    /// The tag of the system id this partition was upgraded from.
    pub upgraded_from: Option<u32>,
    /// The rules in force.
    pub guards: Guards,
}

/// What the core needs to know of one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeSettings {
    /// Its zone; reads prefer nodes of their own.
    pub zone: Option<String>,
}
