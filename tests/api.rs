//! The API of a real service in front of a real cluster: what each call answers, and each error.
//!
//! One cluster and one service are shared by all tests (`api/stage.rs`); a test that disturbs the
//! servers has them for itself. Failover, crash and freshness under lag have tests of their own.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "api/ask.rs"]
mod ask;
#[path = "api/bad_input.rs"]
mod bad_input;
#[path = "api/facts.rs"]
mod facts;
#[path = "api/health.rs"]
mod health;
#[path = "api/levels.rs"]
mod levels;
#[path = "api/limits.rs"]
mod limits;
#[path = "api/operators.rs"]
mod operators;
#[path = "api/sessions.rs"]
mod sessions;
#[path = "api/stage.rs"]
mod stage;
#[path = "api/stream.rs"]
mod stream;
