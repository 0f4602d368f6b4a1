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
//! Nothing here decides anything about freshness, and nothing asks Tidegate.

mod branches;
mod crashes;
mod gaps;
mod kind;
mod play;
mod promotions;
mod repair;
mod standbys;
mod trio;
mod truth;

pub use kind::Kind;
pub use play::play;
pub use repair::Repaired;
pub use trio::{Commit, Trio};
pub use truth::{Census, EpochId, Marker, Played, Step};
