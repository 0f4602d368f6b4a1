//! What may be believed of the token store after it has, or may have, forgotten.
//!
//! - `embedded`: [`EmbeddedGuard`], of a store in this process;
//! - `shared`: [`SharedGuard`], of a store of many instances: losses, fence, barrier;
//! - `generation`: [`Generation`], what a shared store keeps of its last loss;
//! - `replicas`: [`Replicas`], whether a primary does without one that may be promoted;
//! - `worth`: [`Worth`], what one answer may be believed.
//!
//! Events in, values out. It does not talk to a store, does not ask for the samples it needs, and
//! judges no mark: whether a node covers a barrier is for the one relation to say.

mod embedded;
mod generation;
mod replicas;
mod shared;
mod worth;

#[cfg(test)]
mod embedded_tests;
#[cfg(test)]
mod shared_tests;

pub use embedded::{EmbeddedGuard, Look};
pub use generation::{Generation, GenerationError, Server};
pub use replicas::{Needs, Replicas};
pub use shared::{LossCause, News, Reply, SharedGuard, SharedRules, Taken, Write};
pub use worth::{Barriers, Belief, Unbelieved, Worth};
