//! What a session depends on: marks, sets of them, notices, and the bytes they travel as.
//!
//! Tokens are joined, never lowered. This room does not judge a mark, seal a token, or know who
//! holds it.

mod body;
mod body_bytes;
mod body_read;
mod change;
mod mark;
mod notice;
mod session_token;

pub use body::{BodyError, BodyLimits};
pub use change::Change;
pub use mark::Mark;
pub use notice::{Notice, NoticeId, NoticeKind};
pub use session_token::{Component, ComponentKey, PartitionId, SessionToken};
