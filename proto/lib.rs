//! The generated types and services of `tidegate.v1`.
//!
//! Only generated code and its descriptors: no conversion to or from the core's types lives here,
//! and no other crate than the border of the service and its clients should depend on it.

/// The messages, servers and clients of package `tidegate.v1`.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes_without_reason,
    clippy::large_enum_variant,
    clippy::too_many_lines,
    clippy::use_self,
    clippy::wildcard_enum_match_arm,
    reason = "generated code; its documentation is that of the .proto files"
)]
pub mod v1 {
    tonic::include_proto!("tidegate.v1");
}

/// The encoded descriptors of every file of `tidegate.v1` and of what they import, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tidegate.v1.bin"));

/// The error frame of `Route`: the same `google.rpc.Status` that a unary error carries.
pub use tonic_types::Status as RpcStatus;

/// The `domain` of every `google.rpc.ErrorInfo` the service builds.
pub const ERROR_DOMAIN: &str = "tidegate.v1";
