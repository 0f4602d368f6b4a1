//! The mark of a write, from what was read around its COMMIT.

use super::{Evidence, EvidenceError, Role};
use crate::guards::Guards;
use crate::lineage::Epoch;
use crate::token::Mark;

impl Evidence {
    /// The mark of the write this was captured after; `None`: nothing but that there was one is
    /// known.
    ///
    /// `before` was read inside the transaction. `is_durable`: no commit is acknowledged before it
    /// is flushed.
    ///
    /// # Errors
    /// [`EvidenceError::InRecovery`] if it was captured on a standby.
    pub fn written(
        &self,
        before: Option<&Self>,
        is_durable: bool,
        guards: &Guards,
    ) -> Result<Option<(Epoch, Mark)>, EvidenceError> {
        let (Some(epoch), Role::Writable { insert, flush, .. }) = (self.epoch(), self.role) else {
            return Err(EvidenceError::InRecovery);
        };
        let Some(before) = before else {
            let upto = if is_durable { flush } else { insert };
            return Ok(Some((epoch, Mark::wrote(None, upto).with_flushed(flush))));
        };
        let (Some(began_in), Role::Writable { insert: began_at, .. }) =
            (before.epoch(), before.role)
        else {
            return Ok(None);
        };
        if began_in != epoch && guards.moved_capture() {
            // It comes from another life than the write: where the write ended is unknown.
            return Ok(Some((began_in, Mark::wrote_past(began_at))));
        }
        let upto = if is_durable || !before.asynchronous { flush } else { insert };
        let mark = Mark::wrote(Some(began_at.meet(upto)), upto);
        Ok(Some((epoch, mark.with_flushed(flush))))
    }
}
