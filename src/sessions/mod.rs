//! Who is asking: what a request carries joined with what is kept of its subject; who is raised.
//!
//! - `asked`: what a request carries, and what of it is refused;
//! - `holder`: one caller: its token and record, and what is not known of them;
//! - `instance`: [`Sessions`], which looks up, raises, seals;
//! - `keys`: [`TokenKeys`], which may change while calls use them;
//! - `whom`: which holder takes which part of a change;
//! - `notices`: losses as they are told, and the text of their ids;
//! - `store_view`: [`StoreView`], what operators see of the store;
//! - `ledger`: [`LossLedger`], how many sessions were told of each loss.
//!
//! It judges no mark and knows no node: what a session demands is for the core's `resolve` to say.
//! It logs no token and no subject.

mod asked;
mod holder;
mod instance;
mod keys;
mod ledger;
mod notices;
mod store_view;
mod whom;

pub use crate::ports::{
    StoreCondition, StoreError, StoreHappened, StoreHappening, StoreStatus, Stored, TokenStore,
};
pub use asked::{Asked, SessionError, SessionLimits};
pub use holder::{Holder, Ignorance};
pub use instance::{Committed, ResolvedSession, SessionState, Sessions};
pub use keys::TokenKeys;
pub use ledger::{LossKey, LossLedger, Told};
pub use notices::{losses_to_notices, notice_id_text, parse_notice_id};
pub use store_view::StoreView;
pub use whom::{RaiseWhom, Whom};

#[cfg(test)]
mod tests;
