//! What an operator sees of failovers and says about them, on real servers: the calls of
//! `AdminService`, and the commands of the program as a shell runs them.
//!
//! Each test has servers of its own, because it moves their leader. What is refused without any
//! failover is in `tests/api`.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "operators/failover.rs"]
mod failover;
#[path = "operators/hints.rs"]
mod hints;
#[path = "operators/split.rs"]
mod split;
#[path = "operators/stage.rs"]
mod stage;
