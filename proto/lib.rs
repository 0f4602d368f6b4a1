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

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::v1::ErrorReason;

    /// The gRPC codes the service ends calls with.
    const CODES: [&str; 8] = [
        "FAILED_PRECONDITION",
        "INTERNAL",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNAVAILABLE",
    ];

    #[test]
    fn every_error_reason_shows_a_sample_of_itself() {
        let text = include_str!("tidegate/v1/error_reason.proto");
        let mut shown = 0;
        for reason in (1..).map_while(|number| ErrorReason::try_from(number).ok()) {
            let value = reason.as_str_name();
            let name = value.trim_start_matches("ERROR_REASON_");
            assert!(name.len() <= 63, "{name} is too long for an ErrorInfo");
            let at = text.find(&format!("  {value} = ")).expect("the file declares the value");
            let comment = text[..at].rsplit("\n\n").next().expect("a paragraph ends there");
            let sample = format!("\"reason\": \"{name}\", \"domain\": \"{}\"", super::ERROR_DOMAIN);
            assert!(comment.contains(&sample), "{value} has no sample of itself");
            let coded = CODES.iter().any(|code| comment.contains(&format!("`{code}`")));
            assert!(coded, "{value} names no gRPC code");
            shown += 1;
        }
        assert_eq!(shown, 20);
    }

    #[test]
    fn the_descriptors_hold_both_services_and_what_they_import() {
        let files = prost_types::FileDescriptorSet::decode(super::FILE_DESCRIPTOR_SET)
            .expect("the descriptors decode")
            .file;
        let services: Vec<&str> =
            files.iter().flat_map(|file| &file.service).map(|service| service.name()).collect();
        assert_eq!(services, ["AdminService", "RoutingService"]);
        assert!(files.iter().any(|file| file.name() == "google/rpc/status.proto"));
    }
}
