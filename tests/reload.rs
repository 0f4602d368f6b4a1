//! A configuration that changes while the real program serves: by SIGHUP, by `tidegate reload` and
//! by `Reload`, under load. What each setting means is told elsewhere; here it is the change.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "reload/load.rs"]
mod load;
#[path = "reload/program.rs"]
mod program;
#[path = "reload/refused.rs"]
mod refused;
#[path = "reload/stage.rs"]
mod stage;
#[path = "reload/taken_over.rs"]
mod taken_over;
