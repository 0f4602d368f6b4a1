//! Compiles `tidegate.v1` with protox: no protoc is needed on any machine.

use std::error::Error;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let out_dir = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    let files = [
        "tidegate/v1/admin_service.proto",
        "tidegate/v1/error_reason.proto",
        "tidegate/v1/outcome.proto",
        "tidegate/v1/policy.proto",
        "tidegate/v1/routing_service.proto",
        "tidegate/v1/session.proto",
    ];
    println!("cargo::rerun-if-changed=tidegate");
    println!("cargo::rerun-if-changed=google");

    let descriptors = protox::compile(files, ["."])?;
    std::fs::write(out_dir.join("tidegate.v1.bin"), descriptors.encode_to_vec())?;

    tonic_prost_build::configure()
        // One `Status` in the whole program, with the detail types that belong to it.
        .extern_path(".google.rpc.Status", "::tonic_types::Status")
        .compile_fds(descriptors)?;
    Ok(())
}
