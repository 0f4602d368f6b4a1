//! What is told of a running `tidegate serve`: spans and metrics at a collector in this process,
//! events on standard error, `/metrics`; and what is told to nobody.
//!
//! Whether sampling builds nothing for a call that is not followed is in `telemetry_alloc.rs`, and
//! that `docs/telemetry.md` lists everything beside the code.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "telemetry/collector.rs"]
mod collector;
#[path = "telemetry/metrics.rs"]
mod metrics;
#[path = "telemetry/outage.rs"]
mod outage;
#[path = "telemetry/privacy.rs"]
mod privacy;
#[path = "telemetry/stage.rs"]
mod stage;
#[path = "telemetry/traces.rs"]
mod traces;
