//! What every call passes before a service sees it, as tower layers.
//!
//! - `deadline`: when the answer must be there;
//! - `shed`: no more calls at once than the service can hold;
//! - `trace`: how long each took and what came of it.
//!
//! They know HTTP and nothing of what a call means. They build no gRPC status: where one is needed
//! the wiring hands it in. Who may call is not checked yet, since listeners are on loopback.

mod deadline;
mod shed;
mod trace;

pub use deadline::{DeadlineLayer, DeadlineService};
pub use shed::{ShedLayer, ShedService};
pub use trace::{TraceLayer, TraceService};
