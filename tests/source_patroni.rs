//! What Patroni says is a hint and nothing else: one that lies, hangs or is gone changes nothing.
//!
//! The Patroni here is a small server that says what a test wants; a real one is met in the soak.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "source_patroni/liar.rs"]
mod liar;
#[path = "source_patroni/logged.rs"]
mod logged;
#[path = "source_patroni/serving.rs"]
mod serving;
#[path = "source_patroni/watching.rs"]
mod watching;
