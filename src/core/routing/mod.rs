//! Where one read goes: a policy, a floor and a snapshot in, a plan out.
//!
//! It decides and performs nothing: the shell walks the plan, asks the cap and parks.

mod cap;
mod decide;
mod lease;
mod plan;
mod policy;
mod quota;

pub use cap::{CapFull, FallbackCap};
pub use decide::{Shadow, decide, lineage_reason, met, shadow};
pub use lease::{valid_for, valid_for_leader};
pub use plan::{Guarantee, Plan, Reason, Step};
pub use policy::{AboveCap, Level, Policy};
pub use quota::{
    BookId, CapShare, InstanceLife, Quota, QuotaBook, QuotaEntry, QuotaKind, QuotaRules,
};
