//! `LeaderTrail`: time turned into marks; and `resolve`, which turns a session into a floor.
//!
//! A leader sample *sent* at `s` covers everything acknowledged before `s`. Only differences of one
//! process's boot-time clock occur. This room asks no node whether it covers a floor.

mod floor;
mod judge;
mod leader_trail;
mod lease;
mod resolve;

pub use floor::{Demand, Floor};
pub use judge::Line;
pub use leader_trail::{LeaderTrail, Sample};
pub use lease::{ClockDrift, Lease};
pub use resolve::{
    Known, Loss, Raise, Ready, Requested, Resolution, Unprovable, resolve, resolve_into,
};
