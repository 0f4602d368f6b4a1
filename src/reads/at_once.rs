//! The usual read, decided from what is at hand: no future is made for it and nothing is awaited.
//!
//! It asks the same questions as `select`, in the same order, and answers only where a replica has
//! everything at the first look and nobody is to be raised. It takes nothing from the cap and
//! changes no session, so whatever it leaves alone can be asked again from the beginning.

use tidegate_core::routing::{Reason, Step, decide};
use tidegate_core::trail::{Ready, resolve_into};

use super::judged::{Demanded, names_unknown};
use super::select::{End, Ended};
use super::{Caller, ReadError, Reads, SelectAsked, Selected};
use crate::sessions::{Asked, TokenStore, Whom};

impl<S: TokenStore> Reads<S> {
    /// Finds a node for a read that needs nothing else; `None`: [`Self::select`] must.
    ///
    /// # Errors
    /// As [`Self::select`], for what was decided.
    pub fn select_at_once(
        &self,
        caller: &Caller,
        asked: &SelectAsked,
    ) -> Option<Result<Selected, ReadError>> {
        if !caller.evidence.is_empty() || !asked.shadow.is_empty() {
            return None;
        }
        let since = self.clock.now();
        let handle = self.partition(&asked.partition).ok()?;
        let previous = handle.node(&asked.previous);
        let (subject, max_token_chars) = (caller.subject.as_str(), caller.max_token_chars);
        let session = Asked { subject, tokens: &caller.tokens, max_token_chars };
        let holder = self.sessions.identify_at_once(session, since)?;
        // What other devices have recorded is known as of now.
        let demanded = Demanded::by(&asked.policy, self.clock.now());
        // One reading for all: nothing is awaited from here on.
        let now = self.clock.now();
        let snapshot = handle.snapshot_held();
        if names_unknown(handle, &holder, &snapshot) {
            return None;
        }
        let requested = self.requested(handle, &holder, demanded, false, &snapshot);
        let mut ready = Ready::default();
        if resolve_into(&mut ready, &requested, &snapshot.line(now), now).is_some() {
            return None;
        }
        let pick = fastrand::u64(..);
        let plan = decide(&ready, &snapshot, &asked.policy, previous, now, pick);
        let Some(Step::Serve { node }) = plan.steps.first() else { return None };
        if !ready.raise.is_empty() || !ready.losses.is_empty() {
            return None;
        }
        let end = End::serve(*node, Reason::Covered);
        let ended = Ended { end, shadow: None, parked_since: None, cap_full: None };
        let committed = self.sessions.unchanged(&holder, Whom::Read(asked.raise));
        Some(self.answered(handle, &holder, asked, (&ready, &snapshot), ended, committed))
    }
}
