//! `Reload`: what an operator may change while the instance runs.
//!
//! It reads no file itself: whoever wires the instance hands in what does.

use std::fmt;

use tidegate_proto::v1;
use tonic::Status;

use crate::api::status;

/// Sentences in the answer to one reload.
const CHANGED_MAX: usize = 64;

/// Reads the configuration again.
#[tonic::async_trait]
pub trait Reloader: fmt::Debug + Send + Sync + 'static {
    /// Takes over what may change, all of it or nothing; says what was changed, each a sentence.
    ///
    /// # Errors
    /// The status the call ends with: which line is wrong, and why.
    async fn reload(&self) -> Result<Vec<String>, Status>;
}

/// Answers `Reload`.
pub(super) async fn reload(reloader: Option<&dyn Reloader>) -> Result<v1::ReloadResponse, Status> {
    let reloader = reloader.ok_or_else(|| status::not_built("Reload"))?;
    let mut changed = reloader.reload().await?;
    changed.truncate(CHANGED_MAX);
    Ok(v1::ReloadResponse { changed })
}
