//! Failovers of all kinds on a real leader with two standbys, and what they look like from outside.
//!
//! [`Trio::start`] starts the servers, [`play`] lets one [`Kind`] of failover happen to them and
//! says what is true afterwards, [`Trio::repair`] makes one leader with two standbys of them again,
//! so that kinds can follow each other for as many rounds as one likes.
//!
//! - `kind`: the kinds and their names
//! - `trio`: the servers, the markers written to them, who looks at them
//! - `truth`: what is true after a failover, as plain values
//! - `play`: which recipe belongs to which kind
//! - `promotions`, `crashes`, `branches`, `gaps`, `standbys`: the recipes
//! - `repair`: one leader with two standbys again
//!
//! Nothing up to here decides anything about freshness or asks Tidegate. [`run`] plays all of it
//! while Tidegate's own pollers look on, and compares what they read with what is true:
//!
//! - `evidence`, `watch`: what a poll showed, and the pollers that log it
//! - `judge`, `table`: what follows from the evidence, whether it is so, and the tables

mod branches;
mod crashes;
mod evidence;
mod gaps;
mod judge;
mod kind;
mod play;
mod promotions;
mod repair;
mod run;
mod standbys;
mod table;
mod trio;
mod truth;
mod watch;

pub use kind::Kind;
pub use play::play;
pub use repair::Repaired;
pub use run::{Options, run};
pub use trio::{Commit, Trio};
pub use truth::{Census, EpochId, Marker, Played, Step};
