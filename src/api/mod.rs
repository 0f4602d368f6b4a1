//! The gRPC border: parse once on the way in, build a status once on the way out.
//!
//! - `routing`: `RoutingService`, unary
//! - `route`: its stream, which carries the same calls
//! - `admin`: `AdminService`
//! - `parse`, `build`: messages into the rooms' types and back
//! - `texts`: incarnations and epochs as answers write them
//! - `count`: what is counted of reads and waits
//! - `status`: every error of the API
//!
//! Generated types stop here. Nothing is decided here.

pub mod admin;
pub mod build;
mod count;
pub mod parse;
pub mod route;
pub mod routing;
pub mod status;
mod texts;

pub use admin::{Admin, Reloader};
pub use routing::{ApiLimits, Gatekeeper, Routing};
